"""What Slurm is asked before anything is submitted, and what a spec may not say in its place.

``sbatch --test-only`` finds most faults, but accepts a walltime that the partition forbids and
an unknown account or QOS (measured, Slurm 22.05.8 with ``EnforcePartLimits=NO`` and no
``AccountingStorageEnforce``: such a job waits for ever or is charged nowhere); and what it says
does not name the value that is wrong. So sinfo and sacctmgr are asked as well.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from jobkit.schedulers.base import Array, Check, Request
from jobkit.schedulers.text import as_walltime, no_such, seconds_of
from jobkit.shell import Completed

OWN_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("--array", "-a"), "change sweep or max_parallel"),
    **dict.fromkeys(("--job-name", "-J"), "change name"),
    **dict.fromkeys(
        ("--output", "-o", "--error", "-e", "--open-mode"),
        "logs are in the run folder, which --runs-dir puts elsewhere",
    ),
    "--signal": "change warning_s in a site file",
    **dict.fromkeys(("--parsable", "--wrap"), "leave it out"),
    **dict.fromkeys(("--dependency", "-d"), "leave it out: find_max waits by it"),
}
"""See `jobkit.schedulers.base.Scheduler`."""


def checks(script: str, array: Array, request: Request) -> tuple[Check, ...]:
    """Return the questions to ask before anything is submitted.

    ``--test-only`` prints its answer, good or bad, on stderr, and uses up a job id (measured).
    """
    tested = ("sbatch", "--test-only", f"--array={array.first}-{array.last}", script)
    asked = [
        # -a: hidden partitions too. %l is the partition's MaxTime, %G its GRES (sinfo(1)).
        Check(("sinfo", "-a", "-h", "-o", "%P|%l|%G"), partial(_partition_refusal, request)),
        Check(tested, _test_only_refusal, _start_estimate),
    ]
    if request.account:
        listed = _listed("assoc", f"user={getpass.getuser()}", "format=Account")
        refusal = partial(_name_refusal, "account of yours", request.account, "resources.account")
        asked.append(Check(listed, refusal))
    if request.qos:
        listed = _listed("qos", "format=Name")
        asked.append(Check(listed, partial(_name_refusal, "QOS", request.qos, "resources.qos")))
    return tuple(asked)


def _listed(*what: str) -> tuple[str, ...]:
    return ("sacctmgr", "-n", "-P", "show", *what)


@dataclass(slots=True)
class _Partition:
    """A partition: its longest walltime (``None``: no limit), its largest GPU count a node, by type."""

    max_time_s: float | None
    gpus: dict[str, int] = field(default_factory=dict)


def _partition_refusal(request: Request, answer: Completed) -> str | None:
    if not answer.ok:
        return None  # what sinfo cannot tell, --test-only and the submission will
    known, default = _partitions(answer.stdout)
    names = (request.queue or default).split(",")
    unknown = [name for name in names if name and name not in known]
    if unknown:
        return no_such("partition", unknown[0], known, "the queue")
    asked = [known[name] for name in names if name]
    faults = (_walltime_fault(request, names, asked), _gpu_fault(request, names, asked))
    return "\n".join(filter(None, faults)) or None


def _partitions(text: str) -> tuple[dict[str, _Partition], str]:
    """Return the partitions by name, and the name of the default one (marked ``*``; or empty)."""
    known: dict[str, _Partition] = {}
    default = ""
    for line in text.splitlines():
        if line.count("|") != 2:  # noqa: PLR2004 - three columns were asked for
            continue
        name, max_time, gres = line.strip().split("|")
        if name.endswith("*"):
            default = name = name[:-1]
        partition = known.setdefault(name, _Partition(seconds_of(_with_seconds(max_time))))
        # gpu:v100:2(S:0-1), gpu:2, gpu:a100_3g.20gb:4 (gres.conf(5))
        for kind, count in re.findall(r"\bgpu(?::([^:,(\s]+))?:(\d+)", gres):
            partition.gpus[kind] = max(int(count), partition.gpus.get(kind, 0))
    return known, default


def _with_seconds(max_time: str) -> str:
    """Return sinfo's ``2-00`` and ``1-00:00`` with all their parts (sbatch(1), --time)."""
    days, dash, rest = max_time.rpartition("-")
    return f"{days}-{rest}{':00' * (2 - rest.count(':'))}" if dash else max_time


def _walltime_fault(request: Request, names: list[str], asked: list[_Partition]) -> str | None:
    limits = [partition.max_time_s for partition in asked]
    if not limits or any(limit is None or limit >= request.walltime_s for limit in limits):
        return None
    longest = max(limit for limit in limits if limit is not None)
    return (
        f"walltime {as_walltime(request.walltime_s)} is longer than partition {', '.join(names)!r} "
        f"allows: at most {as_walltime(longest)} (change resources.walltime or the queue)"
    )


def _gpu_fault(request: Request, names: list[str], asked: list[_Partition]) -> str | None:
    if not request.gpus or not asked:
        return None
    where = f"partition {', '.join(names)!r}"
    offered: dict[str, int] = {}
    for partition in asked:
        for kind, count in partition.gpus.items():
            offered[kind] = max(count, offered.get(kind, 0))
    if not offered:
        return f"{where} has no GPUs; asked for: {request.gpus} (change resources.gpus or the queue)"
    if request.gpu_type and request.gpu_type not in offered:
        return no_such(f"GPU type in {where}", request.gpu_type, offered, "resources.gpu_type")
    most = offered[request.gpu_type] if request.gpu_type else max(offered.values())
    if request.gpus > most:
        return f"{where} has at most {most} GPUs a node; asked for: {request.gpus} (change resources.gpus)"
    return None


def _test_only_refusal(answer: Completed) -> str | None:
    return None if answer.ok else f"sbatch refuses the job: {answer.said}"


def _start_estimate(answer: Completed) -> str:
    """Return when the job would start: ``sbatch: Job 5 to start at 2026-01-02T03:04:05 ...``."""
    found = re.search(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", answer.said)
    return f"Slurm expects the first to start at {found[1].replace('T', ' ')}" if found else ""


def _name_refusal(kind: str, name: str, key: str, answer: Completed) -> str | None:
    """Refuse a name that is not in a list; silent where the accounting is off or does not say."""
    known = set(answer.stdout.split()) if answer.ok else set()
    return no_such(kind, name, known, key) if known and name not in known else None
