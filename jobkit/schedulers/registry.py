"""The schedulers by name, in the order in which ``auto`` looks for them; another package may bring one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import UserDict
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.host import passed_variables
from jobkit.core.terminal import suggest
from jobkit.schedulers.protocol import PastJobs, Scheduler


class _Schedulers(UserDict[str, Scheduler]):
    """The schedulers by name, each imported when it is first asked for: a command needs one or none.

    A scheduler of another package is here once its name was asked for: to look for packages takes time.
    """

    def __contains__(self, name: object) -> bool:
        if name not in self.data and name in _installed():
            self.data[str(name)] = cast("Scheduler", import_module(_installed()[str(name)]))
        return name in self.data

    def __getitem__(self, name: str) -> Scheduler:
        found = self.data[name] if name in self else super().__getitem__(name)
        if isinstance(found, str):
            found = self.data[name] = cast("Scheduler", import_module(found))
        return found


_KNOWN = _Schedulers({name: f"{__package__}.{name}" for name in ("slurm", "sge", "local")})  # type: ignore[misc]
SCHEDULERS: Mapping[str, Scheduler] = _KNOWN


@cache
def _installed() -> dict[str, str]:
    """Return the modules of the schedulers that other packages bring, by the names of their entry points."""
    from importlib import metadata  # here: it takes as long as a command that needs none

    return {one.name: one.value for one in metadata.entry_points(group="jobkit.schedulers")}


def scheduler_names() -> list[str]:
    """Return all names, with those of other packages, in the order in which ``auto`` looks for them."""
    return [*dict.fromkeys([*_installed(), *SCHEDULERS])]


def brought_folders() -> list[Path]:
    """Return the folders with template and site file of the schedulers in use that other packages bring."""
    modules = [one for one in _KNOWN.data.values() if isinstance(one, ModuleType)]
    return [Path(one.__file__ or "").parent for one in modules if not one.__name__.startswith(__package__)]


def runs_here(name: str) -> bool:
    return name in SCHEDULERS and SCHEDULERS[name].RUNS_HERE


def own_option(scheduler: str, line: str) -> str | None:
    """Return the fault of a header line with an option that jobkit writes itself, else ``None``."""
    own = SCHEDULERS[scheduler].RESERVED_OPTIONS if scheduler in SCHEDULERS else {}
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quote that is never closed: the scheduler reports it
        words = line.split()
    option = next(filter(None, (_meant(word, own) for word in words)), None)
    return None if option is None else f"{line.strip()!r}: jobkit sets {option} itself; {own[option]}"


def _meant(word: str, own: Mapping[str, str]) -> str | None:
    """Return the reserved option that a word stands for, else ``None``.

    As getopt_long(3) reads it: a long option may be abbreviated, a value attached (``--out=x``, ``-a1-3``).
    """
    name = word.partition("=")[0]
    if name in own or not any(option.startswith("--") for option in own):
        return name if name in own else None
    if name.startswith("--"):
        return next((option for option in own if name != "--" and option.startswith(name)), None)
    return name[:2] if name[:2] in own else None


def by_name(name: str) -> Scheduler:
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    raise JobkitError(f"scheduler: there is none called {name!r}{suggest(name, scheduler_names())}")


def past_of(scheduler: str) -> PastJobs:
    """Return how the accounting of a scheduler is asked."""
    try:
        asked = by_name(scheduler)
        return cast("PastJobs", import_module(f"{asked.__name__}_past"))  # type: ignore[attr-defined]
    except ModuleNotFoundError:
        title = asked.TITLE
        message = f"jobkit reads past jobs in the accounting of Slurm and Grid Engine, not of {title}"
        raise JobkitError(message, hint="a run of jobkit has records of its own: jobkit waste RUN") from None


def query_environment(scheduler: Scheduler) -> dict[str, str]:
    """Return the environment of a program that asks, cancels or changes.

    A default that the user or the site exports would change its answer: with SQUEUE_PARTITION=gpu squeue
    lists no job of another partition. The user's site file can name more variables to pass.
    """
    usual = re.compile("PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|LD_LIBRARY_PATH|KRB5CCNAME|MUNGE_.*")
    more, patterns = passed_variables(), (usual, scheduler.CLUSTER_VARIABLES)
    kept = {
        name: text
        for name, text in os.environ.items()
        if name in more or any(pattern.fullmatch(name) for pattern in patterns)
    }
    return {**kept, "LC_ALL": "C.UTF-8", **scheduler.ENVIRONMENT}


def submission_environment() -> dict[str, str]:
    """Return this environment without the variables that would change a submission; jobs get the rest."""
    leaking = [scheduler.LEAKING_VARIABLES for scheduler in SCHEDULERS.values()]
    return {name: text for name, text in os.environ.items() if not any(one.match(name) for one in leaking)}


def unused_schedulers() -> tuple[str, ...]:
    """Return the schedulers whose commands are on PATH here, if this process is in no job of theirs."""
    here = filter(_is_here, map(by_name, scheduler_names()))
    return tuple(found.NAME for found in here if found.JOB_VARIABLE not in os.environ)


def _is_here(scheduler: Scheduler) -> bool:
    return bool(scheduler.PROGRAMS) and all(shutil.which(program) for program in scheduler.PROGRAMS)


def choose_scheduler(name: str) -> tuple[str, str]:
    """Return the scheduler to use, and the reason in a few words."""
    if name != "auto":
        return name, "as requested"
    known = [*map(by_name, scheduler_names())]
    here = [*filter(_is_here, known)]
    if not here:
        looked_for = [" with ".join(one.PROGRAMS) for one in known if one.PROGRAMS]
        # Chosen by ``auto`` if no other is there
        return "local", f"neither {' nor '.join(looked_for)} is on PATH"
    if len(here) == 1:
        return here[0].NAME, f"{here[0].PROGRAMS[0]} is on PATH"
    for one in here:
        argv = one.limit_argv()
        if not argv or shell.run(argv, env=query_environment(one), timeout_s=10.0).ok:
            return one.NAME, f"{one.PROGRAMS[0]} is on PATH and answers"
    both = " and ".join(one.PROGRAMS[0] for one in here)
    return here[0].NAME, f"{both} are on PATH, and none answers: --scheduler {here[1].NAME} takes the other"
