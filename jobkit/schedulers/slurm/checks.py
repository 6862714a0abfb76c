"""The checks before a submission.

``sbatch --test-only`` finds most faults, but accepts a walltime that the partition forbids and
an unknown account or QOS (measured, Slurm 22.05.8 with ``EnforcePartLimits=NO`` and no
``AccountingStorageEnforce``: such a job waits for ever or is charged to no account); and its message
does not name the wrong value. So sinfo and sacctmgr are asked as well.
"""

from __future__ import annotations

import getpass
import re
from functools import partial

from jobkit.core.shell import Completed
from jobkit.schedulers.slurm.survey import NODES, PARTITION, partitions
from jobkit.schedulers.survey import asked_for, no_such
from jobkit.schedulers.types import Array, Check, Request

SHOW = ("sacctmgr", "-n", "-P", "show")
START_VARIES = "earlier if jobs end before their walltime, later if others go first"


def checks(script: str, array: Array, request: Request) -> tuple[Check, ...]:
    """Return the checks before a submission.

    ``--test-only`` prints its answer, good or bad, on stderr, and uses up a job id (measured).
    """
    span = f"--array={array.first}-{array.last}"
    tested = ("sbatch", "--test-only", *array.option_words, span, script)
    asked = [
        Check(NODES, partial(_partition_refusal, request)),
        Check(tested, _test_only_refusal, _start_estimate),
    ]
    if request.account:
        listed = (*SHOW, "assoc", f"user={getpass.getuser()}", "format=Account")
        refusal = partial(_name_refusal, "account of yours", request.account, "resources.account")
        asked.append(Check(listed, refusal))
    if request.qos:
        asked.append(
            Check((*SHOW, "qos", "format=Name"), partial(_name_refusal, "QOS", request.qos, "resources.qos"))
        )
    return tuple(asked)


def _partition_refusal(request: Request, answer: Completed) -> str | None:
    if not answer.ok:
        return None  # then --test-only and the submission check it
    known = partitions(answer.stdout).values()
    asked = asked_for(request.queue, known, PARTITION)
    if asked.unknown:
        return str(asked.unknown)
    faults = (asked.walltime_fault(request), asked.gpu_fault(request), asked.node_fault(request))
    return "\n".join(map(str, filter(None, faults))) or None


def _test_only_refusal(answer: Completed) -> str | None:
    return None if answer.ok else f"sbatch refuses the job: {answer.said}"


def _start_estimate(answer: Completed) -> str:
    """Return when the job would start: ``sbatch: Job 5 to start at 2026-01-02T03:04:05 ...``.

    Slurm counts every running job with its whole walltime, and knows no job that is yet to come.
    """
    found = re.search(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", answer.said)
    return f"Slurm estimates a start at {found[1].replace('T', ' ')}: {START_VARIES}" if found else ""


def _name_refusal(kind: str, name: str, key: str, answer: Completed) -> str | None:
    """Refuse a name that is not in a list; ``None`` without a list, as with accounting off."""
    known = set(answer.stdout.split()) if answer.ok else set()
    return str(no_such(kind, name, known, key)) if known and name not in known else None
