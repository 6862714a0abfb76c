"""What Grid Engine is asked before anything is submitted.

``qsub -w v`` finds unknown queues, resources, projects and parallel environments, and too much of
a consumable, on an empty cluster (``-verify`` would not: it ends with 0 for a queue that does not
exist; measured, 8.1.9). It does not always name the value to change, so qconf is asked as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial

from jobkit.schedulers.base import Array, Check, Request
from jobkit.schedulers.text import as_walltime, no_such, seconds_of
from jobkit.shell import Completed


def submit_words(script: str, array: Array) -> tuple[str, ...]:
    """Return what follows the options of qsub: the array, its throttle, the script and its offset."""
    throttle = ("-tc", str(array.throttle)) if array.throttle else ()
    return ("-t", f"{array.first}-{array.last}", *throttle, script, *array.words)


def checks(script: str, array: Array, request: Request) -> tuple[Check, ...]:
    """Return the questions to ask before anything is submitted; ``-w v`` uses up a job id."""
    return (
        Check(("qconf", "-sq", "*"), partial(_queue_refusal, request)),
        Check(("qconf", "-sc"), partial(_resource_refusal, request)),
        Check(("qsub", "-w", "v", *submit_words(script, array)), _verify_refusal),
    )


def _queue_refusal(request: Request, answer: Completed) -> str | None:
    """Refuse a queue that is not there, and a walltime that none of those asked for allows."""
    if not answer.ok:
        return None  # what qconf cannot tell, -w v and the submission will
    limits = _queue_limits(answer.stdout)
    # wc_queue_list of sge_types(1): names with * and ?, each perhaps @host
    asked = [word.partition("@")[0] for word in (request.queue or "*").split(",")]
    for word in asked:
        if word and not _matching((word,), limits):
            return no_such("queue", word, limits, "the queue")
    allowed = [limits[name] for name in _matching(asked, limits)]
    if not allowed or any(limit is None or limit >= request.walltime_s for limit in allowed):
        return None
    longest = max(limit for limit in allowed if limit is not None)
    where = f"queue {request.queue!r}" if request.queue else "any queue"
    return (
        f"walltime {as_walltime(request.walltime_s)} is longer than {where} allows (h_rt): "
        f"at most {as_walltime(longest)} (change resources.walltime or the queue)"
    )


def _matching(words: Iterable[str], limits: Mapping[str, object]) -> list[str]:
    words = [word or "*" for word in words]  # "@host" names any queue
    return [name for name in limits if any(fnmatchcase(name, word) for word in words)]


def _queue_limits(text: str) -> dict[str, float | None]:
    """Return the longest ``h_rt`` of every queue, ``None`` for no limit.

    A value may have others for some hosts, ``00:10:00,[node1=24:00:00]`` (queue_conf(5)):
    the longest is taken, for any host may be good enough.
    """
    limits: dict[str, float | None] = {}
    name = ""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        key, _, value = line.strip().partition(" ")
        if key == "qname":
            name = value.strip()
            limits[name] = None
        elif key == "h_rt" and name:
            found = [seconds_of(word) for word in re.split(r"[,\[\]=\s]+", value) if word[:1].isdigit()]
            known = [seconds for seconds in found if seconds is not None]
            limits[name] = None if "INFINITY" in value.upper() else max(known, default=None)
    return limits


def _resource_refusal(request: Request, answer: Completed) -> str | None:
    """Refuse a resource name that the cluster does not have: the site file gives those names."""
    rows = [line.split() for line in answer.stdout.splitlines() if not line.startswith("#")]
    known = {name for row in rows for name in row[:2]}  # the name and its shortcut (complex(5))
    if not answer.ok or not known:
        return None
    unknown = [name for name in request.resources if name not in known]
    key = "the site file or resources.options"
    return "\n".join(no_such("resource", name, known, key) for name in unknown) or None


def _verify_refusal(answer: Completed) -> str | None:
    """Read ``qsub -w v``: its good news stand on stdout, its refusals on stderr (measured)."""
    if answer.ok:
        return None
    said = [line for line in answer.said.splitlines() if line.strip() != "Exiting."]
    return "qsub refuses the job: " + "\n".join(said).removeprefix("Unable to run job: ")
