"""``begin`` and ``exit``: the ``key=value`` files that the job script writes. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.records import Outcome

BY_HAND = "hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Who runs a try: the file ``begin``, lines of ``key=value``.

    Attributes
    ----------
    scheduler
        ``slurm``, ``sge``, ``local``, or ``hand`` where a person typed ``bash job.sh K``.
    job, task
        The scheduler's; empty by hand.
    restart
        How often the scheduler had started this task before.
    round
        Which submission of the run it belongs to: 1 is the sweep, later ones are ``jobkit resume``.
    host, pid
        Of the job script.
    at
        UTC by the node's clock, ISO 8601.
    """

    scheduler: str
    job: str
    task: int | None
    restart: int
    round: int
    host: str = ""
    pid: int | None = None
    at: str = ""


def read_begin(path: Path | str) -> Begin:
    """Read the file ``begin`` of a try.

    Raises
    ------
    JobkitError
        Where it lacks a key, or was cut short.
    OSError
        Where it cannot be read.
    """
    pairs = (line.partition("=") for line in read_text(path).splitlines())
    known = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        return Begin(
            scheduler=known["scheduler"],
            job=known["job"],
            task=int(known["task"]) if known["task"] else None,
            restart=int(known["restart"]),
            round=int(known["round"]),
            host=known.get("host", ""),
            pid=int(known["pid"]) if known.get("pid") else None,
            at=known.get("at", ""),
        )
    except (KeyError, ValueError) as error:
        raise JobkitError(f"{path}: not a begin file: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """What the job script says of a try: the file ``exit``, lines of ``key=value``.

    Attributes
    ----------
    status
        Of the worker, or of the step that failed.
    stage
        The step that the script was in: ``scratch``, ``environment``, ``gate``, ``stage_in``,
        ``run``, ``done``.
    outcome
        Set where the script itself knows, before or instead of a record; else ``None``.
    signal
        The signal that the script got, else ``None``.
    message
        One line, for a person.
    because
        Why a point was left out: of ``pruned`` the id of the point that ran out of memory, of
        ``stopped`` the outcome of the points that failed. Empty in files of earlier versions.
    scratch
        The scratch folder, where it was kept because results could not be brought home.
    """

    status: int
    stage: str
    outcome: Outcome | None = None
    signal: str | None = None
    message: str = ""
    because: str = ""
    scratch: str = ""
    host: str = ""


def read_exit(path: Path | str) -> Exit:
    """Read the file ``exit`` of a try.

    Raises
    ------
    JobkitError
        Where it has no status or an unknown outcome.
    """
    pairs = (line.partition("=") for line in read_text(path).split("\n"))
    known = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        return Exit(
            status=int(known["status"]),
            stage=known.get("stage", ""),
            outcome=Outcome(known["outcome"]) if known.get("outcome") else None,
            signal=known.get("signal") or None,
            message=known.get("message", ""),
            because=known.get("because", ""),
            scratch=known.get("scratch", ""),
            host=known.get("host", ""),
        )
    except (KeyError, ValueError) as error:
        raise JobkitError(f"{path}: not an exit file: {error}") from error
