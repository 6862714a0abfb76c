"""The page of a corpus: done or not, promise against truth, the shards over time, what failed, counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobkit.core.blocks import Block
from jobkit.core.records import Outcome
from jobkit.core.units import format_count
from jobkit.report import corpus
from jobkit.report.corpus import CorpusReport, ShardTry
from jobkit.report.html.pictures import OfRun, Picture, PictureGroup, RowDrawing, folded, source

MOST_TRIES = 400
"""More tries are not drawn: then one of so many is."""
PICTURE_PX, MOST_ROW_PX = 400.0, 16.0
"""The height of the rows together, and the most of one."""
UNITS = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"))
"""From how many seconds on a unit is used, its seconds, and its name."""


def of_corpus(run: Path) -> OfRun:
    """Return what the page shows of a corpus.

    Raises
    ------
    JobkitError
        As `jobkit.report.corpus.read_corpus_report`.
    """
    found = corpus.read_corpus_report(run)
    model = found.first.model
    of = f"{found.first.workload}: {format_count(found.corpus.documents, 'document')} of a corpus"
    notes = Block(
        title=format_count(len(found.notes), "note"), after=tuple(f"- {note}" for note in found.notes)
    )
    drawn = corpus.tries(found)
    return OfRun(
        name=f"{run.resolve().name}: {found.title}",
        outcomes=frozenset(result.outcome for result in found.results),
        titles=[of],
        caveats=[model.warning] if model and model.stand_in else [],
        tiles=corpus.answer(found),
        groups=[PictureGroup(block=Block(), pictures=[shard_picture(drawn, found)])] if drawn else [],
        missing=corpus.failed(found),
        tables=[corpus.count_block(found)],
        folded=[*map(folded, [notes] if found.notes else []), source(run, corpus.fact_block(found))],
    )


def shard_picture(tries: Sequence[ShardTry], found: CorpusReport) -> Picture:
    """Return the tries of the shards over time, a row each, in the order in which they began."""
    step = -(-len(tries) // MOST_TRIES)
    shown = tries[::step]
    most = max(one.ended_s or one.began_s for one in tries)
    unit_s, unit = next(((each, name) for least, each, name in UNITS if most >= least), (1.0, "seconds"))
    drawing = RowDrawing(
        across=f"{unit} since the first try began",
        right=most / unit_s,
        row_px=min(MOST_ROW_PX, PICTURE_PX / len(shown)),
    )
    for one in shown:
        _draw_try(drawing, one, unit_s)
    ended = sum(one.outcome == Outcome.OK for one in tries)
    title = f"Shards over time: {format_count(len(tries), 'try', 'tries')}, {ended:,} of them ok"
    part = f" One of every {step} tries is drawn." if step > 1 else ""
    caption = f"Each row is a try of one of {format_count(len(found.results), 'shard')}.{part}"
    return Picture(title=title, svg=drawing.svg(title), caption=caption, data=Block())


def _draw_try(drawing: RowDrawing, one: ShardTry, unit_s: float) -> None:
    css = "blue" if one.outcome == Outcome.OK else "grey" if one.ended_s is None else "limit"
    words = f"{one.name}: {one.outcome}"
    drawing.row()
    if one.ended_s is None:
        drawing.mark(one.began_s / unit_s, "cross", css=css, title=words)
        drawing.legend.mark("began, end not known", "cross", css=css)
        return
    width = max(1.0, 0.6 * drawing.row_px)
    drawing.bar(one.began_s / unit_s, one.ended_s / unit_s, css=css, width=width, title=words)
    drawing.legend.line("ok" if css == "blue" else "failed", css=css, width=4.0)
