"""``begin`` and ``exit``, the files that the job script writes for a try. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.records import Outcome

BY_HAND = "hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The job that runs a try: the file ``begin``, lines of ``key=value``.

    Attributes
    ----------
    scheduler
        ``slurm``, ``sge``, ``local``, or ``hand`` if a person typed ``bash job.sh K``.
    job, task
        The scheduler's ids; empty by hand.
    restart
        How often the scheduler had started this task before.
    round
        The submission that it belongs to: 1 is the sweep, later numbers are ``jobkit resume``.
    host, pid
        Of the job script.
    at
        UTC by the clock of the node, ISO 8601.
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
        If it lacks a key or was cut short.
    OSError
        If it cannot be read.
    """
    pairs = _read_pairs(path, Begin)
    try:
        numbers = {name: int(pairs[name]) for name in ("restart", "round")}
        optional = {name: int(pairs[name]) if pairs.get(name) else None for name in ("task", "pid")}
        return Begin(**pairs | numbers | optional)
    except (KeyError, TypeError, ValueError) as error:
        raise JobkitError(f"{path}: not a begin file: {error!r}") from error


def _read_pairs(path: Path | str, kind: type[Begin | Exit]) -> dict[str, Any]:
    """Return the values of the lines ``key=value`` that are fields."""
    pairs = (line.partition("=") for line in read_text(path).split("\n"))
    known = {field.name for field in fields(kind)}
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip() in known}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the job script ended a try: the file ``exit``, lines of ``key=value``.

    Attributes
    ----------
    status
        Exit status of the worker, or of the step that failed.
    stage
        The last step of the script: ``scratch``, ``environment``, ``gate``, ``stage_in``,
        ``run``, ``done``.
    outcome
        Set if the script itself knows it, before or instead of a record; else ``None``.
    signal
        The signal that the script received, else ``None``.
    message
        One line, for a person.
    because
        Why a point was skipped: of ``pruned`` the id of the point that ran out of memory, or of a
        repeat of the same setting, of ``stopped`` the outcome of the points that failed. Empty in files
        of earlier versions.
    scratch
        The scratch folder, if it was kept because results could not be copied home.
    """

    status: int
    stage: str
    outcome: Outcome | None = None
    signal: str | None = None
    message: str = ""
    because: str = ""
    scratch: str = ""
    host: str = ""

    @property
    def kept(self) -> str:
        """The scratch folder with its node."""
        return f"{self.host}:{self.scratch}" if self.host else self.scratch


def read_exit(path: Path | str) -> Exit:
    """Read the file ``exit`` of a try.

    Raises
    ------
    JobkitError
        If it has no status or an unknown outcome.
    """
    pairs = _read_pairs(path, Exit)
    try:
        outcome = Outcome(pairs["outcome"]) if pairs.get("outcome") else None
        status, signal = int(pairs["status"]), pairs.get("signal") or None
        return Exit(**{"stage": ""} | pairs | {"status": status, "outcome": outcome, "signal": signal})
    except (KeyError, ValueError) as error:
        raise JobkitError(f"{path}: not an exit file: {error}") from error
