"""What a reader must know before acting on a recommendation, in sentences without a full stop. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobkit.core.records import Outcome, Record
from jobkit.core.units import format_count
from jobkit.fit.evidence import Evidence
from jobkit.fit.predict import Prediction
from jobkit.fit.run_loads import KNOB
from jobkit.fit.speed import Speed, overlap_words, overlaps, span_of
from jobkit.report.recommend.recommendation import Choice, Corpus, Material, Wishes, within

FIND_THEM = "jobkit preflight SPEC --set text=FILE finds them"
LONGER = 10
"""A corpus so many times the measured text asks for more RAM than was measured."""


def cautions(material: Material, evidence: Evidence, wishes: Wishes, batch: Choice) -> tuple[str, ...]:
    """Return what to beware of, the weightiest first.

    Parameters
    ----------
    material, wishes
        What lies in the run folder, and what the user asks.
    evidence
        What was measured of memory.
    batch
        What is recommended.
    """
    chosen, largest = batch.recommended, batch.largest
    found = [_unsafe(chosen, largest)] if within(chosen, largest) is False else []
    found += largest.doubts or evidence.remarks
    if evidence.overhead_bytes is None and not any("context" in one for one in found):
        found.append("what the context takes of the card is unknown, so that nothing is kept free for it")
    if chosen.repeats == 1:
        found.append("each setting ran once, so no difference in speed is known to be real")
    if hosts := _hosts(material.records):
        found.append(hosts)
    spans = [span_of(record) for record in material.records]
    if shared := overlap_words(spans, overlaps(spans)):
        found.append(shared)
    if largest.safe_batch > (there := paragraphs(material.records)):
        text = f"the text has only {format_count(there, 'paragraph')}"
        found.append(f"{text}, so a larger batch cannot be exercised on it")
    if material.to_come or material.failed:
        to_come = f"{format_count(material.to_come, 'point')} {'is' if material.to_come == 1 else 'are'}"
        found.append(f"{to_come} still to come and {material.failed} failed")
    return (*found, *_of_corpus(material, wishes.corpus, chosen, largest), *material.notes)


def paragraphs(records: Sequence[Record]) -> int:
    """Return how many paragraphs the text has that was measured."""
    return max((one.summary.items_total for one in records if one.summary), default=0)


def _unsafe(chosen: Speed, largest: Prediction) -> str:
    """Return a warning of a setting that ran, where a run to come may not."""
    safe = f"batch_size {largest.safe_batch:,}" if largest.safe_batch else "not even a batch of 1"
    return (
        f"{chosen.setting} ran, and yet takes more than is safe ({safe} is), as all do that were measured: "
        "a run to come may end out of memory"
    )


def _hosts(records: Sequence[Record]) -> str:
    """Return a warning where the speeds of several machines are averaged."""
    hosts = sorted({one.host for one in records if one.outcome is Outcome.OK})
    if len(hosts) < 2 or records[0].point.device != "cpu":  # noqa: PLR2004 - one is as it should be
        return ""
    return f"the points ran on {len(hosts)} machines, whose speeds may differ: {', '.join(hosts)}"


def _of_corpus(material: Material, corpus: Corpus | None, chosen: Speed, largest: Prediction) -> list[str]:
    """Return what differs between the corpus and the text that was measured."""
    if corpus is None:
        return []
    found = []
    batch, name = chosen.params.get(KNOB), corpus.name
    if corpus.loads is None and name:
        found.append(f"the longest items of {name} are not known, and they decide the memory: {FIND_THEM}")
    elif corpus.loads is None:
        found.append("a corpus with longer items than the text that was measured needs more memory and time")
    elif batch and not largest.reason and (load := corpus.loads.load(batch)) > largest.safe_load:
        at_most = corpus.loads.largest_batch(largest.safe_load)
        found.append(f"{name} makes a load of {load:,} at this size, more than is safe: at most {at_most:,}")
    done = paragraphs(material.records)
    if corpus.paragraphs > LONGER * done:
        measured = format_count(done, "paragraph")
        found.append(
            f"RAM was measured over {measured}, and what is found in {corpus.paragraphs:,} "
            "is held there until the end: ask for more, or work through the corpus in parts"
        )
    return found
