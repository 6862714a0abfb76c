"""A corpus for a person: promise and truth, shards, counts. Only reads, and asks no scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from jobkit.core import files
from jobkit.core.blocks import Block, Column
from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import NoWrap, shell_path, shell_quote
from jobkit.core.units import (
    format_compared,
    format_count,
    format_energy,
    format_list,
    format_setting,
    moment,
)
from jobkit.extensions.corpus.merge import counts_path
from jobkit.extensions.corpus.plan import Corpus, Shard, is_unplanned, read_corpus, read_plan
from jobkit.extensions.corpus.provenance import provenance, read_promise
from jobkit.extensions.corpus.winners import read_winners
from jobkit.runs.hints import remedy
from jobkit.runs.results import each_point
from jobkit.runs.status import PointResult
from jobkit.runs.tries import Try, task_s

MOST_NAMED = 5
MOST_DOCUMENTS = 500  # more documents are not listed: their file has them


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTry:
    name: str  # of the shard, with the number of the try
    began_s: float  # since the first try began
    ended_s: float | None  # since the first try began; ``None`` if unknown
    outcome: str  # in a word; ``to come`` while it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentCount:
    document: str
    paragraphs: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport:
    folder: Path  # of the run
    corpus: Corpus  # what was read
    results: Sequence[PointResult]  # the shards, and their tries
    planned: Mapping[int, Shard]  # the shards of the plan that could be read, by index
    # of `jobkit.extensions.corpus.provenance.provenance`, for the shards that are done; else empty
    data: Mapping[str, Any]
    counts: Sequence[DocumentCount]  # of each document, in corpus order; empty if the results are not merged
    notes: Sequence[str]  # what could not be read

    @property
    def first(self) -> Point:
        return self.results[0].point

    @property
    def done(self) -> list[PointResult]:
        return [result for result in self.results if result.outcome is Outcome.OK]

    @property
    def title(self) -> str:
        missing, all_of_it = len(self.results) - len(self.done), format_count(len(self.results), "shard")
        return f"{missing:,} of {all_of_it} not done" if missing else f"done, {all_of_it}"


def read_corpus_report(folder: Path) -> CorpusReport:
    """Read what a run folder has of a corpus. A damaged line becomes a note."""
    if is_unplanned(folder):
        hint = f"jobkit status {shell_path(folder)} shows the job that plans it"
        raise JobkitError(f"{folder}: the corpus is not planned yet", hint=hint)
    notes: list[str] = []
    results = list(each_point(folder, notes))
    if not results:
        raise JobkitError(f"{folder}: nothing to report", hint="jobkit status shows what there is")
    planned = {shard.index: shard for shard in read_plan(folder)}
    if lost := [result.point.point_id for result in results if result.point.index not in planned]:
        notes.append(
            f"jobkit cannot read the plan of {format_list(lost, MOST_NAMED)}: no sum includes these shards"
        )
    counts, faults = files.read_tolerantly(counts_path(folder / "merged.jsonl"), _count, growing=False)
    return CorpusReport(
        folder=folder,
        corpus=read_corpus(folder),
        results=results,
        planned=planned,
        data=_of_winners(folder, results, planned, notes),
        counts=counts,
        notes=[*notes, *faults],
    )


def _count(line: str, where: str) -> DocumentCount:
    counted = files.parse_object(line, where)
    try:
        return DocumentCount(
            document=str(counted["document"]),
            paragraphs=int(counted["paragraphs"]),
            rows=int(counted["rows"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JobkitError(f"{where}: no counts of a document") from error


def _of_winners(
    folder: Path, results: Sequence[PointResult], planned: Mapping[int, Shard], notes: list[str]
) -> Mapping[str, Any]:
    """Return the provenance of the shards whose result counts, and whose plan can be read."""
    winners = read_winners(folder)
    live = {result.point.index for result in results if result.outcome is Outcome.OK} & planned.keys()
    if late := [one.point.point_id for one in results if one.point.index in live - winners.keys()]:
        notes.append(
            f"jobkit status has not claimed {format_list(late, MOST_NAMED)} yet: no sum includes these shards"
        )
    counted = {index: winner for index, winner in winners.items() if index in live}
    return provenance(folder, results, counted) if counted else {}


def tries(report: CorpusReport) -> list[ShardTry]:
    """Return the tries of all shards, in the order in which they began."""
    pairs = [(result, tried) for result in report.results for tried in result.all_tries if tried.number]
    begun = [(began, result, tried) for result, tried in pairs if (began := moment(_began(tried)))]
    first = min((began for began, _, _ in begun), default=None)
    in_order = []
    for began, result, tried in sorted(begun, key=itemgetter(0)):
        held_s = task_s(tried) if tried.outcome else None
        began_s = (began - (first or began)) / timedelta(seconds=1)
        in_order.append(
            ShardTry(
                name=f"{result.point.point_id}, try {tried.number}",
                began_s=began_s,
                ended_s=None if held_s is None else began_s + held_s,
                outcome=str(tried.outcome or "to come"),
            )
        )
    return in_order


def _began(tried: Try) -> str:
    """Return when the worker of a try began, else its job; empty if that is not known."""
    if tried.record:
        return tried.record.started_at
    return tried.begin.at if tried.begin else ""


def answer(report: CorpusReport) -> list[Block]:
    """Return whether it is done, promise against truth, and the setting."""
    promise = [Block.of(_promise(report.data))] if report.data else []
    return [Block.of(_done(report)), *(block for block in promise if block.title), Block.of(_setting(report))]


def _done(report: CorpusReport) -> Iterator[str]:
    done = [result.point.index for result in report.done]
    shards = [report.planned[index] for index in done if index in report.planned]
    paragraphs, all_of_it = sum(shard.paragraphs for shard in shards), report.corpus.paragraphs
    documents = format_count(report.corpus.documents, "document")
    yield f"{report.title[:1].upper()}{report.title[1:]}."
    yield f"{paragraphs:,} of {format_count(all_of_it, 'paragraph')} of {documents} are done."
    if report.data:
        yield f"{format_count(report.data['rows'], 'row')}."
    if left_out := len(report.corpus.skipped):
        yield f"jobkit left out {format_count(left_out, 'place')} that it could not read."
    run = shell_path(report.folder)
    if len(report.done) < len(report.results):
        yield NoWrap(f"jobkit status {run}", "How much of the corpus is done: ")
    elif not report.counts:
        yield NoWrap(f"jobkit merge {run}", "Join the results: ")


def _promise(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the time of the shards that are done, next to what was promised; nothing without a promise."""
    time, energy = data["time"], data["energy"]
    if not time["predicted_s"]:
        return
    took, predicted = time["took_s"], time["predicted_s"]
    yield f"The shards took {format_compared(took)}; the promise was {format_compared(predicted)}."
    yield f"{took / predicted:.2f} times the promise, over {format_count(data['shards'], 'shard')}."
    low, high = time["predicted_low_s"], time["predicted_high_s"]
    if low is not None and high is not None:
        within = "within" if low <= took <= high else "outside"
        yield f"The time is {within} the 95 % interval of the promise, {low:,.1f} s to {high:,.1f} s."
    if energy["joules"]:
        yield f"The shards took {format_energy(energy['joules'])}."


def _setting(report: CorpusReport) -> Iterator[str]:
    point, promise = report.first, read_promise(report.folder)
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
    return [Block.of(_failed(report, outcome, results)) for outcome, results in groups.items()]


def _failed(report: CorpusReport, outcome: Outcome, results: Sequence[PointResult]) -> Iterator[str]:
    names = format_list([result.point.point_id for result in results], MOST_NAMED)
    yield f"{format_count(len(results), 'shard')} {outcome}: {names}"
    yield from dict.fromkeys(f"  {result.counts.evidence}" for result in results[:MOST_NAMED])
    first = results[0]
    steps = remedy(
        outcome, first.counts.evidence, run=shell_quote(str(report.folder)), point=first.point.index
    )
    yield from (NoWrap(step.command, f"  {step.does}: ") for step in steps)


def count_block(report: CorpusReport) -> Block:
    """Return the counts for each document; for each file if the corpus is not merged."""
    if not report.counts:
        return _of_files(report)
    shown = report.counts[:MOST_DOCUMENTS]
    more = len(report.counts) - len(shown)
    rest = f"... and {more:,} more: {counts_path(Path('merged.jsonl'))} in the run folder has them"
    rows = sum(document.rows for document in report.counts)
    silent = sum(not document.rows for document in report.counts)
    return Block(
        title=f"{format_count(len(report.counts), 'document')}, {format_count(rows, 'row')}",
        before=(f"{silent:,} of them have no row.",) if silent else (),
        columns=(
            Column("document", [document.document for document in shown], left=True),
            Column("paragraphs", [f"{document.paragraphs:,}" for document in shown]),
            Column("rows", [f"{document.rows:,}" for document in shown]),
        ),
        after=(rest,) if more else (),
    )


def _of_files(report: CorpusReport) -> Block:
    done = {result.point.index for result in report.done}
    sums = [[0, 0] for _ in report.corpus.sources]
    for result in report.results:
        shard = report.planned.get(result.point.index)
        for piece in shard.pieces if shard else ():
            sums[piece.source][0] += piece.paragraphs
            sums[piece.source][1] += piece.paragraphs if result.point.index in done else 0
    shown = list(zip(report.corpus.sources, sums, strict=True))[:MOST_DOCUMENTS]
    more = len(report.corpus.sources) - len(shown)
    return Block(
        title=f"{format_count(len(report.corpus.sources), 'file')}; jobkit merge counts each document",
        columns=(
            Column("file", [source.name for source, _ in shown], left=True),
            Column("paragraphs", [f"{planned:,}" for _, (planned, _) in shown]),
            Column("done", [f"{ended:,}" for _, (_, ended) in shown]),
        ),
        after=(f"... and {more:,} more",) if more else (),
    )


def fact_block(report: CorpusReport) -> Block:
    point, data = report.first, report.data
    versions = {name: " ".join(numbers) for name, numbers in data.get("versions", {}).items()}
    facts = {
        "run": point.run_id,
        "workload": point.workload,
        "model": point.model.name if point.model else "",
        "fingerprint of the model": point.model.fingerprint if point.model else "",
        "GPU": ", ".join(data.get("gpus", ())),
        "hosts": ", ".join(data.get("hosts", ())),
        "jobs": ", ".join(f"{job['scheduler']} {job['job']}" for job in data.get("jobs", ())),
        "versions": ", ".join(f"{name} {numbers}" for name, numbers in versions.items()),
        "run folder": str(report.folder),
    }
    known = {name: value for name, value in facts.items() if value}
    columns = (Column("what", [*known], left=True), Column("value", [*known.values()], left=True))
    return Block(title="GPU, versions, model, jobs", columns=columns, folded=True)
