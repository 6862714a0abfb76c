"""The shards of a corpus: which of them are done, and the rows that no job script lived to claim for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from jobkit.core.layout import BAD_ROWS, EXIT_FILE, point_folder, read_points, try_folder, try_numbers
from jobkit.core.records import Point
from jobkit.corpus.plan import Winner, read_plan
from jobkit.corpus.winners import claim, claim_all
from jobkit.outcome.journal import read_journal
from jobkit.outcome.tries import has_rows


def live_points(run_dir: Path) -> list[Point]:
    """Return the shards that count: none of which others do the work."""
    journal = read_journal(run_dir)  # first, for a new plan is written before the journal names it
    points, _ = read_points(run_dir)
    return [point for point in points if not journal.is_void(point)]


def void_shards(run_dir: Path) -> frozenset[int]:
    """Return the shards of the plan of which others do the work, or that never came into force."""
    live = {point.index for point in live_points(run_dir)}
    return frozenset(shard.index for shard in read_plan(run_dir) if shard.index not in live)


def settle(run_dir: Path) -> dict[int, Winner]:
    """Make a complete try the winner of each shard that has none; return all winners, by index.

    Rows that do not match their manifest, though their try has ended, are marked: the shard runs again.

    Raises
    ------
    JobkitError
        If a winner or the plan cannot be read.
    OSError
        If a winner cannot be written.
    """
    points = live_points(run_dir)
    winners = claim_all(run_dir, points)
    for point in points:
        if point.index not in winners and (winner := _claim_ended(run_dir, point)):
            winners[point.index] = winner
    indices = {point.index for point in points}
    return {index: winner for index, winner in winners.items() if index in indices}


def _claim_ended(run_dir: Path, point: Point) -> Winner | None:
    """Claim once more for tries that have ended, maybe only now: whole rows that do not match are marked."""
    home = point_folder(run_dir, point.point_id)
    for number in reversed(try_numbers(home)):
        folder = Path(try_folder(run_dir, point.point_id, number))
        if (folder / EXIT_FILE).is_file() and has_rows(home, str(folder)):
            if winner := claim(run_dir, point, number):
                return winner
            with suppress(OSError):  # of another user: then it stays as it is
                (folder / BAD_ROWS).touch()
    return None
