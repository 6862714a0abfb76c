"""The options of Slurm's commands, and the header of a batch script: sbatch(1)."""

from __future__ import annotations

import getopt
import shlex
from collections.abc import Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """The options of a command as getopt(3) takes them, and the long names of the letters."""

    letters: str
    names: list[str]
    long: dict[str, str]


def table(flags: str, values: str) -> Table:
    """Return a table written as ``letter:name letter:name name``: the flags, and what takes a value."""
    letters, names, long = "", list[str](), dict[str, str]()
    for words, letter_end, name_end in ((flags, "", ""), (values, ":", "=")):
        for word in words.split():
            letter, colon, name = word.rpartition(":")
            names.append(name + name_end)
            if colon:
                letters += letter + letter_end
                long[f"-{letter}"] = name
    return Table(letters, names, long)


SBATCH = table(
    "H:hold Q:quiet V:version v:verbose parsable test-only requeue no-requeue exclusive",
    "A:account C:constraint D:chdir G:gpus J:job-name L:licenses M:clusters N:nodes a:array b:begin "
    "c:cpus-per-task d:dependency e:error n:ntasks o:output p:partition q:qos t:time w:nodelist "
    "x:exclude cluster comment deadline export gpus-per-node gpus-per-task gres hint kill-on-invalid-dep "
    "mail-type mail-user mem mem-per-cpu mem-per-gpu nice ntasks-per-node open-mode reservation signal "
    "time-min tmp wrap",
)


class Options(dict[str, str]):
    """Options by their long names, empty for flags, and what is left over."""

    rest: list[str]


def parse(words: Sequence[str], known: Table, *, anywhere: bool = True) -> Options:
    """Return the options of a command line; with ``anywhere`` also behind the first word that is none."""
    read = getopt.gnu_getopt if anywhere else getopt.getopt
    pairs, rest = read(list(words), known.letters, known.names)
    found = Options((known.long.get(name, name.lstrip("-")), value) for name, value in pairs)
    found.rest = rest
    return found


def sbatch_words(words: Sequence[str]) -> Options:
    """Return sbatch's options, the script and its arguments behind them."""
    return parse(words, SBATCH, anywhere=False)


def header(script: str) -> Options:
    """Return the options of the ``#SBATCH`` lines, which end at the first command."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH") and line[7:8].isspace():
            words += shlex.split(line[7:], comments=True)
        elif line.strip() and not line.startswith("#"):
            break
    return sbatch_words(words)
