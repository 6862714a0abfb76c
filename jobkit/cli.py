"""The app: the commands by name, and the exit code of each error. The only module that exits."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from pathlib import Path
from typing import TextIO

import click

from jobkit.core.errors import DISK_FULL, ERRNO_HINTS, ExitCode, JobkitError, file_error
from jobkit.core.terminal import did_you_mean, say

GROUPS = {
    "prepare": {
        "init": "Write a site file and a first spec for this cluster.",
        "doctor": "Check this machine, and a node, for everything that a sweep needs.",
        "workload": "Check whether jobkit can measure a workload, and what is missing.",
        "preflight": "Compute the padding of each batch size, without a GPU.",
        "lint": "List what a scheduler would silently ignore in a job script.",
        "practice": "Run a real Slurm or Grid Engine on this one machine, and break it on purpose.",
        "schema": "Print the JSON schema of specs, with which an editor checks them.",
        "help": "Show a page of the documentation, or the help of a command.",
    },
    "run": {
        "sweep": "Run a tagger once per batch size, on a cluster or here.",
        "tune": "Find the fastest setting by measuring a few, and compare it with the plain loop.",
        "apply": "Work through a whole corpus with a measured setting, each paragraph once.",
        "status": "Show the state of every point, and what to type next.",
        "logs": "Print the log of a point, or follow it.",
        "resume": "Rerun the points of a run that failed or are missing.",
        "cancel": "Cancel the queued and running jobs of a run.",
        "throttle": "Change how many points of a run may run at the same time.",
        "verify": "Run the largest batch that a run predicts, and compare.",
        "shell": "Print or start a shell on a node, to run a point by hand.",
        "profile": "Rerun a point with a profiler, and print where its time goes.",
        "emit": "Report figures of a running program to jobkit, from a shell.",
    },
    "results": {
        "collect": "Print the scaling table of runs: speed and memory by batch size.",
        "recommend": "Recommend batch size, GPU, time and scheduler request.",
        "report": "Write the results of runs as one HTML file.",
        "compare": "Print runs side by side, with the intervals of the differences.",
        "waste": "Name what a run requested and did not use, with the lines that fix it.",
        "merge": "Join the results of a corpus in one file, each row once.",
    },
    "models": {
        "models": "Fetch, build and list models, so that jobs need no network.",
    },
}
"""The help line of each command, by folder of `jobkit.commands`; only the command that runs is imported."""
TITLES = {"prepare": "Before a run", "run": "A run", "results": "Its results", "models": "Models"}
COMMANDS = {name: group for group, names in GROUPS.items() for name in names}
"""The folder of every command."""


class Commands(click.Group):
    """A group whose commands live in `jobkit.commands`, one file each."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"jobkit.commands.{COMMANDS[cmd_name]}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named; for a misspelt one suggest the closest."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = did_you_mean(args[0], list(COMMANDS))
            ctx.fail(f"No such command {args[0]!r}.{close and f' D{close[1:]}'}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a reader that closes the pipe, as ``head`` does, is not an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # https://docs.python.org/3/library/signal.html#note-on-sigpipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """Write the list of commands without importing them."""
        for group, names in GROUPS.items():
            with formatter.section(TITLES[group]):
                formatter.write_dl(list(names.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="jobkit")
def app() -> None:
    """Find the batch size, the scheduler request and the running time for tagging your corpus.

    jobkit runs your tagger on a text of yours, once per batch size, as one job on Slurm or on Grid
    Engine, or on this machine. It measures speed and memory and prints a table, then the
    batch size to use, the lines for your job script, and the time that the whole corpus takes.

    \b
      jobkit sweep sweeps/demo.yaml                 try it: a minute on a laptop, prints a table
      jobkit init; jobkit doctor first.yaml         on a cluster: write both files, check what is missing
      jobkit preflight first.yaml                   what each batch size pads to, without a GPU
      jobkit sweep first.yaml --dry-run             print what would be submitted, and submit nothing
      jobkit sweep first.yaml                       submit one array job and return
      jobkit collect runs/                          the scaling table of all runs
      jobkit recommend runs/RUN --corpus FILE       batch size, GPUs, time and request for your corpus

    \b
    Exit status
      0   success (also: submitted and returned)
      2   bad usage or a bad spec, or nothing to collect
      3   the scheduler refused, or does not answer
      4   some points failed (out of GPU memory is a result, not a failure); doctor: something is missing
      5   some points are still to come; also: submitted, but the journal could not be written
      130 interrupted
      1   a bug in jobkit: the traceback is in a file
    """


def main() -> None:
    """Run a command and exit with its code."""
    if sys.stderr is None:  # `2>&-`
        sys.stderr = _nowhere()
    if sys.stdout is None:  # `>&-`
        sys.stdout = _nowhere()
        say("jobkit: standard output is closed\n  hint: send it to a file: jobkit ... >output.txt", err=True)
        sys.exit(ExitCode.USAGE)
    sys.exit(_exit_code(sys.argv[1:]))


def _exit_code(arguments: list[str]) -> int:
    try:
        code = app.main(args=arguments, prog_name="jobkit", standalone_mode=False)
    except JobkitError as error:
        say(f"jobkit: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue(), err=True, nl=False)
        return ExitCode.USAGE
    except UnicodeEncodeError as error:
        return _not_utf_8(error)
    except (KeyboardInterrupt, click.Abort):
        say("jobkit: interrupted", err=True)
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: a bug must not throw a traceback at the user
        return _file(error) if isinstance(error, OSError) and _of_the_user(error) else _bug()
    return code if isinstance(code, int) else 0


def _of_the_user(error: OSError) -> bool:
    """Return whether a file error is not a bug of jobkit: a full disk, or a file that the system refuses."""
    return error.errno in DISK_FULL or (error.errno in ERRNO_HINTS and bool(error.filename))


def _file(error: OSError) -> int:
    refusal = file_error(error)
    say(f"jobkit: {refusal}", err=True)
    sys.stdout = _nowhere()
    return refusal.exit_code


def _not_utf_8(error: UnicodeEncodeError) -> int:
    """Report a path that no script and no YAML file can hold; any other such error is a bug."""
    found = re.search("[^\\s'\"]*[\udc80-\udcff][^\\s'\"]*", error.object)
    if found is None:
        return _bug()
    hint = "run jobkit in a folder with another path; only names in a corpus may be so"
    say(f"jobkit: {found[0]}: this path is not UTF-8\n  hint: {hint}", err=True)
    return ExitCode.USAGE


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _bug() -> int:
    # Imported here: together they take as long as click, and a bug is rare.
    import tempfile
    import traceback
    from importlib import metadata

    with tempfile.NamedTemporaryFile("w", prefix="jobkit-bug-", suffix=".txt", delete=False) as stream:
        stream.write(f"jobkit {metadata.version('jobkit')}, Python {sys.version}\n{sys.argv}\n\n")
        traceback.print_exc(file=stream)
    reason = "".join(traceback.format_exception_only(*sys.exc_info()[:2])).strip()
    say(f"jobkit: a bug, sorry: {reason}\n  hint: please report it with {stream.name}", err=True)
    return ExitCode.BUG
