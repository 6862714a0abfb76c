"""``jobkit recommend``: recommend batch size, GPU, time and scheduler request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands.shared import (
    FilledPath,
    corpus_option,
    gpu_memory_option,
    json_option,
    run_and_corpus,
    set_option,
    skip_bad_option,
)
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.units import parse_size

if TYPE_CHECKING:
    from jobkit.answers.gpus import GpuKind

PERCENT = 100


@click.command("recommend", short_help="Recommend batch size, GPU, time and scheduler request for a corpus.")
@click.argument("run", type=FilledPath(path_type=Path), required=False)
@gpu_memory_option("A GPU that jobkit does not know by name, by its memory, such as 48GiB.")
@click.option("--gpu", metavar="NAME[,NAME...]", help="GPUs by name, such as v100-32,a100-40; or all.")
@corpus_option("Your corpus: N paragraphs, or files and folders, up to the next option.")
@click.option(
    "--margin",
    metavar="SHARE",
    default="0",
    show_default=True,
    help="Share of memory to keep free in addition.",
)
@click.option(
    "--min-f1",
    type=click.FloatRange(0, 1),
    metavar="F1",
    default=1.0,
    show_default=True,
    help="Also accept a precision whose F1 with the entities of fp32 is at least this.",
)
@skip_bad_option
@click.option("--why", is_flag=True, help="Print all that the answer rests on, too.")
@set_option
@json_option
def recommend(
    run: Path | None,
    gpu_memory: str | None,
    gpu: str | None,
    corpus: tuple[str, ...],
    margin: str,
    min_f1: float,
    skip_bad: bool,
    why: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Read the folder of one RUN, by default the latest, and recommend how to run your whole corpus.

    jobkit prints the smallest batch size within 5 % of the fastest, or the best setting by the objective
    of the spec, or of a run of jobkit tune its answer; the lines for your job script that request just
    enough; the time that your corpus takes on the GPU of the run; the largest safe batch size, with a
    95 % bound; and the cautions that matter most. With --why it adds all cautions, the reasons, other
    GPUs, and what the sweep itself cost. It submits and changes nothing.

    \b
      jobkit recommend
      jobkit recommend runs/stanza-20260102-101530-3f9a
      jobkit recommend runs/stanza-20260102-101530-3f9a --corpus letters.txt
      jobkit recommend runs/stanza-20260102-101530-3f9a --corpus 2000000 --why
      jobkit recommend runs/stanza-20260102-101530-3f9a --gpu v100-32,mig-2g.10gb
      jobkit recommend runs/stanza-20260102-101530-3f9a --gpu-memory 48GiB --margin 5%
      jobkit recommend runs/stanza-20260102-101530-3f9a --min-f1 0.999
      jobkit recommend runs/stanza-20260102-101530-3f9a --set objective.metric=joules_per_1000

    If something is not known, the output says why. See jobkit help recommend.
    """
    if gpu_memory is not None and gpu is not None:
        raise click.UsageError("--gpu-memory and --gpu both name the GPUs: give one of them")
    share = _share(margin)
    run, corpus = run_and_corpus(run, corpus)
    from jobkit.core.blocks import as_text
    from jobkit.core.layout import is_run_folder
    from jobkit.core.terminal import terminal_width
    from jobkit.planning.volume import read_corpora
    from jobkit.report.recommend import output
    from jobkit.report.recommend.advice import RecommendOptions
    from jobkit.report.recommend.advice import recommend as recommend_for
    from jobkit.report.recommend.material import read_material
    from jobkit.runs.which_run import refuse_unmeasured, run_or_latest

    gpus = _gpus(gpu, gpu_memory)
    found = run if run and run.is_file() else run_or_latest(run)
    refuse_unmeasured(found, "recommend")
    material = read_material(found, overrides)
    options = RecommendOptions(
        gpus=gpus,
        corpus=read_corpora(corpus, material.records, skip_bad=skip_bad) if corpus else None,
        margin=share,
        min_f1=min_f1,
    )
    answer = recommend_for(material, options)
    if as_json:
        terminal.say(output.as_json(answer), nl=False)
        return 0
    if run is None:
        terminal.say(f"Of the latest run, {terminal.shell_path(found)}:")
    terminal.say(as_text(output.blocks(answer, why=why, gpus=gpus is not None), terminal_width()), nl=False)
    if is_run_folder(found):
        note_apply(
            found,
            corpus,
            " --skip-bad" if skip_bad else "",
            chosen=bool(overrides or share or min_f1 < 1),
        )
    return 0


def note_apply(run: Path, corpus: tuple[str, ...] = (), more: str = "", *, chosen: bool = False) -> None:
    """Print the command that works through the corpus; nothing of a run that `jobkit apply` refuses.

    ``chosen`` is whether options chose the setting that `jobkit apply` does not have.
    """
    from jobkit.core.layout import read_points

    point = next(iter(read_points(run)[0]), None)
    if point is None or point.command:
        return
    if chosen:
        terminal.note(
            "jobkit apply RUN chooses without these options: for this setting name a spec that has it"
        )
        return
    named = bool(corpus) and not corpus[0].replace(",", "").replace("_", "").isdecimal()
    paths = " ".join(map(terminal.shell_quote, corpus)) if named else "CORPUS"
    stand_in = " --stand-in" if point.model and point.model.stand_in else ""
    command = f"jobkit apply {terminal.shell_path(run)} --corpus {paths} --out tagged{more}{stand_in}"
    terminal.note_next(command, "" if named else "CORPUS: your files or folders")


def _gpus(names: str | None, size: str | None) -> tuple[GpuKind, ...] | None:
    """Return the GPUs that the options name, ``None`` for the common ones."""
    from jobkit.answers.gpus import GpuKind, gpu_kinds

    if size is not None:
        return (GpuKind(name=size, usable_bytes=parse_size(size)),)
    return None if names is None else gpu_kinds(names)


def _share(text: str) -> float:
    """Parse a share from 0 to less than 1: ``0.05`` or ``5%``."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (PERCENT if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise JobkitError(f"--margin {text!r}: not a share between 0 and 1", hint="for instance 0.05 or 5%")
    return share
