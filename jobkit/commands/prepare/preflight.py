"""``jobkit preflight``: what the text alone tells, before any GPU."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import gpu_memory_option, json_option, set_option
from jobkit.core import terminal
from jobkit.core.units import parse_size


@click.command("preflight", short_help="What the text alone tells, before any GPU.")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@set_option
@click.option("--fast", is_flag=True, help="Estimate lengths from punctuation; no model, no torch.")
@gpu_memory_option()
@json_option
def preflight(
    spec: Path, overrides: tuple[str, ...], fast: bool, gpu_memory: str | None, as_json: bool
) -> int:
    """Read the text of the YAML file SPEC, and say what each batch size will pad to.

    Nothing is submitted and no GPU is used. The lengths of the sentences come from the real
    tokenizer, on the CPU, once: they are kept. From them follow the load of every batch size,
    which is what memory is a line in; how much of it is padding; past which batch size nothing
    changes; and the four or five batch sizes that are worth measuring.

    \b
      jobkit preflight sweeps/stanza.yaml
      jobkit preflight sweeps/stanza.yaml --fast
      jobkit preflight sweeps/stanza.yaml --set text=corpus.txt --gpu-memory 32GiB
      jobkit preflight sweeps/demo.yaml --json

    A spec that says `sweep: {batch_size: auto}` gets those sizes. See jobkit help preflight.
    """
    gpu_memory_bytes = None if gpu_memory is None else parse_size(gpu_memory)
    from jobkit.core.terminal import terminal_width
    from jobkit.planning import preflight_output
    from jobkit.planning.preflight import preflight as look
    from jobkit.submit.launch import say

    found = look(spec, overrides, fast=fast, gpu_memory_bytes=gpu_memory_bytes, say=say)
    told = preflight_output.as_json(found) if as_json else preflight_output.as_text(found, terminal_width())
    terminal.say(told, nl=False)
    return 0
