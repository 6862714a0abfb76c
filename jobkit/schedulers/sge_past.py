"""Past jobs in Grid Engine's accounting: qacct(1). The names are those of `jobkit.schedulers.protocol`.

"Measured" is Son of Grid Engine 8.1.9; the answers stand in tests/data/sge/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

from jobkit.core.shell import Completed
from jobkit.core.units import MIB, format_walltime
from jobkit.schedulers import sge, sge_survey
from jobkit.schedulers.parsing import bytes_of, number_of, seconds_of
from jobkit.schedulers.protocol import FOLLOW_BYTES, FOLLOW_S, RUN_NAME, PastJob, Whose
from jobkit.schedulers.survey import Consumable, Resource

ACCOUNTING, EXPORT = "Grid Engine's accounting (qacct)", re.compile("====|qname")


def argvs(whose: Whose, days: Sequence[date], site: str) -> tuple[tuple[str, ...], ...]:
    """Return one command an id: qacct answers the first (measured). Each call reads the whole file."""
    del site
    if whose.ids:
        numbers = dict.fromkeys(re.split(r"\D", id_)[0] for id_ in whose.ids)
        return tuple(("qacct", "-j", number) for number in numbers)
    which = (("-o", whose.user), ("-P", whose.account), ("-q", whose.queue))
    chosen = [word for option, value in which if value for word in (option, value)]
    return (("qacct", *chosen, "-d", str(len(days)), "-j"),)


def read(lines: Iterable[str], site: str) -> Iterator[PastJob]:
    """Yield the jobs."""
    named = {name: each for each in sge_survey.resources(site) for name in (each.name, each.shortcut)}
    kinds = sge_survey.memory_resources(named.values())
    memories = {name for name, each in named.items() if each in kinds} or set(sge_survey.LIMITS)
    counted = [(name, each) for name, each in named.items() if each.counted is not Consumable.NOT]
    gpus = {name for name, each in counted if sge_survey.gpu_resource((each,))}
    slaves_s: dict[str, float] = {}  # CPU time of the tasks that a parallel job has started on other hosts
    for record in sge.records(lines):
        job = _job(record, named, memories, gpus)
        if record.get("pe_taskid", "NONE") != "NONE":
            slaves_s[job.job_id] = slaves_s.get(job.job_id, 0.0) + (job.cpu_s or 0.0)
        elif (more_s := slaves_s.pop(job.job_id, None)) is not None:
            yield replace(job, cpu_s=(job.cpu_s or 0.0) + more_s, held_bytes=None)
        else:
            yield job


def _job(
    record: Mapping[str, str], resources: Mapping[str, Resource], memories: set[str], of_gpus: set[str]
) -> PastJob:
    """Return a job; ``resources`` of the site by name and shortcut, and which names are memory and GPUs."""
    ended, outcome, words = sge.end_of(record)
    asked, slots = sge.requested(record), int(number_of(record.get("slots", "")) or 1)
    submitted, began, over = (_iso(record.get(f"{key}_time", "")) for key in ("qsub", "start", "end"))
    key = next((name for name in asked if name in memories), "")
    size, shares = bytes_of(asked.get(key, "")), _shares(resources.get(key), slots) if resources else slots
    gpus = [(resources[name], count) for name, count in asked.items() if name in of_gpus]
    task = record.get("taskid", "")
    peak, process = bytes_of(record.get("maxvmem", "")), sge.max_rss_bytes(record)
    environment = record.get("granted_pe", "NONE")
    memory_bytes, walltime_s = size * shares if size is not None else None, seconds_of(asked.get("h_rt", ""))
    unwarned = "s_rt" not in asked and bool(RUN_NAME.search(record.get("jobname", "")))
    return PastJob(
        scheduler=sge.NAME,
        job_id=record["jobnumber"] + (f".{task}" if task.isdecimal() else ""),
        name=record.get("jobname", ""),
        user=record.get("owner", ""),
        account=record.get("project", "NONE").replace("NONE", ""),
        queue=record.get("qname", ""),
        state=words,
        ended=ended,
        well=ended and words.endswith("failed 0, exit_status 0"),
        outcome=outcome,
        again=not ended,
        submitted=submitted,
        began=began,
        over=over,
        elapsed_s=sge.elapsed_s(record) or 0.0,
        walltime_s=walltime_s,
        memory_bytes=memory_bytes,
        memory_key=key,
        memory_shares=shares,
        held_bytes=max((found for found in (peak, process) if found), default=None),
        process_bytes=process,
        cpus=slots,
        cpu_s=seconds_of(record.get("cpu", "")),
        gpus=sum(int(number_of(count) or 0) * _shares(resource, slots) for resource, count in gpus),
        environment="" if environment == "NONE" else environment,
        follows=unwarned and walltime_s == FOLLOW_S and memory_bytes in {None, FOLLOW_BYTES},
    )


def _iso(text: str) -> str:
    moment = sge.moment(text)
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") if moment else ""


def _shares(resource: Resource | None, slots: int) -> int:
    """Return how often a job gets what it requests.

    Once for each slot if the resource is counted so; limits are multiplied too unless they are counted
    otherwise (queue_conf(5)). A load value such as ``mem_free`` is what one host has.
    """
    if resource is None or resource.counted is Consumable.JOB:
        return 1
    limit = resource.name.startswith(("h_", "s_"))
    return slots if limit or resource.counted is Consumable.SLOT else 1


def refusal(answer: Completed) -> str:
    """Return why qacct gave no answer; that a job is not found is an answer."""
    return "" if answer.ok or re.search(r"error: .* not found", answer.said) else answer.said


def site_argvs(whose: Whose) -> tuple[tuple[str, ...], ...]:
    """Return the command that prints the resources and how each is counted: complex(5)."""
    del whose
    return (("qconf", "-sc"),)


def how_measured(site: str) -> tuple[str, ...]:
    """Return what is known without a command that prints how often execd samples maxvmem."""
    del site
    return ("Memory is sampled: the accounting does not see a short peak.",)


def lines(job: PastJob, *, memory: int | None, walltime: int | None, cpus: int | None) -> list[str]:
    found = []
    if memory is not None and job.memory_key:
        slots = job.memory_shares if cpus is None or job.memory_shares == 1 else cpus
        found.append(f"-l {job.memory_key}={math.ceil(memory / slots / MIB)}M")
    if walltime is not None:
        found.append(f"-l h_rt={format_walltime(walltime)}")
    if cpus is not None and job.environment:
        found.append(f"-pe {job.environment} {cpus}")
    return [f"{sge.DIRECTIVE} {line}" for line in found]
