"""``jobkit models``: fetch, build and find models before a job needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click

from jobkit.commands.shared import json_option, note, scheduler_option, site_option
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.paths import cache_dir
from jobkit.core.units import MIB

F = TypeVar("F", bound=Callable[..., int])


def size_option(default: str) -> Callable[[F], F]:
    """Add ``--size``."""
    return click.option(
        "--size",
        type=click.Choice(["full", "tiny"]),
        default=default,
        show_default=True,
        help="The size of the stand-in model; full has the dimensions of Stanza's English model.",
    )


@click.group("models")
def models() -> None:
    """Fetch, build and find models, so that jobs need no network.

    A job never downloads: a model must be on disk before `jobkit sweep` submits anything.

    \b
      jobkit models fetch en              Stanza's English model, tokenizer and NER
      jobkit models build --size tiny     jobkit's own stand-in model, for trying jobkit
      jobkit models path en               print the folder of a model
      jobkit models list                  list the models on this machine
    """


@models.command("fetch")
@click.argument("name")
@click.option(
    "--resources-url",
    metavar="URL",
    help="Download from this address, such as a mirror, instead of Stanza's.",
)
@click.option(
    "--as-job", is_flag=True, help="Download on a node, in a job on the site's CPU queue, and wait for it."
)
@scheduler_option
@site_option
def fetch(name: str, resources_url: str | None, as_job: bool, scheduler: str | None, site: str | None) -> int:
    """Download Stanza's tokenizer and NER model NAME (a language, such as en).

    jobkit checks every file against its checksum. After an interruption it does not download complete
    files again, and it keeps an existing model until the new one is complete.

    \b
      jobkit models fetch en
      jobkit models fetch en --as-job --site lancaster-hec
    """
    if as_job:
        return _fetch_as_job(name, resources_url, scheduler or "auto", site or "auto")
    from jobkit.planning.models import fetch_model

    model = fetch_model(name, cache_dir(), resources_url=resources_url, say=note)
    terminal.say(model.path)
    return 0


def _fetch_as_job(name: str, resources_url: str | None, scheduler: str, site: str) -> int:
    from jobkit.planning.resolve import DEFAULT_RUNS_DIR
    from jobkit.submit.errand import submit_fetch, wait_for_fetch

    words = [name, *(["--resources-url", resources_url] if resources_url else [])]
    errand = submit_fetch(name, words, scheduler=scheduler, site=site, runs_dir=Path(DEFAULT_RUNS_DIR))
    what = f"{errand.scheduler.NAME} job {errand.job}; run folder {errand.run_dir}"
    note(f"submitted: {what}; waiting for it (Ctrl-C does not cancel it)")
    succeeded, log = wait_for_fetch(errand)
    terminal.say(log.rstrip())
    note("fetched" if succeeded else f"the download failed; its log is above and in {errand.run_dir}/logs")
    return ExitCode.DONE if succeeded else ExitCode.FAILED


@models.command("build")
@size_option("tiny")
def build(size: str) -> int:
    """Build jobkit's stand-in model now, and print its folder.

    It is a real Stanza tokenizer and NER tagger, trained on text that jobkit generates. Its speed and
    memory are real, its English is not; tables and records call it a stand-in.
    """
    from jobkit.planning.models import build_stand_in

    terminal.say(build_stand_in(size, cache_dir(), say=note).path)
    return 0


@models.command("list")
@json_option
def list_(as_json: bool) -> int:
    """Print the models on this machine, one per line: name, kind, size on disk, folder."""
    from jobkit.planning.models import list_models
    from jobkit.planning.standin.build import read_card

    on_disk = list_models(cache_dir())
    if as_json:
        terminal.say(terminal.as_json([asdict(model) for model in on_disk], indent=1))
        return 0
    for model in on_disk:
        kind = "Stanza's own"
        if model.stand_in:
            kind = f"stand-in {model.size}, F1 {read_card(Path(model.path)).f1:.3f}"
        terminal.say(f"{model.name}  {kind:<24} {model.size_bytes / MIB:6,.0f} MiB  {model.path}")
    if not on_disk:
        terminal.say("no model on this machine; see `jobkit models --help`", err=True)
    return 0


@models.command("path")
@click.argument("name")
@size_option("full")
@click.option(
    "--fallback", type=click.Choice(["stand-in"]), help="Also accept a stand-in that is already built."
)
@json_option
def path(name: str, size: str, fallback: str | None, as_json: bool) -> int:
    """Print the folder that a spec with this model would load.

    If the stand-in is not built yet, that is an error (exit 2), with the command that builds it.
    """
    from jobkit.planning.models import NOT_BUILT, find_model

    model = find_model(name, size, fallback=fallback, cache=cache_dir(), say=note, build=False)
    if model.fingerprint == NOT_BUILT:
        hint = f"jobkit models build --size {size}"
        raise JobkitError(f"the {size} stand-in is not built yet: there is no {model.path}", hint=hint)
    terminal.say(terminal.as_json(asdict(model), indent=1) if as_json else model.path)
    return 0
