"""Past jobs in Slurm's accounting: sacct(1). The names are those of `jobkit.schedulers.protocol`.

"Measured" is Slurm 22.05.8; the answers stand in tests/data/slurm/.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from jobkit.core.shell import Completed
from jobkit.core.units import MIB, format_walltime
from jobkit.schedulers import slurm
from jobkit.schedulers.parsing import bytes_of, number_of, seconds_of
from jobkit.schedulers.protocol import PastJob

ACCOUNTING = "Slurm's accounting (sacct)"
COLUMNS = (
    *("JobID", "User", "Partition", "State", "ExitCode", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("ReqMem", "AllocCPUS", "NNodes", "NTasks", "TotalCPU", "MaxRSS", "ReqTRES", "AllocTRES"),
    *("TRESUsageInMax", "TRESUsageInTot", "TRESUsageInAve", "JobName"),
)  # the name is the last column, because it may contain line ends
_STEP = re.compile(r"(?P<job>\d+(?:_(?:\d+|\[.*\])|\+\d+)?)(?:\.(?P<step>\w+))?")
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d{1,9})(?=,|$)")
_OF_GPU = re.compile(r"(?:^|,)gres/(gpumem|gpuutil)=([^,]+)")
_MEMORY = re.compile(r"(?:^|,)mem=([^,]+)")
_CPU = re.compile(r"(?:^|,)cpu=([^,]+)")

Row = Mapping[str, str]


def argvs(ids: tuple[str, ...], user: str, days: int) -> tuple[tuple[str, ...], ...]:
    """Return the one command; see `jobkit.schedulers.protocol.PastJobs`.

    ``-D``: a requeued job has a row for each run. The delimiter is one that no name can hold and the header
    shows: sacct prints line ends in names, so the rest of a name could look like a row. With ids sacct looks
    at all times, and ``--allusers`` shows the job of another user if the site permits it (sacct(1)).
    """
    since = (datetime.now().astimezone() - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S")
    which = ("--allusers", "-j", ",".join(ids)) if ids else ("-u", user, "-S", since)
    bar = f"--delimiter=|{secrets.token_hex(3)}|"
    return (("sacct", "-P", bar, "-D", *which, f"--format={','.join(COLUMNS)}"),)


def read(lines: Iterable[str], site: str) -> Iterator[PastJob]:
    """Yield the jobs; the rows of a job's steps follow its own (measured).

    A line with fewer cells is a part of a name. Without a header a bar parts the cells.
    """
    known, bar, rows = slurm.statuses(site), "|", list[Row]()
    for number, line in enumerate(lines):
        if not number and (header := re.match(f"{COLUMNS[0]}(.+?){COLUMNS[1]}", line)):
            bar = header[1]
        cells = line.rstrip("\n").split(bar, len(COLUMNS) - 1)
        if len(cells) < len(COLUMNS) or not (found := _STEP.fullmatch(cells[0])):
            continue
        if rows and not found["step"]:
            yield _job(rows[0], rows[1:])
            rows = []
        if rows or not found["step"]:
            row = dict(zip(COLUMNS, cells, strict=True))
            rows.append(slurm.with_status(row, cells[0], known))
    if rows:
        yield _job(rows[0], rows[1:])


def _job(row: Row, steps: Sequence[Row]) -> PastJob:
    word, outcome, _ = slurm.end_of(row, steps)
    nodes, cpus = max(1, _whole(row["NNodes"])), max(1, _whole(row["AllocCPUS"]))
    by_cpu, ended = row["ReqMem"].endswith("c"), row["End"] != slurm.UNKNOWN
    used = [pair for step in steps for pair in _OF_GPU.findall(step["TRESUsageInMax"])]
    sizes = [size for name, text in used if name == "gpumem" and (size := bytes_of(text)) is not None]
    loads = [load for name, text in used if name == "gpuutil" and (load := number_of(text)) is not None]
    known = [step for step in steps if not step["JobID"].endswith(".extern")]
    seen = nodes == 1 or sum(max(1, _whole(step["NNodes"])) for step in known) >= nodes
    own = any(_held_by(step, nodes) for step in known)  # what .extern holds alone is Slurm's
    return PastJob(
        scheduler=slurm.NAME,
        job_id=row["JobID"],
        name=row["JobName"],
        user=row["User"],
        queue=row["Partition"],
        state=row["State"] if word != "FAILED" else f"status {row['ExitCode'].partition(':')[0]}",
        ended=ended and word in slurm.END_STATES,
        again=ended and word not in slurm.END_STATES,
        well=word == "COMPLETED",
        outcome=outcome,
        # of a job that was cancelled while it waited Start is the end (measured)
        began=row["Start"] if steps or row["AllocTRES"] else "",
        elapsed_s=number_of(row["ElapsedRaw"]) or 0.0,
        walltime_s=60.0 * _whole(row["TimelimitRaw"]) or None,
        memory_bytes=_requested(row, nodes, cpus),
        memory_key="--mem-per-cpu" if by_cpu else "--mem",
        memory_shares=max(1, cpus // nodes) if by_cpu else 1,
        held_bytes=_held(steps, nodes) if own and seen else None,
        process_bytes=slurm.max_rss_bytes(known),
        cpus=cpus,
        cpu_s=_cpu_s(row, steps) if seen else None,
        processes=max((_whole(step["NTasks"]) for step in steps), default=1),
        gpus=_gpus(row["ReqTRES"]) or _gpus(row["AllocTRES"]),
        gpu_bytes=max(sizes, default=None),
        gpu_percent=max(loads, default=None),
        nodes=nodes,
    )


def _whole(text: str) -> int:
    return int(number_of(text) or 0)


def _gpus(tres: str) -> int:
    """Return the GPUs of a list of TRES, which has their number, or that of each type, or both."""
    found = [(kind, int(number)) for kind, number in _GPUS.findall(tres)]
    return sum(number for kind, number in found if not kind) or sum(number for _, number in found)


def _requested(row: Row, nodes: int, cpus: int) -> int | None:
    """Return the memory on each node; ReqMem is of a node or a CPU with ``n`` or ``c``, else of all nodes."""
    tres = _MEMORY.search(row["AllocTRES"]) or _MEMORY.search(row["ReqTRES"])
    size, of = bytes_of(tres[1] if tres else row["ReqMem"].rstrip("nc")), "" if tres else row["ReqMem"][-1:]
    if size is not None:
        size = size if of == "n" else size * (cpus if of == "c" else 1) // nodes
    return size or None


def _cpu_s(row: Row, steps: Sequence[Row]) -> float | None:
    """Return the CPU time; some versions leave TotalCPU at 0 and have it in the TRES of the steps."""
    total = seconds_of(row["TotalCPU"])
    found = [seconds_of(text) for step in steps for text in _CPU.findall(step["TRESUsageInTot"])]
    return total or math.fsum(filter(None, found)) or total


def _held(steps: Sequence[Row], nodes: int) -> int | None:
    """Return the most memory on a node at once: the sum over the steps that ran at the same time.

    MaxRSS is of the largest task of a step, TRESUsageInTot the sum over its tasks (sacct(1)), each at its own
    peak. The tasks of a step over several nodes are taken to be spread evenly.
    """
    sizes = [(step, size) for step in steps if (size := _held_by(step, nodes))]
    begun = {step["Start"] for step, _ in sizes}
    sums = (sum(size for step, size in sizes if step["Start"] <= at < step["End"]) for at in begun)
    return max((*sums, *(size for _, size in sizes)), default=None)


def _held_by(step: Row, nodes: int) -> int | None:
    largest, tasks = bytes_of(step["MaxRSS"]), _whole(step["NTasks"]) or 1
    if largest is None or tasks == 1:
        return largest
    total = _MEMORY.search(step["TRESUsageInTot"])
    whole = bytes_of(total[1]) if total and nodes == 1 else None
    return whole if whole is not None else largest * math.ceil(tasks / nodes)


def refusal(answer: Completed) -> str:
    """Return why sacct gave no answer: accounting that is off or away, or a program that is missing."""
    return "" if answer.ok else answer.said


def site_argvs(ids: tuple[str, ...], user: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that print the configuration, and the statuses that sacct does not have."""
    jobs = ",".join(re.split(r"\D", id_)[0] for id_ in ids)
    which = ("-j", jobs) if ids else ("-u", user)
    return ("scontrol", "show", "config"), (*slurm.STATUSES, *which)


def sampling_s(site: str) -> float | None:
    """Return JobAcctGatherFrequency, ``30`` or ``task=30``; 0 is at the end only (slurm.conf(5))."""
    found = re.search(r"^JobAcctGatherFrequency\s*=\s*(?:\S*?task=)?(\d+)", site, re.MULTILINE)
    return float(found[1]) if found else None


def lines(job: PastJob, *, memory: int | None, walltime: int | None, cpus: int | None) -> list[str]:
    found = []
    if memory is not None:
        found.append(f"{job.memory_key}={math.ceil(memory / job.memory_shares / MIB)}M")
    if walltime is not None:
        found.append(f"--time={format_walltime(walltime)}")
    if cpus is not None:
        found.append(f"--cpus-per-task={cpus}")
    return [f"{slurm.DIRECTIVE} {line}" for line in found]
