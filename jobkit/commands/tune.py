"""``jobkit tune``: find the fastest setting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.core import terminal

if TYPE_CHECKING:
    from jobkit.extensions.tune.goal import Node
    from jobkit.spec.site import Site
    from jobkit.spec.sweep_spec import SweepSpec


@click.command("tune", short_help="Find the fastest setting by measuring a few.")
@click.argument("spec", metavar="SPEC|RUN", type=shared.FilledPath(path_type=Path))
@shared.set_option
@shared.stand_in_option
@shared.scheduler_option
@shared.site_option
@shared.runs_dir_option
@shared.dry_run_option
@shared.script_option
@shared.show_environment_option
@click.option("--new", is_flag=True, help="Start another run even if this sweep already has one.")
@shared.wait_option
@shared.json_option
def tune(
    spec: Path,
    overrides: tuple[str, ...],
    stand_in: bool,
    scheduler: str | None,
    site: str | None,
    runs_dir: Path | None,
    dry_run: bool,
    script: bool,
    show_environment: bool,
    new: bool,
    wait: bool,
    as_json: bool,
) -> int:
    """Find the fastest setting of the spec SPEC, or print the answer of the search in the folder RUN.

    jobkit chooses order and batch sizes from the text alone, measures the memory of one worker, doubles
    the workers that share the GPU until that gains less than 5 % or memory or CPUs are full, and compares
    the two best settings with the plain loop (one worker, batches of 300 paragraphs, of an encoder 32, in
    text order). If none is shown to be faster, the plain loop is the answer. Before it begins it prints how
    many settings, points and minutes it takes at most. On a cluster the whole search is one job, and a job
    that goes on with it if it is killed: no one needs to stay logged in.

    \b
      jobkit tune sweeps/tune.yaml
      jobkit tune sweeps/tune.yaml --set tune.budget=15m --set constraints.gpu_memory=20GiB
      jobkit tune runs/tune-20260102-101530-3f9a
      jobkit sweep sweeps/stanza.yaml --setting runs/tune-20260102-101530-3f9a

    For a text that is not jobkit's own `sample`, jobkit refuses a stand-in or a model with random weights,
    with the command that fetches the real one, unless --stand-in permits it.

    The run folder has every point, and the setting in setting.yaml. See jobkit help tune.
    """
    from jobkit.runs.which_run import find_run, refuse_unmeasured

    if run := (spec if spec.is_dir() else None if spec.is_file() else find_run(spec)):
        refuse_unmeasured(run, "tune")
        return _print(run, as_json=as_json)
    from jobkit.extensions.tune import job
    from jobkit.extensions.tune.goal import prepare_search
    from jobkit.launch import guards
    from jobkit.planning.prepare import Options
    from jobkit.schedulers.registry import runs_here

    dry_run = dry_run or script
    options = Options(
        overrides=overrides, scheduler=scheduler, site=site, runs_dir=runs_dir, stand_in=stand_in
    )
    prepared = prepare_search(spec, options, build=not dry_run, say=terminal.note, find_node=_node)

    def check() -> None:
        if not new:
            guards.refuse_duplicate_sweep(prepared, dry_run=dry_run)

    check()
    if dry_run:
        job.preview(prepared, None if show_environment else spec, only_script=script)
        return 0
    if runs_here(prepared.spec.scheduler):
        job.tune_here(prepared, check)
    elif (code := job.tune_on_cluster(prepared, check, wait=wait)) is not None:
        return code
    return _print(prepared.run_dir, as_json=as_json)


def _node(spec: SweepSpec, site: Site) -> Node | None:
    """Return the largest node that a search may run on, as its scheduler describes it."""
    from jobkit.extensions.tune.goal import largest_node
    from jobkit.schedulers.registry import by_name, runs_here
    from jobkit.setup.init import ask_site

    if runs_here(site.scheduler):
        return None
    return largest_node(ask_site(by_name(site.scheduler)), spec, site)


def _print(run_dir: Path, *, as_json: bool) -> int:
    """Print the answer of a search; return the exit code."""
    from jobkit.commands.recommend import note_apply
    from jobkit.core.blocks import as_text
    from jobkit.core.errors import ExitCode
    from jobkit.core.terminal import terminal_width
    from jobkit.extensions.tune.answer import as_data, blocks
    from jobkit.extensions.tune.search import Tuning
    from jobkit.extensions.tune.steps import Candidate

    answer = Tuning.read(run_dir.absolute())
    if as_json:
        terminal.say(terminal.as_json(as_data(answer)), nl=False)
    else:
        terminal.say(as_text(blocks(run_dir, answer), terminal_width()), nl=False)
    if isinstance(answer.next, Candidate):
        return ExitCode.TO_COME
    if answer.winner and not as_json:
        note_apply(run_dir)
    return 0 if answer.winner else ExitCode.FAILED
