"""``jobkit verify``: run the largest batch that a finished run predicts."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run, gpu_memory_option
from jobkit.core.units import parse_size


@click.command(short_help="Run the largest batch that a run predicts.")
@changed_run
@gpu_memory_option(old=("--memory",))
def verify(run: Path, gpu_memory: str | None) -> int:
    """Run the largest batch that the points of the run folder RUN predict, and report how far off it was.

    It is what `find_max` in a spec does by itself after a sweep: the line is fitted, the largest
    batch whose bound fits is run as a point of its own under the same request, and where it fails
    a smaller one, at most three in all. On a cluster it is a job; without one it runs here. What
    was predicted and what it needed go into the run folder (trials.jsonl) and into your ledger of
    predictions, which `jobkit recommend` quotes.

    \b
      jobkit verify runs/stanza-20260102-101530-3f9a
      jobkit verify runs/stanza-20260102-101530-3f9a --gpu-memory 16GiB

    A batch that the run has measured already is not run again: what it needed is printed instead.
    No figure of the sweep changes: a trial tests memory, and its speed is not used.

    --gpu-memory is what the batch must fit: a size, or `device` for all of the GPU. With a size,
    PyTorch's allocator is capped to it, the CUDA context on top: so a prediction for a smaller GPU is
    tested on a large one. On a CPU nothing is capped, and the memory of the process must stay within it.

    \b
    Exit status:
      0  the batch held, was measured already, or the job was submitted
      4  none of those tried held, or nothing could be tried
      5  a job tries that batch already: nothing more is submitted
    """
    from jobkit.status.which_run import run_named
    from jobkit.submit import verify as verification

    size_bytes = None if gpu_memory in {None, "device"} else parse_size(str(gpu_memory))
    return verification.verify(run_named(run).absolute(), memory=size_bytes or gpu_memory)
