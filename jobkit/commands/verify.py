"""``jobkit verify``: run the largest batch that a finished run predicts."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import changed_run, gpu_memory_option, stand_in_option
from jobkit.core.units import parse_size


@click.command(short_help="Run the largest batch that a run predicts, and compare.")
@changed_run
@gpu_memory_option(
    "The memory that the batch must fit: a size such as 16GiB, or device. Default: the memory in the spec.",
    old=("--memory",),
)
@stand_in_option
def verify(run: Path, gpu_memory: str | None, stand_in: bool) -> int:
    """Run the largest batch that the run folder RUN predicts, and compare it with the prediction.

    It is the largest batch_size, or the largest padded if the sweep has that knob. With `find_max`
    in the spec, a sweep does this by itself. jobkit fits the line, runs the largest batch whose bound fits
    as a separate point with the same request, and if that batch fails, a smaller one, three at most. On a
    cluster this is a job; without a scheduler it runs here. The prediction and the measured need go into
    the run folder (trials.jsonl) and into your ledger of predictions, which `jobkit recommend` quotes.

    \b
      jobkit verify runs/stanza-20260102-101530-3f9a
      jobkit verify runs/stanza-20260102-101530-3f9a --gpu-memory 16GiB

    If the run has measured that batch already, jobkit prints its need and runs nothing. No figure of the
    sweep changes: a trial tests memory, and its speed is not used.

    --gpu-memory is the memory that the batch must fit: a size, or `device` for the whole GPU. With a
    size, jobkit caps PyTorch's allocator, and the CUDA context comes on top; this tests a prediction for
    a smaller GPU on a larger one. On a CPU there is no cap, and the memory of the process must stay
    below the size.

    If the run measured a stand-in, or random weights, on a text that is not jobkit's own `sample`, jobkit
    refuses, with the command that fetches the real model, unless --stand-in permits it.

    \b
    Exit status:
      0  the batch fits, was measured already, or the job was submitted
      2  the model is not the real one: nothing was run
      4  no batch that was tried fits, or none could be tried
      5  a job already tries that batch: nothing more is submitted
    """
    from jobkit.launch import verify as verification
    from jobkit.runs.which_run import changed_run_named, refuse_unmeasured

    size_bytes = None if gpu_memory in {None, "device"} else parse_size(str(gpu_memory))
    folder = changed_run_named(run, "verify").absolute()
    refuse_unmeasured(folder, "verify")
    return verification.verify(folder, memory=size_bytes or gpu_memory, stand_in=stand_in)
