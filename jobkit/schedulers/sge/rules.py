"""What can be found in a script for qsub: the rules of `jobkit.schedulers.sge.lint`, as data.

Each was measured with Son of Grid Engine 8.1.9, and tests/cluster/test_lint.py measures it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobkit.schedulers.script import Effect, Rule

_WAITS = "the job waits in Eqw, and nobody is told"
FILLED_IN = ("HOME", "USER", "JOB_ID", "JOB_NAME", "HOSTNAME", "TASK_ID")
"""What Grid Engine fills in of a log's path, unless it stands in braces: qsub(1), ``-o``."""
RULES: Mapping[str, Rule] = {
    "misspelt": Rule(
        Effect.IGNORED,
        "qsub takes it for a comment: nothing of it is asked for",
        "write #$ {rest}, or, to leave it out on purpose, ##$ ...",
    ),
    "joined": Rule(
        Effect.IGNORED,
        "beside -j y this path is ignored: errors go into the other log (qsub(1), -j)",
        "leave -e out, or write -j n",
    ),
    "soft-alone": Rule(
        Effect.IGNORED,
        "-soft ends with its line: what other lines ask for is still a must "
        "(measured; qsub(1) lets one expect a wish)",
        "write it on the line of what is only a wish, #$ -soft -l NAME=VALUE",
    ),
    "signal": Rule(
        Effect.IGNORED,
        "this trap never runs: qdel and h_rt send KILL, and no {name} before it",
        "trap USR2 and ask for it by #$ -notify; near the walltime USR1, by #$ -l s_rt=TIME below h_rt",
    ),
    "soft": Rule(
        Effect.CHANGED,
        "after -soft {gpu} is only a wish: the job may begin where there is none "
        "(8.1.9 refuses it if it is a consumable)",
        "write -hard before it, or ask for it on a line of its own",
    ),
    "here-document": Rule(
        Effect.CHANGED,
        "qsub reads here-documents too: it takes this for an option of this job",
        "keep the line from beginning with #$: indent it and write <<- with tabs, or print it by printf",
    ),
    "shell": Rule(
        Effect.CHANGED,
        "without -S the queue's shell runs the script, whatever its first line says, "
        "unless the queue's shell_start_mode is unix_behavior (queue_conf(5))",
        "add #$ -S /bin/bash",
    ),
    "cwd": Rule(
        Effect.CHANGED,
        "without -cwd the job begins in your home folder: its logs and relative paths are there",
        "add #$ -cwd (no need where your site's sge_request has it)",
    ),
    "memory-unit": Rule(
        Effect.CHANGED,
        "without a unit it is bytes (sge_types(5)): {value} of them",
        "write the unit, as in -l {name}={value}G",
    ),
    "variable": Rule(
        Effect.CHANGED,
        "Grid Engine fills in no ${unknown}: it takes the $ and what follows as they stand",
        f"write it out, or take one of {', '.join('$' + name for name in FILLED_IN)}",
    ),
    "folder": Rule(
        Effect.LOST,
        f"there is no folder {{folder}}: where the node has none either, {_WAITS}",
        "mkdir -p {quoted}",
    ),
    "folder-number": Rule(
        Effect.LOST,
        f"no folder is there with the job's number in its name, and none is made: {_WAITS}",
        "put the number into the name of a file, as in -{name} logs/$JOB_ID.$TASK_ID",
    ),
    "crlf": Rule(
        Effect.LOST,
        f"it ends in CRLF, as on Windows: qsub takes it, no shell can run it, and {_WAITS}",
        "take the carriage returns out by sed -i 's/\\r$//' SCRIPT",
    ),
}
