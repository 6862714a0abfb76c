"""Past jobs in Slurm's accounting: sacct(1). The names are those of `jobkit.schedulers.protocol`.

"Measured" is Slurm 22.05.8; the answers stand in tests/data/slurm/.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache

from jobkit.core.errors import JobkitError
from jobkit.core.layout import FOLLOW_SCRIPT
from jobkit.core.shell import Completed
from jobkit.core.units import MIB, format_walltime
from jobkit.schedulers import slurm
from jobkit.schedulers.parsing import bytes_of, number_of, seconds_of
from jobkit.schedulers.protocol import PAGE_CACHE, RUN_NAME, PastJob, Whose

ACCOUNTING, EXPORT = "Slurm's accounting (sacct)", ("JobID",)
COLUMNS = (
    *("JobID", "User", "Partition", "State", "ExitCode", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("ReqMem", "AllocCPUS", "NNodes", "NTasks", "TotalCPU", "MaxRSS", "ReqTRES", "AllocTRES"),
    *("TRESUsageInMax", "TRESUsageInTot", "TRESUsageInAve", "JobName"),
)  # the name is the last column, because it may contain line ends
NEEDED = ("JobID", "JobName", "State", "Start", "End", "ReqMem", "AllocCPUS", "MaxRSS")
_HEADER = re.compile(r"JobID(\|[0-9a-f]{6}\||\W)")
_STEP = re.compile(r"(?P<job>\d+(?:_(?:\d+|\[.*\])|\+\d+)?)(?:\.(?P<step>\w+))?")
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d{1,9})(?=,|$)")
_SHARED = re.compile(r"--mem-per-([cg]pu)\b")

Row = Mapping[str, str]


def argvs(whose: Whose, days: Sequence[date], site: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands; see `jobkit.schedulers.protocol.PastJobs`.

    ``-D``: a requeued job has a row for each run. The delimiter is one that no name can hold and the header
    shows: sacct prints line ends in names, so the rest of a name could look like a row. With ids sacct looks
    at all times, and ``--allusers`` shows the job of another user if the site permits it (sacct(1)).
    """
    version = re.search(r"^SLURM_VERSION\s*=\s*(\d+)\.(\d+)", site, re.MULTILINE)
    recent = version and (int(version[1]), int(version[2])) >= (21, 8)
    columns = (*COLUMNS[:-1], "Account", "Submit", *(["SubmitLine"] if recent else []), COLUMNS[-1])
    bar = f"--delimiter=|{secrets.token_hex(3)}|"
    command = ("sacct", "-P", bar, "-D", f"--format={','.join(columns)}")
    if whose.ids:
        return ((*command, "--allusers", "-j", ",".join(whose.ids)),)
    which = ["-u", whose.user] if whose.user else ["--allusers"]
    which += ["-A", whose.account] if whose.account else []
    which += ["-r", whose.queue] if whose.queue else []
    return tuple((*command, *which, "-S", f"{day}T00:00:00", "-E", f"{day}T23:59:59") for day in days)


def read(lines: Iterable[str], site: str) -> Iterator[PastJob]:
    """Yield the jobs; the rows of a job's steps follow its own (measured). Without a header, `COLUMNS`."""
    known, rows, cached = slurm.statuses(site), list[Row](), CACHED in " ".join(how_measured(site))
    for row in _rows(lines):
        name, _, step = row["JobID"].partition(".")
        if rows and not step:
            yield _without_cache(_job(rows[0], rows[1:]), cached=cached)
            rows = []
        if rows or not step:
            rows.append(slurm.with_status(row, name, known) if row["State"] == "FAILED" else row)
    if rows:
        yield _without_cache(_job(rows[0], rows[1:]), cached=cached)


CACHED, FULL = "may count the page cache", 0.95


def _without_cache(job: PastJob, *, cached: bool) -> PastJob:
    """Return a job without a MaxRSS near its limit where the page cache counts: files fill what is free."""
    if not (cached and job.well and (job.held_bytes or 0) >= FULL * (job.memory_bytes or math.inf)):
        return job
    return replace(job, held_bytes=None, doubts=(PAGE_CACHE,))


def _rows(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the rows by column; a line with fewer cells goes on in the next, or is a part of a name."""
    bar, begun = "|", ""
    columns: tuple[str, ...] = COLUMNS
    more = [name for name in _KNOWN if name not in columns]
    known, blank = (*columns, *more), [""] * len(more)
    for line in lines:
        if header := _HEADER.match(line):
            bar = header[1]
            columns = tuple(line.rstrip("\n").split(bar))
            if lack := [name for name in NEEDED if name not in columns]:
                message = f"sacct's header has no column {', '.join(lack)}"
                raise JobkitError(message, hint=f"sacct --parsable2 --format={','.join(COLUMNS)}")
            more = [name for name in _KNOWN if name not in columns]
            known, blank = (*columns, *more), [""] * len(more)
            continue
        if f".extern{bar}" in line[:60]:  # what it holds is Slurm's own
            continue
        text = begun + line
        cells = text.rstrip("\n").split(bar, len(columns) - 1)
        complete = len(cells) == len(columns)
        begun = text if not complete and len(bar) > 1 and len(cells) > 1 else ""
        if complete and _STEP.fullmatch(cells[0]):
            yield dict(zip(known, cells + blank, strict=True))


_KNOWN = (*COLUMNS, "Account", "Submit", "SubmitLine")


def _job(row: Row, steps: Sequence[Row]) -> PastJob:
    word, outcome = "COMPLETED", None
    if {row["State"], *(step["State"] for step in steps)} != {word}:
        word, outcome, _ = slurm.end_of(row, steps)
    nodes, cpus = max(1, _whole(row["NNodes"])), max(1, _whole(row["AllocCPUS"]))
    ended = row["End"] != slurm.UNKNOWN
    asked, got = _tres(row["ReqTRES"]), _tres(row["AllocTRES"])
    used = [_parts(text) for step in steps if "gres/gpu" in (text := step["TRESUsageInMax"])]
    sizes = [size for each in used if (size := bytes_of(each.get("gres/gpumem", ""))) is not None]
    loads = [load for each in used if (load := number_of(each.get("gres/gpuutil", ""))) is not None]
    seen = nodes == 1 or sum(max(1, _whole(step["NNodes"])) for step in steps) >= nodes
    own_cpus = _whole(asked.get("cpu", "")) or cpus
    gpus = _gpus(row["ReqTRES"])[0]
    if own_cpus == cpus:  # a whole node has GPUs that were not requested
        gpus = gpus or _gpus(row["AllocTRES"])[0]
    key, shares = "--mem", 1
    of_cpu = "--mem-per-cpu" if row["ReqMem"].endswith("c") else ""
    if shared := _SHARED.search(row["SubmitLine"] or of_cpu):
        key, shares = shared[0], max(1, (gpus if shared[1] == "gpu" else cpus) // nodes)
    elapsed = row["ElapsedRaw"]
    return PastJob(
        scheduler=slurm.NAME,
        job_id=row["JobID"],
        name=row["JobName"],
        user=row["User"],
        account=row["Account"],
        queue=row["Partition"],
        state=row["State"] if word != "FAILED" else f"status {row['ExitCode'].partition(':')[0]}",
        ended=ended and word in slurm.END_STATES,
        again=ended and word not in slurm.END_STATES,
        well=word == "COMPLETED",
        outcome=outcome,
        submitted=row["Submit"],
        # of a job that was cancelled while it waited Start is the end (measured)
        began=row["Start"] if steps or row["AllocTRES"] else "",
        over=row["End"] if ended else "",
        elapsed_s=(number_of(elapsed) if elapsed else seconds_of(row.get("Elapsed", ""))) or 0.0,
        walltime_s=60.0 * _whole(row["TimelimitRaw"]) or seconds_of(row.get("Timelimit", "")) or None,
        memory_bytes=_requested(row, asked, got, nodes, cpus),
        memory_key=key,
        memory_shares=shares,
        held_bytes=_held(steps, nodes) if steps and seen else None,
        process_bytes=slurm.max_rss_bytes(steps),
        cpus=own_cpus,
        held_cpus=cpus,
        cpu_s=_cpu_s(row, steps) if seen else None,
        processes=max((_whole(step["NTasks"]) for step in steps), default=1),
        gpus=gpus,
        gpu_type=_gpus(row["AllocTRES"])[1] or _gpus(row["ReqTRES"])[1],
        gpu_bytes=max(sizes, default=None),
        gpu_percent=max(loads, default=None),
        nodes=nodes,
        follows=row["SubmitLine"].endswith(f"/{FOLLOW_SCRIPT}") and bool(RUN_NAME.search(row["JobName"])),
    )


@lru_cache(4096)  # most are small
def _whole(text: str) -> int:
    return int(number_of(text) or 0) if text else 0


def _parts(tres: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in tres.split(","))


_tres = lru_cache(4096)(_parts)  # what jobs request is often the same


@lru_cache(4096)
def _gpus(tres: str) -> tuple[int, str]:
    """Return the GPUs of a list of TRES, which has their number, or that of each type, or both; the types."""
    found = [(kind, int(number)) for kind, number in _GPUS.findall(tres)]
    whole = sum(number for kind, number in found if not kind) or sum(number for _, number in found)
    return whole, ",".join(sorted(kind[1:] for kind, _ in found if kind))


def _requested(row: Row, asked: Row, got: Row, nodes: int, cpus: int) -> int | None:
    """Return the memory on each node, as requested: a whole node has more (``--exclusive``, ``--mem=0``).

    ReqMem is of a node or a CPU with ``n`` or ``c``, else of all nodes.
    """
    if size := bytes_of(asked.get("mem", "")):
        return size // max(1, _whole(asked.get("node", "")) or nodes)
    if size := bytes_of(got.get("mem", "")):
        return size // nodes
    of = row["ReqMem"][-1:]
    size = bytes_of(row["ReqMem"].rstrip("nc"))
    if size is not None:
        size = size if of == "n" else size * (cpus if of == "c" else 1) // nodes
    return size or None


def _cpu_s(row: Row, steps: Sequence[Row]) -> float | None:
    """Return the CPU time; some versions leave TotalCPU at 0 and have it in the TRES of the steps."""
    if total := seconds_of(row["TotalCPU"]):
        return total
    found = [seconds_of(_parts(step["TRESUsageInTot"]).get("cpu", "")) for step in steps]
    return math.fsum(filter(None, found)) or seconds_of(row["TotalCPU"])


def _held(steps: Sequence[Row], nodes: int) -> int | None:
    """Return the most memory on a node at once: the sum over the steps that ran at the same time.

    MaxRSS is of the largest task of a step, TRESUsageInTot the sum over its tasks (sacct(1)), each at its own
    peak. The tasks of a step over several nodes are taken to be spread evenly.
    """
    sizes = [(step, size) for step in steps if (size := _held_by(step, nodes))]
    if len(sizes) <= 1:
        return sizes[0][1] if sizes else None
    begun = {step["Start"] for step, _ in sizes}
    sums = (sum(size for step, size in sizes if step["Start"] <= at < step["End"]) for at in begun)
    return max((*sums, *(size for _, size in sizes)), default=None)


def _held_by(step: Row, nodes: int) -> int | None:
    largest, tasks = bytes_of(step["MaxRSS"]), _whole(step["NTasks"]) or 1
    if largest is None or tasks == 1:
        return largest
    whole = bytes_of(_parts(step["TRESUsageInTot"]).get("mem", "")) if nodes == 1 else None
    return whole if whole is not None else largest * math.ceil(tasks / nodes)


def refusal(answer: Completed) -> str:
    """Return why sacct gave no answer: accounting that is off or away, or a program that is missing."""
    return "" if answer.ok else answer.said


def site_argvs(whose: Whose) -> tuple[tuple[str, ...], ...]:
    """Return the commands that print the configuration, and the statuses that sacct does not have."""
    jobs = ",".join(re.split(r"\D", id_)[0] for id_ in whose.ids)
    which = ("-j", jobs) if jobs else ("-u", whose.user) if whose.user else ()
    return ("scontrol", "show", "config"), *([(*slurm.STATUSES, *which)] if which else [])


def how_measured(site: str) -> tuple[str, ...]:
    """Return what JobAcctGatherType, -Params and -Frequency imply for MaxRSS (slurm.conf(5)).

    With control groups of version 2 Slurm reads memory.current, or memory.peak, which have the page cache.
    """
    found = dict(re.findall(r"^(JobAcctGather\w+|CgroupPlugin)\s*= *(\S*)", site, re.MULTILINE))
    gather, params = found.get("JobAcctGatherType", ""), found.get("JobAcctGatherParams", "").lower()
    every = re.search(r"(?:^|task=)(\d+)", found.get("JobAcctGatherFrequency", ""))
    sentences = []
    if gather.endswith("none"):
        sentences += ["JobAcctGatherType is none here: the accounting has no use of memory or CPU."]
    elif gather.endswith("cgroup"):
        without = "no_file_cache" in params or found.get("CgroupPlugin", "").endswith("v1")
        cache = "leaves out the page cache" if without else CACHED
        sentences += [f"MaxRSS is of the control group (JobAcctGatherType): it {cache}."]
    elif gather and "usepss" not in params and "noshare" not in params:
        sentences += ["MaxRSS adds up the processes of a task: memory that they share counts for each."]
    if every and int(every[1]):
        shorter = "the accounting does not see a peak that is shorter"
        sentences += [f"Memory is sampled every {every[1]} s: {shorter}."]
    elif not gather.endswith("none"):
        sentences += ["Memory is sampled: the accounting does not see a short peak."]
    return tuple(sentences)


def lines(job: PastJob, *, memory: int | None, walltime: int | None, cpus: int | None) -> list[str]:
    found = []
    if memory is not None:
        shares = cpus if cpus and job.memory_key == "--mem-per-cpu" else job.memory_shares
        found.append(f"{job.memory_key}={math.ceil(memory / shares / MIB)}M")
    if walltime is not None:
        found.append(f"--time={format_walltime(walltime)}")
    if cpus is not None:
        found.append(f"--cpus-per-task={cpus}")
    return [f"{slurm.DIRECTIVE} {line}" for line in found]
