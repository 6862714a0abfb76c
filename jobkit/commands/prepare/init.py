"""``jobkit init``: a site file from what the scheduler says, and a spec to start from."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import OldNames, scheduler_option
from jobkit.core import terminal


@click.command("init", short_help="Write a site file and a first spec.")
@click.argument("folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default=".")
@scheduler_option
@click.option(
    "--site-file",
    "site",
    cls=OldNames,
    old=("--site",),
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the site file there, for others too. Default: your own, which `site: auto` finds.",
)
@click.option("--only", type=click.Choice(["site", "spec"]), help="Write only one of the two.")
def init(folder: Path, scheduler: str | None, site: Path | None, only: str | None) -> int:
    """Ask the scheduler about this cluster, and write two files to start from.

    The site file says what the cluster calls its queues, GPUs and memory; it goes into your
    configuration folder, where `site: auto` finds it. The spec, first.yaml, is a small sweep that
    fits the cluster; it goes into DIR. Each choice has a comment that says where it is from and
    what else there was. Nothing is ever overwritten.

    \b
      jobkit init
      jobkit init my-project
      jobkit init --only spec                          the site file stays as it is
      jobkit init --only site --site-file /shared/ours.yaml    one for all users of a cluster

    Without a scheduler on this machine only the spec is written: jobkit then runs here.
    """
    from jobkit.core.terminal import relative_path, shell_path
    from jobkit.setup.init import begin, plan_for
    from jobkit.submit.launch import say

    written = begin(plan_for(folder, scheduler or "auto", site, only), say)
    width = max(len(relative_path(one.path)) for one in written)
    for one in written:
        terminal.say(f"wrote {relative_path(one.path):<{width}}  {one.what}")
    spec = next((shell_path(one.path) for one in written if one.path.name == "first.yaml"), "")
    terminal.say(f"next: jobkit doctor {spec}".rstrip())
    return 0
