"""The commands as a person finds them: those in front, the rest by purpose, and those for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """A command in the list."""

    does: str  # what it does, in a line
    example: str = ""  # A command line; only of those in front


FRONT: Mapping[str, Listed] = {
    "init": Listed("write site file and spec", "jobkit init"),
    "doctor": Listed("say whether it will work", "jobkit doctor first.yaml"),
    "sweep": Listed("measure each batch size", "jobkit sweep first.yaml"),
    "status": Listed("show how far a run is", "jobkit status RUN --watch"),
    "collect": Listed("print speed and memory", "jobkit collect RUN"),
    "recommend": Listed("what to use and request", "jobkit recommend RUN --corpus FILE"),
    "apply": Listed("tag the whole corpus", "jobkit apply RUN --corpus FILE --out DIR"),
    "resume": Listed("run again what failed", "jobkit resume RUN"),
}
"""The commands that everyone needs, in the order of use."""
MORE: Mapping[str, Mapping[str, Listed]] = {
    "faster": {
        "tune": Listed("find the fastest setting, and compare it with the plain loop"),
        "profile": Listed("run a point again with a profiler: where its time goes"),
    },
    "before": {
        "preflight": Listed("compute the padding of each batch size, without a GPU"),
        "models": Listed("fetch, build and list models, so that jobs need no network"),
        "workload": Listed("check your own program before it is measured"),
        "lint": Listed("list what a scheduler would silently ignore in a job script"),
    },
    "during": {
        "logs": Listed("print the log of a point, or follow it"),
        "cancel": Listed("cancel the queued and running jobs of a run"),
        "shell": Listed("print or start a shell on a node, to run a point by hand"),
    },
    "after": {
        "merge": Listed("join the results of a corpus in one file, each row once"),
        "report": Listed("write the results of runs as one HTML file"),
        "compare": Listed("print runs side by side, with the intervals of the differences"),
        "waste": Listed("name what a run requested and did not use, with the lines that fix it"),
    },
    "learn": {
        "practice": Listed("run a real Slurm or Grid Engine on this machine, and break it"),
        "help": Listed("list all commands and pages, show one, or find a word in them"),
    },
}
"""The other commands, by what one wants to do."""
RARE: Mapping[str, Listed] = {
    "schema": Listed("print the JSON schema of specs, with which an editor checks them"),
    "emit": Listed("report figures of a running program to jobkit, from a shell"),
    "throttle": Listed("change how many points of a run may run at the same time"),
    "verify": Listed("run the largest batch that a run predicts, and compare"),
}
"""Commands for scripts and rare needs: only `jobkit help` lists them."""
LISTED: Mapping[str, Listed] = {
    **FRONT,
    **{name: listed for group in MORE.values() for name, listed in group.items()},
    **RARE,
}
"""Every command."""
MODULES: Mapping[str, str] = {
    name: module
    for module, names in {
        "begin": ("init", "doctor", "lint"),
        "workload": ("workload", "models"),
        "sweep": ("sweep", "tune", "preflight", "shell"),
        "status": ("status", "logs"),
        "results": ("collect", "recommend", "report", "compare", "waste"),
        "change": ("resume", "cancel", "throttle", "verify", "profile"),
        "corpus": ("apply", "merge"),
        "practice": ("practice",),
        "programs": ("emit", "schema"),
        "help": ("help",),
    }.items()
    for name in names
}
"""The module of each command in `jobkit.commands`, imported when the command is typed."""


def front_page() -> list[str]:
    """Return the lines of ``jobkit --help`` that name the commands: eight with an example, then the rest."""
    name, does = max(map(len, FRONT)), max(len(listed.does) for listed in FRONT.values())
    lines = [f"  {word:<{name}}  {one.does:<{does}}  {one.example}" for word, one in FRONT.items()]
    rest = [f"  {wish:<{name}}  {', '.join(group)}" for wish, group in MORE.items()]
    return ["Commands:", *lines, "", "More:", *rest]


def whole_list() -> list[str]:
    """Return the lines of ``jobkit help`` that name every command, with what it does."""
    width = max(map(len, LISTED))
    groups = {"Commands": FRONT, **{wish.capitalize(): group for wish, group in MORE.items()}, "Rare": RARE}
    lines: list[str] = []
    for title, group in groups.items():
        lines += ["", title, *(f"  {name:<{width}}  {one.does}" for name, one in group.items())]
    return lines[1:]
