"""``jobkit recommend``: from a run to a batch size, a GPU, a time and a request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands.shared import gpu_memory_option, json_option
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.units import parse_size

if TYPE_CHECKING:
    from jobkit.fit.gpus import GpuKind

PERCENT = 100


@click.command("recommend", short_help="Batch size, cards, time and request, from a run.")
@click.argument("run", type=click.Path(path_type=Path), required=False)
@gpu_memory_option()
@click.option("--gpu", metavar="NAME[,NAME...]", help="Cards by name, such as v100-32,a100-40; or all.")
@click.option("--corpus", metavar="FILE|N", help="What you will work through: a text, or N paragraphs.")
@click.option(
    "--margin", metavar="SHARE", default="0", show_default=True, help="Of memory, to keep free besides."
)
@json_option
def recommend(
    run: Path | None, gpu_memory: str | None, gpu: str | None, corpus: str | None, margin: str, as_json: bool
) -> int:
    """Read the folder of one RUN, by default the latest, and recommend how to run your whole corpus.

    The smallest batch within 5 % of the fastest that was measured; the largest one that is safe,
    with a 95 % bound; the GPUs that it fits on; how long your corpus takes on the GPU that was
    measured; the lines to ask a scheduler for just enough; and what the sweep itself has cost.
    Nothing is submitted or changed.

    \b
      jobkit recommend
      jobkit recommend runs/stanza-20260102-101530-3f9a
      jobkit recommend runs/stanza-20260102-101530-3f9a --corpus letters.txt
      jobkit recommend runs/stanza-20260102-101530-3f9a --corpus 2000000
      jobkit recommend runs/stanza-20260102-101530-3f9a --gpu v100-32,mig-2g.10gb
      jobkit recommend runs/stanza-20260102-101530-3f9a --gpu-memory 48GiB --margin 5%

    If something is not known, the output says why. See jobkit help recommend.
    """
    if gpu_memory is not None and gpu is not None:
        raise click.UsageError("--gpu-memory and --gpu say the same: give one of them")
    share = _share(margin)
    from jobkit.core.terminal import terminal_width
    from jobkit.planning.corpus import read_corpus
    from jobkit.report.recommend import output
    from jobkit.report.recommend.material import read_material
    from jobkit.report.recommend.recommend import recommend as answer
    from jobkit.report.recommend.types import RecommendOptions
    from jobkit.status.which_run import run_or_latest

    named = _cards(gpu, gpu_memory)
    material = read_material(run if run and run.is_file() else run_or_latest(run))
    wishes = RecommendOptions(
        cards=named,
        corpus=read_corpus(corpus, material.records) if corpus is not None else None,
        margin=share,
    )
    found = answer(material, wishes)
    told = output.as_json(found) if as_json else output.as_text(found, terminal_width())
    terminal.say(told, nl=False)
    return 0


def _cards(names: str | None, size: str | None) -> tuple[GpuKind, ...] | None:
    """Return the GPUs that are asked about, ``None`` for those that come to mind."""
    from jobkit.fit.gpus import GpuKind, gpu_kinds

    if size is not None:
        return (GpuKind(name=size, usable_bytes=parse_size(size)),)
    return None if names is None else gpu_kinds(names)


def _share(text: str) -> float:
    """Return a share of 0 to less than 1: ``0.05`` or ``5%``."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (PERCENT if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise JobkitError(f"--margin {text!r}: no share of 0 to 1", hint="for instance 0.05 or 5%")
    return share
