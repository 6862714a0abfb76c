"""Arguments and options that several commands share, each with one name, type and help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jobkit.core import terminal

F = TypeVar("F", bound=Callable[..., Any])


class OldNames(click.Option):
    """An option that also accepts its earlier names; no help and no error shows them.

    Parameters
    ----------
    old
        The earlier names.
    """

    def __init__(self, *arguments: Any, old: tuple[str, ...] = (), **options: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*arguments, **options)
        self.old = old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ANN401 - click's own
        """Add the option to the parser under the old names too."""
        shown = self.opts
        self.opts = [*shown, *self.old]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class NamedRun(click.Argument):
    """The RUN of a command that changes it: it is required, and the error suggests the latest run."""

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> Any:  # noqa: ANN401 - click's own
        """Take the run from the command line; refuse a missing one."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.MissingParameter:
            raise click.UsageError(f"Missing argument 'RUN'.{_latest(ctx)}", ctx) from None


def _latest(ctx: click.Context) -> str:
    from jobkit.core.errors import JobkitError
    from jobkit.status.which_run import runs_in, usual

    try:
        run = runs_in(usual())[0]
    except JobkitError:
        return ""
    words = f"jobkit {ctx.info_name} {terminal.shell_path(run)}"
    return f" A command that changes a run needs the run; for the latest: {words}"


changed_run = click.argument("run", type=click.Path(file_okay=False, path_type=Path), cls=NamedRun)
"""The argument RUN of a command that changes the run."""
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the spec, such as resources.memory=16GiB; may be repeated.",
)
site_option = click.option(
    "--site", metavar="NAME|FILE", help="The site: a name, or a site file. Default: the one in the spec."
)
runs_dir_option = click.option(
    "--runs-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for run folders. Default: the site's runs_dir, else runs/.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs: bytes, seconds, no NaN."
)
wait_option = click.option(
    "--wait", is_flag=True, help="Wait until the last point has ended, then print the table."
)


def scheduler_option(command: F, default: str = "the one in the spec, else the one on this machine") -> F:
    """Add ``--scheduler``."""
    # Imported here because it takes a third of the time of `jobkit status --help`, which has no such option.
    from jobkit.schedulers.registry import SCHEDULERS

    return click.option(
        "--scheduler",
        type=click.Choice(["auto", *SCHEDULERS]),
        help=f"The scheduler. Default: {default}.",
    )(command)


def gpu_memory_option(meaning: str, old: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Return the decorator that adds ``--gpu-memory`` with its help."""
    return click.option(
        "--gpu-memory",
        cls=OldNames,
        old=old,
        metavar="SIZE",
        help=meaning,
    )


def note(line: str) -> None:
    """Print a message or progress, on standard error."""
    terminal.say(line, err=True)
