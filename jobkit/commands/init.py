"""``jobkit init``: write a site file and a first spec for this cluster."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import click

from jobkit.commands.shared import OldNames, scheduler_option
from jobkit.core import terminal
from jobkit.core.extras import EXTRAS, NO_EXTRA, missing_extra


@click.command("init", short_help="Write a site file and a first spec.")
@click.argument("folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default=".")
@partial(scheduler_option, default="the scheduler on this machine")
@click.option(
    "--site-file",
    "site",
    cls=OldNames,
    old=("--site",),
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the site file to FILE, for other users too. Default: your own, which `site: auto` finds.",
)
@click.option(
    "--only", type=click.Choice(["site", "spec"]), help="Write only the site file or only the spec."
)
@click.option(
    "--extra",
    "extras",
    multiple=True,
    type=click.Choice([*EXTRAS, NO_EXTRA]),
    help="What jobkit needs there; --on HOST installs it after a yes. Default: stanza.",
)
def init(
    folder: Path, scheduler: str | None, site: Path | None, only: str | None, extras: tuple[str, ...]
) -> int:
    """Ask the scheduler about this cluster, and write a site file and a first spec.

    The site file has the cluster's names for queues, GPUs and memory; it goes into your configuration
    folder, where `site: auto` finds it. The spec, first.yaml, is a small sweep that fits the cluster; it
    goes into DIR. Each choice has a comment with its source and the alternatives. jobkit never
    overwrites a file.

    \b
      jobkit init
      jobkit init my-project
      jobkit init --only spec                          keep the site file as it is
      jobkit init --only site --site-file /shared/ours.yaml    one site file for all users of a cluster

    Without a scheduler on this machine jobkit writes only the spec, and sweeps run here.
    """
    from jobkit.setup.init import begin, plan_for

    written = begin(plan_for(folder, scheduler or "auto", site, only), terminal.note)
    width = max(len(terminal.relative_path(file.path)) for file in written)
    for file in written:
        terminal.say(f"wrote {terminal.relative_path(file.path):<{width}}  {file.what}")
    for extra in sorted({*(extras or ("stanza",))} - {NO_EXTRA}) if only != "site" else ():
        if lack := missing_extra("first.yaml", extra):
            terminal.note(f"{lack.message}: {lack.hint}")
    given = [*(("--scheduler", scheduler) if scheduler else ()), *(("--site", str(site)) if site else ())]
    words = shlex.join(given) if only == "site" else terminal.shell_path(written[-1].path)
    terminal.say(terminal.next_line(f"jobkit doctor {words}".rstrip()))
    return 0
