"""Parse what several schedulers print: lists of tasks, sizes, durations, job ids."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jobkit.core.errors import UnknownError
from jobkit.core.shell import Completed
from jobkit.schedulers.types import JobId

_UNITS: dict[str, int] = {"": 1, **{unit: 1024**power for power, unit in enumerate("KMGTP", 1)}}
_UNITS |= {unit: 1000**power for power, unit in enumerate("kmgtp", 1)}


def expand_tasks(text: str) -> tuple[int, ...]:
    """Return the task numbers of ``3``, ``[1,4-8%2]`` (Slurm), ``1,3-9:2`` (Grid Engine).

    A truncated list is read as far as it is complete: Slurm without ``SLURM_BITSTR_LEN=0`` prints
    ``[1,4,7,3`` (no bracket, the last number perhaps half) or ``[1,4,...%2]`` (measured, 22.05.8). Other
    words are left out.
    """
    parts = text.removeprefix("[").partition("%")[0].removesuffix("]").split(",")
    if text.startswith("[") and not text.endswith("]"):
        parts = parts[:-1]
    tasks: dict[int, None] = {}
    for part in parts:
        if found := re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part):
            first, last, step = (int(group) if group else 0 for group in found.groups())
            tasks.update(dict.fromkeys(range(first, (last or first) + 1, step or 1)))
    return tuple(tasks)


def task_ranges(tasks: Iterable[int]) -> tuple[str, ...]:
    """Return task numbers as ranges in order, as schedulers write them: ``1-5``, ``9``."""
    ranges: list[list[int]] = []
    for task in sorted(set(tasks)):
        if ranges and task == ranges[-1][-1] + 1:
            ranges[-1][1:] = [task]
        else:
            ranges.append([task])
    return tuple("-".join(map(str, ends)) for ends in ranges)


def refusal(answer: Completed, harmless: re.Pattern[str]) -> str | None:
    """Return the lines in which a command refuses something; ``None`` if it does not.

    ``harmless`` matches reports of what was done or is over already: neither excludes a status other than 0.
    """
    if answer.ok:
        return None
    lines = answer.said.splitlines()
    if not lines:
        return f"{answer.argv[0]} ended with status {answer.status}"
    return "\n".join(line for line in lines if not harmless.search(line)) or None


def number_of(text: str) -> float | None:
    """Return a number, ``None`` for any other text: ``NaN``, or more digits than a scheduler counts."""
    if text.isdecimal() and len(text) <= 18:  # as most are, of a million jobs
        return float(text)
    return float(text) if re.fullmatch(r"\d{1,18}(?:\.\d+)?", text.strip()) else None


def bytes_of(text: str) -> int | None:
    """Return a size in bytes: ``323760K``, ``50M``, ``2G``, ``4.688MB``; ``None`` if it is none.

    Powers of two (sacct(1) MaxRSS); in lower case, which only Grid Engine has, of ten: with ``h_vmem=1g`` a
    job gets 10^9 bytes (sge_types(1) memory_specifier, and measured).
    """
    if text[:-1].isdecimal() and (unit := _UNITS.get(text[-1])) and len(text) < 12:  # as most of a million
        return int(text[:-1]) * unit
    found = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)([KMGTPkmgtp]?)B?", text.strip()) if text else None
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def seconds_of(text: str) -> float | None:
    """Return the seconds of ``90``, ``3s``, ``1:00:00``, ``2-00:00:00``; ``None`` also for no limit."""
    pattern = r"(?:(\d{1,9})-)?(?:(?:(\d{1,9}):)?(\d{1,9}):)?(\d{1,18}(?:\.\d+)?)s?"
    found = re.fullmatch(pattern, text.strip()) if text else None
    if not found:
        return None
    days, hours, minutes, seconds = found.groups("0")
    return ((float(days) * 24 + float(hours)) * 60 + float(minutes)) * 60 + float(seconds)


def find_job_id(answer: str, patterns: tuple[str, ...], command: str) -> JobId:
    """Return the job id in the output of a submit command, whatever surrounds it.

    Hooks print lines before it (dask-jobqueue#227, MISO#105). ``patterns`` are tried in order on whole lines
    from the last up; their groups are ``id`` and, perhaps, ``cluster``.
    """
    lines = [line.strip() for line in reversed(answer.splitlines())]
    for pattern in patterns:
        for found in filter(None, (re.fullmatch(pattern, line) for line in lines)):
            return JobId(found["id"], found.groupdict().get("cluster") or "")
    raise UnknownError(
        f"{command} printed no job id, but: {answer.strip() or 'nothing'}",
        hint=f"check whether {command} has made a job, and cancel it",
    )
