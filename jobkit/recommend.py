"""What a run recommends: batch size, cards, time, request, cost. Pure: records in, one answer out."""

from __future__ import annotations

from collections.abc import Sequence

from jobkit.cards import Card, shelf, usable_bytes
from jobkit.cautions import cautions, paragraphs
from jobkit.errors import JobkitError
from jobkit.evidence import RAM, Evidence, gather
from jobkit.fit import Fit
from jobkit.loads import Loads
from jobkit.predict import Prediction, predict
from jobkit.recommendation import (
    MEMORY,
    SATURATION,
    SWEEP,
    THROUGHPUT,
    Choice,
    Corpus,
    Cost,
    Material,
    Measured,
    OnCard,
    Recommendation,
    Wishes,
    within,
)
from jobkit.records import Outcome, Record
from jobkit.run_loads import KNOB, agreeing
from jobkit.scheduler_lines import request
from jobkit.spec import Resources
from jobkit.speed import Speed, differ, duration, fastest, recommended, speeds
from jobkit.typed import word


def recommend(material: Material, wishes: Wishes) -> Recommendation:
    """Return what a run recommends.

    Raises
    ------
    JobkitError
        Where the records say nothing together, or a card is asked about after a run on a CPU.
    """
    evidence, found = _evidence(material), speeds(material.records)
    first = next(one for one in material.records if one.outcome is Outcome.OK)
    if wishes.cards is not None and first.point.device == "cpu":
        raise JobkitError("these points ran on a CPU, which tells nothing of a card", hint="measure on a GPU")
    loads = agreeing(material.loads, evidence.load_by_batch)
    batch = _choice(evidence, found, material.resources, loads, wishes.margin)
    corpus = wishes.corpus or _one_pass(first)
    time = duration(batch.recommended, items=corpus.paragraphs, characters=corpus.characters)
    return Recommendation(
        measured=_measured(material, evidence, first),
        batch=batch,
        beware=cautions(material, evidence, wishes, batch),
        cards=tuple(
            _on_card(one, evidence, loads, wishes.margin, batch.recommended)
            for one in _cards(evidence, wishes)
        ),
        corpus=corpus,
        time=time,
        request=request(material, first, time),
        cost=_cost(material, first),
        margin=wishes.margin,
        trials=material.trials,
        ledger=material.ledger,
    )


def _evidence(material: Material) -> Evidence:
    evidence = gather(material.records, material.batches)
    if isinstance(evidence, str):
        hint = f"see what there is: jobkit collect {word(material.run)}"
        raise JobkitError(f"{material.run}: {evidence}", hint=hint)
    if not speeds(material.records):
        raise JobkitError(f"{material.run}: no point has told its speed", hint="look at its batches.jsonl")
    return evidence


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
    evidence: Evidence,
    found: tuple[Speed, ...],
    resources: Resources | None,
    loads: Loads | None,
    margin: float,
) -> Choice:
    largest, best = _largest(evidence, resources, loads, margin), fastest(found)
    # Where nothing that was measured is safe it is the smallest of it, and a caution says so.
    chosen = recommended([one for one in found if within(one, largest) is not False] or found[:1])
    return Choice(
        settings=found,
        recommended=chosen,
        fastest=best,
        apart=None if chosen is best else differ(chosen, best),
        largest=largest,
        leave_largest_out=evidence.fit.leave_largest_out if isinstance(evidence.fit, Fit) else None,
        binds=_binds(chosen, found, largest),
    )


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


def _largest(
    evidence: Evidence, resources: Resources | None, loads: Loads | None, margin: float
) -> Prediction:
    capacity = _capacity(evidence, resources)
    if capacity is None:
        why = "how much memory there is was not recorded: name it with --gpu-memory"
        return Prediction(capacity_bytes=0, reason=why)
    return _predicted(evidence, capacity, loads, margin)


def _predicted(evidence: Evidence, card_bytes: float, loads: Loads | None, margin: float) -> Prediction:
    capacity = evidence.allocator_bytes(card_bytes)
    if not evidence.load_by_batch:
        why = f"{KNOB} is no knob of this sweep, so no largest one is told"
        return Prediction(capacity_bytes=capacity, reason=why)
    return predict(evidence, max(0.0, capacity), loads, margin=margin)


def _on_card(card: Card, evidence: Evidence, loads: Loads | None, margin: float, chosen: Speed) -> OnCard:
    found = _predicted(evidence, card.usable_bytes, loads, margin)
    return OnCard(
        name=card.name,
        usable_bytes=card.usable_bytes,
        link=card.link,
        fits=within(chosen, found),
        prediction=found,
    )


def _binds(chosen: Speed, found: Sequence[Speed], largest: Prediction) -> str | None:
    """Return what keeps the batch from being larger than the recommended one."""
    if within(recommended(found), largest) is False:
        return MEMORY
    if found[-1] is not chosen:
        return THROUGHPUT
    if largest.reason:
        return None
    if largest.saturated:
        return SATURATION
    return SWEEP if largest.safe_batch > chosen.params.get(KNOB, 0) else MEMORY


def _cost(material: Material, first: Record) -> Cost:
    seconds = [one.seconds for one in material.held]
    known = [one for one in seconds if one is not None]
    each = first.point.threads if first.point.device == "cpu" else 1
    return Cost(seconds=each * sum(known), tries=len(seconds), unknown=len(seconds) - len(known))
