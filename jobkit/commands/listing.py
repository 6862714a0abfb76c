"""How commands are found: the module of each, the pages that list them, and what replaces a removed one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from jobkit.core.command_list import FRONT, IN_FRONT, LISTED, MORE, RARE
from jobkit.core.errors import JobkitError
from jobkit.core.terminal import did_you_mean, shell_quote

MODULES: Mapping[str, str] = {
    name: module
    for module, names in {
        "begin": ("init", "doctor", "lint", "emit", "schema"),
        "workload": ("workload", "models"),
        "sweep": ("sweep", "tune", "preflight"),
        "status": ("status", "logs"),
        "results": ("collect", "recommend", "report", "compare", "waste"),
        "change": ("resume", "cancel", "verify", "profile"),
        "corpus": ("apply", "merge"),
        "practice": ("practice",),
        "help": ("help",),
    }.items()
    for name in names
}
"""The module of each command in `jobkit.commands`, imported when the command is typed."""
REMOVED: Mapping[str, str] = {
    "doctor SCRIPT": "jobkit lint {SCRIPT} names what is ignored, sbatch --test-only or qsub -w v the rest",
    "doctor WORKLOAD": "jobkit workload check {WORKLOAD} does it now",
    "models list": "jobkit models does it now",
    "models path": "jobkit models prints name, size and folder of each model now",
    "shell RUN K": "srun --pty bash, on Grid Engine qlogin, and bash job.sh {K} do it now: "
    "jobkit help run-by-hand",
    "throttle RUN N": "jobkit status {RUN} names JOB: scontrol update JobId=JOB ArrayTaskThrottle={N} "
    "or qalter -tc {N} JOB: jobkit help walk-away",
}
"""What does now what a command of an earlier version did, by the command and its arguments."""


class Group(click.Group):
    """Commands of which a misspelt one is refused with the closest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named."""
        if args[0] not in (names := self.list_commands(ctx)) and not args[0].startswith("-"):
            close = did_you_mean(args[0], names)
            alone = f" Alone, {ctx.command_path} does this: {self.get_short_help_str(99)}"
            more = f" D{close[1:]}" if close else alone if self.invoke_without_command else ""
            ctx.fail(f"No such command {args[0]!r}.{more}")
        return super().resolve_command(ctx, args)


def refuse_removed(words: Sequence[str]) -> None:
    """Refuse the command that these words begin, if it is removed."""
    for usage in REMOVED:
        command = [word for word in usage.split() if word.islower()]
        if [*words[: len(command)]] == command and command != ["doctor"]:
            raise removed(usage, words[len(command) :])


def removed(usage: str, typed: Sequence[str]) -> JobkitError:
    """Return the error of a removed command, with the words that were typed as its arguments."""
    names = [word for word in usage.split() if word.isupper()]
    words = [shell_quote(word) for word in typed if not word.startswith("-")]
    given = dict(zip(names, names, strict=True)) | dict(zip(names, words, strict=False))
    command = " ".join(given.get(word, word) for word in usage.split())
    return JobkitError(f"jobkit {command} is removed: {REMOVED[usage].format(**given)}")


def front_page() -> list[str]:
    """Return the lines of ``jobkit --help`` that name the commands: eight with an example, then the rest."""
    width, wide = max(map(len, FRONT)), max(map(len, IN_FRONT.values()))
    lines = [f"  {name:<{width}}  {does:<{wide}}  {example}" for name, (does, example) in FRONT.items()]
    rest = [f"  {wish:<{width}}  {', '.join(group)}" for wish, group in MORE.items()]
    return ["Commands:", *lines, "", "More:", *rest]


def whole_list() -> list[str]:
    """Return the lines of ``jobkit help`` that name every command, with what it does."""
    width = max(map(len, LISTED))
    groups = {
        "Commands": IN_FRONT,
        **{wish.capitalize(): group for wish, group in MORE.items()},
        "Rare": RARE,
    }
    lines: list[str] = []
    for title, group in groups.items():
        lines += ["", title, *(f"  {name:<{width}}  {does}" for name, does in group.items())]
    return lines[1:]
