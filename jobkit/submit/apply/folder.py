"""The run folder of a corpus: written whole or not at all, and compared with what is asked for again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobkit.core import files
from jobkit.core.errors import JobkitError, file_error
from jobkit.core.files import folder_lock
from jobkit.core.knobs import OFFERED
from jobkit.core.layout import (
    ACCOUNTING_FILE,
    JOURNAL_FILE,
    LOGS_FOLDER,
    POINTS_FILE,
    WINNERS_FOLDER,
    is_corpus_folder,
    is_unplanned,
    read_points,
)
from jobkit.core.records import Point
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_setting
from jobkit.corpus.plan import Corpus, Shard, Source, read_corpus, write_plan
from jobkit.outcome import journal
from jobkit.planning.prepare import Prepared
from jobkit.report.provenance import Promise, write_promise
from jobkit.status.reader import read_standings
from jobkit.submit import sweep

MOST_NAMED = 5


def write_folder(prepared: Prepared, corpus: Corpus, shards: Sequence[Shard], promise: Promise) -> None:
    """Write the run folder under another name, and rename it once it is whole.

    A folder that is there and not planned yet gets what it lacks, the points last.

    Raises
    ------
    JobkitError
        If it cannot be written, or is there already.
    """
    run_dir = prepared.run_dir
    part = run_dir.with_name(f".{run_dir.name}.part")
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(run_dir.parent):
            refuse_other_folder(run_dir)
            filled = is_unplanned(run_dir)
            if is_corpus_folder(run_dir) and not filled:
                raise JobkitError(
                    f"{run_dir}: another command has just made it", hint="type the same command again"
                )
            shutil.rmtree(part, ignore_errors=True)  # of a command that was killed
            sweep.write_files(prepared, part)
            (part / WINNERS_FOLDER).mkdir()
            write_promise(part, promise)
            write_plan(part, corpus, shards)
            if filled:
                _move_into(part, run_dir)
            for index, words in prepared.needs.items():
                journal.note(run_dir if filled else part, "needs", points=[index], given=list(words))
            (part / POINTS_FILE).replace(run_dir / POINTS_FILE) if filled else part.replace(run_dir)
            files.sync_folder(run_dir if filled else run_dir.parent)
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise file_error(error, run_dir, hint="choose another place with --out") from error


def _move_into(part: Path, run_dir: Path) -> None:
    """Move what a folder lacks that is not planned yet, all but the points, with which the plan holds."""
    for entry in part.iterdir():
        target = run_dir / entry.name
        if entry.name == POINTS_FILE or entry.name in {JOURNAL_FILE, ACCOUNTING_FILE, LOGS_FOLDER}:
            continue
        if target.is_dir():  # of a command that was killed here
            shutil.rmtree(target)
        entry.replace(target)


def refuse_planning_job(run_dir: Path) -> None:
    """Refuse to plan a corpus here that a job plans.

    Raises
    ------
    JobkitError
        If such a job waits or runs.
    """
    (run,) = read_standings([run_dir])
    if run.planner:
        typed = shell_path(run_dir)
        raise JobkitError(
            f"{run_dir}: job {run.planner.submission.job} reads and plans this corpus",
            hint=f"jobkit status {typed} shows it; to plan the corpus here: jobkit cancel {typed} first",
        )


def refuse_other_folder(run_dir: Path) -> None:
    """Refuse a place that holds something else than the folder of a corpus.

    Raises
    ------
    JobkitError
        If it does.
    """
    if is_corpus_folder(run_dir):
        return
    try:
        empty = not run_dir.exists() or not any(run_dir.iterdir())
    except OSError:
        empty = False
    if not empty:
        what = "a folder that jobkit apply did not make" if run_dir.is_dir() else "a file"
        raise JobkitError(
            f"--out {run_dir}: is there already, {what}", hint="name a folder that does not exist"
        )


def refuse_differences(run_dir: Path, corpus: Corpus, point: Point) -> None:
    """Refuse to go on with a folder if another corpus or another setting is asked for.

    Parameters
    ----------
    corpus
        As it is now.
    point
        A shard with the setting that is asked for.

    Raises
    ------
    JobkitError
        With all that differs.
    """
    points, _ = read_points(run_dir)
    found = [*corpus_differences(read_corpus(run_dir), corpus), *_setting_differences(points[0], point)]
    if found:
        more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
        lines = "".join(f"\n  {line}" for line in [*found[:MOST_NAMED], *more])
        raise JobkitError(
            f"{run_dir}: is of another corpus or setting:{lines}",
            hint=f"name another folder with --out; or go on with what was planned: jobkit resume "
            f"{shell_path(run_dir)}",
        )


def corpus_differences(before: Corpus, now: Corpus) -> Iterator[str]:
    """Yield how a corpus differs from what was planned."""
    for what in ("text_field", "id_field"):
        if getattr(before, what) != getattr(now, what):
            yield f"{what}: {getattr(before, what)} there, {getattr(now, what)} now"
    names = [[source.name for source in corpus.sources] for corpus in (before, now)]
    for name in (name for name in names[0] if name not in set(names[1])):
        yield f"{name}: there, and not in the corpus now"
    known = {source.name: source for source in before.sources}
    for source in now.sources:
        if source.name not in known:
            yield f"{source.name}: new"
        else:
            yield from _source_differences(known[source.name], source)
    if sorted(names[0]) == sorted(names[1]) and names[0] != names[1]:
        yield "the files are in another order"
    if not set(before.skipped) >= set(now.skipped):
        yield "other places cannot be read"


def _source_differences(before: Source, now: Source) -> Iterator[str]:
    if before.path != now.path:
        yield f"{now.name}: was {before.path}, is {now.path}"
    elif before.size_bytes != now.size_bytes:
        yield f"{now.name}: has changed: {before.size_bytes:,} bytes there, {now.size_bytes:,} now"
    elif before.sha256 != now.sha256:
        yield f"{now.name}: has changed: its content has another SHA-256"


def _setting_differences(before: Point, now: Point) -> Iterator[str]:
    """Yield how a setting differs, the identity of a shard aside."""
    if before.params != now.params:
        yield f"setting: {format_setting(before.params)} there, {format_setting(now.params)} now"
    fingerprints = [point.model.fingerprint if point.model else "none" for point in (before, now)]
    if fingerprints[0] != fingerprints[1]:
        yield f"model: {fingerprints[0][:12]} there, {fingerprints[1][:12]} now"
    digests = [{file.name: file.sha256 for file in point.files} for point in (before, now)]
    for name in sorted(digests[0].keys() & digests[1].keys()):
        if digests[0][name] != digests[1][name]:
            yield f"{name}: SHA-256 {digests[0][name][:12]} there, {digests[1][name][:12]} now"
    names = ("workload", "device", "order", "sort_window", "work_unit", "threads", "workers", "gpus", "mps")
    for name in (*names, *OFFERED, "allocator", "workload_folder"):
        was, is_ = getattr(before, name), getattr(now, name)
        if was != is_ and name not in before.params:
            yield f"{name}: {was} there, {is_} now"
