"""The commands as a person finds them: those in front, the rest by purpose, and those for scripts."""

from __future__ import annotations

from collections.abc import Mapping

FRONT: Mapping[str, tuple[str, str]] = {
    "init": ("write site file and spec", "jobkit init"),
    "doctor": ("say whether it will work", "jobkit doctor first.yaml"),
    "sweep": ("measure each batch size", "jobkit sweep first.yaml"),
    "status": ("show how far a run is", "jobkit status RUN --watch"),
    "collect": ("print speed and memory", "jobkit collect RUN"),
    "recommend": ("what to use and request", "jobkit recommend RUN --corpus FILE"),
    "apply": ("tag the whole corpus", "jobkit apply RUN --corpus FILE --out DIR"),
    "resume": ("run again what failed", "jobkit resume RUN"),
}
"""The commands that everyone needs, in the order of use: what each does, and an example."""
MORE: Mapping[str, Mapping[str, str]] = {
    "faster": {
        "tune": "find the fastest setting, and compare it with the plain loop",
        "profile": "run a point again with a profiler: where its time goes",
    },
    "before": {
        "preflight": "compute the padding of each batch size, without a GPU",
        "models": "fetch, build and list models, so that jobs need no network",
        "workload": "check your own program before it is measured",
        "lint": "list what a scheduler would silently ignore in a job script",
    },
    "during": {
        "logs": "print the log of a point, or follow it",
        "cancel": "cancel the queued and running jobs of a run",
    },
    "after": {
        "merge": "join the results of a corpus in one file, each row once",
        "report": "write the results of runs as one HTML file",
        "compare": "print runs side by side, with the intervals of the differences",
        "waste": "name what a run requested and did not use, with the lines that fix it",
    },
    "learn": {
        "practice": "run a real Slurm or Grid Engine on this machine, and break it",
        "help": "list all commands and pages, show one, or find a word in them",
    },
}
"""The other commands, by what one wants to do."""
RARE: Mapping[str, str] = {
    "schema": "print the JSON schema of specs, with which an editor checks them",
    "emit": "report figures of a running program to jobkit, from a shell",
    "verify": "run the largest batch that a run predicts, and compare",
}
"""Commands for scripts and rare needs: only `jobkit help` lists them."""
IN_FRONT = {name: does for name, (does, _) in FRONT.items()}
LISTED: Mapping[str, str] = {
    **IN_FRONT,
    **{name: does for group in MORE.values() for name, does in group.items()},
    **RARE,
}
"""Every command, and what it does."""
HERE_ALONE = frozenset(("help", "lint", "practice", "schema", "emit"))
"""Commands that need no cluster, so that ``--on HOST`` changes nothing."""
