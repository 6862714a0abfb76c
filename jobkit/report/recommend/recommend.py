"""What a run recommends: batch size, cards, time, request, cost. Pure: records in, one answer out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome, Record
from jobkit.core.typed import word
from jobkit.fit.cards import Card, shelf, usable_bytes
from jobkit.fit.evidence import RAM, Evidence, gather, others
from jobkit.fit.fit import Fit
from jobkit.fit.loads import Loads
from jobkit.fit.predict import Prediction, capped, predict
from jobkit.fit.run_loads import KNOB, agreeing, loads_of
from jobkit.fit.speed import Speed, differ, duration, fastest, recommended, speeds
from jobkit.report.recommend.cautions import cautions, paragraphs
from jobkit.report.recommend.recommendation import (
    MEMORY,
    SATURATION,
    SWEEP,
    THROUGHPUT,
    Choice,
    Corpus,
    Cost,
    Line,
    Material,
    Measured,
    OnCard,
    Recommendation,
    Wishes,
    within,
)
from jobkit.report.recommend.scheduler_lines import request
from jobkit.spec.spec import Resources

Params = tuple[tuple[str, int], ...]


def recommend(material: Material, wishes: Wishes) -> Recommendation:
    """Return what a run recommends.

    Raises
    ------
    JobkitError
        Where the records say nothing together, or a card is asked about after a run on a CPU.
    """
    found = speeds(material.records)
    memory = _memory(material, wishes)
    if not found:
        raise JobkitError(
            f"{material.run}: no point has recorded its speed", hint="look at its batches.jsonl"
        )
    first = next(one for one in material.records if one.outcome is Outcome.OK)
    if wishes.cards is not None and first.point.device == "cpu":
        raise JobkitError("these points ran on a CPU, which tells nothing of a card", hint="measure on a GPU")
    batch, own = _choice(found, memory, _others_by_params(material.records))
    corpus = wishes.corpus or _one_pass(first)
    time = duration(batch.recommended, items=corpus.paragraphs, characters=corpus.characters)
    return Recommendation(
        measured=_measured(material, own.evidence, first),
        batch=batch,
        beware=cautions(material, own.evidence, wishes, batch),
        cards=tuple(
            _on_card(one, material, own, wishes.margin, batch.recommended)
            for one in _cards(own.evidence, wishes)
        ),
        corpus=corpus,
        time=time,
        request=request(material, first, time),
        cost=_cost(material, first),
        margin=wishes.margin,
        trials=material.trials,
        ledger=material.ledger,
    )


@dataclass(frozen=True, slots=True)
class _Memory:
    """What was measured of memory with one value of the other knobs, and what follows from it."""

    evidence: Evidence
    loads: Loads | None
    largest: Prediction


def _memory(material: Material, wishes: Wishes) -> dict[str, _Memory]:
    """Return what was measured of memory, by the values of the other knobs in words."""
    apart: dict[str, list[Record]] = {}
    for record in material.records:
        apart.setdefault(others(record.point.params, record.inert), []).append(record)
    gathered = {words: gather(records, material.batches) for words, records in apart.items()}
    found = {
        words: _told(material, wishes, evidence, apart[words])
        for words, evidence in gathered.items()
        if not isinstance(evidence, str)
    }
    if not found:
        why = next((one for one in gathered.values() if isinstance(one, str)), "no point has succeeded yet")
        hint = f"see what there is: jobkit collect {word(material.run)}"
        raise JobkitError(f"{material.run}: {why}", hint=hint)
    return found


def _told(material: Material, wishes: Wishes, evidence: Evidence, records: Sequence[Record]) -> _Memory:
    lengths = material.loads.lengths if material.loads else None
    loads = agreeing(loads_of(lengths, [one.point for one in records]), evidence.load_by_batch)
    return _Memory(evidence, loads, _largest(material, evidence, loads, wishes.margin))


def _others_by_params(records: Sequence[Record]) -> dict[Params, str]:
    return {_params(one.point.params): others(one.point.params, one.inert) for one in records}


def _params(params: Mapping[str, int]) -> Params:
    return tuple(sorted(params.items()))


def _measured(material: Material, evidence: Evidence, first: Record) -> Measured:
    point, model = first.point, first.point.model
    return Measured(
        run=material.run,
        workload=point.workload,
        text=point.text.name,
        model=f"{model.name} {model.size}" if model else None,
        stand_in=bool(model and model.stand_in),
        device=point.device,
        gpu=evidence.gpu,
        points=sum(one.outcome is Outcome.OK for one in material.records),
        paragraphs=paragraphs(material.records),
        kind=evidence.kind,
        capacity_bytes=_capacity(evidence, material.resources),
        overhead_bytes=evidence.overhead_bytes,
    )


def _choice(
    found: tuple[Speed, ...], memory: Mapping[str, _Memory], others_of: Mapping[Params, str]
) -> tuple[Choice, _Memory]:
    """Return the batch size, and what was measured of memory with its other knobs."""

    def safe(one: Speed) -> bool | None:
        known = memory.get(others_of[_params(one.params)])
        return within(one, known.largest) if known else None

    best = fastest(found)
    # Where nothing that was measured is safe it is the smallest of it, and a caution says so.
    chosen = recommended([one for one in found if safe(one) is not False] or found[:1])
    words = others_of[_params(chosen.params)]
    own = memory.get(words) or next(iter(memory.values()))
    fit = own.evidence.fit
    choice = Choice(
        settings=found,
        recommended=chosen,
        fastest=best,
        apart=None if chosen is best else differ(chosen, best),
        others=words if len(memory) > 1 else "",
        largest=own.largest,
        lines=tuple(Line(others=name, largest=one.largest) for name, one in memory.items() if one is not own),
        leave_largest_out=fit.leave_largest_out if isinstance(fit, Fit) else None,
        binds=MEMORY if safe(recommended(found)) is False else _binds(chosen, found, own.largest),
    )
    return choice, own


def _one_pass(record: Record) -> Corpus:
    """Return the text that was measured, as a corpus."""
    summary = record.summary
    return Corpus(
        name=record.point.text.name,
        paragraphs=summary.items if summary else 0,
        characters=summary.characters if summary else None,
    )


def _cards(evidence: Evidence, wishes: Wishes) -> Sequence[Card]:
    if evidence.kind == RAM:
        return ()
    return shelf() if wishes.cards is None else wishes.cards


def _capacity(evidence: Evidence, resources: Resources | None) -> int | None:
    """Return what must not be exceeded where it was measured: the card, or the RAM asked for."""
    if evidence.kind == RAM:
        return resources.memory if resources else None
    return usable_bytes(evidence.gpu, evidence.card_bytes) if evidence.card_bytes else None


def _largest(material: Material, evidence: Evidence, loads: Loads | None, margin: float) -> Prediction:
    capacity = _capacity(evidence, material.resources)
    if capacity is None:
        why = "how much memory there is was not recorded: name it with --gpu-memory"
        return Prediction(capacity_bytes=0, reason=why)
    return _predicted(material, evidence, capacity, loads, margin)


def _predicted(
    material: Material, evidence: Evidence, card_bytes: float, loads: Loads | None, margin: float
) -> Prediction:
    capacity = evidence.allocator_bytes(card_bytes)
    if not evidence.load_by_batch:
        why = f"{KNOB} is no knob of this sweep, so no largest one is told"
        return Prediction(capacity_bytes=capacity, reason=why)
    found = predict(evidence, max(0.0, capacity), loads, margin=margin)
    return capped(found, evidence, loads, material.too_large)


def _on_card(card: Card, material: Material, own: _Memory, margin: float, chosen: Speed) -> OnCard:
    found = _predicted(material, own.evidence, card.usable_bytes, own.loads, margin)
    return OnCard(
        name=card.name,
        usable_bytes=card.usable_bytes,
        link=card.link,
        fits=within(chosen, found),
        prediction=found,
    )


def _binds(chosen: Speed, found: Sequence[Speed], largest: Prediction) -> str | None:
    """Return what keeps the batch from being larger than the recommended one, which is safe."""
    batch = chosen.params.get(KNOB, 0)
    if any(speed.params.get(KNOB, 0) > batch for speed in found):
        return THROUGHPUT
    if largest.reason:
        return None
    if largest.saturated:
        return SATURATION
    return SWEEP if largest.safe_batch > batch else MEMORY


def _cost(material: Material, first: Record) -> Cost:
    seconds = [one.seconds for one in material.held]
    known = [one for one in seconds if one is not None]
    each = first.point.threads if first.point.device == "cpu" else 1
    return Cost(seconds=each * sum(known), tries=len(seconds), unknown=len(seconds) - len(known))
