"""Batch size, GPUs, time and cost, and what to beware of; of a search its one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobkit.answers import speed
from jobkit.answers.gpus import common_gpus
from jobkit.answers.memory import Memory, Prediction, memory_by_setting
from jobkit.answers.memory_line import Fit
from jobkit.answers.observations import RAM
from jobkit.answers.setting import other_knobs, setting_with, settings_of
from jobkit.answers.speed import CorpusVolume, Speed
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CPU
from jobkit.core.layout import SPEC_FILE
from jobkit.core.records import Outcome, Record
from jobkit.core.terminal import shell_quote
from jobkit.core.units import format_count
from jobkit.report.recommend import types
from jobkit.report.recommend.energy import energy_answer
from jobkit.report.recommend.objective import Judgement, judge, refuse_none
from jobkit.report.recommend.request import request
from jobkit.report.recommend.types import RecommendOptions, RunData
from jobkit.runs.request import conditions_of, memory_condition
from jobkit.runs.results import overlap_words, overlaps, span_of

LONGER = 10
"""A corpus of this many times the measured text may need more RAM than was measured."""


def cautions(
    material: RunData, memory: Memory, wishes: RecommendOptions, batch: types.BatchChoice
) -> tuple[str, ...]:
    """Return what to beware of besides what the first screen names, the weightiest first.

    ``material``, ``wishes``: the data of the run folder, and the user's options.
    ``memory``: of the other knobs of what is recommended.
    ``batch``: what is recommended.
    """
    chosen, largest, records, asked = batch.recommended, batch.answer, material.records, material.resources
    notes: list[str] = []
    if largest.holds(chosen.size, chosen.load) is False:
        safe = f"{largest.knob} {largest.safe_batch:,}" if largest.safe_batch else "not even a batch of 1"
        notes.append(
            f"{chosen.setting} ran, but takes more than is safe ({safe} is safe), as all measured settings "
            "do: a later run may end out of memory"
        )
    doubts = list(dict.fromkeys((*largest.doubts, *batch.largest.doubts)))
    if material.search:  # it has no line of memory, and its cautions are in its answer
        notes += [*material.search.cautions, *doubts]
    else:
        notes += doubts or memory.remarks
    if unknown := types.caution(chosen, records, batch.precisions):
        notes.append(unknown)
    hosts = sorted({record.host for record in records if record.outcome is Outcome.OK})
    if len(hosts) > 1 and records[0].point.device == CPU:
        notes.append(f"the points ran on {len(hosts)} machines, whose speeds may differ: {', '.join(hosts)}")
    elsewhere = material.site is not None
    shared = elsewhere and asked is not None and not asked.exclusive
    notes += speed.not_sampled(chosen, elsewhere=elsewhere, shared=shared)
    spans = [span_of(record) for record in records]
    if words := overlap_words(spans, overlaps(spans)):
        notes.append(words)
    if material.to_come:
        notes.append(f"{format_count(material.to_come, 'point')} still to come")
    if material.failed:
        notes.append(f"{format_count(material.failed, 'point')} ended without a result")
    return (*notes, *_of_corpus(material, wishes.corpus, chosen, largest), *material.notes)


def paragraphs(records: Sequence[Record]) -> int:
    """Return how many paragraphs the text has that was measured."""
    return max((record.summary.items_total for record in records if record.summary), default=0)


def _of_corpus(
    material: RunData, corpus: CorpusVolume | None, chosen: Speed, largest: Prediction
) -> list[str]:
    if corpus is None:
        return []
    if not chosen.rates:
        return ["the workload reports no items, so the time is that of one run and not of your corpus"]
    notes, batch, name = [], chosen.size, corpus.name
    if corpus.loads is None and name:
        model = material.records[0].point.model
        spec = shell_quote(f"{material.run}/{SPEC_FILE}")
        stand_in = " --stand-in" if model and model.stand_in else ""
        finds = f"jobkit preflight {spec} --set text=FILE{stand_in} finds them"
        notes.append(f"the longest items of {name} are not known, and they decide the memory: {finds}")
    elif corpus.loads is None:
        notes.append("a corpus with longer items than the text that was measured needs more memory and time")
    elif batch and not largest.reason and (load := corpus.loads.load(batch)) > largest.safe_load:
        at_most = corpus.loads.largest_batch(largest.safe_load)
        notes.append(f"{name} makes a load of {load:,} at this size, more than is safe: at most {at_most:,}")
    done = paragraphs(material.records)
    if corpus.paragraphs > LONGER * done:
        notes.append(
            f"RAM was measured over {format_count(done, 'paragraph')}, and the results of "
            f"{corpus.paragraphs:,} are kept there until the end: request more, or work through the corpus "
            "in parts"
        )
    return notes


def recommend(material: RunData, wishes: RecommendOptions) -> types.Recommendation:
    """Return what a run recommends."""
    tried, search = material, material.search
    if search:
        records = search.last_records(material.run)
        material = replace(material, records=records, objective=search.objective)
    memory = _memory(tried, wishes)
    if search:  # settings that ran once have no line
        words = other_knobs(search.winner_records[0])
        memory = {words: memory[words]}
    settings = speed.speeds_of(material.records, tried.records)
    judged = judge(material.run, settings, material.records, material.objective)
    first = next(record for record in material.records if record.outcome is Outcome.OK)
    if wishes.gpus is not None and first.point.device == "cpu":
        raise JobkitError(
            "these points ran on a CPU, which shows nothing about a GPU", hint="measure on a GPU"
        )
    precisions = types.of_precisions(settings, material.records, material.agreements, wishes.min_f1)
    if search is None:
        refuse_none(material.run, judged, types.without_refused(settings, precisions))
    batch, own = _choice(settings, judged, memory, material, precisions)
    corpus = (wishes.corpus if batch.recommended.rates else None) or _one_pass(tried)
    time = speed.duration(batch.recommended, items=corpus.paragraphs, characters=corpus.characters)
    repeat = setting_with(settings_of(material.records), batch.recommended.params).first
    known = [seconds for seconds in material.seconds if seconds is not None]
    point, tries = first.point, len(material.seconds)
    each = point.threads * point.workers if point.device == CPU else point.gpus
    gpus = () if own.kind == RAM else common_gpus() if wishes.gpus is None else wishes.gpus
    predictions = [own.within(gpu.usable_bytes) for gpu in gpus]
    chosen, model = batch.recommended, point.model
    return types.Recommendation(
        measured=types.MeasuredOn(
            run=material.run,
            workload=point.workload,
            text=point.text.name,
            model=model.title if model else None,
            stand_in=bool(model and model.stand_in),
            caveat=model.caveat if model else "",
            device=point.device,
            gpu=own.gpu,
            points=sum(record.outcome is Outcome.OK for record in tried.records),
            paragraphs=paragraphs(tried.records),
            kind=own.kind,
            capacity_bytes=None if own.limit_bytes is None else int(own.limit_bytes),
            overhead_bytes=own.overhead_bytes,
            workers=own.workers,
        ),
        batch=batch,
        beware=cautions(material, own, wishes, batch),
        cards=tuple(
            types.OnGpu(
                name=gpu.name,
                usable_bytes=gpu.usable_bytes,
                link=gpu.link,
                fits=prediction.holds(chosen.size, chosen.load),
                prediction=prediction,
            )
            for gpu, prediction in zip(gpus, predictions, strict=True)
        ),
        corpus=corpus,
        time=time,
        energy=energy_answer(material.records, chosen, corpus),
        request=request(material, repeat, time),
        cost=types.SweepCost(seconds=each * sum(known), tries=tries, unknown=tries - len(known)),
        margin=wishes.margin,
        trials=material.trials,
        ledger=material.ledger,
        conditions=conditions_of(repeat),
        search=search,
    )


def _memory(material: RunData, wishes: RecommendOptions) -> dict[str, Memory]:
    found = memory_by_setting(
        material.records,
        material.batches,
        material.lengths,
        material.tried,
        asked_bytes=material.asked_bytes,
        ram_bytes=material.resources.memory if material.resources else None,
    )
    if isinstance(found, str):
        hint = f"see what there is: jobkit collect {shell_quote(material.run)}"
        raise JobkitError(f"{material.run}: {found}", hint=hint)
    return {words: replace(own, margin=wishes.margin) for words, own in found.items()}


def memory_of_setting(material: RunData, record: Record) -> Memory | None:
    """Return the memory of a record's setting; ``None`` if its largest batch is not known."""
    try:
        memory = _memory(material, RecommendOptions())
    except JobkitError:
        return None
    own = memory.get(other_knobs(record))
    return None if own is None or own.largest.reason else own


def _choice(
    settings: tuple[Speed, ...],
    judged: Judgement,
    memory: Mapping[str, Memory],
    material: RunData,
    precisions: tuple[types.OfPrecision, ...],
) -> tuple[types.BatchChoice, Memory]:
    records, search = material.records, material.search
    measured = settings_of(records)

    def others(setting: Speed) -> str:
        if search:  # it has one memory, and its settings have the names that its answer has
            return next(iter(memory))
        return other_knobs(setting_with(measured, setting.params).first)

    def safe(setting: Speed) -> bool | None:
        own = memory[others(setting)]
        return (own.asked or own.largest).holds(setting.size, setting.load)

    allowed = judged.allowed(types.without_refused(settings, precisions))
    best = speed.fastest(allowed or settings)
    # If no measured setting is safe, it is the smallest, with a caution.
    chosen = (
        next(setting for setting in settings if setting.params == search.setting)
        if search
        else judged.best([setting for setting in allowed if safe(setting) is not False] or allowed[:1])
    )
    words = others(chosen)
    own = memory[words]
    line, limit_bytes, unsafe = (
        own.line,
        own.limit_bytes,
        bool(allowed) and safe(judged.best(allowed)) is False,
    )
    workers = None
    if limit_bytes is not None and chosen.load is not None and own.kind != RAM:
        workers = own.most_workers(limit_bytes, chosen.load)
    by_size = judged.objective.by_speed and search is None
    choice = types.BatchChoice(
        settings=settings,
        judged=judged,
        recommended=chosen,
        fastest=best,
        times=None if chosen is best else speed.ratio(best, chosen),
        others=words if len(memory) > 1 else "",
        largest=own.largest,
        asked=own.asked,
        lines=tuple(
            types.KnobLargestBatch(others=name, largest=part.largest)
            for name, part in memory.items()
            if part is not own and part.records
        ),
        leave_largest_out=line.leave_largest_out if isinstance(line, Fit) else None,
        binds=_binds(chosen, allowed, own.asked or own.largest, unsafe=unsafe) if by_size else None,
        most_workers=workers,
        allocator=memory_condition(records),
        precisions=precisions,
    )
    return choice, own


def _one_pass(material: RunData) -> CorpusVolume:
    """Return the text that was measured, as a corpus: all of it, also if points worked on a part."""
    well = [record for record in material.records if record.outcome is Outcome.OK]
    whole = next((record.summary for record in well if record.summary and record.point.every == 1), None)
    name = well[0].point.text.name
    if whole:
        return CorpusVolume(name=name, paragraphs=whole.items, characters=whole.characters)
    if material.lengths:
        return CorpusVolume(name=name, paragraphs=len(material.lengths.paragraphs))
    parts = [record.summary.items * record.point.every for record in well if record.summary]
    return CorpusVolume(name=name, paragraphs=max(parts, default=0))


def _binds(chosen: Speed, speeds: Sequence[Speed], largest: Prediction, *, unsafe: bool) -> str | None:
    """Return what keeps the batch from being larger than the recommended one.

    ``unsafe``: whether another setting would be recommended if it were safe.
    """
    if unsafe:
        return types.MEMORY
    if any(setting.size > chosen.size for setting in speeds):
        return types.THROUGHPUT
    if largest.reason:
        return None
    if largest.saturated:
        return types.SATURATION
    return types.SWEEP if largest.safe_batch > chosen.size else types.MEMORY
