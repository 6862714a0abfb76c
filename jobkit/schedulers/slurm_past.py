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
from itertools import accumulate, chain
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
CELLS = (*EXPORTED, "Elapsed", "Timelimit")  # a person's export may have these in place of ...Raw
CACHED, SAMPLED_S = "may count the page cache", 30  # the default of JobAcctGatherFrequency
_STEP = re.compile(r"(?P<job>\d+(?:_(?:\d+|\[.*\])|\+\d+)?)(?:\.(?P<step>\w+))?")
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d{1,9})(?=,|$)")
_OF_JOB, _OF_SUBMISSION, _OF_REQUEST, _OF_STEP = (
    itemgetter(*map(CELLS.index, names.split()))
    for names in (
        "JobID User Partition State Start End ElapsedRaw Elapsed TotalCPU AllocTRES",
        "Account Submit SubmitLine JobName",
        "Timelimit TimelimitRaw ReqMem AllocCPUS NNodes ReqTRES AllocTRES",
        "JobID Start End NTasks MaxRSS TRESUsageInMax TRESUsageInTot",
    )
)
_STATE, _NODES, _TOTAL = map(CELLS.index, ("State", "NNodes", "TRESUsageInTot"))
_TASKS = re.compile(
    r"\S*sbatch(?: +(?:--(?!wrap)[\w-]+(?:=\S*)?|-[HkOQsvVW]+|-[aAbBcCdDeFGiJLMmNopqStwx] *\S+))*?"
    r" +(?:-n *|--ntasks[= ])(\d+)(?!\S)"
)  # among the options before the script

Row = Sequence[str]  # the cells of `CELLS`, in their order
Statuses = Mapping[tuple[str, str], int]  # by job and end
Defaults = Mapping[str, tuple[str, int, float | None]]  # as `_defaults` returns them


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
    known, rows = slurm.statuses(site), list[Row]()
    every = 0.0 if CACHED in " ".join(how_measured(site)) else _sampled_s(site) or SAMPLED_S
    defaults = _defaults(site)
    for row in chain(_rows(lines), (("",),)):
        name, _, step = row[0].partition(".")
        if not step:
            if rows:
                yield _job(rows[0], rows[1:], known, every, defaults)
            rows = [row]
        elif rows and name == rows[0][0]:
            rows.append(row)


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yield the rows; a line with fewer cells goes on in the next, or is a part of a name.

    With more cells bars are in the name, as far as they shift the state, else in what was typed.
    """
    begun, form = "", r"\w+(\|[0-9a-f]{6}\||\W)(?:\w+\1)*\w*\s*"
    needed = ("JobID", "JobName", "State", "Start", "End", "ReqMem", "AllocCPUS", "MaxRSS")
    for line in chain(("|".join(COLUMNS),), lines):
        if not begun and "JobID" in line and (header := re.fullmatch(form, line)):
            bar, columns = header[1], line.rstrip("\n").split(header[1])
            if lack := [name for name in needed if name not in columns]:
                message = f"sacct's header has no column {', '.join(lack)}"
                raise JobkitError(message, hint=f"sacct --parsable2 --format={','.join(EXPORTED)}")
            ordered, extern = columns == [*EXPORTED], f".extern{bar}"
            chosen = itemgetter(*(columns.index(each) if each in columns else -1 for each in CELLS))
            place, state, name = (columns.index(each) for each in ("JobID", "State", "JobName"))
            typed = columns.index("SubmitLine") if "SubmitLine" in columns else name
            continue
        if extern in line[:60] and not begun:  # for speed; below are those of other orders
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
            cells += ("", "")
            yield cells if ordered else chosen(cells)


def _job(row: Row, steps: Sequence[Row], known: Statuses, every: float, defaults: Defaults) -> PastJob:
    job_id, user, queue, state, began, over, elapsed, clock, cpu, alloc = _OF_JOB(row)
    account, submitted, submit_line, name = _OF_SUBMISSION(row)
    word, outcome, ended = "COMPLETED", None, over != slurm.UNKNOWN
    if {each[_STATE] for each in (row, *steps)} != {word}:
        named, *others = (dict(zip(CELLS, each, strict=True)) for each in (row, *steps))
        word, outcome, _ = slurm.end_of(named, others)
        if word == "FAILED":
            state = f"status {slurm.with_status(named, job_id, known)['ExitCode'].partition(':')[0]}"
    found = re.search(r"--mem-per-([cg]pu)\b", submit_line) if "--mem-per" in submit_line else None
    key = found[0] if found else ""
    request = _requested(key, *_OF_REQUEST(row))
    typed = " -n" in submit_line or " --ntasks" in submit_line
    used, memory = _used(cpu, steps, request["nodes"]), request["memory_bytes"]
    # files fill what is free where the page cache counts: memory is not sampled there
    if not every and word == "COMPLETED" and (used["held_bytes"] or 0) >= 0.95 * (memory or math.inf):
        used |= {"held_bytes": None, "doubts": (PAGE_CACHE,)}
    return PastJob(
        scheduler=slurm.NAME,
        job_id=job_id,
        name=name,
        user=user,
        account=account,
        queue=queue,
        state=state,
        ended=ended and word in slurm.END_STATES,
        again=ended and word not in slurm.END_STATES,
        well=word == "COMPLETED",
        outcome=outcome,
        submitted=submitted,
        # of a job that was cancelled while it waited Start is the end (measured)
        began=began if steps or alloc else "",
        over=over if ended else "",
        elapsed_s=(number_of(elapsed) if elapsed else seconds_of(clock)) or 0.0,
        sampled_s=every,
        tasks=int(asked[1]) if typed and (asked := _TASKS.match(submit_line)) else 0,
        follows=submit_line.endswith(f"/{FOLLOW_SCRIPT}") and bool(RUN_NAME.search(name)),
        by_default=_by_default(queue, submit_line, request, defaults) if defaults else (),
        **request,
        **used,
    )


def _used(cpu: str, steps: Sequence[Row], nodes: int) -> dict[str, Any]:
    """Return what a job used, by the fields of `PastJob`: its memory is that of the steps at one time.

    MaxRSS is of the largest task of a step, TRESUsageInTot the sum over its tasks (sacct(1)), each at its own
    peak. The tasks of a step over several nodes are taken to be spread evenly. Some versions leave TotalCPU
    at 0 and have it in the TRES of the steps. The script itself is no task next to those of its steps.
    """
    cpu_s, held, process = seconds_of(cpu), 0, 0
    changes, gpus = list[tuple[str, int]](), list[str]()  # of the memory, with their times
    at_once = list[tuple[str, int]]()  # of the tasks; steps within one second may have been parallel
    for name, begun, over, tasks, rss, most, total in map(_OF_STEP, steps):
        number, size = _whole(tasks), bytes_of(rss) or 0
        process = max(process, size)
        if not name.endswith((".batch", ".interactive")):
            at_once += ((begun, number), (over if begun < over else f"{over}~", -number))
        if number > 1 and size:
            whole = bytes_of(_part(total, "mem")) if nodes == 1 else None
            size = size * math.ceil(number / nodes) if whole is None else whole
        held = max(held, size)
        if begun < over:
            changes += ((begun, size), (over, -size))
        if "gres/gpu" in most:
            gpus.append(most)
    if len(steps) > 1:
        held = max((held, *accumulate(by for _, by in sorted(changes))))
    processes = max((1, *accumulate(by for _, by in sorted(at_once))))
    if not cpu_s:
        cpu_s = math.fsum(filter(None, [seconds_of(_part(step[_TOTAL], "cpu")) for step in steps])) or cpu_s
    known = nodes == 1 or sum(max(1, _whole(step[_NODES])) for step in steps) >= nodes
    used: dict[str, Any] = {
        "held_bytes": held if known and held else None,
        "process_bytes": process or None,
        "cpu_s": cpu_s if known else None,
        "processes": processes,
    }
    if gpus:
        for name, key, parse in (("gpu_bytes", "gpumem", bytes_of), ("gpu_percent", "gpuutil", number_of)):
            values = [parse(_part(text, f"gres/{key}")) for text in gpus]
            used[name] = max((value for value in values if value is not None), default=None)
    return used


def _defaults(site: str) -> Defaults:
    """Return by partition ``CPU`` or ``Node`` and the bytes a job gets for each, and its seconds."""
    found, whole = {}, re.findall(r"^DefMemPer(CPU|Node) *= *(\d+)", site, re.MULTILINE)
    for name, row in slurm_survey.shown("Partition", site).items():
        sizes = [(per, row.get(f"DefMemPer{per}", "")) for per in ("CPU", "Node")]
        per, size = next((each for each in (*sizes, *whole) if each[1].isdecimal()), ("", "0"))
        seconds = seconds_of(row.get("DefaultTime", "")) or seconds_of(row.get("MaxTime", ""))
        found[name] = (per, int(size) * MIB, seconds)
    return found


def _by_default(
    queue: str, submit_line: str, request: Mapping[str, Any], defaults: Defaults
) -> tuple[str, ...]:
    """Return what has the partition's default, if the command line does not request it."""
    per, size, seconds = defaults.get(queue, ("", 0, None))
    size = size * request["cpus"] // request["nodes"] if per == "CPU" else size
    memory = size and size == request["memory_bytes"] and " --mem" not in submit_line
    walltime = (
        seconds and seconds == request["walltime_s"] and not re.search(r" (?:-t|--time\b)", submit_line)
    )
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
    shorter = "the accounting does not see a peak that is shorter"
    if every:
        sentences += [f"Memory is sampled every {every:.0f} s: {shorter}."]
    elif "JobAcctGatherFrequency" not in found and not gather:
        taken = f"Memory is taken to be sampled every {SAMPLED_S} s, Slurm's default"
        sentences += [f"{taken}: {shorter}. --sampled-every 1s says what your site has."]
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
