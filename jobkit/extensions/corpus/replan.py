"""Later plans of a corpus: of all that has no winner, or of new files.

What has no winner gets other shards, another request, the other scheduler, or this machine. Nothing of the
old plan changes. New files are added to ``corpus.json``, then shards to ``plan.jsonl`` and ``points.jsonl``;
all of them hold once the journal has named the shards. A kill before that leaves lines that do not count.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from jobkit.answers.speed import speeds
from jobkit.core import files
from jobkit.core.errors import BusyError, JobkitError
from jobkit.core.files import read_text
from jobkit.core.json_codec import fields_of, to_json
from jobkit.core.layout import FOLLOW_SCRIPT, PLAN_FILE, POINTS_FILE, read_points
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import note, shell_path
from jobkit.core.units import format_count, format_size, format_walltime, pauses
from jobkit.extensions.corpus.plan import Corpus, Piece, read_plan, write_corpus
from jobkit.extensions.corpus.provenance import read_promise
from jobkit.extensions.corpus.setting import AppliedSetting, asked_scheduler, keys_of, refuse_keys, without
from jobkit.extensions.corpus.shards import (
    CorpusPlan,
    CorpusSummary,
    ShardOptions,
    find_heavy,
    plan_lines,
    plan_shards,
    points_of,
    refuse_too_large,
    table_bytes,
)
from jobkit.extensions.corpus.standing import CorpusState, measures
from jobkit.extensions.corpus.winners import withdraw
from jobkit.launch import cancel, resume
from jobkit.launch.resume import refuse_moved_run, refuse_silent, run_lock, spec_of_run
from jobkit.planning.job_script import render_follow
from jobkit.planning.points import Inputs
from jobkit.runs import journal
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.request import merge_overrides
from jobkit.runs.results import each_point
from jobkit.runs.status import LIVE, RunStatus
from jobkit.runs.tries import timed
from jobkit.schedulers.registry import runs_here
from jobkit.spec.site import find_site, portable_name

FIRST_PAUSE_S, SLOWEST_PAUSE_S = 0.5, 10.0
SIZES = {"memory": format_size, "walltime": format_walltime}


def measured(run_dir: Path) -> bool:
    """Return whether the first shard has measured the speed, and the rest is still to be cut by it."""
    return measures(run_dir) is not None and bool(CorpusState(run_dir).settle())


def replan(run_dir: Path, wishes: ShardOptions, overrides: Sequence[str], *, wait: bool) -> int | None:
    """Cancel what is open, cut the rest into new shards, and go on; return as `resume.run_again`."""
    refuse_keys(overrides)
    refuse_moved_run(run_dir)
    given = _placed(tuple(overrides))
    spec_of_run(run_dir, given)  # a bad value is refused before anything is cancelled
    if not (alone := measured(run_dir)):  # no other shard was submitted
        _end_open(run_dir)
    with run_lock(run_dir):
        standing = CorpusState(run_dir)
        # a shard of a large paragraph alone stays as it is
        kept = standing.settle().keys() | read_journal(run_dir).needs.keys()
        rest = [point for point in standing.points if point.index not in kept]
        if alone and not measured(run_dir):
            note("another command has just planned the rest")
        elif rest:
            corpus, setting = standing.corpus, _setting(run_dir, rest[0], given)
            wanted = {point.index for point in rest}
            shards = (shard for shard in read_plan(run_dir) if shard.index in wanted)
            pieces = [piece for shard in shards for piece in shard.pieces]
            pieces.sort(key=lambda piece: (piece.source, piece.start, piece.skip))
            first, tables = _next_index(run_dir), table_bytes(corpus)
            wishes = replace(wishes, limit_s=setting.longest_walltime())
            plan = plan_shards(pieces, setting, wishes, first=first, tables=tables)
            _show(corpus, setting, plan)
            _append(run_dir, corpus, setting, plan, rest, given)
        else:
            note(f"every shard is done: jobkit merge {shell_path(run_dir)} joins the results")
    return resume.run_again(run_dir, (), (), wait=wait)


def _placed(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys with the site of another scheduler, if one is named."""
    name = asked_scheduler(overrides)
    if not name:
        return overrides
    _, path = find_site("auto", name)
    kept = without(overrides, "scheduler", "site")
    return (*kept, f"scheduler={name}", f"site={portable_name(path)}")


def _end_open(run_dir: Path) -> None:
    # How long cancelled jobs may take to end: a job brings its results home first
    patience_s = 600.0
    deadline = time.monotonic() + patience_s
    (run,) = read_status([run_dir])
    if _open(run):
        cancel.cancel(run_dir, (), ())
    announced = False
    for pause_s in pauses(FIRST_PAUSE_S, SLOWEST_PAUSE_S):
        (run,) = read_status([run_dir])
        refuse_silent(run, "what still runs is unknown")
        number = _open(run)
        if not number:
            return
        if time.monotonic() > deadline:
            message = (
                f"{format_count(number, 'shard')} of {run.title} did not end in {patience_s / 60:.0f} min"
            )
            hint = f"jobkit status {shell_path(run_dir)} shows them; nothing was planned again"
            raise BusyError(message, hint=hint)
        if not announced:
            note("waiting until the cancelled jobs have ended")
            announced = True
        time.sleep(pause_s)


def _open(run: RunStatus) -> int:
    return max(sum(point.standing in LIVE for point in run.points), len(run.queued))


def grow(
    run_dir: Path,
    corpus: Corpus,
    pieces: Sequence[Piece],
    measured: AppliedSetting,
    wishes: ShardOptions,
    given: tuple[str, ...],
    *,
    dry: bool,
) -> None:
    """Add the new files of a corpus to its run, and plan them; if ``dry``, print that plan alone.

    ``corpus`` and ``pieces`` are of all files, those of the run first.
    """
    with contextlib.nullcontext() if dry else run_lock(run_dir):
        standing = CorpusState(run_dir)
        before, number = standing.corpus, len(standing.corpus.sources)
        if before.sources != corpus.sources[:number]:
            message = f"{run_dir}: another command has just added files"
            raise JobkitError(message, hint="type the same command again")
        setting = replace(
            _setting(run_dir, standing.points[0], given),
            memory=measured.memory,
            call_characters=measured.call_characters,
            call_load=measured.call_load,
        )
        new = [piece for piece in pieces if piece.source >= number]
        if new:
            heavy = find_heavy(corpus, new, setting)
            refuse_too_large(heavy, setting)
            tables, first = table_bytes(corpus), _next_index(run_dir)
            wishes = replace(wishes, limit_s=setting.longest_walltime())
            plan = plan_shards(new, setting, wishes, first=first, tables=tables, heavy=heavy)
            base = setting.spec.resources  # the earlier shards keep at least what they request
            most = {key: max(getattr(plan.resources, key), getattr(base, key)) for key in SIZES}
            plan = replace(plan, resources=plan.resources.model_copy(update=most))
            known = {*before.skipped}
            skipped = tuple(bad for bad in corpus.skipped if bad not in known)
            part = replace(corpus, sources=corpus.sources[number:], skipped=skipped)
            _show(part, setting, plan)
        if not dry:
            before = replace(before, sources=(), before=None)
            write_corpus(run_dir, replace(corpus, format=before.format, before=before, grown_from=number))
            if new:
                _append(run_dir, corpus, setting, plan)


def _show(corpus: Corpus, setting: AppliedSetting, plan: CorpusPlan) -> None:
    paragraphs, characters = (
        sum(getattr(shard, name) for shard in plan.shards) for name in ("paragraphs", "characters")
    )
    part, now = replace(corpus, paragraphs=paragraphs, characters=characters), datetime.now(UTC)
    for line in plan_lines(CorpusSummary(corpus=part, setting=setting, plan=plan, read_s=None, now=now)):
        note(line)


def _append(
    run_dir: Path,
    corpus: Corpus,
    setting: AppliedSetting,
    plan: CorpusPlan,
    rest: Sequence[Point] = (),
    given: tuple[str, ...] = (),
) -> None:
    """Append shards, and put them into force, in place of others, by one line of the journal."""
    point, number = setting.point, max(point.repeat for point in read_points(run_dir)[0]) + 1
    points = points_of(plan.shards, point, run_dir, point.run_id, corpus, plan_number=number)
    for name, values in ((PLAN_FILE, plan.shards), (POINTS_FILE, points)):  # each at the line of its index
        blank = "\n" * (points[0].index - 1 - _lines(run_dir / name))
        files.append_line(run_dir / name, blank + "\n".join(map(to_json, values)))
    for index, needed in plan.needs.items():
        journal.note(run_dir, "needs", points=[index], given=list(needed))
    spec = setting.spec
    if spec.policy.follow_up and not runs_here(spec.scheduler):
        script = render_follow(spec, setting.site, points[0], run_dir)
        files.write_atomically(run_dir / FOLLOW_SCRIPT, script)
    before, now = spec.resources, plan.resources  # what follows from a measured speed
    words = [
        f"resources.{key}={show(getattr(now, key))}"
        for key, show in SIZES.items()
        if getattr(now, key) != getattr(before, key)
    ]
    journal.note(
        run_dir,
        "superseded",
        points=[point.index for point in rest],
        by=[point.index for point in points],
        given=list(merge_overrides(given, tuple(words))),
        asked=keys_of(given),
    )
    for point in rest:  # so that a job that was believed dead does not work for nothing
        withdraw(run_dir, point)


def _next_index(run_dir: Path) -> int:
    """Return the index behind all lines of both files, also those that never came into force."""
    return max(_lines(run_dir / name) for name in (PLAN_FILE, POINTS_FILE)) + 1


def _lines(path: Path) -> int:
    """Return how many lines a file has, a last one that was cut short included."""
    text = read_text(path)
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def _setting(run_dir: Path, point: Point, given: tuple[str, ...]) -> AppliedSetting:
    """Return the setting of a corpus, with what is known of its speed by now."""
    spec = spec_of_run(run_dir, given)
    site, _ = find_site(spec.site, spec.scheduler)
    promise = read_promise(run_dir)
    done = [result.verdict for result in each_point(run_dir, []) if result.outcome is Outcome.OK]
    found = speeds([record for tried in done if (record := timed(tried))])
    measured = fields_of(promise)
    # number of done shards that show the speed of the rest better than a run; one has no interval
    if found and (found[0].repeats >= 2 or not promise.speed):
        measured["speed"] = found[0]
    measured["given"] = (*promise.given, *read_journal(run_dir).asked, *keys_of(given))
    return AppliedSetting(
        spec=spec,
        site=site,
        why="as requested" if given else "as before",
        inputs=Inputs(run_id=point.run_id, text=point.text, model=point.model, device=point.device),
        point=point,
        **measured,
    )
