"""Which shards are done: a try with whole rows, claimed; never rows that do not match."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.core.files import append_line
from jobkit.core.job_files import Exit
from jobkit.core.layout import BAD_ROWS, point_folder, read_points
from jobkit.core.records import Outcome, Point
from jobkit.corpus.plan import ROWS_FILE, Winner
from jobkit.corpus.winners import claim, claim_all
from jobkit.outcome import shards
from jobkit.outcome.results import read_run
from jobkit.outcome.shards import live_points, settle, void_shards
from tests.support.applied import measured_record, measured_run, request, write_corpus, write_planned
from tests.support.builders import write_event, write_exit, write_record
from tests.support.corpora import work
from tests.support.meanwhile import meanwhile


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "letters.txt")
    write_planned(request(measured_run(tmp_path / "run"), ["letters.txt"], tmp_path / "tagged", shards=3))
    return tmp_path / "tagged"


def outcomes(run: Path) -> list[Outcome | None]:
    return [result.outcome for result in read_run(run).points]


def end_well(run: Path, index: int, *, rows: bool = True) -> Path:
    point = read_points(run)[0][index - 1]
    write_record(run, measured_record(point, 1.0))
    write_exit(run, point, Exit(status=0, stage="done", host="node1"))
    if rows:
        work(run, index)
    return Path(point_folder(run, point.point_id), "try-1")


def test_a_try_whose_script_did_not_live_to_claim_wins_when_someone_looks(run: Path) -> None:
    end_well(run, 1)
    assert outcomes(run)[0] is Outcome.OK
    assert [winner.index for winner in settle(run).values()] == [1]
    assert (run / "winners" / "shard-00001.json").is_file()


def test_a_record_without_its_rows_is_no_success(run: Path) -> None:
    end_well(run, 1, rows=False)
    assert outcomes(run)[0] not in {Outcome.OK, None}
    assert settle(run) == {}


def test_a_winner_is_done_also_without_its_record(run: Path) -> None:
    folder = end_well(run, 1)
    settle(run)
    (folder / "record.json").unlink()
    assert outcomes(run)[0] is Outcome.OK


def test_rows_that_do_not_match_run_again(run: Path) -> None:
    folder = end_well(run, 1)
    text = (folder / ROWS_FILE).read_text()
    (folder / ROWS_FILE).write_text(text.replace("word", "wort"))
    assert settle(run) == {}
    assert (folder / BAD_ROWS).is_file()
    assert outcomes(run)[0] is not Outcome.OK


@pytest.mark.parametrize("claimed", [False, True])
def test_rows_that_come_home_while_winners_are_claimed_are_not_bad(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    claimed: bool,  # noqa: FBT001 - pytest passes by name
) -> None:
    def claim_late(run_dir: Path, points: list[Point]) -> dict[int, Winner]:
        winners = claim_all(run_dir, points)
        end_well(run_dir, 1)
        if claimed:  # by its own script
            assert claim(run_dir, points[0], 1)
        return winners

    monkeypatch.setattr(shards, "claim_all", claim_late)
    assert list(settle(run)) == [1]
    assert not list(run.rglob(BAD_ROWS))


def plan_again(run: Path) -> None:
    """Let shard 4 do the work of shard 1, as `jobkit resume --replan`: the points, and then the journal."""
    first, *_ = (run / "points.jsonl").read_text().splitlines()
    later = json.loads(first) | {"index": 4, "point_id": "shard-00004", "repeat": 2}
    append_line(run / "points.jsonl", json.dumps(later))
    write_event(run, "superseded", points=[1], by=[4], given=[])


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("read", [live_points, lambda run: [one.point for one in read_run(run).points]])
def test_a_reader_sees_the_plan_before_or_the_plan_after(
    run: Path, monkeypatch: pytest.MonkeyPatch, before: int, read: Callable[[Path], list[Point]]
) -> None:
    meanwhile(monkeypatch, before, lambda: plan_again(run))
    assert [point.index for point in read(run)] in ([1, 2, 3], [2, 3, 4])


def test_a_shard_of_a_plan_that_never_came_into_force_counts_for_nothing(run: Path) -> None:
    first, *_ = (run / "points.jsonl").read_text().splitlines()
    later = json.loads(first) | {"index": 4, "point_id": "shard-00004", "repeat": 2}
    with (run / "points.jsonl").open("a") as stream:
        stream.write(json.dumps(later) + "\n")
    assert [point.index for point in live_points(run)] == [1, 2, 3]
    write_event(run, "superseded", points=[1], by=[4], given=[])
    assert [point.index for point in live_points(run)] == [2, 3, 4]
    assert void_shards(run) == {1}
