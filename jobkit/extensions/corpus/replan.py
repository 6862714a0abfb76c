"""How `jobkit resume` goes on with a corpus: a job plans it, its shards run again, or are planned again.

A new plan is of all that has no winner: other shards, another request, the other scheduler, or this machine.
Nothing of the old plan changes. The new shards are appended to ``plan.jsonl``, then to ``points.jsonl``; they
hold once the journal has named them. A kill before that leaves lines that do not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from jobkit.answers.speed import Speed, speeds
from jobkit.core import files
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import read_text
from jobkit.core.json_codec import to_json
from jobkit.core.layout import FOLLOW_SCRIPT, PLAN_FILE, POINTS_FILE
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import note, shell_path
from jobkit.core.units import format_count, format_size, format_walltime, pauses
from jobkit.extensions.corpus import apply
from jobkit.extensions.corpus.plan import Piece, Shard, read_corpus, read_plan
from jobkit.extensions.corpus.provenance import Promise, read_promise
from jobkit.extensions.corpus.setting import AppliedSetting, asked_scheduler, keys_of, refuse_keys
from jobkit.extensions.corpus.shards import (
    MINUTES,
    CorpusPlan,
    CorpusSummary,
    ShardOptions,
    plan_lines,
    plan_shards,
    points_of,
)
from jobkit.extensions.corpus.standing import CORPUS as KIND
from jobkit.extensions.corpus.standing import live_points, settle
from jobkit.extensions.corpus.winners import withdraw
from jobkit.launch import cancel, resume
from jobkit.launch.guards import refuse_moved_run
from jobkit.launch.launch import wait_for_points
from jobkit.launch.resubmit import refuse_silent, run_lock, spec_of_run
from jobkit.launch.resume import Asked, Resumption
from jobkit.planning.job_script import render_follow
from jobkit.planning.points import Inputs
from jobkit.planning.resolve import Options
from jobkit.runs import journal
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_standings
from jobkit.runs.results import each_point, timed
from jobkit.runs.retry import merge_overrides
from jobkit.runs.standing import ENDINGS, LIVE, RunStanding
from jobkit.schedulers.registry import runs_here
from jobkit.spec.site import find_site, portable_name
from jobkit.spec.sweep_spec import SweepSpec

PATIENCE_S = 600.0
"""How long cancelled jobs may take to end: a job brings its results home first."""
FIRST_PAUSE_S, SLOWEST_PAUSE_S = 0.5, 10.0
ENOUGH = 2  # number of done shards that show the speed of the rest; fewer have no interval


@dataclass(frozen=True, slots=True)
class _Rest:
    """The shards without a winner, and their pieces in corpus order."""

    points: tuple[Point, ...]
    pieces: tuple[Piece, ...]


def replan(run_dir: Path, wishes: ShardOptions, overrides: Sequence[str], *, wait: bool) -> int | None:
    """Cancel what is open, cut the rest into new shards, and go on; return as `resume.run_again`."""
    refuse_keys(overrides)
    refuse_moved_run(run_dir)
    given = _placed(tuple(overrides))
    spec_of_run(run_dir, given)  # a bad value is refused before anything is cancelled
    _end_open(run_dir)
    with run_lock(run_dir, note):
        settle(run_dir)
        rest = _rest(run_dir)
        if rest.points:
            _plan_rest(run_dir, rest, wishes, given)
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
    (run,) = read_standings([run_dir])
    if _open(run):
        cancel.cancel(run_dir, (), ())
    announced = False
    for pause_s in pauses(FIRST_PAUSE_S, SLOWEST_PAUSE_S):
        (run,) = read_standings([run_dir])
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


def _open(run: RunStanding) -> int:
    return max(sum(point.standing in LIVE for point in run.points), len(run.queued))


def _rest(run_dir: Path) -> _Rest:
    winners = settle(run_dir)
    own = read_journal(run_dir).needs  # such a shard stays as it is: it is of a large paragraph alone
    points = tuple(point for point in live_points(run_dir) if point.index not in {*winners, *own})
    wanted = {point.index for point in points}
    pieces = [piece for shard in read_plan(run_dir) if shard.index in wanted for piece in shard.pieces]
    pieces.sort(key=lambda piece: (piece.source, piece.start, piece.skip))
    return _Rest(points, tuple(pieces))


def _plan_rest(run_dir: Path, rest: _Rest, wishes: ShardOptions, given: tuple[str, ...]) -> None:
    """Append the new shards, and put the plan into force by one line of the journal."""
    corpus = read_corpus(run_dir)
    setting = _setting(run_dir, rest.points[0], given)
    first = _next_index(run_dir)
    plan = plan_shards(rest.pieces, setting, wishes, first=first)
    number = max(point.repeat for point in rest.points) + 1
    points = points_of(
        plan.shards, rest.points[0], run_dir, rest.points[0].run_id, corpus, plan_number=number
    )
    left = replace(
        corpus,
        paragraphs=sum(shard.paragraphs for shard in plan.shards),
        characters=sum(shard.characters for shard in plan.shards),
    )
    for line in plan_lines(
        CorpusSummary(corpus=left, setting=setting, plan=plan, read_s=None, now=datetime.now(UTC))
    ):
        note(line)
    words = merge_overrides(given, _request(plan, setting))
    _append(run_dir, plan.shards, points, first)
    _write_follow(run_dir, setting, points[0])
    journal.note(
        run_dir,
        "superseded",
        points=[point.index for point in rest.points],
        by=[point.index for point in points],
        given=list(words),
        asked=keys_of(given),
    )
    for point in rest.points:  # so that a job that was believed dead does not work for nothing
        withdraw(run_dir, point)


def _request(plan: CorpusPlan, setting: AppliedSetting) -> tuple[str, ...]:
    """Return what the new shards request, as ``key=value``, if it follows from a measured speed."""
    before, now = setting.spec.resources, plan.resources
    words = []
    if now.memory != before.memory:
        words.append(f"resources.memory={format_size(now.memory)}")
    if now.walltime != before.walltime:
        words.append(f"resources.walltime={format_walltime(now.walltime)}")
    return tuple(words)


def _setting(run_dir: Path, point: Point, given: tuple[str, ...]) -> AppliedSetting:
    """Return the setting of a corpus, with what is known of its speed by now."""
    spec = spec_of_run(run_dir, given)
    site, _ = find_site(spec.site, spec.scheduler)
    promise = read_promise(run_dir)
    return AppliedSetting(
        spec=spec,
        site=site,
        why="as requested" if given else "as before",
        inputs=Inputs(run_id=point.run_id, text=point.text, model=point.model, device=point.device),
        point=point,
        source=promise.source,
        given=(*promise.given, *read_journal(run_dir).asked, *keys_of(given)),
        speed=_speed(run_dir, promise),
        energy=promise.energy,
        peak_bytes=promise.peak_bytes,
        measured=promise.measured,
        past=promise.past,
    )


def _speed(run_dir: Path, promise: Promise) -> Speed | None:
    """Return the speed by the shards that are done, else as it was promised."""
    done = [result.counts for result in each_point(run_dir, []) if result.outcome is Outcome.OK]
    records = [record for tried in done if (record := timed(tried))]
    found = speeds(records)
    return found[0] if found and found[0].repeats >= ENOUGH else promise.speed


def _next_index(run_dir: Path) -> int:
    """Return the index behind all lines of both files, also those that never came into force."""
    planned = max((shard.index for shard in read_plan(run_dir)), default=0)
    return max(planned, _lines(run_dir / POINTS_FILE), _lines(run_dir / PLAN_FILE)) + 1


def _lines(path: Path) -> int:
    """Return how many lines a file has, a last one that was cut short included."""
    text = read_text(path)
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def _append(run_dir: Path, shards: Sequence[Shard], points: Sequence[Point], first: int) -> None:
    """Append the plan, and then the points: each at the line of its index."""
    for name, values in ((PLAN_FILE, shards), (POINTS_FILE, points)):
        path = run_dir / name
        blank = "\n" * (first - 1 - _lines(path))
        files.append_line(path, blank + "\n".join(map(to_json, values)))


def _write_follow(run_dir: Path, setting: AppliedSetting, point: Point) -> None:
    spec = setting.spec
    if runs_here(spec.scheduler) or not spec.policy.follow_up:
        return
    files.write_atomically(run_dir / FOLLOW_SCRIPT, render_follow(spec, setting.site, point, run_dir))


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
        self, run: RunStanding, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        """Return ``None`` if all shards have ended: the exit code is that of their state."""
        code = super().nothing(run, spec, by_itself=by_itself, wait=wait)
        if code or by_itself:
            return code
        if all(point.standing in ENDINGS for point in run.points):
            return None
        points = [point.point for point in run.points]
        return wait_for_points(run.folder, points, spec.policy, run) if wait else 0


CORPUS = CorpusResumption()
