"""Cut the tasks of a sweep into array jobs, within what the controller allows."""

from __future__ import annotations

from collections.abc import Sequence

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.types import Array
from jobkit.submit.enqueue import REFUSED, clean_environment
from jobkit.submit.patience import patiently


def ask_limits(scheduler: Scheduler, *, once: bool = False) -> str:
    """Return what the controller says of its limits; nothing where it has none.

    Parameters
    ----------
    once
        Whether to do without, where it is busy or away, rather than ask again for a while.

    Raises
    ------
    JobkitError
        Exit code 3 where it does not answer.
    """
    argv = scheduler.limit_argv()
    if not argv:
        return ""
    env = clean_environment()
    done = shell.run(argv, env=env) if once else patiently(argv, scheduler.BUSY, env)
    return shell.check(done, "the scheduler does not answer", hint="is this a submit host?").stdout


def arrays_within(
    scheduler: Scheduler, limits: str, tasks: int, max_parallel: int | None, listed: str = ""
) -> tuple[Array, ...]:
    """Return the arrays of a sweep, within the limits that the controller told.

    Parameters
    ----------
    tasks
        How many tasks there are.
    listed
        The file that names the points of each, where not every task runs the point of its number.

    Raises
    ------
    JobkitError
        Exit code 3 where it takes no arrays, or cannot hold so many tasks.
    """
    limit = scheduler.parse_limit(limits)
    if limit == 0:
        message = f"{scheduler.NAME} takes no array jobs here: its array limit is 0"
        raise JobkitError(message, hint="ask the cluster's support about array jobs", exit_code=REFUSED)
    arrays = chunks(tasks, limit, max_parallel, listed)
    if refusal := scheduler.too_many(limits, arrays):
        hint = "split the sweep into several specs, lower `repeats`, or let points share jobs (`pack`)"
        raise JobkitError(f"{refusal}; nothing was submitted", hint=hint, exit_code=REFUSED)
    return arrays


def chunks(tasks: int, limit: int | None, max_parallel: int | None, listed: str = "") -> tuple[Array, ...]:
    """Return the arrays that cover tasks 1 to ``tasks``.

    The limit is on the task *index*, so each array starts at 1 and its tasks are offset. The
    throttle is divided, for the arrays run beside each other.
    """
    size = min(tasks, limit) if limit else tasks
    starts = range(0, tasks, size)
    throttle = share(max_parallel, len(starts))
    return tuple(
        Array(first=1, last=min(size, tasks - start), offset=start, throttle=throttle, listed=listed)
        for start in starts
    )


def share(max_parallel: int | None, arrays: int) -> int | None:
    """Return how many tasks of each array may run at a time; ``None`` for any number."""
    return max(1, max_parallel // arrays) if max_parallel else None


def following(points: int) -> Array:
    """Return the job that follows a sweep, as an array: its task is the first point that it adds."""
    return Array(first=1, last=1, offset=points, throttle=None)


def lines(points: Sequence[int], pack: int) -> list[tuple[int, ...]]:
    """Return the points of each task, so many together."""
    return [tuple(points[start : start + pack]) for start in range(0, len(points), pack)]
