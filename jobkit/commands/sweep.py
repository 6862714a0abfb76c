"""From a spec to a run: ``jobkit sweep``, ``tune``, ``preflight`` and ``shell``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import read_points
from jobkit.core.units import parse_size
from jobkit.runs.which_run import find_run, refuse_unmeasured

if TYPE_CHECKING:
    from jobkit.core.records import Point
    from jobkit.launch.launch import Preview, Session
    from jobkit.planning.prepare import Options


run_options = shared.together(
    shared.scheduler_option,
    shared.site_option,
    shared.runs_dir_option,
    shared.preview_options,
    click.option("--new", is_flag=True, help="Start another run even if this sweep already has one."),
    shared.wait_option,
)
"""The options that begin a run: of ``sweep`` and of ``tune``."""


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
@run_options
@click.option("--detach", is_flag=True, help="Run a local sweep in the background and return at once.")
@shared.options_of_spec
def sweep(
    spec: Path,
    options: Options,
    setting: Path | None,
    preview: Preview | None,
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
    from jobkit.launch import launch
    from jobkit.launch.submission import write_run
    from jobkit.planning.prepare import prepare

    if setting and not setting.is_file():
        setting = find_run(setting) or setting
    run = prepare(spec, replace(options, setting=setting), build=preview is None, say=terminal.note)
    check = partial(launch.refuse_duplicate, run, new=new, dry_run=preview is not None)
    check()
    plan = [*launch.headline(run).splitlines(), launch.request_line(run)]
    if preview:
        script = (run.run_dir / JOB_SCRIPT, run.script)
        return launch.dry_run(preview, run.spec, spec, plan, script, launch.submit_commands(run))
    from jobkit.commands.results import print_table

    terminal.note("\n".join(plan))
    code = launch.go(run, partial(write_run, run, check), wait=wait, detach=detach)
    return print_table(Path(terminal.relative_path(run.run_dir))) if code is None else code


@click.command("tune", short_help="Find the fastest setting by measuring a few.")
@click.argument("spec", metavar="SPEC|RUN", type=shared.FilledPath(path_type=Path))
@shared.set_option
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
    from jobkit.extensions.tune.search import Tuning
    from jobkit.extensions.tune.steps import Candidate

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

        words = [shlex.join(Options(overrides=overrides).words)] if overrides else []
        words += ["--stand-in"] if stand_in else []
        terminal.note_next(" ".join(["jobkit sweep", terminal.shell_path(spec), *words]), "measures it")
    return 0


RESOURCES = "resources."
"""Keys of a run's spec that `--set` may change: its job script is written, and has the rest."""


@click.command(short_help="Print or start a shell on a node, to run a point by hand.")
@click.argument("source", type=shared.FilledPath(path_type=Path), metavar="SPEC|RUN")
@click.option("--point", "word", metavar="K", help="The point, by number or id. Default: the first.")
@click.option("--go", is_flag=True, help="Start the shell in this terminal.")
@shared.set_option
@shared.stand_in_option
@shared.scheduler_option
@shared.site_option
@shared.runs_dir_option
@shared.options_of_spec
def shell(source: Path, word: str | None, go: bool, options: Options) -> int:
    """Print the command for a shell on a node, and what to type there to run one point.

    The command is `srun --pty` or `qrsh` with the request of the point's job. `bash job.sh K` then does
    what the job does: it copies the inputs to scratch, activates the environment, runs the point and
    copies the results home. With a SPEC, jobkit writes a run folder into runs/shell/ and submits nothing;
    with a RUN, it is a point of that run, such as one that failed.

    \b
      jobkit shell first.yaml
      jobkit shell first.yaml --point 3 --go --set resources.walltime=1h
      jobkit shell runs/stanza-20260102-101530-3f9a --point 12

    Without a scheduler no allocation is needed: the command runs the point in this shell.

    \b
    Exit status:
      0  the commands were printed, or the shell ended with status 0
      2  no such point, or no terminal for --go
      3  the scheduler refused, or does not answer
      4  the shell ended with another status, which is printed
    """
    if go and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise JobkitError(
            "--go needs a terminal", hint="leave --go out, and type the command that is printed"
        )
    run = find_run(source)
    session, point, number = (
        _of_run(run.absolute(), word, options) if run else _of_spec(source, word, options)
    )
    which = f"point {point.index} of {number:,}, {point.point_id}"
    if session.argv:
        terminal.say(f"# A shell on a node, for {which}:\n{shlex.join(session.argv)}")
        terminal.say(f"# Then, in that shell:\n{session.command}")
    else:
        terminal.say(f"# No allocation is needed here: runs {which}, in this shell.\n{session.command}")
    if not go:
        if session.refused:
            terminal.note(str(session.refused))
        return 0
    status = session.go() if session.argv else 0
    if status:
        terminal.note(f"{session.argv[0]} ended with status {status}")
    return ExitCode.FAILED if status else ExitCode.DONE


def _of_run(run: Path, word: str | None, options: Options) -> tuple[Session, Point, int]:
    """Return the shell for a point of a run, the point, and how many points the run has."""
    from jobkit.launch.launch import session
    from jobkit.launch.resume import refuse_moved_run, spec_of_run
    from jobkit.spec.site import load_site
    from jobkit.spec.sweep_spec import SweepSpec
    from jobkit.spec.yaml_files import hide_override

    fixed = [key for key in ("scheduler", "site", "runs_dir") if getattr(options, key)]
    if fixed:
        key = fixed[0].replace("_", "-")
        raise JobkitError(f"--{key}: a run has its own {key}", hint=f"leave --{key} out, or name a spec")
    for override in options.overrides:
        if not override.startswith(RESOURCES):
            shown = hide_override(override, SweepSpec)
            message = f"--set {shown}: a run has its job script already; only {RESOURCES}... can change"
            raise JobkitError(message, hint="to change another key name a spec")
    refuse_moved_run(run)
    spec, (points, _) = spec_of_run(run, options.overrides), read_points(run)
    point = _chosen(points, word, run)
    return session(spec, load_site(spec.site, spec.scheduler), point, run), point, len(points)


def _of_spec(path: Path, word: str | None, options: Options) -> tuple[Session, Point, int]:
    """Write a run folder, or take the one that is there; return the same for a point of it."""
    from jobkit.launch.launch import session, write_shell_run
    from jobkit.planning.prepare import prepare

    prepared = prepare(path, options, build=True, say=terminal.note, needs_real=lambda _: "")
    point = _chosen(prepared.points, word, path)
    run_dir = write_shell_run(prepared)
    terminal.note(f"run folder: {terminal.relative_path(run_dir)}; nothing was submitted")
    return session(prepared.spec, prepared.site, point, run_dir), point, len(prepared.points)


def _chosen(points: Sequence[Point], word: str | None, source: Path) -> Point:
    from jobkit.runs.status import point_named

    if not points:
        raise JobkitError(f"{source}: has no point yet", hint=f"jobkit status {terminal.shell_path(source)}")
    return point_named(points, word) if word is not None else points[0]
