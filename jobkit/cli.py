"""The app: the commands by name, and errors to exit codes. The only place that exits."""

from __future__ import annotations

import importlib
import io
import os
import sys
from pathlib import Path

import click

from jobkit.core.errors import DISK_FULL, ERRNO_HINTS, ExitCode, JobkitError, file_error
from jobkit.core.terminal import say

GROUPS = {
    "prepare": {
        "init": "Write a site file from what the scheduler says, and a spec to start from.",
        "doctor": "Say what is missing on this machine, or on a node, before a sweep works.",
        "preflight": "Say what each batch size will pad to, from the text alone, before any GPU.",
        "lint": "Say what a scheduler would silently ignore of a job script.",
        "schema": "Print the JSON schema of specs, by which an editor checks and completes them.",
        "help": "Show a page of the documentation, or the help of a command.",
    },
    "run": {
        "sweep": "Run one tagger once per batch size: submit to Slurm or Grid Engine, or run here.",
        "status": "Say how runs stand, why points wait, and what to type next.",
        "logs": "Print what a point of a run has printed.",
        "resume": "Run again the points of a run that failed or are missing.",
        "cancel": "Take back what of a run is in the queue or running.",
        "throttle": "Change how many jobs of a run work at a time.",
    },
    "results": {
        "collect": "Turn the records of runs into a scaling table.",
        "recommend": "Say which batch size, card, time and request a run comes to.",
        "verify": "Run the largest batch that a run's points predict, and say how far off it was.",
    },
    "models": {
        "models": "Fetch, build and list models, so that jobs need no network.",
    },
}
"""By folder of `jobkit.commands`, the first line of help: a module is imported when its command runs."""
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

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; that its reader has gone, as ``head`` does, is no fault of anybody."""
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
    """Which batch size, what to request, how long it will take.

    jobkit runs an instrumented tagger once per batch size, on Slurm, on Grid Engine or on this
    machine, and turns what it measured into a table.

    \b
      jobkit sweep sweeps/demo.yaml                 a minute on a laptop, prints a table
      jobkit init; jobkit doctor                    on a cluster: what it calls things, what is missing
      jobkit sweep sweeps/stanza.yaml --dry-run     what would be submitted, word for word
      jobkit sweep sweeps/stanza.yaml               submits one array job and returns
      jobkit preflight sweeps/stanza.yaml           what each batch size will pad to, with no GPU
      jobkit collect runs/                          the scaling table of all runs
      jobkit recommend runs/RUN --corpus FILE       batch size, cards, time and request

    \b
    Exit status
      0   done as asked (also: submitted and returned)
      2   bad usage or a bad spec, or nothing to collect
      3   the scheduler refused
      4   some points failed (out of GPU memory is a result, not a failure); doctor: something is missing
      5   points are still to come; also: submitted, and the journal could not be written
      130 interrupted
      1   a bug in jobkit: the traceback is in a file
    """


def main() -> None:
    """Run a command and exit with its code."""
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
    except (KeyboardInterrupt, click.Abort):
        say("jobkit: interrupted", err=True)
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: a bug must not throw a traceback at the user
        return _file(error) if isinstance(error, OSError) and _of_the_user(error) else _bug()
    return code if isinstance(code, int) else 0


def _of_the_user(error: OSError) -> bool:
    """Tell whether an error of a file is no bug of jobkit: a full disk, or a file that the system refuses."""
    return error.errno in DISK_FULL or (error.errno in ERRNO_HINTS and bool(error.filename))


def _file(error: OSError) -> int:
    refusal = file_error(error)
    say(f"jobkit: {refusal}", err=True)
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - lives until exit
    return refusal.exit_code


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
