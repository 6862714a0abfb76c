"""The options of Slurm's commands, and the header of a batch script: sbatch(1)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from tests.fakes.common.entry import Refused


def table(text: str) -> dict[str, str]:
    """Return a table written as ``key:value key:value``."""
    return dict(word.split(":") for word in text.split())


SBATCH_SHORT = table(
    "A:account C:constraint D:chdir G:gpus J:job-name L:licenses M:clusters N:nodes a:array b:begin "
    "c:cpus-per-task d:dependency e:error n:ntasks o:output p:partition q:qos t:time w:nodelist "
    "x:exclude H:hold Q:quiet V:version v:verbose"
)
SBATCH_FLAGS = frozenset(
    {"hold", "quiet", "version", "verbose", "parsable", "test-only", "requeue", "no-requeue", "exclusive"}
)
SBATCH_VALUES = frozenset(
    {
        *(name for name in SBATCH_SHORT.values() if name not in SBATCH_FLAGS),
        *("cluster", "comment", "deadline", "export", "gpus-per-node", "gpus-per-task", "gres", "hint"),
        *("kill-on-invalid-dep", "mail-type", "mail-user", "mem", "mem-per-cpu", "mem-per-gpu", "nice"),
        *("ntasks-per-node", "open-mode", "reservation", "signal", "time-min", "tmp", "wrap"),
    }
)


class Options(dict[str, str]):
    """Options by their long names, ``yes`` for flags, and what is left over."""

    rest: list[str]


def parse(
    command: str,
    words: Sequence[str],
    values: Iterable[str],
    flags: Iterable[str],
    short: Mapping[str, str],
) -> Options:
    """Return the options of a command line; it ends where the first word is that is none.

    Raises
    ------
    Refused
        As the real command does of an option that it does not have.
    """
    values, flags = frozenset(values), frozenset(flags)
    found = Options()
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        name, has_value, value = _split(word, short)
        if name in flags:
            found[name] = "yes"
            if not word.startswith("--") and has_value:
                left.insert(0, f"-{value}")  # -hr is -h -r
        elif name in values:
            found[name] = value if has_value else left.pop(0)
        else:
            raise Refused(
                f"{command}: unrecognized option '{word}'\nTry \"{command} --help\" for more information\n",
                255,
            )
    found.rest = left
    return found


def _split(word: str, short: Mapping[str, str]) -> tuple[str, bool, str]:
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, bool(equals), value
    return short.get(word[1:2], word), len(word) > 2, word[2:]


def parse_anywhere(
    command: str,
    words: Sequence[str],
    values: Iterable[str],
    flags: Iterable[str],
    short: Mapping[str, str],
) -> Options:
    """Return the options wherever they stand, as all commands but sbatch take them (GNU getopt)."""
    found = Options()
    rest: list[str] = []
    left = list(words)
    while left:
        part = parse(command, left, values, flags, short)
        found.update(part)
        left = part.rest
        if left:
            rest.append(left.pop(0))
    found.rest = rest
    return found


def sbatch_words(words: Sequence[str]) -> Options:
    """Return sbatch's options, the script and its arguments behind them."""
    return parse("sbatch", words, SBATCH_VALUES, SBATCH_FLAGS, SBATCH_SHORT)


def header(script: str) -> Options:
    """Return the options of the ``#SBATCH`` lines, which end at the first command."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH") and line[7:8].isspace():
            words += shlex.split(line[7:], comments=True)
        elif line.strip() and not line.startswith("#"):
            break
    return sbatch_words(words)
