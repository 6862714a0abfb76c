"""The options of Slurm's commands, and the header of a batch script: sbatch(1)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from tests.fakes.slurm.text import Refused


class Table(NamedTuple):
    """The long names of a command's options, and those by their letters."""

    flags: set[str]
    values: set[str]
    short: dict[str, str]


def table(flags: str, values: str) -> Table:
    """Return a table written as ``letter:name letter:name name``: the flags, and what takes a value."""
    pairs = [word.partition(":")[::2] for word in f"{flags} {values}".split()]
    named, valued = ({word.rpartition(":")[2] for word in text.split()} for text in (flags, values))
    return Table(named, valued, {letter: name for letter, name in pairs if name})


SBATCH = table(
    "H:hold Q:quiet V:version v:verbose parsable test-only requeue no-requeue exclusive",
    "A:account C:constraint D:chdir G:gpus J:job-name L:licenses M:clusters N:nodes a:array b:begin "
    "c:cpus-per-task d:dependency e:error n:ntasks o:output p:partition q:qos t:time w:nodelist "
    "x:exclude cluster comment deadline export gpus-per-node gpus-per-task gres hint kill-on-invalid-dep "
    "mail-type mail-user mem mem-per-cpu mem-per-gpu nice ntasks-per-node open-mode reservation signal "
    "time-min tmp wrap",
)


class Options(dict[str, str]):
    """Options by their long names, ``yes`` for flags, and what is left over."""

    rest: list[str]


def parse(command: str, words: Sequence[str], known: Table, *, anywhere: bool = True) -> Options:
    """Return the options of a command line; with ``anywhere`` also behind the first word that is none.

    Raises
    ------
    Refused
        As the real command does of an option that it does not have.
    """
    found, left = Options(), list(words)
    found.rest = []
    while left:
        word = left.pop(0)
        name, has_value, value = _split(word, known.short)
        if not word.startswith("-") or word == "-":
            found.rest += [word] if anywhere else [word, *left]
            left = left if anywhere else []
        elif name in known.flags:
            found[name] = "yes"
            if not word.startswith("--") and has_value:
                left.insert(0, f"-{value}")  # -hr is -h -r
        elif name in known.values:
            found[name] = value if has_value else left.pop(0)
        else:
            more = f'Try "{command} --help" for more information'
            raise Refused(f"{command}: unrecognized option '{word}'\n{more}\n", 255)
    return found


def _split(word: str, short: dict[str, str]) -> tuple[str, bool, str]:
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, bool(equals), value
    return short.get(word[1:2], word), len(word) > 2, word[2:]


def sbatch_words(words: Sequence[str]) -> Options:
    """Return sbatch's options, the script and its arguments behind them."""
    return parse("sbatch", words, SBATCH, anywhere=False)


def header(script: str) -> Options:
    """Return the options of the ``#SBATCH`` lines, which end at the first command."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH") and line[7:8].isspace():
            words += shlex.split(line[7:], comments=True)
        elif line.strip() and not line.startswith("#"):
            break
    return sbatch_words(words)
