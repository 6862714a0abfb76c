"""``jobkit sweep``: plan, render, submit, and with ``--wait`` print the table."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands import shared
from jobkit.core import terminal


@click.command("sweep", short_help="Run a tagger once per batch size.")
@click.argument("spec", type=shared.FilledPath(dir_okay=False, path_type=Path))
@shared.set_option
@shared.stand_in_option
@click.option(
    "--setting",
    metavar="RUN|FILE",
    type=click.Path(path_type=Path),
    help="Use the setting that jobkit tune found in the folder RUN.",
)
@shared.scheduler_option
@shared.site_option
@shared.runs_dir_option
@shared.dry_run_option
@shared.script_option
@shared.show_environment_option
@click.option("--new", is_flag=True, help="Start another run even if this sweep already has one.")
@shared.wait_option
@click.option("--detach", is_flag=True, help="Run a local sweep in the background and return at once.")
def sweep(
    spec: Path,
    overrides: tuple[str, ...],
    stand_in: bool,
    setting: Path | None,
    scheduler: str | None,
    site: str | None,
    runs_dir: Path | None,
    dry_run: bool,
    script: bool,
    show_environment: bool,
    new: bool,
    wait: bool,
    detach: bool,
) -> int:
    """Run the sweep that the YAML file SPEC describes.

    If this machine has a scheduler (sbatch, else qsub and qconf), the sweep becomes one array job with
    one task for each point: jobkit checks the request, submits, and returns at once. Without a scheduler
    the points run here, one at a time, and jobkit waits for them. Every run has its own folder in runs/,
    with everything in text files.

    \b
      jobkit sweep sweeps/demo.yaml
      jobkit sweep sweeps/stanza.yaml --wait
      jobkit sweep sweeps/stanza.yaml --scheduler sge --site lancaster-hec --dry-run
      jobkit sweep sweeps/stanza.yaml --set repeats=1 --set resources.memory=16GiB
      jobkit sweep sweeps/demo.yaml --detach
      jobkit sweep first.yaml --stand-in

    If a run of the same spec, text, model and points exists, jobkit does not submit the sweep again: it
    reports the progress of that run and the next command. --new starts another run.

    --stand-in tries a spec whose model is not on this machine: jobkit builds a small model of its own,
    and every table says so. A spec with `find_max` and a text that is not jobkit's own `sample` needs the
    real model, or this option.

    If a spec has errors, jobkit lists all of them with their lines and submits nothing. Every key:
    jobkit help spec.
    """
    if wait and detach:
        raise click.UsageError("--wait and --detach contradict each other")
    from jobkit.core.layout import JOB_SCRIPT
    from jobkit.launch import guards, launch
    from jobkit.planning.prepare import Options, prepare
    from jobkit.runs.which_run import find_run
    from jobkit.schedulers.registry import runs_here

    dry_run = dry_run or script
    options = Options(
        overrides=overrides,
        setting=setting if setting is None or setting.is_file() else find_run(setting) or setting,
        scheduler=scheduler,
        site=site,
        runs_dir=runs_dir,
        stand_in=stand_in,
    )
    prepared = prepare(spec, options, build=not dry_run, say=terminal.note)

    def check() -> None:
        if not new:
            guards.refuse_duplicate_sweep(prepared, dry_run=dry_run)

    check()
    if dry_run:
        plan = [*launch.headline(prepared).splitlines(), launch.request_line(prepared)]
        commands, path = launch.submit_commands(prepared), prepared.run_dir / JOB_SCRIPT
        text = prepared.script if show_environment else prepared.spec.hidden_in(prepared.script, spec)
        launch.preview(plan, text, path, commands, only_script=script)
        return 0
    from jobkit.commands.collect import print_table
    from jobkit.launch.resume import run_follow_up

    if not runs_here(prepared.spec.scheduler):
        code = launch.on_cluster(prepared, check, wait=wait)
    elif detach:
        code = launch.detached(prepared, check)
    else:
        launch.here(prepared, check)
        code = run_follow_up(prepared.run_dir) or None
    return print_table(Path(terminal.relative_path(prepared.run_dir))) if code is None else code
