"""How `jobkit resume` goes on with a corpus: a job plans it, its shards run again, or are planned again.

A new plan is of all that has no winner: other shards, another request, the other scheduler, or this machine.
Nothing of the old plan changes. The new shards are appended to ``plan.jsonl``, then to ``points.jsonl``; they
hold once the journal has named them. A kill before that leaves lines that do not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from jobkit.answers.speed import speeds
from jobkit.core import files
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import read_text
from jobkit.core.json_codec import to_json
from jobkit.core.layout import FOLLOW_SCRIPT, PLAN_FILE, POINTS_FILE
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import note, shell_path
from jobkit.core.units import format_count, format_size, format_walltime, pauses
from jobkit.extensions.corpus import apply
from jobkit.extensions.corpus.plan import Piece, read_corpus, read_plan
from jobkit.extensions.corpus.provenance import read_promise
from jobkit.extensions.corpus.setting import AppliedSetting, asked_scheduler, keys_of, refuse_keys
from jobkit.extensions.corpus.shards import (
    MINUTES,
    CorpusSummary,
    ShardOptions,
    plan_lines,
    plan_shards,
    points_of,
    table_bytes,
)
from jobkit.extensions.corpus.standing import CORPUS as KIND
from jobkit.extensions.corpus.standing import Standing
from jobkit.extensions.corpus.winners import withdraw
from jobkit.launch import cancel, resume
from jobkit.launch.resume import Asked, Resumption, refuse_moved_run, refuse_silent, run_lock, spec_of_run
from jobkit.launch.submission import wait_for_points
from jobkit.planning.job_script import render_follow
from jobkit.planning.points import Inputs
from jobkit.planning.prepare import Options
from jobkit.runs import journal
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.request import merge_overrides
from jobkit.runs.results import each_point
from jobkit.runs.status import ENDINGS, LIVE, RunStatus
from jobkit.runs.tries import timed
from jobkit.schedulers.registry import runs_here
from jobkit.spec.site import find_site, portable_name
from jobkit.spec.sweep_spec import SweepSpec

PATIENCE_S = 600.0
"""How long cancelled jobs may take to end: a job brings its results home first."""
FIRST_PAUSE_S, SLOWEST_PAUSE_S = 0.5, 10.0
ENOUGH = 2  # number of done shards that show the speed of the rest; fewer have no interval


def replan(run_dir: Path, wishes: ShardOptions, overrides: Sequence[str], *, wait: bool) -> int | None:
    """Cancel what is open, cut the rest into new shards, and go on; return as `resume.run_again`."""
    refuse_keys(overrides)
    refuse_moved_run(run_dir)
    given = _placed(tuple(overrides))
    spec_of_run(run_dir, given)  # a bad value is refused before anything is cancelled
    _end_open(run_dir)
    with run_lock(run_dir):
        if points := _rest(run_dir):
            _plan_rest(run_dir, points, wishes, given)
        else:
            note(f"every shard is done: jobkit merge {shell_path(run_dir)} joins the results")
    return resume.run_again(run_dir, (), (), wait=wait)


def _placed(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys with the site of another scheduler, if one is named."""
    name = asked_scheduler(Options(overrides=overrides))
    if not name:
        return overrides
    _, path = find_site("auto", name)
    kept = [word for word in overrides if word.partition("=")[0].strip() not in {"scheduler", "site"}]
    return (*kept, f"scheduler={name}", f"site={portable_name(path)}")


def _end_open(run_dir: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
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
                f"{format_count(number, 'shard')} of {run.title} did not end in {PATIENCE_S / 60:.0f} min"
            )
            hint = f"jobkit status {shell_path(run_dir)} shows them; nothing was planned again"
            raise JobkitError(message, hint=hint, exit_code=ExitCode.REFUSED)
        if not announced:
            note("waiting until the cancelled jobs have ended")
            announced = True
        time.sleep(pause_s)


def _open(run: RunStatus) -> int:
    return max(sum(point.state in LIVE for point in run.points), len(run.queued))


def _rest(run_dir: Path) -> list[Point]:
    """Return the shards without a winner, but those of a large paragraph alone, which stay as they are."""
    standing = Standing(run_dir)
    kept = standing.settle().keys() | read_journal(run_dir).needs.keys()
    return [point for point in standing.points if point.index not in kept]


def _plan_rest(run_dir: Path, rest: Sequence[Point], wishes: ShardOptions, given: tuple[str, ...]) -> None:
    """Append the new shards, and put the plan into force by one line of the journal."""
    corpus, setting = read_corpus(run_dir), _setting(run_dir, rest[0], given)
    wanted = {point.index for point in rest}
    pieces, last = list[Piece](), 0
    for shard in read_plan(run_dir):
        last = max(last, shard.index)
        pieces += shard.pieces if shard.index in wanted else ()
    pieces.sort(key=lambda piece: (piece.source, piece.start, piece.skip))
    paths = run_dir / PLAN_FILE, run_dir / POINTS_FILE
    # Behind all lines of both files, also those that never came into force.
    first = max(last, *map(_lines, paths)) + 1
    plan = plan_shards(pieces, setting, wishes, first=first, tables=table_bytes(corpus))
    number = max(point.repeat for point in rest) + 1
    points = points_of(plan.shards, rest[0], run_dir, rest[0].run_id, corpus, plan_number=number)
    left = replace(
        corpus,
        paragraphs=sum(shard.paragraphs for shard in plan.shards),
        characters=sum(shard.characters for shard in plan.shards),
    )
    for line in plan_lines(
        CorpusSummary(corpus=left, setting=setting, plan=plan, read_s=None, now=datetime.now(UTC))
    ):
        note(line)
    for path, values in zip(paths, (plan.shards, points), strict=True):  # each at the line of its index
        blank = "\n" * (first - 1 - _lines(path))
        files.append_line(path, blank + "\n".join(map(to_json, values)))
    spec = setting.spec
    if spec.policy.follow_up and not runs_here(spec.scheduler):
        script = render_follow(spec, setting.site, points[0], run_dir)
        files.write_atomically(run_dir / FOLLOW_SCRIPT, script)
    before, now = spec.resources, plan.resources  # what follows from a measured speed
    words = [
        f"resources.{key}={show(getattr(now, key))}"
        for key, show in (("memory", format_size), ("walltime", format_walltime))
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


def _lines(path: Path) -> int:
    """Return how many lines a file has, a last one that was cut short included."""
    text = read_text(path)
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def _setting(run_dir: Path, point: Point, given: tuple[str, ...]) -> AppliedSetting:
    """Return the setting of a corpus, with what is known of its speed by now."""
    spec = spec_of_run(run_dir, given)
    site, _ = find_site(spec.site, spec.scheduler)
    promise = read_promise(run_dir)
    done = [result.counts for result in each_point(run_dir, []) if result.outcome is Outcome.OK]
    found = speeds([record for tried in done if (record := timed(tried))])
    measured = {one.name: getattr(promise, one.name) for one in fields(promise)}
    if found and found[0].repeats >= ENOUGH:
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


class CorpusResumption(Resumption):
    def resume(self, run_dir: Path, asked: Asked) -> int | None:
        """Go on, and print how the corpus stands once its shards have ended."""
        if KIND.unplanned(run_dir):
            code = apply.order_again(run_dir, wait=asked.wait)
        elif asked.replan:
            wishes = ShardOptions(minutes=asked.shard_minutes or MINUTES, number=asked.shards)
            code = replan(run_dir, wishes, asked.overrides, wait=asked.wait)
        else:
            code = super().resume(run_dir, asked)
        return apply.report_end(run_dir) if code is None else code

    def follow_up(self, run_dir: Path) -> int:
        """Plan the corpus and submit its shards, if that is still to be done."""
        return apply.plan_in_job(run_dir) if apply.is_open(run_dir) else super().follow_up(run_dir)

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        """Return ``None`` if all shards have ended: the exit code is that of their state."""
        code = super().nothing(run, spec, by_itself=by_itself, wait=wait)
        if code or by_itself:
            return code
        if all(point.state in ENDINGS for point in run.points):
            return None
        points = [point.point for point in run.points]
        return wait_for_points(run.folder, points, spec.policy, run) if wait else 0


CORPUS = CorpusResumption()
