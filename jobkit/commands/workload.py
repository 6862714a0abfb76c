"""What a job runs: ``jobkit workload`` checks it, ``jobkit models`` lists, fetches and builds its models."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobkit.commands import shared
from jobkit.commands.listing import Group
from jobkit.core import terminal
from jobkit.core.errors import ExitCode
from jobkit.core.paths import cache_dir
from jobkit.core.records import FOLDER, ModelRef
from jobkit.core.units import MIB
from jobkit.worker.workloads.base import EXTRA_OF

if TYPE_CHECKING:
    from jobkit.planning.prepare import Options


@click.group("workload", cls=Group)
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
    from jobkit.setup import check_workload, findings

    subject = check_workload.find_subject(word, text=text, model=model, device=device, say=terminal.note)
    probe = check_workload.try_out(subject, terminal.note)
    predicted = check_workload.predict(subject, probe.sizes, terminal.note)
    found = check_workload.answers(probe, subject, predicted)
    if as_json:
        terminal.say(check_workload.to_json(found, subject), nl=False)
    else:
        width = terminal.terminal_width() or terminal.page_width()
        terminal.say(check_workload.as_text(found, subject, width), nl=False)
    return findings.exit_code(found)


DOCTOR = "checks what else a sweep needs"


@click.group("models", cls=Group, invoke_without_command=True)
@shared.json_option
@click.pass_context
def models(ctx: click.Context, as_json: bool) -> int:
    """Print the models on this machine, one per line: name, kind, size on disk, folder.

    A job never downloads: a model must be on disk before `jobkit sweep` submits anything.

    \b
      jobkit models                       list the models on this machine
      jobkit models fetch en              Stanza's English model, tokenizer and NER
      jobkit models fetch dslim/bert-base-NER   a model of the Hugging Face hub
      jobkit models build --size tiny     jobkit's own stand-in model, for trying jobkit
    """
    from jobkit.planning.models import list_models

    if ctx.invoked_subcommand:
        return 0
    on_disk = list_models(cache_dir())
    if as_json:
        terminal.say(terminal.as_json(on_disk, indent=1))
        return 0
    for model in on_disk:
        terminal.say(f"{model.name}  {_kind(model):<24} {model.size_bytes / MIB:6,.0f} MiB  {model.path}")
    if not on_disk:
        terminal.note("no model on this machine")
        terminal.note_next("jobkit models fetch en", "Stanza's English model")
    return 0


def _kind(model: ModelRef) -> str:
    """Return what a model on this machine is."""
    from jobkit.planning.standin import read_card

    if model.architecture:
        return f"random weights, {model.architecture}"
    if model.stand_in:
        return f"stand-in {model.size}, F1 {read_card(Path(model.path))['f1']:.3f}"
    return "of the hub" if model.kind == FOLDER else "Stanza's own"


@models.command("fetch")
@click.argument("name")
@click.option(
    "--resources-url",
    metavar="URL",
    help="Download from this address, such as a mirror, instead of Stanza's or the hub's.",
)
@click.option(
    "--as-job",
    is_flag=True,
    help="Download on a node, in a job on the site's CPU queue, and wait for the job.",
)
@shared.scheduler_option
@shared.site_option
@shared.options_of_spec
def fetch(name: str, resources_url: str | None, as_job: bool, options: Options) -> int:
    """Download a model NAME: Stanza's tokenizer and NER of a language (en), or ORGANISATION/MODEL of the hub.

    jobkit checks every file against its checksum. After an interruption it does not download complete
    files again, and it keeps an existing model until the new one is complete. Models of the Hugging Face
    hub are fetched by huggingface_hub, which obeys HF_ENDPOINT and HF_TOKEN.

    \b
      jobkit models fetch en
      jobkit models fetch dslim/bert-base-NER
      jobkit models fetch en --as-job --site lancaster-hec
    """
    if not as_job:
        from jobkit.planning.models import fetch as fetched

        terminal.say(fetched(name, cache_dir(), resources_url, say=terminal.note).path)
        terminal.note_next("jobkit doctor", DOCTOR)
        return 0
    from jobkit.launch.helper_job import submit_fetch, wait_for_fetch
    from jobkit.launch.job import announce
    from jobkit.runs.which_run import RUNS

    words = [name, *(["--resources-url", resources_url] if resources_url else [])]
    asked = {"scheduler": options.scheduler or "auto", "site": options.site or "auto"}
    errand = submit_fetch(name, words, **asked, runs_dir=RUNS)
    then = f"; run folder {errand.run_dir}; waiting for the job (Ctrl-C does not cancel the job)"
    announce(errand.scheduler.NAME, [errand.job], then)
    succeeded, log = wait_for_fetch(errand)
    terminal.say(log.rstrip())
    if not succeeded:
        terminal.note(f"the download failed; its log is above and in {errand.run_dir}/logs")
        return ExitCode.FAILED
    terminal.note("fetched")
    terminal.note_next(shlex.join(["jobkit", "doctor", *options.words]), DOCTOR)
    return ExitCode.DONE


@models.command("build")
@click.option(
    "--size",
    type=click.Choice(["full", "tiny"]),
    default="tiny",
    show_default=True,
    help="The size of the stand-in model; full has the dimensions of Stanza's English model.",
)
@click.option(
    "--for",
    "workload",
    type=click.Choice([*EXTRA_OF]),
    default="stanza-ner",
    show_default=True,
    help="The workload that loads the model.",
)
def build(size: str, workload: str) -> int:
    """Build jobkit's stand-in model now, and print its folder.

    For stanza-ner it is a real Stanza tokenizer and NER tagger, trained on text that jobkit generates; for
    the other workloads a named architecture with random weights, not trained. Speed and memory are real,
    the results are not; tables and records say which of the two it is.
    """
    from jobkit.planning import models as store

    model = store.stand_in(workload, size, cache_dir())
    terminal.say(store.build(workload, model, cache_dir(), say=terminal.note).path)
    terminal.note_next("jobkit doctor", DOCTOR)
    return 0
