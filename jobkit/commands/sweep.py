"""From a spec to a run: ``jobkit sweep``, ``tune`` and ``preflight``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.errors import ExitCode
from jobkit.core.units import parse_size
from jobkit.runs.which_run import find_run, refuse_unmeasured

if TYPE_CHECKING:
    from jobkit.launch.launch import Preview
    from jobkit.planning.prepare import Options


run_options = shared.together(
    shared.scheduler_option,
    shared.site_option,
    shared.runs_dir_option,
    shared.preview_options,
    click.option("--new", is_flag=True, help="Start another run even if this sweep already has one."),
    shared.wait_option,
    shared.ceiling_option,
    shared.force_option,
)
"""The options that begin a run: of ``sweep`` and of ``tune``."""


@click.command("sweep", short_help="Run a tagger once per batch size.")
@click.argument("spec", type=shared.FilledPath(dir_okay=False, path_type=Path))
@shared.set_option
@shared.after_option
@shared.stand_in_option
@click.option(
    "--setting",
    metavar="RUN|FILE",
    type=click.Path(path_type=Path),
    help="Use the setting that jobkit tune found in the folder RUN.",
)
@run_options
@click.option("--detach", is_flag=True, help="Run a local sweep in the background and return at once.")
@shared.print_jobs_option
@shared.options_of_spec
def sweep(
    spec: Path,
    options: Options,
    setting: Path | None,
    preview: Preview | None,
    new: bool,
    wait: bool,
    detach: bool,
    print_jobs: bool,
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
      jobkit sweep first.yaml --print-jobs    one id a line, for a job that depends on them

    If a run of the same spec, text, model and points exists, jobkit does not submit the sweep again: it
    reports the progress of that run and the next command, and ends with 2. With --wait or --print-jobs it
    goes on with that run, as in a pipeline. --new starts another run.

    --stand-in tries a spec whose model is not on this machine: jobkit builds a small model of its own,
    and every table says so. A spec with `find_max` and a text that is not jobkit's own `sample` needs the
    real model, or this option.

    If a spec has errors, jobkit lists all of them with their lines and submits nothing. Every key:
    jobkit help spec.
    """
    if wait and detach:
        raise click.UsageError("--wait and --detach contradict each other")
    from jobkit.commands.results import print_table
    from jobkit.core.layout import JOB_SCRIPT, read_points
    from jobkit.launch import launch
    from jobkit.launch.submission import wait_for_points, write_run
    from jobkit.planning.prepare import prepare

    if setting and not setting.is_file():
        setting = find_run(setting) or setting
    run = prepare(spec, replace(options, setting=setting), build=preview is None, say=terminal.note)
    again = (wait or print_jobs) and preview is None and not new
    folder = again and launch.find_duplicate(run)
    if folder:
        terminal.note(f"this sweep has a run already: {terminal.relative_path(folder)}")
        code = wait_for_points(folder, read_points(folder)[0], run.spec.policy) if wait else 0
    else:
        check = partial(launch.refuse_duplicate, run, new=new, dry_run=preview is not None)
        check()
        plan = [*launch.headline(run).splitlines(), launch.request_line(run)]
        if preview:
            script = (run.run_dir / JOB_SCRIPT, run.script)
            return launch.dry_run(preview, run.spec, spec, plan, script, launch.submit_commands(run))
        terminal.note("\n".join(plan))
        code = launch.go(run, partial(write_run, run, check), wait=wait, detach=detach)
        folder = run.run_dir
    if print_jobs:
        shared.say_jobs(folder)
    return print_table(Path(terminal.relative_path(folder))) if code is None else code


@click.command("tune", short_help="Find the fastest setting by measuring a few.")
@click.argument("spec", metavar="SPEC|RUN", type=shared.FilledPath(path_type=Path))
@shared.set_option
@shared.after_option
@shared.stand_in_option
@run_options
@shared.json_option
@shared.options_of_spec
def tune(
    spec: Path,
    options: Options,
    preview: Preview | None,
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
    if run := (spec if spec.is_dir() else None if spec.is_file() else find_run(spec)):
        refuse_unmeasured(run, "tune")
        return _print(run, as_json=as_json)
    from jobkit.extensions.tune import job
    from jobkit.launch.launch import refuse_duplicate

    search, goal = job.prepare_search(spec, options, build=preview is None, say=terminal.note)
    check = partial(refuse_duplicate, search, new=new, dry_run=preview is not None)
    check()
    if preview:
        return job.dry_run(preview, search, goal, spec)
    code = job.tune(search, goal, check, wait=wait)
    return _print(search.run_dir, as_json=as_json) if code is None else code


def _print(run_dir: Path, *, as_json: bool) -> int:
    """Print the answer of a search; return the exit code."""
    from jobkit.commands.results import note_apply
    from jobkit.extensions.tune.answer import as_data, blocks
    from jobkit.extensions.tune.measured import Candidate
    from jobkit.extensions.tune.search import Tuning
    from jobkit.runs.on_end import tell

    tell(run_dir.absolute())
    answer = Tuning.read(run_dir.absolute())
    if as_json:
        terminal.say(terminal.as_json(as_data(answer)), nl=False)
    else:
        shared.say_blocks(blocks(run_dir, answer))
    if isinstance(answer.next, Candidate):
        return ExitCode.TO_COME
    if answer.winner and not as_json:
        note_apply(run_dir)
    return 0 if answer.winner else ExitCode.FAILED


@click.command("preflight", short_help="Compute the padding of each batch size from the text, without a GPU.")
@click.argument("spec", type=shared.FilledPath(dir_okay=False, path_type=Path))
@shared.set_option
@shared.stand_in_option
@click.option("--fast", is_flag=True, help="Estimate lengths from punctuation, without model and torch.")
@shared.gpu_memory_option("The GPU memory that the chosen batch sizes must fit, such as 32GiB.")
@shared.json_option
def preflight(
    spec: Path, overrides: tuple[str, ...], stand_in: bool, fast: bool, gpu_memory: str | None, as_json: bool
) -> int:
    """Read the text of the YAML file SPEC, and compute what each batch size pads to.

    jobkit submits nothing and uses no GPU. It computes the lengths of the sentences once, with the real
    tokenizer on the CPU, and keeps them. From the lengths follow the load of every batch size, in which
    memory grows as a straight line; the share of padding; the batch size beyond which nothing changes;
    and the four or five batch sizes that are worth measuring.

    \b
      jobkit preflight sweeps/stanza.yaml
      jobkit preflight sweeps/stanza.yaml --fast
      jobkit preflight sweeps/stanza.yaml --set text=corpus.txt --gpu-memory 32GiB
      jobkit preflight sweeps/demo.yaml --json

    A spec with `sweep: {batch_size: auto}` runs these sizes. See jobkit help preflight.
    """
    size = None if gpu_memory is None else parse_size(gpu_memory)
    from jobkit.extensions import preflight as extension

    result = extension.preflight(
        spec, overrides, fast=fast, gpu_memory_bytes=size, stand_in=stand_in, say=terminal.note
    )
    if as_json:
        terminal.say(extension.as_json(result), nl=False)
    else:
        shared.say_blocks(extension.blocks(result))
        from jobkit.planning.prepare import Options

        words = map(shlex.quote, Options(overrides=overrides, stand_in=stand_in).words)
        terminal.note_next(" ".join(["jobkit sweep", terminal.shell_path(spec), *words]), "measures it")
    return 0
