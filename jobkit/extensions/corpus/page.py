"""The page of a corpus: done or not, promise against truth, the shards over time, what failed, counts.

It only reads, and asks no scheduler.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from jobkit.core import files
from jobkit.core.blocks import Block, columns_of
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import frozen, keyed
from jobkit.core.json_codec import from_json
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap, shell_path, shell_quote
from jobkit.core.units import (
    MOST_NAMED,
    format_compared,
    format_count,
    format_energy,
    format_list,
    format_setting,
    moment,
)
from jobkit.extensions.corpus.formats import counts_path
from jobkit.extensions.corpus.plan import is_unplanned
from jobkit.extensions.corpus.provenance import bibtex, methods, provenance, read_promise
from jobkit.extensions.corpus.standing import CorpusState
from jobkit.extensions.corpus.vectors import kept, read_vectors
from jobkit.extensions.corpus.winners import part_files
from jobkit.report.page import OfRun, PictureGroup, folded, source
from jobkit.report.plot.drawing import Mark, Stroke, from_zero
from jobkit.report.plot.pictures import Picture, row_drawing
from jobkit.runs.hints import remedy
from jobkit.runs.results import each_point
from jobkit.runs.status import PointResult
from jobkit.runs.tries import task_s
from jobkit.worker.workloads.base import Ragged, noun

MOST_LISTED = 20  # documents, labels, entities and places of each table
MOST_NORMS = 10_000  # vectors whose norm it computes
PICTURE_PX, MOST_ROW_PX = 400.0, 16.0  # the height of all rows, and the most of one row


class ShardTry(NamedTuple):
    name: str  # of the shard, with the number of the try
    began_s: float  # since the first try began
    ended_s: float | None  # since the first try began; ``None`` if unknown
    outcome: str  # in a word; ``to come`` while it has none


@frozen
class DocumentCount:
    document: str
    paragraphs: int
    rows: int


@keyed
class CorpusReport:
    standing: CorpusState
    results: Sequence[PointResult]  # the shards, and their tries
    data: Mapping[str, Any]  # of `provenance`, for the shards that are done; else empty
    counts: Sequence[DocumentCount]  # of each document, in corpus order; empty if the results are not merged
    notes: Sequence[str]  # what could not be read

    @property
    def done(self) -> set[int]:
        """The indices of the shards that are done."""
        return {result.point.index for result in self.results if result.outcome is Outcome.OK}

    @property
    def title(self) -> str:
        missing, all_of_it = len(self.results) - len(self.done), format_count(len(self.results), "shard")
        return f"{missing:,} of {all_of_it} not done" if missing else f"done, {all_of_it}"


def read_corpus_report(folder: Path) -> CorpusReport:
    """Read what a run folder has of a corpus. A damaged line becomes a note."""
    if is_unplanned(folder):
        hint = f"jobkit status {shell_path(folder)} shows the job that plans it"
        raise JobkitError(f"{folder}: the corpus is not planned yet", hint=hint)
    standing, notes = CorpusState(folder), list[str]()
    results = list(each_point(folder, notes))
    if not results:
        raise JobkitError(f"{folder}: nothing to report", hint="jobkit status shows what there is")

    def leave_out(left_out: Collection[int], why: str) -> None:
        if names := [one.point.point_id for one in results if one.point.index in left_out]:
            notes.append(f"{why.format(format_list(names))}: no sum includes these shards")

    planned = standing.shards.keys()
    leave_out(standing.indices - planned, "jobkit cannot read the plan of {}")
    done = {one.point.index for one in results if one.outcome is Outcome.OK} & planned
    leave_out(done - standing.winners.keys(), "jobkit status has not claimed {} yet")
    won = {index: winner for index, winner in standing.winners.items() if index in done}
    counts, faults = files.read_tolerantly(
        counts_path(folder / "merged.jsonl"),
        lambda line, where: from_json(DocumentCount, line, where=where),
        growing=False,
    )
    return CorpusReport(
        standing=standing,
        results=results,
        data=provenance(folder, standing.corpus, standing.shards, won, results) if won else {},
        counts=counts,
        notes=[*notes, *faults],
    )


def of_corpus(run: Path) -> OfRun:
    """Return the page of a corpus: promise against truth, the shards over time, what failed, counts."""
    report = read_corpus_report(run)
    first, documents = report.results[0].point, report.standing.corpus.documents
    title = f"{first.workload}: {format_count(documents, 'document')} of a corpus"
    notes = Block(
        title=format_count(len(report.notes), "note"), after=tuple(f"- {note}" for note in report.notes)
    )
    drawn, cite = tries(report), Block()
    if len(report.done) == len(report.results) == report.data.get("shards"):
        code = NoWrap(bibtex(report.data))
        cite = Block(title="For a methods section", after=(methods(report.data), code))
    return OfRun(
        name=f"{run.resolve().name}: {report.title}",
        outcomes=frozenset(result.outcome for result in report.results),
        titles=[title],
        caveats=[first.model.warning] if first.model and first.model.stand_in else [],
        tiles=answer(report),
        groups=[PictureGroup(block=Block(), pictures=[_shard_picture(drawn, report)])] if drawn else [],
        missing=failed(report),
        tables=[*result_blocks(report), count_block(report)],
        folded=[
            *(folded(block) for block in (notes, cite) if block.after),
            source(run, _fact_block(report)),
        ],
    )


def tries(report: CorpusReport) -> list[ShardTry]:
    """Return the tries of all shards, in the order in which they began: the worker, else the job."""
    begun = []
    for result in report.results:
        for tried in result.all_tries:
            at = tried.record.started_at if tried.record else tried.begin.at if tried.begin else ""
            if tried.number and (began := moment(at)):
                begun.append((began, f"{result.point.point_id}, try {tried.number}", tried))
    begun.sort(key=lambda one: one[0])
    in_order = []
    for began, name, tried in begun:
        began_s = (began - begun[0][0]).total_seconds()
        held_s = task_s(tried) if tried.outcome else None
        ended_s = None if held_s is None else began_s + held_s
        in_order.append(ShardTry(name, began_s, ended_s, str(tried.outcome or "to come")))
    return in_order


def answer(report: CorpusReport) -> list[Block]:
    """Return whether it is done, promise against truth, and the setting."""
    tiles = [_done(report), _against_promise(report.data), _with(report)]
    return [block for block in map(Block.of, tiles) if block.title]


def _done(report: CorpusReport) -> Iterator[str]:
    corpus, shards = report.standing.corpus, report.standing.shards
    paragraphs = sum(shards[index].paragraphs for index in report.done & shards.keys())
    documents = format_count(corpus.documents, "document")
    yield f"{report.title[:1].upper()}{report.title[1:]}."
    yield f"{paragraphs:,} of {format_count(corpus.paragraphs, 'paragraph')} of {documents} are done."
    if report.data:
        yield f"{format_count(report.data['rows'], 'row')}."
    if number := report.data["corpus"]["quarantined"] if report.data else 0:
        yield f"{format_count(number, 'paragraph')} in quarantine: the workload cannot take them."
    if left_out := len(corpus.skipped):
        yield f"jobkit left out {format_count(left_out, 'place')} that it could not read."
    run = shell_path(report.standing.folder)
    if len(report.done) < len(report.results):
        yield NoWrap(f"jobkit status {run}", "How much of the corpus is done: ")
    elif not report.counts:
        yield NoWrap(f"jobkit merge {run}", "Join the results: ")


def _against_promise(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield time and energy of the shards that are done, next to what was promised of the time."""
    if not data or data["time"]["took_s"] is None:
        return
    time, joules = data["time"], data["energy"]["joules"]
    took, predicted = time["took_s"], time["predicted_s"]
    promise = f"; the promise was {format_compared(predicted)}" if predicted else ""
    yield f"The shards took {format_compared(took)}{promise}."
    if predicted:
        yield f"{took / predicted:.2f} times the promise, over {format_count(data['shards'], 'shard')}."
    low, high = time["predicted_low_s"], time["predicted_high_s"]
    if low is not None and high is not None:
        within = "within" if low <= took <= high else "outside"
        yield f"The time is {within} the 95 % interval of the promise, {low:,.1f} s to {high:,.1f} s."
    yield f"Energy: {format_energy(joules)}." if joules else "Energy: not measured."


def _with(report: CorpusReport) -> Iterator[str]:
    point, promise = report.results[0].point, read_promise(report.standing.folder)
    yield f"With {format_setting(point.params)}."
    model = f", model {point.model.name} {point.model.size}" if point.model else ""
    yield f"{point.workload}{model}, on {'a CPU' if point.device == 'cpu' else 'a GPU'}."
    if promise.source:
        yield f"The setting: {promise.source}."


def failed(report: CorpusReport) -> list[Block]:
    """Return the shards without a result, by how they ended, and the failed tries of the others."""
    groups: dict[Outcome, list[PointResult]] = {}
    for result in report.results:
        if result.outcome not in {None, Outcome.OK}:
            groups.setdefault(Outcome(str(result.outcome)), []).append(result)
    run, blocks = shell_quote(str(report.standing.folder)), list[Block]()
    for outcome, results in groups.items():
        names = format_list([result.point.point_id for result in results])
        head = f"{format_count(len(results), 'shard')} {outcome}: {names}"
        evidence = dict.fromkeys(f"  {result.verdict.evidence}" for result in results[:MOST_NAMED])
        steps = remedy(outcome, results[0].verdict.evidence, run=run, point=results[0].point)
        ways = [NoWrap(step.command, f"  {step.does}: ") for step in steps]
        blocks.append(Block.of([head, *evidence, *ways]))
    return blocks


def result_blocks(report: CorpusReport) -> Iterator[Block]:
    """Yield counts by label and entity, or of vectors type and norm; and what was left out."""
    winners = [winner for _, winner in sorted(report.standing.winners.items())]
    number, folder = sum(winner.kept for winner in winners), report.standing.folder
    paths = [path for winner in winners for path, _ in part_files(folder, winner)]
    try:
        if winners and (types := winners[0].vectors):
            norms = [*islice(chain.from_iterable(map(_norms, paths)), MOST_NORMS)]
            spread = f"{fmean(norms):.4g} on average, {min(norms):.4g} to {max(norms):.4g}"
            figure = f"{'Length' if '*' in types else 'Norm'}: {spread} (of {len(norms):,})."
            yield Block(title=f"{number:,} {noun(types)}s of {types}", before=(figure,))
        else:
            yield from _counted(chain.from_iterable(map(_rows, paths)), number)
    except (OSError, ValueError, ImportError, JobkitError) as error:  # they are gone, or there is no numpy
        yield Block(title="The results cannot be read", after=(str(error),))
    if left_out := report.standing.corpus.skipped:
        places = [(bad.source, f"{bad.line or ''}", bad.reason) for bad in left_out]
        yield _table(f"Left out: {format_count(len(places), 'place')}", ("file", "line", "why"), places)


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with os.fdopen(files.open_regular(path), "rb") as file:
        yield from map(json.loads, file)


def _norms(path: Path) -> Iterator[float]:
    for vectors in map(kept, read_vectors(path, 0, MOST_NORMS)):
        if isinstance(vectors, Ragged):
            yield from vectors.lengths.tolist()
        else:
            yield from (math.hypot(*one.flat) for one in vectors)


def _counted(rows: Iterator[Mapping[str, Any]], number: int) -> Iterator[Block]:
    """Yield how many rows have each label, and which texts are the most frequent."""
    labels, texts = Counter[str](), Counter[tuple[str, str]]()
    # of the results, which a page reads
    most_rows = 500_000
    for row in islice(rows, most_rows):
        label = row.get("label", row.get("tag"))
        if label is not None:
            labels[str(label)] += 1
            texts.update([(str(row["text"]), str(label))] if "text" in row else ())
    of = f", in the first {most_rows:,} rows of {number:,}" if number > most_rows else ""
    if labels:
        listed = [(label, f"{count:,}") for label, count in labels.most_common()]
        yield _table(f"Rows by label: {format_count(len(labels), 'label')}{of}", ("label", "rows"), listed)
    if texts:
        most = [(text, label, f"{count:,}") for (text, label), count in texts.most_common(MOST_LISTED)]
        yield _table(f"The most frequent of {len(texts):,} entities{of}", ("text", "label", "rows"), most)


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], rest: str = "") -> Block:
    """Return a table of the first rows."""
    more = len(rows) - MOST_LISTED
    columns = columns_of(names, rows[:MOST_LISTED], {*names} - {"rows", "done", "paragraphs"})
    return Block(title=title, columns=columns, after=(f"... and {more:,} more{rest}",) if more > 0 else ())


def count_block(report: CorpusReport) -> Block:
    """Return the counts for each document; for each file if the corpus is not merged."""
    sources, done = report.standing.corpus.sources, report.done
    if report.counts:
        names = "document", "paragraphs", "rows"
        table = [(one.document, one.paragraphs, one.rows) for one in report.counts]
        rows, silent = sum(one.rows for one in report.counts), sum(not one.rows for one in report.counts)
        title = f"{format_count(len(table), 'document')}, {format_count(rows, 'row')}"
        before = [f"{silent:,} of them have no row."] if silent else []
        rest = f": {counts_path(Path('merged.jsonl'))} in the run folder has them"
    else:
        names, before, rest = ("file", "paragraphs", "done"), [], ""
        title = f"{format_count(len(sources), 'file')}; jobkit merge counts each document"
        planned, ended = Counter[int](), Counter[int]()
        for index, shard in report.standing.shards.items():
            for piece in shard.pieces:
                planned[piece.source] += piece.paragraphs
                ended[piece.source] += piece.paragraphs * (index in done)
        table = [(one.name, planned[number], ended[number]) for number, one in enumerate(sources)]
    listed = [(name, *(f"{number:,}" for number in numbers)) for name, *numbers in table]
    return replace(_table(title, names, listed, rest), before=tuple(before), folded=True)


def _fact_block(report: CorpusReport) -> Block:
    point, data = report.results[0].point, report.data
    versions = (f"{name} {' '.join(numbers)}" for name, numbers in data.get("versions", {}).items())
    facts = {
        "run": point.run_id,
        "workload": point.workload,
        "model": point.model.name if point.model else "",
        "fingerprint of the model": point.model.fingerprint if point.model else "",
        "GPU": ", ".join(data.get("gpus", ())),
        "hosts": ", ".join(data.get("hosts", ())),
        "jobs": ", ".join(f"{job['scheduler']} {job['job']}" for job in data.get("jobs", ())),
        "versions": ", ".join(versions),
        "run folder": str(report.standing.folder),
    }
    heads, known = ("what", "value"), [(name, value) for name, value in facts.items() if value]
    columns = columns_of(heads, known, heads)
    return Block(title="GPU, versions, model, jobs", columns=columns, folded=True)


def _shard_picture(tries: Sequence[ShardTry], report: CorpusReport) -> Picture:
    """Return the tries of the shards over time, a row each, in the order in which they began."""
    # of more tries only some are drawn
    step = -(-len(tries) // 400)
    shown = tries[::step]
    most = max(tried.ended_s or tried.began_s for tried in tries)
    # Each unit of time with the seconds from which on it is used, and its seconds
    units = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"))
    unit_s, unit = next(((each, name) for least, each, name in units if most >= least), (1.0, "seconds"))
    row_px = min(MOST_ROW_PX, PICTURE_PX / len(shown))
    ids = [tried.name.partition(",")[0] for tried in shown]
    names = {row + 0.5: shard.removeprefix("shard-").lstrip("0") for row, shard in enumerate(ids)}
    across = f"{unit} since the first try began"
    drawing = row_drawing(across, from_zero(most / unit_s), len(shown), row_px, names, up="shard")
    for row, tried in enumerate(shown):
        css = "blue" if tried.outcome == Outcome.OK else "grey" if tried.ended_s is None else "limit"
        title, began = f"{tried.name}: {tried.outcome}", tried.began_s / unit_s
        if tried.ended_s is None:
            drawing.mark(Mark((began, row + 0.5), "cross", css, title), name="began, end not known")
            continue
        bar = [(began, row + 0.5), (tried.ended_s / unit_s, row + 0.5)]
        name = "ok" if css == "blue" else "failed"
        drawing.line(Stroke(bar, css, width=max(1.0, 0.6 * row_px), title=title), name)
    ended = sum(tried.outcome == Outcome.OK for tried in tries)
    part = f" One of every {step} tries is drawn." if step > 1 else ""
    return Picture(
        title=f"Shards over time: {format_count(len(tries), 'try', 'tries')}, {ended:,} of them ok",
        canvas=drawing.canvas(),
        caption=f"Each row is a try of one of {format_count(len(report.results), 'shard')}.{part}",
        data=Block(),
    )
