"""A program of your own: ``jobkit workload`` checks it, ``jobkit emit`` takes its figures."""

from __future__ import annotations

import json
import os

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.terminal import say
from jobkit.worker.measure import figures
from jobkit.worker.measure.emit import emit as append


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
@shared.json_option
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


NUMBERS = ("items", "seconds", "load", "worker", "value")


@click.command(short_help="Report figures of a running program to jobkit, from a shell.")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def emit(pairs: tuple[str, ...]) -> None:
    """Append a line to the file JOBKIT_METRICS, from which jobkit reads a program's own figures.

    \b
      jobkit emit items=32 seconds=0.41 load=30112        a batch
      jobkit emit metric=f1 value=0.91 unit=1             a figure of the whole run

    A program that is Python calls jobkit.emit(items=32, seconds=0.41) instead. If the program does not run
    under jobkit, nothing is written.
    """
    line = dict(map(_pair, pairs))
    try:
        figures.parse(json.dumps(line))
    except JobkitError as error:
        hint = "a batch has items and seconds; a figure has metric and value"
        raise JobkitError(f"{' '.join(pairs)}: {error.message}", hint=hint) from error
    if not os.environ.get(figures.VARIABLE):
        say(f"{figures.VARIABLE} is not set, so nothing is written", err=True)
        return
    append(**line)


def _pair(text: str) -> tuple[str, object]:
    """Return a key and its value: a number where the key has one."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise JobkitError(f"{text!r} is not KEY=VALUE", hint="for instance items=32")
    if key not in NUMBERS:
        return key, value
    try:
        return key, float(value) if not value.lstrip("+-").isdecimal() else int(value)
    except ValueError as error:
        raise JobkitError(f"{text!r}: should be a number", hint="for instance items=32") from error
