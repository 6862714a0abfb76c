"""Past jobs in Slurm's accounting: sacct(1). The names are those of `jobkit.schedulers.protocol`.

"Measured" is Slurm 22.05.8; the answers stand in tests/data/slurm/.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.layout import FOLLOW_SCRIPT
from jobkit.core.shell import Completed
from jobkit.core.units import MIB, format_walltime
from jobkit.schedulers import slurm, slurm_survey
from jobkit.schedulers.parsing import bytes_of, number_of, seconds_of
from jobkit.schedulers.protocol import PAGE_CACHE, RUN_NAME, PastJob, Whose

ACCOUNTING, EXPORT = "Slurm's accounting (sacct)", re.compile(r"(?:\w+\W)*JobID\W")
COLUMNS = (
    *("JobID", "User", "Partition", "State", "ExitCode", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("ReqMem", "AllocCPUS", "NNodes", "NTasks", "TotalCPU", "MaxRSS", "ReqTRES", "AllocTRES"),
    *("TRESUsageInMax", "TRESUsageInTot", "TRESUsageInAve", "JobName"),
)  # the name is the last column, because it may contain line ends
EXPORTED = (*COLUMNS[:-1], "Account", "Submit", "SubmitLine", COLUMNS[-1])
NEEDED = ("JobID", "JobName", "State", "Start", "End", "ReqMem", "AllocCPUS", "MaxRSS")
CACHED = "may count the page cache"
_HEADER = re.compile(r"\w+(\|[0-9a-f]{6}\||\W)(?:\w+\1)*\w*\s*")
_STEP = re.compile(r"(?P<job>\d+(?:_(?:\d+|\[.*\])|\+\d+)?)(?:\.(?P<step>\w+))?")
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d{1,9})(?=,|$)")
_OF_REQUEST = itemgetter("TimelimitRaw", "ReqMem", "AllocCPUS", "NNodes", "ReqTRES", "AllocTRES")
_SHARED = re.compile(r"--mem-per-([cg]pu)\b")
_CLOCK = re.compile(r" (?:-t|--time\b)")
_TASKS = re.compile(
    r"\S*sbatch(?: +(?:--(?!wrap)[\w-]+(?:=\S*)?|-[HkOQsvVW]+|-[aAbBcCdDeFGiJLMmNopqStwx] *\S+))*?"
    r" +(?:-n *|--ntasks[= ])(\d+)(?!\S)"
)  # among the options before the script

Row = Mapping[str, str]


def argvs(whose: Whose, days: Sequence[date], site: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands; see `jobkit.schedulers.protocol.PastJobs`.

    ``-D``: a requeued job has a row for each run. The delimiter is one that no name can hold and the header
    shows: sacct prints line ends in names, so the rest of a name could look like a row. With ids sacct looks
    at all times, and ``--allusers`` shows the job of another user if the site permits it (sacct(1)).
    The jobs of one user are one call, since sacct(1) wants few; those of all may be too much for slurmdbd.
    """
    version = re.search(r"^SLURM_VERSION\s*=\s*(\d+)\.(\d+)", site, re.MULTILINE)
    recent = version and (int(version[1]), int(version[2])) >= (21, 8)
    columns = [name for name in EXPORTED if recent or name != "SubmitLine"]
    bar = f"--delimiter=|{secrets.token_hex(3)}|"
    command = ("sacct", "-P", bar, "-D", f"--format={','.join(columns)}")
    if whose.ids:
        return ((*command, "--allusers", "-j", ",".join(whose.ids)),)
    which = ["-u", whose.user] if whose.user else ["--allusers"]
    which += ["-A", whose.account] if whose.account else []
    which += ["-r", whose.queue] if whose.queue else []
    spans = [(days[0], days[-1])] if whose.user else [(day, day) for day in days]
    return tuple((*command, *which, "-S", f"{one}T00:00:00", "-E", f"{last}T23:59:59") for one, last in spans)


def read(lines: Iterable[str], site: str) -> Iterator[PastJob]:
    """Yield the jobs; the rows of a job's steps follow its own (measured). Without a header, `COLUMNS`."""
    known, rows, cached = slurm.statuses(site), list[Row](), CACHED in " ".join(how_measured(site))
    every = 0.0 if cached else _sampled_s(site) or 30.0  # the default of JobAcctGatherFrequency
    defaults = _defaults(site)
    for row in chain(_rows(lines), ({"JobID": "", "State": "the end of all"},)):
        name, _, step = row["JobID"].partition(".")
        if rows and not step:
            yield _job(rows[0], rows[1:], every, defaults, cached=cached)
            rows = []
        if not step or (rows and name == rows[0]["JobID"]):
            rows.append(slurm.with_status(row, name, known) if row["State"] == "FAILED" else row)


def _rows(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the rows by column; a line with fewer cells goes on in the next, or is a part of a name.

    With more cells bars are in the name, as far as they shift the state, else in what was typed.
    """
    begun = ""
    for line in chain(("|".join(COLUMNS),), lines):
        if not begun and "JobID" in line and (header := _HEADER.fullmatch(line)):
            bar, columns = header[1], line.rstrip("\n").split(header[1])
            if lack := [name for name in NEEDED if name not in columns]:
                message = f"sacct's header has no column {', '.join(lack)}"
                raise JobkitError(message, hint=f"sacct --parsable2 --format={','.join(EXPORTED)}")
            blank = [name for name in EXPORTED if name not in columns]
            known, blank = [*columns, *blank], [""] * len(blank)
            place, state, name = (columns.index(each) for each in ("JobID", "State", "JobName"))
            typed = columns.index("SubmitLine") if "SubmitLine" in columns else name
            continue
        cells = line.rstrip("\n").split(bar)
        if begun and (len(cells) < len(columns) or not _STEP.fullmatch(cells[place])):
            line = begun + line  # noqa: PLW2901
            cells = line.rstrip("\n").split(bar)
        more, begun = len(cells) - len(columns), ""
        if more > 0:
            shifts = range(more + 1 if name < state else 0)
            of_name = next((shift for shift in shifts if cells[state + shift][:1].isalpha()), 0)
            for at, bars in ((name, of_name), (typed, more - of_name)):
                cells[at : at + bars + 1] = [bar.join(cells[at : at + bars + 1])]
        elif more < 0 < len(cells) - 1:
            begun = line
        # what the step "extern" holds is Slurm's own
        if more >= 0 and _STEP.fullmatch(cells[place]) and not cells[place].endswith(".extern"):
            yield dict(zip(known, cells + blank, strict=True))


def _job(row: Row, steps: Sequence[Row], every: float, defaults: Defaults, *, cached: bool) -> PastJob:
    word, outcome, ended = "COMPLETED", None, row["End"] != slurm.UNKNOWN
    if row["State"] != word or any(step["State"] != word for step in steps):
        word, outcome, _ = slurm.end_of(row, steps)
    request = _requested(_key(row["SubmitLine"]), row.get("Timelimit", ""), *_OF_REQUEST(row))
    nodes, memory = request["nodes"], request["memory_bytes"]
    peaks = [bytes_of(step["MaxRSS"]) for step in steps]
    used = [text for step in steps if "gres/gpu" in (text := step["TRESUsageInMax"])]
    sizes = [size for text in used if (size := bytes_of(_part(text, "gres/gpumem"))) is not None]
    loads = [load for text in used if (load := number_of(_part(text, "gres/gpuutil"))) is not None]
    seen = nodes == 1 or sum(max(1, _whole(step["NNodes"])) for step in steps) >= nodes
    held = _held(steps, peaks, nodes) if seen else None
    # files fill what is free where the page cache counts
    doubted = cached and word == "COMPLETED" and held is not None and held >= 0.95 * (memory or math.inf)
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
        held_bytes=None if doubted else held,
        sampled_s=every,
        process_bytes=max(filter(None, peaks), default=None),
        cpu_s=_cpu_s(row, steps) if seen else None,
        processes=max([_whole(step["NTasks"]) for step in steps], default=1),
        tasks=int(asked[1]) if (asked := _TASKS.match(row["SubmitLine"])) else 0,
        gpu_bytes=max(sizes, default=None),
        gpu_percent=max(loads, default=None),
        follows=row["SubmitLine"].endswith(f"/{FOLLOW_SCRIPT}") and bool(RUN_NAME.search(row["JobName"])),
        doubts=(PAGE_CACHE,) if doubted else (),
        by_default=_by_default(row, request, defaults) if defaults else (),
        **request,
    )


def _key(submit_line: str) -> str:
    return found[0] if (found := _SHARED.search(submit_line)) else ""


Defaults = Mapping[str, tuple[str, int, float | None]]


def _defaults(site: str) -> Defaults:
    """Return by partition ``CPU`` or ``Node`` and the bytes a job gets for each, and its seconds."""
    found, whole = {}, re.findall(r"^DefMemPer(CPU|Node) *= *(\d+)", site, re.MULTILINE)
    for name, row in slurm_survey.shown("Partition", site).items():
        sizes = [(per, row.get(f"DefMemPer{per}", "")) for per in ("CPU", "Node")]
        per, size = next((each for each in (*sizes, *whole) if each[1].isdecimal()), ("", "0"))
        seconds = seconds_of(row.get("DefaultTime", "")) or seconds_of(row.get("MaxTime", ""))
        found[name] = (per, int(size) * MIB, seconds)
    return found


def _by_default(row: Row, request: Mapping[str, Any], defaults: Defaults) -> tuple[str, ...]:
    """Return what has the partition's default, if the command line does not request it."""
    per, size, seconds = defaults.get(row["Partition"], ("", 0, None))
    size = size * request["cpus"] // request["nodes"] if per == "CPU" else size
    memory = size and size == request["memory_bytes"] and " --mem" not in row["SubmitLine"]
    walltime = seconds and seconds == request["walltime_s"] and not _CLOCK.search(row["SubmitLine"])
    return tuple(name for name, same in (("memory", memory), ("walltime", walltime)) if same)


@lru_cache(4096)  # most are small
def _whole(text: str) -> int:
    return int(number_of(text) or 0) if text else 0


def _part(tres: str, name: str) -> str:
    """Return a value of a list of TRES."""
    return f",{tres}".partition(f",{name}=")[2].partition(",")[0]


def _gpus(tres: str) -> tuple[int, str]:
    """Return the GPUs of a list of TRES, which has their number, or that of each type, or both; the types."""
    found = [(kind, int(number)) for kind, number in _GPUS.findall(tres)]
    whole = sum(number for kind, number in found if not kind) or sum(number for _, number in found)
    return whole, ",".join(sorted(kind[1:] for kind, _ in found if kind))


@lru_cache(4096)  # jobs often request the same
def _requested(
    key: str, clock: str, minutes: str, req_mem: str, alloc_cpus: str, n_nodes: str, req: str, alloc: str
) -> dict[str, Any]:
    """Return what a job requested, by the fields of `PastJob`.

    Memory is that of a node, as requested: a whole node has more (``--exclusive``, ``--mem=0``). ReqMem is of
    a node or a CPU with ``n`` or ``c``, else of all nodes.
    """
    (gpus, types), (other, kinds) = _gpus(req), _gpus(alloc)
    nodes, held_cpus = max(1, _whole(n_nodes)), max(1, _whole(alloc_cpus))
    cpus = _whole(_part(req, "cpu")) or held_cpus
    if cpus == held_cpus:  # a whole node has GPUs that were not requested
        gpus = gpus or other
    if size := bytes_of(_part(req, "mem")):
        # by CPU it is that of all, and ReqTRES has the fewest nodes that were asked for (measured)
        by_cpu = size == bytes_of(_part(alloc, "mem"))
        size //= nodes if by_cpu else max(1, _whole(_part(req, "node")) or nodes)
    elif size := bytes_of(_part(alloc, "mem")):
        size //= nodes
    elif (size := bytes_of(req_mem.rstrip("nc"))) and not req_mem.endswith("n"):
        size = size * (held_cpus if req_mem.endswith("c") else 1) // nodes
    key = key or ("--mem-per-cpu" if req_mem.endswith("c") else "--mem")
    of = {"--mem-per-cpu": held_cpus, "--mem-per-gpu": gpus}.get(key, nodes)
    return {
        "walltime_s": 60.0 * _whole(minutes) or seconds_of(clock) or None,
        "memory_bytes": size or None,
        "memory_key": key,
        "memory_shares": max(1, of // nodes),
        "cpus": cpus,
        "held_cpus": held_cpus,
        "gpus": gpus,
        "held_gpus": other,
        "gpu_type": kinds or types,
        "nodes": nodes,
    }


def _cpu_s(row: Row, steps: Sequence[Row]) -> float | None:
    """Return the CPU time; some versions leave TotalCPU at 0 and have it in the TRES of the steps."""
    if total := seconds_of(row["TotalCPU"]):
        return total
    found = [seconds_of(_part(step["TRESUsageInTot"], "cpu")) for step in steps]
    return math.fsum(filter(None, found)) or total


def _held(steps: Sequence[Row], peaks: Sequence[int | None], nodes: int) -> int | None:
    """Return the most memory on a node at once: the sum over the steps that ran at the same time.

    MaxRSS is of the largest task of a step, TRESUsageInTot the sum over its tasks (sacct(1)), each at its own
    peak. The tasks of a step over several nodes are taken to be spread evenly.
    """
    sizes = []
    for step, size in zip(steps, peaks, strict=True):
        if size is not None and (tasks := _whole(step["NTasks"])) > 1:
            whole = bytes_of(_part(step["TRESUsageInTot"], "mem")) if nodes == 1 else None
            size = size * math.ceil(tasks / nodes) if whole is None else whole  # noqa: PLW2901
        if size:
            sizes.append((step["Start"], step["End"], size))
    if len(sizes) == 1:
        return sizes[0][2]
    sums = [sum(size for begun, over, size in sizes if begun <= at < over) for at, _, _ in sizes]
    return max((*sums, *(size for _, _, size in sizes)), default=None)


def refusal(answer: Completed) -> str:
    """Return why sacct gave no answer: accounting that is off or away, or a program that is missing."""
    return "" if answer.ok or "invalid user" in answer.said.lower() else answer.said


def site_argvs(whose: Whose) -> tuple[tuple[str, ...], ...]:
    """Return the commands that print configuration, partitions, and the statuses that sacct does not have."""
    jobs = ",".join(re.split(r"\D", id_)[0] for id_ in whose.ids)
    which = ("-j", jobs) if jobs else ("-u", whose.user) if whose.user else ()
    site = (("scontrol", "show", "config"), ("scontrol", "-o", "show", "partition"))
    return *site, *([(*slurm.STATUSES, *which)] if which else [])


def _sampled_s(site: str) -> float:
    found = re.search(r"^JobAcctGatherFrequency\s*=\s*(?:\S*task=)?(\d+)", site, re.MULTILINE)
    return float(found[1]) if found else 0.0


def how_measured(site: str) -> tuple[str, ...]:
    """Return what JobAcctGatherType, -Params and -Frequency imply for MaxRSS (slurm.conf(5)).

    With control groups of version 2 Slurm reads memory.current, or memory.peak, which have the page cache.
    """
    found = dict(re.findall(r"^(JobAcctGather\w+|CgroupPlugin)\s*= *(\S*)", site, re.MULTILINE))
    gather, params = found.get("JobAcctGatherType", ""), found.get("JobAcctGatherParams", "").lower()
    every = _sampled_s(site)
    sentences = []
    if gather.endswith("none"):
        sentences += ["JobAcctGatherType is none here: the accounting has no use of memory or CPU."]
    elif gather.endswith("cgroup"):
        without = "no_file_cache" in params or found.get("CgroupPlugin", "").endswith("v1")
        cache = "leaves out the page cache" if without else CACHED
        sentences += [f"MaxRSS is of the control group (JobAcctGatherType): it {cache}."]
    elif gather and "usepss" not in params and "noshare" not in params:
        sentences += ["MaxRSS adds up the processes of a task: memory that they share counts for each."]
    if every:
        shorter = "the accounting does not see a peak that is shorter"
        sentences += [f"Memory is sampled every {every:.0f} s: {shorter}."]
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
    if cpus is not None:  # of the one task that ran
        found += ["--ntasks=1", f"--cpus-per-task={cpus}"]
    return [f"{slurm.DIRECTIVE} {line}" for line in found]
