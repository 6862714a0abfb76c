"""A round: one submission of some points of a run, as one array job per array limit.

Round 1 is the sweep; `jobkit resume` and the job that follows a sweep add later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core import record_files
from jobkit.core.errors import JobkitError
from jobkit.outcome.submissions import Role
from jobkit.planning.render import script_name
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.types import Array, JobId, Request
from jobkit.submit.arrays import arrays_within, ask_limits, lines
from jobkit.submit.enqueue import Errand, Submitted, Unanswered, ask, cancel, submit_array


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is about to be submitted.

    Attributes
    ----------
    number
        1 for the sweep.
    script
        The text of its job script.
    points
        The indices of the points that run, in order.
    pack
        How many of them share a task.
    max_parallel
        Most tasks at a time; ``None`` for no limit.
    given
        What a person set for these points: ``key=value``.
    """

    number: int
    script: str
    points: Sequence[int]
    pack: int
    max_parallel: int | None
    request: Request
    given: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[tuple[int, ...]]:
        """The points of each task."""
        return lines(self.points, self.pack)

    @property
    def listed(self) -> str:
        """The file that names the points of each task; empty where task k runs point k."""
        plain = self.pack == 1 and list(self.points) == list(range(1, len(self.points) + 1))
        return "" if plain else f"tasks-{self.number}.txt"


def plan_arrays(scheduler: Scheduler, round_: Round) -> tuple[Array, ...]:
    """Return the arrays of a round, within the controller's limits; nothing is written.

    Raises
    ------
    JobkitError
        Exit code 3 where the controller does not answer, or cannot hold so many tasks.
    """
    limits = ask_limits(scheduler)
    return arrays_within(scheduler, limits, len(round_.tasks), round_.max_parallel, round_.listed)


def write_round(run_dir: Path, round_: Round) -> list[Path]:
    """Write the script of a round, and the list of its tasks where there is one; return the files.

    Raises
    ------
    OSError
        Where they cannot be written.
    """
    written = [run_dir / script_name(round_.number)]
    record_files.write_atomically(written[0], round_.script)
    if round_.listed:
        written.append(run_dir / round_.listed)
        text = "".join(" ".join(map(str, task)) + "\n" for task in round_.tasks)
        record_files.write_atomically(written[1], text)
    return written


def submit_round(
    scheduler: Scheduler, run_dir: Path, round_: Round, arrays: Sequence[Array]
) -> tuple[Submitted, ...]:
    """Submit a round that is written.

    Raises
    ------
    JobkitError
        Exit code 3 where the scheduler refuses; where it refuses a later array, the earlier
        ones are cancelled and the journal says so.
    """
    script = str(run_dir / script_name(round_.number))
    errand = Errand(Role.POINTS, round_.number, round_.given)
    taken: list[Submitted] = []
    for array in arrays:
        try:
            taken.append(submit_array(scheduler, run_dir, script, array, errand=errand))
        except Unanswered:
            raise  # what was taken stays: resume submits the rest
        except JobkitError:
            cancel(scheduler, run_dir, [one.job for one in taken])
            raise
    return tuple(taken)


def ask_round(scheduler: Scheduler, run_dir: Path, round_: Round, arrays: Sequence[Array]) -> tuple[str, ...]:
    """Ask the scheduler about a round that is written; return what it lets one expect.

    Raises
    ------
    JobkitError
        With every refusal, exit code 3.
    """
    return ask(scheduler, round_.request, str(run_dir / script_name(round_.number)), arrays[0])


def jobs_of(taken: Sequence[Submitted]) -> list[JobId]:
    """Return the jobs that were taken."""
    return [one.job for one in taken]
