"""Profile a point of a finished run: run it once more with a profiler, as a point that is in no table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.figures import pace
from jobkit.core.files import append_line, exclusive_lock, read_text
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import CUDA, OFF
from jobkit.core.layout import (
    POINTS_FILE,
    PROFILE_FILES,
    PROFILE_TEXT,
    RESULTS_FOLDER,
    SEARCH_LOCK,
    names,
)
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import note, relative_path, say, shell_path
from jobkit.launch.resume import prepare_resume, refuse_moved_run, run_again, run_lock
from jobkit.planning.prepare import refuse_missing_packages
from jobkit.runs.hints import remedy
from jobkit.runs.journal import Role
from jobkit.runs.reader import read_status
from jobkit.runs.status import LIVE, PointStatus, RunStatus, find_point, first_task, followers
from jobkit.runs.trials import added_id
from jobkit.spec.site import load_site

TORCH, PYTHON = PROFILE_FILES


def profile(
    run_dir: Path,
    word: str | None,
    profiler: str | None,
    overrides: Sequence[str] = (),
    *,
    again: bool = False,
    wait: bool = False,
) -> int:
    """Print the profile of a point, or run or submit the job that makes it; return the exit code.

    ``word``: the point, by number or id; ``None`` for the fastest that succeeded. ``profiler``: ``None`` for
    torch on a GPU, else Python's own. ``overrides``: ``key=value`` of each ``--set``, as for `jobkit resume`.
    ``again``: whether to profile a point again that has a profile.
    """
    refuse_moved_run(run_dir)
    (run,) = read_status([run_dir])
    source = find_point(run.points, word) if word else _fastest(run)
    target: PointStatus | None = source
    if source.point.profile == OFF:  # the latest point that profiles it
        wanted = _profile_of(source.point, profiler)
        number, name = wanted.index, wanted.point_id
        same = [it for it in run.points if replace(it.point, index=number, point_id=name) == wanted]
        target = same[-1] if same else None
        target = None if target and target.outcome is Outcome.OK and again else target
    if target and target.outcome is Outcome.OK:
        return _print(target)
    if target and target.standing in LIVE:
        note(f"{target.point.point_id} is {target.standing}: jobkit status {shell_path(run_dir)} shows it")
        return ExitCode.TO_COME
    index = target.point.index if target else _add(run, source, profiler, overrides)
    code = run_again(run_dir, [str(index)], overrides, wait=wait)
    if code is None:
        (run,) = read_status([run_dir])
        return _print(find_point(run.points, str(index)))
    note(f"  result       jobkit profile {shell_path(run_dir)} {index}")
    return code


def _fastest(run: RunStatus) -> PointStatus:
    speeds = [
        (pace(point.record), point)
        for point in run.points
        if point.point.kind.swept and point.outcome is Outcome.OK and point.record and point.record.summary
    ]
    if not speeds:
        hint = f"jobkit status {shell_path(run.folder)}"
        raise JobkitError(f"{run.folder}: no point has succeeded, so there is none to profile", hint=hint)
    return max(speeds, key=lambda pair: pair[0])[1]


def _profile_of(point: Point, profiler: str | None) -> Point:
    """Return a point that profiles another; it still has the number and the id of that point."""
    return replace(point, trial=False, profile=profiler or (TORCH if point.device == CUDA else PYTHON))


def _add(run: RunStatus, source: PointStatus, profiler: str | None, overrides: Sequence[str]) -> int:
    if source.outcome is not Outcome.OK:
        message = f"{source.point.point_id} is {source.state}: only a point that succeeded can be profiled"
        raise JobkitError(message, hint=f"jobkit status {shell_path(run.folder)}")
    if any(not run.ends.get(first_task(job)) for job, _ in followers(run, Role.FIND)):
        message = "the job that tests the largest batch has not ended, and it adds points too"
        hint = f"jobkit status {shell_path(run.folder)}"
        raise JobkitError(message, hint=hint, exit_code=ExitCode.TO_COME)
    point = _profile_of(source.point, profiler)
    spec = prepare_resume(run.folder, overrides).model_copy(update={"profile": point.profile})
    spec.refuse_command("jobkit profile")
    refuse_missing_packages(spec, load_site(spec.site, spec.scheduler))
    with run_lock(run.folder), exclusive_lock(run.folder / SEARCH_LOCK, lambda: None):
        (now,) = read_status([run.folder], ask=False)
        index = max(other.point.index for other in now.points) + 1
        taken = {other.point.point_id for other in now.points} | names(run.folder / RESULTS_FOLDER)
        name = added_id(point.point_id, f"-profile-{point.profile}", taken)
        append_line(run.folder / POINTS_FILE, to_json(replace(point, index=index, point_id=name)))
    return index


def _print(point: PointStatus) -> int:
    folder, name = Path(point.verdict.folder), point.point.point_id
    if point.outcome is not Outcome.OK:
        run = shell_path(folder.parents[2]) if point.verdict.number else "RUN"
        steps = remedy(point.outcome, point.why, run=run, point=point.point) if point.outcome else ()
        message = f"{name} is {point.state}: {point.why}"
        hint = f"{steps[0].command}   {steps[0].does}" if steps else ""
        raise JobkitError(message, hint=hint, exit_code=ExitCode.FAILED)
    try:
        text = read_text(folder / PROFILE_TEXT)
    except OSError as error:
        raise JobkitError(f"{folder / PROFILE_TEXT}: {error.strerror}", exit_code=ExitCode.FAILED) from error
    say(text, nl=False)
    viewers = {
        PROFILE_FILES[TORCH]: "open it at https://ui.perfetto.dev, or at chrome://tracing",
        PROFILE_FILES[PYTHON]: "python -m pstats {path}, or: snakeviz {path}",
        "profile.json": "scalene view {path}",  # of an earlier version
    }
    for path in (folder / name for name in viewers if (folder / name).exists()):
        note(f"\n{relative_path(path)}\n  {viewers[path.name].format(path=shell_path(path))}")
    return 0
