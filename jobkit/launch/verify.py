"""Try a finished run's prediction: here, or as a job."""

from __future__ import annotations

from pathlib import Path

from jobkit.answers.search import foreseen, propose_trial, under_way
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import POINTS_FILE, SPEC_FILE, read_points
from jobkit.core.terminal import note, note_next, shell_path
from jobkit.launch import local
from jobkit.launch.job import announce, find_job
from jobkit.launch.resume import measure_again, refuse_moved_run, run_lock, warn_stand_in
from jobkit.launch.scheduler_calls import reconcile_submission
from jobkit.launch.submission import search_goal, submit_jobs, write_search
from jobkit.planning.job_script import render_find
from jobkit.planning.models import refuse_stand_in
from jobkit.planning.prepare import warn_again
from jobkit.planning.texts import is_sample
from jobkit.runs.trials import describe_trials, trials
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import FindMax, load_spec


def verify(run_dir: Path, *, memory: int | str | None, stand_in: bool = False) -> int:
    """Run, or submit, the search for the largest batch of a run; return the exit code.

    ``memory`` is bytes, or ``device``; ``None`` for the memory in the run's spec. ``stand_in`` permits a
    stand-in model for a text that is not the sample.
    """
    refuse_moved_run(run_dir)
    for point in read_points(run_dir)[0][:1]:
        if not stand_in and not is_sample(point.text):
            refuse_stand_in(point.workload, point.model, "jobkit verify", *measure_again(run_dir, point))
        warn_stand_in(point)
    with run_lock(run_dir):
        reconcile_submission(run_dir, note)
        return _verify(run_dir, memory)


def _verify(run_dir: Path, memory: int | str | None) -> int:
    spec = load_spec(run_dir / SPEC_FILE)
    spec.refuse_command("jobkit verify")
    asked = spec.find_max or FindMax()
    if memory is not None:
        asked = asked.model_copy(update={"memory": memory})
    spec = spec.model_copy(update={"find_max": asked})
    points, _ = read_points(run_dir)
    if not points:
        raise JobkitError(f"{run_dir / POINTS_FILE}: holds no point")
    site = load_site(spec.site, spec.scheduler)
    before = len(trials(run_dir))
    goal = search_goal(spec, before)
    next_, final = foreseen(run_dir, goal)
    if next_.proved:
        terminal.say(f"nothing to try: {next_.message}")
        return 0
    if not runs_here(spec.scheduler) and (trial := under_way(run_dir, goal)):
        named = trial if trial.size else next_
        what = named.setting if named.size else "the largest batch"
        terminal.say(
            f"{what} is being tested already: jobkit status {shell_path(run_dir)} shows its progress"
        )
        return ExitCode.TO_COME
    if final and not next_.index:
        for line in describe_trials([next_]):
            terminal.say(line)
        return ExitCode.FAILED
    warn_again(note, spec, points)
    write_search(goal, run_dir, render_find(spec, site, points[0], run_dir))
    if not runs_here(spec.scheduler):
        announce(spec.scheduler, submit_jobs(by_name(spec.scheduler), run_dir, [find_job(len(points))]))
        note_next(f"jobkit collect {shell_path(run_dir)}")
        return 0
    note("predicting the largest batch and running it here")
    with local.as_driver(run_dir) as job_id:
        local.search(run_dir, lambda _: None, job_id, propose_trial)
    tried = trials(run_dir)[before:]
    for line in describe_trials(tried):
        terminal.say(line)
    return 0 if tried and (tried[-1].held or tried[-1].proved) else ExitCode.FAILED
