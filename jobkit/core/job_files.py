"""``begin``: what the job script says of a try before anything else. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text

BEGIN_FILE = "begin"
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
