"""``jobkit preflight``: compute from the text what each batch size pads to."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import (
    FilledPath,
    gpu_memory_option,
    json_option,
    set_option,
    stand_in_option,
)
from jobkit.core import terminal
from jobkit.core.units import parse_size


@click.command("preflight", short_help="Compute the padding of each batch size from the text, without a GPU.")
@click.argument("spec", type=FilledPath(dir_okay=False, path_type=Path))
@set_option
@stand_in_option
@click.option("--fast", is_flag=True, help="Estimate lengths from punctuation, without model and torch.")
@gpu_memory_option("The GPU memory that the chosen batch sizes must fit, such as 32GiB.")
@json_option
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
    gpu_memory_bytes = None if gpu_memory is None else parse_size(gpu_memory)
    from jobkit.core.blocks import as_text
    from jobkit.core.terminal import terminal_width
    from jobkit.extensions import preflight as extension

    result = extension.preflight(
        spec,
        overrides,
        fast=fast,
        gpu_memory_bytes=gpu_memory_bytes,
        stand_in=stand_in,
        say=terminal.note,
    )
    if as_json:
        terminal.say(extension.as_json(result), nl=False)
    else:
        terminal.say(as_text(extension.blocks(result), terminal_width()), nl=False)
        words = [f"--set {terminal.shell_quote(override)}" for override in overrides]
        words += ["--stand-in"] if stand_in else []
        terminal.note_next(" ".join(["jobkit sweep", terminal.shell_path(spec), *words]), "measures it")
    return 0
