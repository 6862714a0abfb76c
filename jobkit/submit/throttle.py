"""What `jobkit throttle` does: change how many tasks of a run work at a time."""

from __future__ import annotations

from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.terminal import note, shell_path
from jobkit.outcome.journal import Role, Submission
from jobkit.schedulers.registry import by_name
from jobkit.status.reader import read_standings
from jobkit.status.standing import RunStanding
from jobkit.submit import scheduler_calls
from jobkit.submit.resubmit import refuse_silent, run_lock
from jobkit.submit.rounds import share


def throttle(run_dir: Path, most: int) -> int:
    """Limit how many tasks of a run work at a time; return the exit code.

    Parameters
    ----------
    run_dir
        The run folder, absolute.
    most
        How many; 0 for any number.

    Raises
    ------
    JobkitError
        If nothing of the run is in the queue, or it runs here; exit code 3 if the scheduler
        does not answer, or refuses.
    """
    with run_lock(run_dir, note):
        (standing,) = read_standings([run_dir])
        jobs = _live(standing)
        each = share(most, len(jobs)) or 0
        refusals = []
        for job in jobs:
            refused = scheduler_calls.throttle(by_name(job.scheduler), run_dir, job.job, each)
            if refused:
                refusals.append(f"{job.scheduler} did not change job {job.job}: {refused}")
    if refusals:
        hint = f"jobkit status {shell_path(run_dir)} shows what runs"
        raise JobkitError("\n".join(refusals), hint=hint, exit_code=ExitCode.REFUSED)
    words = f"at most {most} at a time" if most else "any number at a time"
    if most and len(jobs) > 1:
        words = f"at most {each} at a time in each of {len(jobs)} array jobs, {each * len(jobs)} in all"
    note(f"{run_dir.name}: {words}")
    return 0


def _live(standing: RunStanding) -> list[Submission]:
    """Return the arrays of points that the queue holds tasks of.

    Raises
    ------
    JobkitError
        As `throttle`.
    """
    refuse_silent(standing, "nothing was changed")
    run = shell_path(standing.folder)
    held = {(task.scheduler, task.job_id) for task in standing.queued}
    jobs = [
        submission
        for submission in standing.submissions
        if submission.role is Role.POINTS and (submission.scheduler, submission.job.id) in held
    ]
    if not jobs:
        raise JobkitError(
            f"none of its {standing.noun}s is in the queue or running: there is nothing to throttle",
            hint=f"jobkit resume {run} --set max_parallel=N submits them again with another number",
        )
    if not by_name(jobs[0].scheduler).throttle_argv(jobs[0].job, 0):
        message = f"a run on this machine has one {standing.noun} at a time"
        raise JobkitError(message, hint=f"jobkit cancel {run} stops it")
    return jobs
