"""``jobkit workload``: check a workload before it is measured."""

from __future__ import annotations

import click

from jobkit.commands.shared import json_option
from jobkit.core import terminal


@click.group("workload")
def workload() -> None:
    """Check a workload, shipped or your own, before it is measured.

    \b
      jobkit workload check ./tagger.py:tag
    """


@workload.command("check", short_help="Try a workload, and report what works and what is missing.")
@click.argument("word", metavar="WORKLOAD|SPEC")
@click.option("--text", default="sample:100", show_default=True, help="A short text, as in a spec.")
@click.option(
    "--model",
    default="",
    metavar="NAME[:SIZE]",
    help="The model, if the workload needs one.  [default: of the spec, else the small stand-in]",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="auto is cuda if this machine has a GPU.",
)
@json_option
def check(word: str, text: str, model: str, device: str, as_json: bool) -> int:
    """Run WORKLOAD, named as in a spec, a few times on a short text, in a process without network.

    One line for each check: whether it loads; whether its knobs take effect; whether its load explains its
    memory; whether its output is equal at every batch size, and in two runs; and what is missing for
    preflight, find_max, tune and apply. In place of WORKLOAD you may name a spec.

    \b
      jobkit workload check ./tagger.py:tag
      jobkit workload check stanza-ner --device cuda
      jobkit workload check first.yaml --text corpus.txt

    Exit status: 0 if no line says no, 4 if one does, 2 if the workload cannot be loaded.
    See jobkit help workloads.
    """
    from jobkit.setup import check_workload

    subject = check_workload.find_subject(word, text=text, model=model, device=device, say=terminal.note)
    probe = check_workload.try_out(subject, terminal.note)
    found = check_workload.answers(
        probe, subject, check_workload.predict(subject, probe.sizes, terminal.note)
    )
    width = terminal.terminal_width() or terminal.page_width()
    printed = (
        check_workload.to_json(found, subject) if as_json else check_workload.as_text(found, subject, width)
    )
    terminal.say(printed, nl=False)
    return check_workload.exit_code(found)
