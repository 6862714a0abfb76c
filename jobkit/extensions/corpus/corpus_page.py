"""The page of a corpus: done or not, promise against truth, the shards over time, what failed, counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobkit.core.blocks import Block
from jobkit.core.records import Outcome
from jobkit.core.units import format_count
from jobkit.extensions.corpus import corpus_report
from jobkit.extensions.corpus.corpus_report import CorpusReport, ShardTry
from jobkit.report.page import OfRun, PictureGroup, folded, source
from jobkit.report.plot.drawing import from_zero
from jobkit.report.plot.pictures import Picture, row_drawing

MOST_TRIES = 400  # of more tries only some are drawn
PICTURE_PX, MOST_ROW_PX = 400.0, 16.0  # the height of all rows, and the most of one row
UNITS = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"))
"""Each unit of time with the seconds from which on it is used, and its seconds."""


def of_corpus(run: Path) -> OfRun:
    report = corpus_report.read_corpus_report(run)
    model = report.first.model
    title = f"{report.first.workload}: {format_count(report.corpus.documents, 'document')} of a corpus"
    notes = Block(
        title=format_count(len(report.notes), "note"), after=tuple(f"- {note}" for note in report.notes)
    )
    tries = corpus_report.tries(report)
    return OfRun(
        name=f"{run.resolve().name}: {report.title}",
        outcomes=frozenset(result.outcome for result in report.results),
        titles=[title],
        caveats=[model.warning] if model and model.stand_in else [],
        tiles=corpus_report.answer(report),
        groups=[PictureGroup(block=Block(), pictures=[shard_picture(tries, report)])] if tries else [],
        missing=corpus_report.failed(report),
        tables=[corpus_report.count_block(report)],
        folded=[
            *map(folded, [notes] if report.notes else []),
            source(run, corpus_report.fact_block(report)),
        ],
    )


def shard_picture(tries: Sequence[ShardTry], report: CorpusReport) -> Picture:
    """Return the tries of the shards over time, a row each, in the order in which they began."""
    step = -(-len(tries) // MOST_TRIES)
    shown = tries[::step]
    most = max(tried.ended_s or tried.began_s for tried in tries)
    unit_s, unit = next(((each, name) for least, each, name in UNITS if most >= least), (1.0, "seconds"))
    row_px = min(MOST_ROW_PX, PICTURE_PX / len(shown))
    ids = [tried.name.partition(",")[0] for tried in shown]
    names = {row + 0.5: shard.removeprefix("shard-").lstrip("0") for row, shard in enumerate(ids)}
    across = f"{unit} since the first try began"
    drawing = row_drawing(across, from_zero(most / unit_s), len(shown), row_px, names, up="shard")
    for row, tried in enumerate(shown):
        css = "blue" if tried.outcome == Outcome.OK else "grey" if tried.ended_s is None else "limit"
        title, began = f"{tried.name}: {tried.outcome}", tried.began_s / unit_s
        if tried.ended_s is None:
            drawing.mark((began, row + 0.5), "cross", css=css, title=title, name="began, end not known")
            continue
        bar = [(began, row + 0.5), (tried.ended_s / unit_s, row + 0.5)]
        name = "ok" if css == "blue" else "failed"
        drawing.line(bar, name, css=css, width=max(1.0, 0.6 * row_px), title=title)
    ended = sum(tried.outcome == Outcome.OK for tried in tries)
    part = f" One of every {step} tries is drawn." if step > 1 else ""
    return Picture(
        title=f"Shards over time: {format_count(len(tries), 'try', 'tries')}, {ended:,} of them ok",
        canvas=drawing.canvas(),
        caption=f"Each row is a try of one of {format_count(len(report.results), 'shard')}.{part}",
        data=Block(),
    )
