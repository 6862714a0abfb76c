"""What can be found in a script for sbatch: the rules of `jobkit.schedulers.slurm.lint`, as data.

Each was measured with Slurm 22.05.8, and tests/cluster/test_lint.py measures it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobkit.schedulers.script import Effect, Rule

_DIES = "the job dies at once, and there is no log that says so"
RULES: Mapping[str, Rule] = {
    "misspelt": Rule(
        Effect.IGNORED,
        "sbatch takes it for a comment: nothing of it is asked for",
        "write #SBATCH {rest}, or, to leave it out on purpose, ##SBATCH ...",
    ),
    "late": Rule(
        Effect.IGNORED,
        "sbatch stops reading at the first command, line {first}: nothing of this is asked for",
        "move it above line {first}, {command}",
    ),
    "signal": Rule(
        Effect.IGNORED,
        "it goes to job steps (srun) and not to this shell: the trap of line {line} never runs",
        "write --signal=B:{what}",
    ),
    "one-dash": Rule(
        Effect.CHANGED,
        "sbatch takes -{name} for the short option -{letter}, with what follows as its value",
        "write it with two dashes, -{word}",
    ),
    "variable": Rule(
        Effect.CHANGED,
        "sbatch fills in no variables: it takes the $ and what follows as they stand",
        "write it out, or give it on the command line; in a log's name take %j, %A, %a, %x or %u",
    ),
    "memory-unit": Rule(
        Effect.CHANGED,
        "without a unit it is mebibytes: the job gets {value} MiB",
        "write the unit, as in --{name}={value}G",
    ),
    "shared-log": Rule(
        Effect.CHANGED,
        "all tasks of the array write this one file, and each that begins empties it",
        "put the task into the name, as in --{name}={root}-%A_%a.out",
    ),
    "folder": Rule(
        Effect.LOST,
        f"there is no folder {{folder}}: where the node has none either, {_DIES}",
        "mkdir -p {quoted}",
    ),
    "folder-number": Rule(
        Effect.LOST,
        f"Slurm makes no folders, and none is there with the job's number in its name: {_DIES}",
        "put the number into the name of a file, as in --{name}=logs/%A_%a.out",
    ),
    "folder-home": Rule(
        Effect.LOST,
        f"to sbatch ~ is the name of a folder: {_DIES}",
        "write the path out, or one that begins where you submit",
    ),
    "interpreter": Rule(
        Effect.LOST,
        "sbatch takes it, and the job dies at once: an interpreter is named by an absolute path",
        "let the first line be #!/bin/bash",
    ),
    "no-interpreter": Rule(
        Effect.REFUSED,
        "sbatch refuses a script whose first line does not begin with #!",
        "let the first line be #!/bin/bash",
    ),
    "crlf": Rule(
        Effect.REFUSED,
        "it ends in CRLF, as on Windows: sbatch refuses the script",
        "take the carriage returns out by sed -i 's/\\r$//' SCRIPT",
    ),
    "memory-twice": Rule(
        Effect.REFUSED,
        "sbatch refuses --{first} beside --{second}: they exclude each other",
        "leave one of them",
    ),
}
