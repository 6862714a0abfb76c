"""Where a corpus stands: which shards are done, which try of each counts, and what commands say of it."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from jobkit.core.errors import JobkitError, lost_file
from jobkit.core.files import read_json, read_lines
from jobkit.core.frozen import keyed
from jobkit.core.layout import (
    BAD_ROWS,
    EXIT_FILE,
    GONE_ROWS,
    JOURNAL_FILE,
    ORDER_FILE,
    PLAN_FILE,
    PROMISE_FILE,
    WINNERS_FOLDER,
    point_folder,
    read_points,
    try_folder,
    try_numbers,
)
from jobkit.core.records import Outcome, Point
from jobkit.core.student import deviation, half_width
from jobkit.core.terminal import shell_path
from jobkit.core.units import MOST_NAMED, format_compared, format_count, format_list
from jobkit.extensions.corpus.plan import (
    Corpus,
    Shard,
    Winner,
    is_planned,
    promised,
    read_corpus,
    read_plan,
)
from jobkit.extensions.corpus.readers import place_of, read_pieces
from jobkit.extensions.corpus.winners import (
    claim,
    claim_all,
    has_rows,
    lacks_rows,
    read_claim,
    read_winners,
    winner_path,
)
from jobkit.runs.journal import Role, read_journal
from jobkit.runs.status import (
    ENDINGS,
    Foreseen,
    NextStep,
    Order,
    PointStanding,
    PointStatus,
    RunKind,
    RunStatus,
)
from jobkit.runs.tries import Try


class CorpusState:
    """What each shard in force is to do, and which try of it counts; each part is read when it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus whose shards are in force: new files count once the journal names their shards."""
        corpus = read_corpus(self.folder)
        if not corpus.before or corpus.paragraphs == sum(one.paragraphs for one in self.shards.values()):
            return corpus
        return replace(corpus.before, sources=corpus.sources[: corpus.grown_from])

    @cached_property
    def points(self) -> list[Point]:
        """The points of the shards in force: others do the work of the rest, or their plan was cut short."""
        journal = read_journal(self.folder)  # first, for a new plan is written before the journal names it
        points = read_points(self.folder)[0]
        if any(point.repeat > 1 for point in points) and not (path := self.folder / JOURNAL_FILE).exists():
            raise lost_file(path, "without it it is not known which shards count")
        return [point for point in points if not journal.is_void(point)]

    @cached_property
    def indices(self) -> frozenset[int]:
        return frozenset(point.index for point in self.points)

    @cached_property
    def shards(self) -> Mapping[int, Shard]:
        """The shards in force whose line of the plan can be read, by index."""
        return {shard.index: shard for shard in read_plan(self.folder) if shard.index in self.indices}

    @cached_property
    def winners(self) -> Mapping[int, Winner]:
        found = read_winners(self.folder)
        return {index: winner for index, winner in found.items() if index in self.indices}

    def gone(self, most: int = 0, *, read: bool = False) -> list[Winner]:
        """Return the winners whose rows are gone or have another size.

        ``most`` limits how many shards are looked at, from the whole corpus. ``read`` compares all bytes, and
        the numbers with the plan.
        """
        every = [*self.winners.values()]
        some = every[:: max(1, math.ceil(len(every) / most))] if most else every

        def is_gone(winner: Winner) -> bool:
            shard = self.shards.get(winner.index) if read else None
            return bool(shard and winner.fault(shard.paragraphs)) or lacks_rows(
                self.folder, winner, read=read
            )

        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            return [one for one, gone in zip(some, threads.map(is_gone, some), strict=True) if gone]

    def settle(self) -> Mapping[int, Winner]:
        """Make a complete try the winner of each shard that has none, and return all winners.

        Rows that do not match their manifest, though their try has ended, are marked: the shard runs again.
        """
        winners = claim_all(self.folder, self.points)
        for point in self.points:
            home = point_folder(self.folder, point.point_id)
            for number in () if point.index in winners else reversed(try_numbers(home)):
                folder = Path(try_folder(self.folder, point.point_id, number))
                if (folder / EXIT_FILE).is_file() and has_rows(home, str(folder)):
                    if winner := claim(self.folder, point, number):  # once more, for it may have just ended
                        winners[point.index] = winner
                        break
                    with suppress(OSError):  # of another user: then it stays as it is
                        (folder / BAD_ROWS).touch()
        self.winners = {index: winner for index, winner in winners.items() if index in self.indices}
        return self.winners


def gone_words(names: Sequence[str]) -> str:
    number = format_count(len(names), "shard")
    return f"rows of {number} are gone or damaged: {format_list(names)}"


def finish(run_dir: Path) -> Mapping[str, Any]:
    """Write ``provenance.json`` if every shard has a winner; return what it has, nothing until then."""
    if not is_planned(run_dir):
        return {}
    standing = CorpusState(run_dir)
    if not standing.settle() or standing.indices - standing.winners.keys() or standing.gone(MOST_LOOKED):
        return {}
    from jobkit.extensions.corpus.provenance import write_provenance  # most looks come before the end

    return write_provenance(run_dir, standing.corpus, standing.shards, standing.winners)


def measures(run_dir: Path) -> float | None:
    """Return the minutes of each later shard if the first measures the speed and none has been cut by it."""
    from jobkit.extensions.corpus.provenance import read_promise  # most looks come after the first shard

    return None if read_journal(run_dir).replaced else read_promise(run_dir).minutes


MOST_LOOKED = 200  # shards whose rows a status looks at


@keyed
class Progress:
    """How far the shards are, and how long they take, as ``jobkit status --json`` has it."""

    shards: int  # number of all shards
    done: int  # number of those that have ended well
    paragraphs: int  # of the corpus
    paragraphs_done: int  # with the home batches of running shards
    characters: int
    characters_done: int  # likewise
    timed: int  # number of those of the done that had a promise, and ran in one try
    took_s: float | None  # their time
    promised_s: float | None  # time that was promised for them
    low_s: float | None  # 95 % interval of ``promised_s``
    high_s: float | None
    slow: tuple[str, ...]  # the names of shards that take longer than 99 in 100 were to take
    left_s: float | None = None  # until the end, if the number of running shards stays
    left_low_s: float | None = None  # interval of ``left_s``
    left_high_s: float | None = None
    share: float  # of the characters, what is done
    speed: float | None  # how many times as fast as promised the done shards were
    broken: bool  # whether the time is outside of the interval that was promised


def progress(run: RunStatus) -> Progress | None:
    """Return how far the corpus of a run is; ``None`` if the plan cannot be read."""
    parts = read_parts(run.folder)
    pairs = [(one, parts[one.point.index]) for one in run.points if one.point.index in parts]
    if not parts:
        return None
    gone = set(run.gone)
    done = [
        (one, part)
        for one, part in pairs
        if one.standing is PointStanding.DONE and one.point.point_id not in gone
    ]
    timed = [(part, _took_s(one, part)) for one, part in done if part.expected_s]
    took = [(part, seconds) for part, seconds in timed if seconds is not None]
    took_s = math.fsum(seconds for _, seconds in took) if took else None
    promised_s, low_s, high_s = promised([part for part, _ in took]) if took else (None, None, None)
    far = [(0, 0) if one.point.point_id in gone else _far(one, part) for one, part in pairs]
    planned = [part for _, part in pairs]
    characters, reached = sum(part.characters for part in planned), sum(number for _, number in far)
    within = took_s is None or low_s is None or high_s is None or low_s <= took_s <= high_s
    return Progress(
        shards=len(pairs),
        done=len(done),
        paragraphs=sum(part.paragraphs for part in planned),
        paragraphs_done=sum(number for number, _ in far),
        characters=characters,
        characters_done=reached,
        timed=len(took),
        took_s=took_s,
        promised_s=promised_s,
        low_s=low_s,
        high_s=high_s,
        slow=tuple(one.point.point_id for one, part in pairs if _is_slow(one, part)),
        share=reached / characters if characters else 1.0,
        speed=promised_s / took_s if took_s and promised_s else None,
        broken=not within,
        **_left(run, [seconds for _, seconds in took], planned if within else ()),
    )


def read_parts(folder: Path) -> Mapping[int, Shard]:
    """Return what was planned of each shard, by index; nothing if the plan cannot be read.

    Of its pieces there is the one with the longest paragraph, and a second that stands for all others.
    """
    try:
        status = (folder / PLAN_FILE).stat()
        return _read_parts(folder, status.st_mtime_ns, status.st_size)
    except (OSError, JobkitError):
        return {}


@lru_cache(maxsize=4)
def _read_parts(folder: Path, _changed_ns: int, _size: int) -> Mapping[int, Shard]:
    """Read the plan again only if the file has changed."""
    parts: dict[int, Shard] = {}
    for shard in read_plan(folder):
        first = shard.longest
        numbers = shard.paragraphs - first.paragraphs, shard.characters - first.characters
        others = replace(first, paragraphs=numbers[0], characters=numbers[1], longest=0)
        parts[shard.index] = replace(shard, pieces=(first, others))
    return parts


def quarantined(folder: Path) -> int:
    """Return how many paragraphs of the shards that are done are in quarantine."""
    with suppress(JobkitError, OSError):  # what cannot be read counts for nothing
        return _quarantined(folder, (folder / WINNERS_FOLDER).stat().st_mtime_ns)
    return 0


@lru_cache(maxsize=4)
def _quarantined(folder: Path, _changed_ns: int) -> int:
    return sum(winner.quarantined for winner in CorpusState(folder).winners.values())


def _took_s(point: PointStatus, part: Shard) -> float | None:
    """Return how long the job of a shard took, as it was promised; ``None`` if it went on after another."""
    summary = point.record.summary if point.record else None
    return point.pace.elapsed_s if summary and summary.items_total >= part.paragraphs else None


def _far(point: PointStatus, part: Shard) -> tuple[int, int]:
    if point.standing is PointStanding.DONE:
        return part.paragraphs, part.characters
    if point.progress is None:
        return 0, 0
    items, planned = sum(batch.items for batch in point.batches), point.progress.characters_total
    adopted = part.characters - min(planned or part.characters, part.characters)  # of earlier tries
    items += round(part.paragraphs * adopted / max(1, part.characters))
    return min(items, part.paragraphs), min(adopted + point.progress.characters, part.characters)


def _is_slow(point: PointStatus, part: Shard) -> bool:
    if part.slow_s is None or point.standing not in {PointStanding.DONE, PointStanding.RUNNING}:
        return False
    took = _took_s(point, part) if point.standing is PointStanding.DONE else point.elapsed_s
    return took is not None and took > part.slow_s


def _left(run: RunStatus, took: Sequence[float], planned: Sequence[Shard]) -> dict[str, float]:
    """Return how long the rest takes, with an interval: by what is done, else by a promise that is kept."""
    if run.to_go_s is None:
        return {}
    known = [part for part in planned if part.expected_s and part.low_s is not None and part.high_s]
    low = high = None
    # done shards: with this many, their own times say when the rest ends
    if len(took) >= 3 and (half := half_width(deviation(took), len(took))) is not None:
        share = half * math.sqrt(len(took) + 1) / fmean(took)
        low, high = max(0.0, 1 - share), 1 + share
    elif known:
        low, high = (
            fmean((getattr(part, name) or 0.0) / (part.expected_s or 1.0) for part in known)
            for name in ("low_s", "high_s")
        )
    if low is None or high is None:
        return {"left_s": run.to_go_s}
    return {"left_s": run.to_go_s, "left_low_s": low * run.to_go_s, "left_high_s": high * run.to_go_s}


def _failed_lines(run: RunStatus, parts: Mapping[int, Shard]) -> Iterator[str]:
    """Yield the longest paragraph of shards that failed, which mostly holds a corpus back."""
    ended = [point for point in run.points if point.standing is PointStanding.FAILED]
    own = [point for point in ended if not (point.tries and Path(point.tries[0].folder, GONE_ROWS).exists())]
    failed = [point.point for point in own if not point.cancelled and point.point.index in parts]
    for point in failed[:MOST_NAMED]:
        piece, place = parts[point.index].longest, "its file is not known"
        with suppress(JobkitError):  # the corpus may be gone; an archive would be read from its beginning
            corpus = read_corpus(run.folder)
            place = corpus.sources[piece.source].name
            if not corpus.sources[piece.source].compression:
                longest = max(read_pieces(corpus, (piece,)), key=lambda one: len(one.text))
                place = place_of(corpus, piece, longest)
        yield f"{point.point_id} failed; its longest paragraph, {piece.longest:,} characters: {place}"
    if ended and any(point.standing is PointStanding.DONE for point in run.points):
        yield f"the results of the other shards: jobkit merge {shell_path(run.folder)} --allow-missing"


def _gone_lines(run: RunStatus) -> Iterator[str]:
    """Yield which rows are gone, and which are back though they count no more."""
    if run.gone:
        only = f" (of {MOST_LOOKED} that were looked at)" if len(run.points) > MOST_LOOKED else ""
        yield f"{gone_words(run.gone)}{only}"
    for point in run.points:
        for tried in point.tries if len(point.tries) > 1 else ():
            old = read_claim(Path(tried.folder, GONE_ROWS))
            if old and not old.quarantine and not lacks_rows(run.folder, old):
                yield f"rows of try {tried.number} of {point.point.point_id} are back, and count for nothing"


def _end_line(run: RunStatus, found: Progress) -> str:
    now = run.now.astimezone()

    def at(seconds: float | None) -> str:
        end = now + timedelta(seconds=seconds or 0.0)
        return f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"

    between = ""
    if found.left_low_s is not None and at(found.left_low_s) != at(found.left_high_s):
        between = f" (95 %: {at(found.left_low_s)} to {at(found.left_high_s)})"
    return f"ends about {at(found.left_s)}{between}, if as many shards run at a time as now"


# -- the hooks


class CorpusRun(RunKind):
    command = "apply"
    look = "status"
    noun = "shard"
    subject = "the corpus"
    untabled = "the shards of a corpus, which measure no setting"
    again = "jobkit apply with another --out"
    new_run = "jobkit apply SPEC --corpus FILES --out ANOTHER"
    fewer_points = "jobkit apply RUN --corpus PATH --out FOLDER --shard-minutes 30"

    def order(self, folder: Path) -> Order | None:
        try:
            return read_json(Order, folder / ORDER_FILE)
        except FileNotFoundError:
            return None
        except (OSError, JobkitError):
            return Order()

    def settle(self, folder: Path) -> str:
        if not (data := finish(folder)):
            return ""
        from jobkit.extensions.corpus.provenance import closing_line

        return closing_line(data)

    def title(self, run: RunStatus) -> str:
        """Return the name of the folder, which a person has chosen."""
        return run.folder.name if run.points else run.name

    def status_lines(self, run: RunStatus) -> Iterator[str]:
        found = progress(run)
        if found is None:
            return
        characters = f"{100 * found.share:.1f} % of the characters"
        paragraphs = f"{found.paragraphs_done:,} of {format_count(found.paragraphs, 'paragraph')}"
        yield f"done: {characters}, {paragraphs}, {found.done:,} of {format_count(found.shards, 'shard')}"
        if len(run.points) > 1 and measures(run.folder):
            yield f"{run.points[0].point.point_id} measures the speed; then the rest is cut by it"
        seconds = found.took_s, found.promised_s, found.low_s, found.high_s
        took, promised, low, high = (format_compared(value or 0.0) for value in seconds)
        some = f"{found.timed:,} of {format_count(found.done, 'shard')}"
        which = "the shards" if found.timed == found.done else some
        if found.speed is not None:
            both = f"{which} took {took}, starts included; the promise was {promised}"
            yield f"speed: {found.speed:.2f} times the promise ({both})"
        if found.broken:
            between = f"{low} to {high}; {which} took {took}"
            yield f"the time is outside of the interval of the promise: {between}"
        if found.left_s is not None and found.done < found.shards:
            yield _end_line(run, found)
        if found.slow:
            names = format_list(list(found.slow))
            yield f"slower than the promise for 99 in 100 shards: {names}"
        if number := quarantined(run.folder):
            again = f"to try them again: jobkit resume {shell_path(run.folder)} --quarantine"
            yield f"in quarantine: {format_count(number, 'paragraph')} that the workload cannot take; {again}"
        yield from _failed_lines(run, read_parts(run.folder))
        yield from _gone_lines(run)

    def status_data(self, run: RunStatus) -> Mapping[str, object]:
        found = progress(run)
        return {"corpus": found and {**asdict(found), "quarantined": quarantined(run.folder)}}

    def looks(self, run: RunStatus, typed: str) -> Iterator[NextStep]:
        """Yield what joins the results, once all are there."""
        if run.gone:
            yield f"jobkit resume {typed} --rows-gone", "runs again the shards whose rows are gone"
        elif {point.standing for point in run.points} == {PointStanding.DONE}:
            option = " --allow-quarantine" if quarantined(run.folder) else ""
            yield f"jobkit merge {typed}{option}", "joins the results of all shards"

    def steps_after(self, folder: Path, outcomes: Collection[Outcome | None]) -> Iterator[NextStep]:
        """Yield what joins the results, unless they are joined; while a shard is missing, its status."""
        from jobkit.extensions.corpus.formats import counts_path

        merged = 0  # documents
        with suppress(OSError):
            merged = sum(1 for _ in read_lines(counts_path(folder / "merged.jsonl")))
        if set(outcomes) != {Outcome.OK}:
            yield f"jobkit status {shell_path(folder)}", "how much of the corpus is done"
        elif merged != CorpusState(folder).corpus.documents:  # it has grown since
            yield f"jobkit merge {shell_path(folder)}", "joins the results of all shards"

    def refusal(self, folder: Path, command: str) -> JobkitError | None:
        typed = shell_path(folder)
        return JobkitError(
            f"{folder}: the shards of a corpus, and {command} has nothing to show: shards measure no setting",
            hint=f"jobkit merge {typed} joins the results, jobkit status {typed} shows how far they are",
        )

    def foreseen(self, folder: Path, point: Point) -> Foreseen:
        """Return the time by the plan, and the memory of the run that measured the setting."""
        part, promised = read_parts(folder).get(point.index), Foreseen()
        with suppress(OSError, JobkitError):
            promised = read_json(Foreseen, folder / PROMISE_FILE)
        return replace(promised, seconds=part.expected_s if part else None)

    def awaited(self, folder: Path) -> Role | None:
        """Return the job that plans; once it is planned, the one that cuts the rest by the first shard."""
        if self.unplanned(folder):
            return Role.PLAN
        journal = read_journal(folder)
        sent = {index for job in journal.submissions for _, indices in job.tasks() for index in indices}
        unsent = journal.replacing - journal.replaced - sent
        return Role.FOLLOW if unsent or measures(folder) is not None else None

    def places(self, folder: Path) -> tuple[str, ...]:
        return tuple(read_corpus(folder).folders())

    def gone(self, run: RunStatus) -> Sequence[str]:
        """Return the shards whose rows are gone, once the run has ended, of some that are looked at."""
        if any(point.standing not in ENDINGS for point in run.points):
            return ()
        with suppress(JobkitError):  # what cannot be read may be there
            return [winner.point_id for winner in CorpusState(run.folder).gone(MOST_LOOKED)]
        return ()

    def is_home(self, home: str, folder: str) -> bool:
        """Return whether the rows of a try are home, or those of another try have won."""
        return has_rows(home, folder)

    def judged(self, home: str, tries: Iterable[Try]) -> Iterable[Try]:
        """Yield the tries; the one whose rows won has succeeded, also if its record is lost."""
        tries = tuple(tries)
        won, run_dir, name = None, Path(home).parents[1], Path(home).name
        with suppress(JobkitError):  # then it is as if none had won
            if all(tried.outcome is not Outcome.OK for tried in tries):
                won = read_claim(winner_path(run_dir, name))
        number = won.try_number if won else 0
        if number and all(tried.number != number for tried in tries):  # with its folder gone
            tries += (Try(number=number, folder=try_folder(run_dir, name, number)),)
        for tried in tries:
            if tried.outcome is Outcome.LOST and won is None and Path(tried.folder, GONE_ROWS).is_file():
                yield tried.ended(Outcome.LOST, "its rows were gone")
            elif number and tried.number == number:
                yield replace(tried.ended(Outcome.OK, "its rows are those that count"), hung=False)
            else:
                yield tried


CORPUS = CorpusRun()
