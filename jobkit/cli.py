"""The app: the commands by name, and the exit code of each error. The only module that exits."""

from __future__ import annotations

import importlib
import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from jobkit.commands.listing import MODULES, Group, front_page, refuse_removed
from jobkit.core.command_list import LISTED
from jobkit.core.errors import DISK_FULL, ERRNO_HINTS, ExitCode, JobkitError, file_error, hide_secrets
from jobkit.core.host import CALL, HERE, PROTOCOL, SERVE, usual_host
from jobkit.core.terminal import accept_any_text, as_json, say


class Commands(Group):
    """A group whose commands live in `jobkit.commands`; `MODULES` names the module of each."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return list(LISTED)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in LISTED:
            return None
        module = importlib.import_module(f"jobkit.commands.{MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        host: str = ctx.params.get("on") or usual_host()
        return command if host in {"", HERE} else OnHost(command, host)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named; of a removed one say what to type."""
        if "--on" in (later := [word.partition("=")[0] for word in args[1:]]):
            at = later.index("--on") + 1
            taken = 1 if "=" in args[at] else 2
            first = [*args[at : at + taken], *args[:at], *args[at + taken :]]
            ctx.fail(f"--on stands before the command: jobkit {shlex.join(first)}")
        refuse_removed(args)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a reader that closes the pipe, as ``head`` does, is not an error."""
        if ctx.params.get("on") and not ctx._protected_args:  # noqa: SLF001 - click has no other way to them
            ctx.fail(f"Missing command, such as: jobkit --on {shlex.quote(ctx.params['on'])} status")
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # https://docs.python.org/3/library/signal.html#note-on-sigpipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """Write the commands in front and the names of the others, without importing them."""
        formatter.write("\n" + "\n".join(front_page()) + "\n")


class OnHost(click.Command):
    """A command that runs on a cluster: its words are read there, and here only as far as they name files.

    ``command``: the command.
    ``host``: as `--on` names it.
    """

    def __init__(self, command: click.Command, host: str) -> None:
        super().__init__(command.name, add_help_option=False)
        self.command, self.host = command, host

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own
    ) -> click.Context:
        """Keep the words as they are; only the help of a command is that of this machine."""
        if {"-h", "--help"} & {*args}:
            return self.command.make_context(info_name, args, parent, **extra)
        ctx = click.Context(self, parent, info_name=info_name, ignore_unknown_options=True)
        ctx.args = args
        return ctx

    def invoke(self, ctx: click.Context) -> object:
        """Run the command there."""
        from jobkit.extensions.on_host.commands import FETCH, Typed, run_on

        command, name, words = self.command, str(self.name), list(ctx.args)
        if isinstance(command, click.Group):
            child = command.get_command(ctx, words[0]) if words else None
            alone = command.invoke_without_command and all(word.startswith("-") for word in words)
            if child is None and not alone:  # no subcommand: its own error says which there are
                return _exit_code(["--on", HERE, name, *words])
            if child:
                command, name, words = child, f"{name} {words[0]}", words[1:]
        known = name in FETCH  # it runs here, too: an error comes before anything is fetched
        params = command.make_context(name, list(words), resilient_parsing=not known).params
        typed = Typed(name, words, params, lambda line: _exit_code(["--on", HERE, *line]))
        return run_on(self.host, typed, named=bool(ctx.parent and ctx.parent.params.get("on")))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="jobkit", message=f"%(prog)s, version %(version)s, protocol {PROTOCOL}")
@click.option(
    "--on",
    metavar="HOST[:FOLDER]",
    help="Run the command on a cluster, over ssh; here: on this machine.",
)
def app(on: str | None) -> None:
    """Find the batch size, the scheduler request and the running time for your corpus.

    jobkit runs your tagger on a text of yours, once per batch size, as one job on Slurm or on Grid
    Engine, or on this machine. It measures speed and memory, and works through the whole corpus.
    RUN is a run folder, or a name from jobkit status --list.

    \b
      jobkit sweep sweeps/demo.yaml    try it: a minute on a laptop, prints a table
      jobkit help                      list every command and page
      jobkit help WORD                 show a page or command, or find the word in all pages
    """


def main() -> None:
    """Run a command and exit with its code."""
    if sys.stderr is None:  # `2>&-`
        sys.stderr = _nowhere()
    if sys.stdout is None:  # `>&-`
        sys.stdout = _nowhere()
        say("jobkit: standard output is closed\n  hint: send it to a file: jobkit ... >output.txt", err=True)
        sys.exit(ExitCode.USAGE)
    for stream in (sys.stdout, sys.stderr):
        accept_any_text(stream)
    if sys.argv[1:] == [SERVE]:
        from jobkit.extensions.on_host.server import serve

        sys.exit(serve(lambda words: _exit_code(words if _is_call(words) else ["--on", HERE, *words])))
    sys.exit(_exit_code(sys.argv[1:]))


def _exit_code(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except JobkitError as error:
        if not _is_call(arguments):  # there Python shows it
            say(f"jobkit: {error}", err=True)
        _say_json(arguments, error)
        return error.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(hide_secrets(shown.getvalue()), err=True, nl=False)
        _say_json(arguments, JobkitError(error.format_message(), hint="jobkit COMMAND --help"))
        return ExitCode.USAGE
    except UnicodeEncodeError as error:
        say(f"jobkit: {_refused_path(error)}", err=True)
        return ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        say("jobkit: interrupted", err=True)
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: a bug must not throw a traceback at the user
        return _tell_refusal(error) if isinstance(error, OSError) and _is_refused(error) else _bug()


def _run(arguments: list[str]) -> int:
    if _is_call(arguments):
        from jobkit.handle import answer

        say(answer(*arguments[1:]))
        return ExitCode.DONE
    code = app.main(args=arguments, prog_name="jobkit", standalone_mode=False)
    return code if isinstance(code, int) else ExitCode.DONE


def _is_call(arguments: list[str]) -> bool:
    """Return whether a handle asks, in Python on another machine."""
    return CALL in arguments[:1]


def _refused_path(error: UnicodeEncodeError) -> str:
    """Return what to say of a path that no script and no YAML file can hold, or that the locale lacks."""
    if found := re.search("[^\\s'\"]*[\ud800-\udfff][^\\s'\"]*", error.object):
        hint = "run jobkit in a folder with another path; only the names in a corpus may have such characters"
        return f"{found[0]}: this path is not UTF-8\n  hint: {hint}"
    hint = "export LC_ALL=C.UTF-8, which has every character"
    return f"{error.object[:120]}: this path is not {error.encoding}\n  hint: {hint}"


def _is_refused(error: OSError) -> bool:
    """Return whether a disk is full, or the system refuses a file: that is no bug."""
    return error.errno in DISK_FULL or (error.errno in ERRNO_HINTS and bool(error.filename))


def _tell_refusal(error: OSError) -> int:
    refusal = file_error(error)
    say(f"jobkit: {refusal}", err=True)
    sys.stdout = _nowhere()
    return refusal.exit_code


def _say_json(arguments: list[str], error: JobkitError) -> None:
    """Print an error for a program that asked for JSON."""
    if "--json" in arguments or _is_call(arguments):
        fields = {"message": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}
        say(as_json({"error": {"kind": type(error).__name__, **fields}}))


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
