"""The checks before a submission.

``qsub -w v`` finds unknown queues, resources, projects and parallel environments, and too much of
a consumable, on an empty cluster (``-verify`` would not: it ends with 0 for a queue that does not
exist; measured, 8.1.9). It does not always name the value to change, so qconf is asked as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

from jobkit.core.shell import Completed
from jobkit.schedulers.sge import survey
from jobkit.schedulers.survey import asked_for, no_such
from jobkit.schedulers.types import Array, Check, Request


def resource_names(directives: Sequence[str]) -> tuple[str, ...]:
    """Return the resources that header lines request by name: ``-l h_vmem=8G,ngpus=1`` (qsub(1))."""
    lists = re.findall(r"(?:^|\s)-l\s+(\S+)", "\n".join(directives))
    return tuple(word.partition("=")[0] for words in lists for word in words.split(","))


def slots(directives: Sequence[str], cpus: int) -> int:
    """Return how many slots a job takes: one without a parallel environment (qsub(1), ``-pe``)."""
    return cpus if any("-pe " in line for line in directives) else 1


def submit_words(script: str, array: Array) -> tuple[str, ...]:
    """Return what follows the options of qsub: the array, its throttle, the script and its offset."""
    throttle = ("-tc", str(array.throttle)) if array.throttle else ()
    return (*array.option_words, "-t", f"{array.first}-{array.last}", *throttle, script, *array.words)


def checks(script: str, array: Array, request: Request) -> tuple[Check, ...]:
    """Return the checks before a submission; ``-w v`` uses up a job id."""
    return (
        Check(survey.QUEUES, partial(_queue_refusal, request)),
        Check(survey.RESOURCES, partial(_resource_refusal, request)),
        Check(survey.INSTANCES, partial(_slots_refusal, request)),
        Check(("qsub", "-w", "v", *submit_words(script, array)), partial(_verify_refusal, request)),
    )


def _queue_refusal(request: Request, answer: Completed) -> str | None:
    """Refuse an unknown queue, and a walltime that none of the requested queues allows."""
    if not answer.ok:
        return None  # then -w v and the submission check it
    asked = asked_for(request.queue, survey.queues(answer.stdout).values(), survey.QUEUE)
    fault = asked.unknown or asked.walltime_fault(request, survey.WALLTIME)
    return str(fault) if fault else None


def _slots_refusal(request: Request, answer: Completed) -> str | None:
    """Refuse more slots than a host of the queues has, and the exclusion of all hosts.

    ``-w v`` does not report what there is, and accepts any exclusion next to a load value.

    Memory is no reason: the requested memory may be a limit (``h_vmem``), not space on the host.
    """
    asked = survey.queues_on_hosts(answer.stdout if answer.ok else "", request.queue)
    hosts = [kind.names for queue in asked.queues for kind in queue.kinds]
    if hosts and all(any(fnmatchcase(host, word) for word in request.exclude) for host in hosts):
        return (
            f"{asked.where} has no host but {', '.join(hosts)}, which is excluded (change resources.exclude)"
        )
    fault = asked.node_fault(replace(request, cpus=request.slots, gpus=0))
    return str(fault) if fault else None


def _resource_refusal(request: Request, answer: Completed) -> str | None:
    """Refuse a resource name that the cluster does not have: the site file gives those names."""
    rows = [line.split() for line in answer.stdout.splitlines() if not line.startswith("#")]
    known = {name for row in rows for name in row[:2]}  # the name and its shortcut (complex(5))
    if not answer.ok or not known:
        return None
    unknown = [name for name in request.resources if name not in known]
    key = "the site file or resources.options"
    return "\n".join(str(no_such("resource", name, known, key)) for name in unknown) or None


_LOAD_VALUES = frozenset(
    f"{what}_{how}" for what in ("mem", "virtual", "swap") for how in ("free", "total", "used")
)
"""Of the standard load values (complex(5)) those that jobs ask for."""


def _verify_refusal(request: Request, answer: Completed) -> str | None:
    """Read ``qsub -w v``: it prints success on stdout and refusals on stderr (measured).

    It ignores load values (qsub(1)): if a job requests a load value, such as ``mem_free``, it reports that
    no queue is suitable, whatever else is requested (measured). It still refuses unknown names.
    """
    if answer.ok or ("no suitable queues" in answer.said and not _LOAD_VALUES.isdisjoint(request.resources)):
        return None
    said = [line for line in answer.said.splitlines() if line.strip() != "Exiting."]
    return "qsub refuses the job: " + "\n".join(said).removeprefix("Unable to run job: ")
