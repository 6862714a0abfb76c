"""What a recommendation needs of a run folder, a corpus and the site files. Reads; submits nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE, is_run_folder, read_batches
from jobkit.core.paths import cache_dir, ledger_path
from jobkit.core.records import RESULTS, Batch, Outcome, Record, TextRef
from jobkit.core.terminal import shell_quote
from jobkit.fit import ledger
from jobkit.fit.lengths import Lengths
from jobkit.fit.loads import loads_of, read_lengths
from jobkit.outcome.results import PointResult, read_run
from jobkit.outcome.trials import describe_trials, settled_trials, trials
from jobkit.planning.text_lengths import cached_lengths, paragraphs_of
from jobkit.planning.texts import find_text
from jobkit.report.recommend.types import Corpus, RunData, TryTimes
from jobkit.report.sources import never_began
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec

LOCAL = "local"
MOST_PARAGRAPHS = 10**12
NUMBERS = "2000000, 2,000,000, 2_000_000 or 2e6"
_NUMBER = re.compile(r"-?(\d+|\d{1,3}([,_]\d{3})+)(\.\d+)?([eE][+]?\d{1,3})?", re.ASCII)
"""A number as people and programs write it; one out of reach is refused as a number, not as a file."""


def read_material(folder: Path) -> RunData:
    """Return what lies in a run folder.

    Parameters
    ----------
    folder
        Of one run.

    Raises
    ------
    JobkitError
        Where it is no run folder, such as an old log.
    """
    if not is_run_folder(folder):
        raise JobkitError(
            f"{folder}: not a run folder, and a recommendation rests on records that a log does not have",
            hint=f"name one folder below runs/; an old log is read by: jobkit collect {shell_quote(folder)}",
        )
    run = read_run(folder)
    spec, notes = _spec(folder)
    site, more = _site(spec)
    sweep = [point for point in run.points if not point.point.trial]
    points = [one.point for one in sweep]
    records = [one.chosen.record for one in sweep if one.chosen and one.chosen.record]
    tried = settled_trials(
        trials(folder),
        {point.point.index: point.verdict.outcome for point in run.points},
        never_began(folder, [point.point for point in run.points if point.point.trial and not point.tries]),
    )
    return RunData(
        run=str(folder),
        records=records,
        batches=_batches(sweep),
        loads=loads_of(read_lengths(folder), points),
        held=tuple(_held(sweep)),
        resources=spec.resources if spec else None,
        site=site,
        plain_sites=[load_site(f"{name}-default", name) for name in SCHEDULERS if name != LOCAL],
        to_come=sum(one.verdict.outcome is None for one in sweep),
        failed=sum(bool(one.verdict.outcome) and one.verdict.outcome not in RESULTS for one in sweep),
        notes=(*run.notes, *notes, *more),
        trials=describe_trials(tried),
        too_large=tuple(trial for trial in tried if trial.too_large),
        ledger=_ledger(records),
    )


def _ledger(records: Sequence[Record]) -> str | None:
    """Return what became of the user's predictions of this kind in other runs, in a few words."""
    first = next((record for record in records if record.outcome is Outcome.OK), None)
    if first is None:
        return None
    model = first.point.model
    return ledger.summary(
        [entry for entry in ledger.entries(ledger_path()) if entry.run_id != first.point.run_id],
        workload=first.point.workload,
        model=model.fingerprint if model else None,
        gpu=first.gpu.name if first.gpu else None,
        torch=first.versions.get("torch"),
        cuda=first.versions.get("cuda"),
    )


def _spec(folder: Path) -> tuple[SweepSpec | None, list[str]]:
    try:
        return load_spec(folder / SPEC_FILE), []
    except JobkitError as error:
        first, *_ = error.message.splitlines()
        return None, [f"no request can be told without the spec: {first}"]


def _site(spec: SweepSpec | None) -> tuple[Site | None, list[str]]:
    """Return the site of a run; ``None`` where it ran without a scheduler."""
    if spec is None or spec.scheduler in {LOCAL, "auto"}:
        return None, []
    try:
        return load_site(spec.site, spec.scheduler), []
    except JobkitError as error:
        return None, [f"{error.message}: the lines are a plain {spec.scheduler}'s"]


def _batches(sweep: Sequence[PointResult]) -> dict[str, list[Batch]]:
    """Return the batches of the tries that count, if memory on a GPU was measured by them."""
    return {
        result.point.point_id: read_batches(result.chosen.folder)[0]
        for result in sweep
        if result.chosen and result.chosen.record and result.chosen.record.point.device != "cpu"
    }


def _held(sweep: Sequence[PointResult]) -> Iterator[TryTimes]:
    """Yield every try of the points of the sweep, except those that a person ran."""
    for result in sweep:
        for tried in reversed(result.tries):
            record = tried.files.record
            yield TryTimes(started_at=record.started_at, ended_at=record.ended_at) if record else TryTimes()


def read_corpus(text: str, material: RunData) -> Corpus:
    """Return what the user wants to work through.

    Parameters
    ----------
    text
        A number of paragraphs, or a file.
    material
        Of the run: its workload and model say where lengths may be known already.

    Raises
    ------
    JobkitError
        Where it is neither.
    """
    if (number := _NUMBER.fullmatch(text)) and not Path(text).exists():
        return Corpus(paragraphs=_paragraphs(number[0]))
    try:
        found = find_text(text, base=Path(), cache=cache_dir(), write=False)
    except JobkitError as error:
        hint = f"a number of paragraphs ({NUMBERS}), a text that is here, or sample"
        if text.startswith(("http://", "https://")):
            hint = f"fetch it first, and name the file: curl -LO {shlex.quote(text)}"
        raise JobkitError(f"--corpus {text}: {error.message}", hint=hint) from error
    held = paragraphs_of(found)
    return Corpus(
        name=text,
        paragraphs=len(held),
        characters=sum(map(len, held)),
        loads=loads_of(_known(found, material), [record.point for record in material.records]),
    )


def _paragraphs(number: str) -> int:
    """Return a number of paragraphs as people write it.

    Raises
    ------
    JobkitError
        Where it is none that a corpus could have.
    """
    found = Decimal(number.replace(",", "").replace("_", ""))
    why = "" if 1 <= found <= MOST_PARAGRAPHS else f"is not within 1 and {MOST_PARAGRAPHS:,} paragraphs"
    if not why and found % 1:
        why = "is no whole number"
    if why:
        raise JobkitError(f"--corpus {number} {why}", hint=f"for instance {NUMBERS}; or name a file")
    return int(found)


def _known(text: TextRef, material: RunData) -> Lengths | None:
    point = material.records[0].point if material.records else None
    return cached_lengths(point.workload, text, point.model, cache_dir()) if point else None
