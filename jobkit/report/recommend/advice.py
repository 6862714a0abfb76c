"""Batch size, GPUs, time and cost, and what to beware of; of a search its one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobkit.answers import speed
from jobkit.answers.gpus import GpuKind, common_gpus
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
from jobkit.runs import overlaps
from jobkit.runs.conditions import conditions_of, memory_condition

LONGER = 10
"""A corpus of this many times the measured text may need more RAM than was measured."""


def cautions(
    material: RunData, memory: Memory, wishes: RecommendOptions, batch: types.BatchChoice
) -> tuple[str, ...]:
    """Return what to beware of, the weightiest first.

    ``material``, ``wishes``: the data of the run folder, and the user's options.
    ``memory``: of the other knobs of what is recommended.
    ``batch``: what is recommended.
    """
    chosen, largest = batch.recommended, batch.largest
    notes = [_unsafe(chosen, largest)] if largest.holds(chosen.size, chosen.load) is False else []
    notes += _of_memory(material, memory)
    if unknown := types.caution(chosen, material.records, batch.precisions):
        notes.append(unknown)
    if chosen.repeats == 1:
        notes.append("each setting ran once, so no difference in speed is known to be real")
    if hosts := _hosts(material.records):
        notes.append(hosts)
    notes += speed.not_sampled(chosen, elsewhere=material.site is not None, shared=_shared(material))
    spans = [overlaps.span_of(record) for record in material.records]
    if shared := overlaps.overlap_words(spans, overlaps.overlaps(spans)):
        notes.append(shared)
    if largest.safe_batch > memory.testable(largest.safe_batch):
        text = f"the text has only {format_count(memory.paragraphs, 'paragraph')}"
        notes.append(f"{text}, so a larger batch cannot be tested on it")
    if material.to_come or material.failed:
        to_come = f"{format_count(material.to_come, 'point')} {'is' if material.to_come == 1 else 'are'}"
        notes.append(f"{to_come} still to come and {material.failed} ended without a result")
    return (*notes, *_of_corpus(material, wishes.corpus, chosen, largest), *material.notes)


def _of_memory(material: RunData, memory: Memory) -> tuple[str, ...]:
    """Return what to beware of in the line of memory; of a search, which has none, in its answer."""
    if material.search is None:
        return memory.largest.doubts or memory.remarks
    return (*material.search.cautions(), *memory.largest.doubts)


def paragraphs(records: Sequence[Record]) -> int:
    """Return how many paragraphs the text has that was measured."""
    return max((record.summary.items_total for record in records if record.summary), default=0)


def _unsafe(chosen: Speed, largest: Prediction) -> str:
    """Return a warning that the setting ran, but a later run may not."""
    safe = f"{largest.knob} {largest.safe_batch:,}" if largest.safe_batch else "not even a batch of 1"
    return (
        f"{chosen.setting} ran, and yet takes more than is safe ({safe} is), as all measured settings do: "
        "a later run may end out of memory"
    )


def _shared(material: RunData) -> bool:
    """Return whether other jobs may have run on the nodes of the points."""
    asked = material.resources
    return material.site is not None and asked is not None and not asked.exclusive


def _hosts(records: Sequence[Record]) -> str:
    """Return a warning if the speeds of several machines are averaged."""
    hosts = sorted({record.host for record in records if record.outcome is Outcome.OK})
    if len(hosts) < 2 or records[0].point.device != "cpu":  # noqa: PLR2004 - one is as it should be
        return ""
    return f"the points ran on {len(hosts)} machines, whose speeds may differ: {', '.join(hosts)}"


def _of_corpus(
    material: RunData, corpus: CorpusVolume | None, chosen: Speed, largest: Prediction
) -> list[str]:
    """Return what differs between the corpus and the text that was measured."""
    if corpus is None:
        return []
    if not chosen.rates:
        return ["the workload reports no items, so the time is that of one run and not of your corpus"]
    notes = []
    batch, name = chosen.size, corpus.name
    if corpus.loads is None and name:
        finds = f"{_preflight(material)} finds them"
        notes.append(f"the longest items of {name} are not known, and they decide the memory: {finds}")
    elif corpus.loads is None:
        notes.append("a corpus with longer items than the text that was measured needs more memory and time")
    elif batch and not largest.reason and (load := corpus.loads.load(batch)) > largest.safe_load:
        at_most = corpus.loads.largest_batch(largest.safe_load)
        notes.append(f"{name} makes a load of {load:,} at this size, more than is safe: at most {at_most:,}")
    done = paragraphs(material.records)
    if corpus.paragraphs > LONGER * done:
        measured = format_count(done, "paragraph")
        notes.append(
            f"RAM was measured over {measured}, and the results of {corpus.paragraphs:,} "
            "are kept there until the end: request more, or work through the corpus in parts"
        )
    return notes


def _preflight(material: RunData) -> str:
    """Return the command that reads the lengths of another text as the run does."""
    model = material.records[0].point.model
    stand_in = " --stand-in" if model and model.stand_in else ""
    return f"jobkit preflight {shell_quote(f'{material.run}/{SPEC_FILE}')} --set text=FILE{stand_in}"


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
    return types.Recommendation(
        measured=_measured(tried, own, first),
        batch=batch,
        beware=cautions(material, own, wishes, batch),
        cards=tuple(_on_gpu(gpu, own, batch.recommended) for gpu in _gpus(own, wishes)),
        corpus=corpus,
        time=time,
        energy=energy_answer(material.records, batch.recommended, corpus),
        request=request(material, repeat, time),
        cost=_cost(material, first),
        margin=wishes.margin,
        trials=material.trials,
        ledger=material.ledger,
        conditions=conditions_of(repeat),
        search=search,
    )


def _memory(material: RunData, wishes: RecommendOptions) -> dict[str, Memory]:
    """Return what was measured of memory, by the values of the other knobs in words."""
    found = memory_by_setting(
        material.records,
        material.batches,
        material.lengths,
        material.tried,
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


def _most_workers(own: Memory, setting: Speed) -> int | None:
    """Return how many workers the GPU holds at a setting, by the bound; ``None`` if unknown."""
    if own.limit_bytes is None or setting.load is None or own.kind == RAM:
        return None
    return own.most_workers(own.limit_bytes, setting.load)


def _measured(material: RunData, own: Memory, first: Record) -> types.MeasuredOn:
    point, model = first.point, first.point.model
    return types.MeasuredOn(
        run=material.run,
        workload=point.workload,
        text=point.text.name,
        model=model.title if model else None,
        stand_in=bool(model and model.stand_in),
        caveat=model.caveat if model else "",
        device=point.device,
        gpu=own.gpu,
        points=sum(record.outcome is Outcome.OK for record in material.records),
        paragraphs=paragraphs(material.records),
        kind=own.kind,
        capacity_bytes=None if own.limit_bytes is None else int(own.limit_bytes),
        overhead_bytes=own.overhead_bytes,
        workers=own.workers,
    )


def _choice(
    settings: tuple[Speed, ...],
    judged: Judgement,
    memory: Mapping[str, Memory],
    material: RunData,
    precisions: tuple[types.OfPrecision, ...],
) -> tuple[types.BatchChoice, Memory]:
    """Return the batch size, and what was measured of memory with its other knobs."""
    records, search = material.records, material.search
    measured = settings_of(records)

    def others(setting: Speed) -> str:
        if search:  # it has one memory, and its settings have the names that its answer has
            return next(iter(memory))
        return other_knobs(setting_with(measured, setting.params).first)

    def safe(setting: Speed) -> bool | None:
        return memory[others(setting)].largest.holds(setting.size, setting.load)

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
    line, unsafe = own.line, bool(allowed) and safe(judged.best(allowed)) is False
    by_size = judged.objective.by_speed and search is None
    choice = types.BatchChoice(
        settings=settings,
        judged=judged,
        recommended=chosen,
        fastest=best,
        times=None if chosen is best else speed.ratio(best, chosen),
        others=words if len(memory) > 1 else "",
        largest=own.largest,
        lines=tuple(
            types.KnobLargestBatch(others=name, largest=part.largest)
            for name, part in memory.items()
            if part is not own and part.records
        ),
        leave_largest_out=line.leave_largest_out if isinstance(line, Fit) else None,
        binds=_binds(chosen, allowed, own.largest, unsafe=unsafe) if by_size else None,
        most_workers=_most_workers(own, chosen),
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


def _gpus(own: Memory, wishes: RecommendOptions) -> Sequence[GpuKind]:
    if own.kind == RAM:
        return ()
    return common_gpus() if wishes.gpus is None else wishes.gpus


def _on_gpu(gpu: GpuKind, own: Memory, chosen: Speed) -> types.OnGpu:
    prediction = own.within(gpu.usable_bytes)
    return types.OnGpu(
        name=gpu.name,
        usable_bytes=gpu.usable_bytes,
        link=gpu.link,
        fits=prediction.holds(chosen.size, chosen.load),
        prediction=prediction,
    )


def _binds(chosen: Speed, speeds: Sequence[Speed], largest: Prediction, *, unsafe: bool) -> str | None:
    """Return what keeps the batch from being larger than the recommended one.

    ``unsafe``: whether another setting would be recommended if it were safe.
    """
    if unsafe:
        return types.MEMORY
    batch = chosen.size
    if any(setting.size > batch for setting in speeds):
        return types.THROUGHPUT
    if largest.reason:
        return None
    if largest.saturated:
        return types.SATURATION
    return types.SWEEP if largest.safe_batch > batch else types.MEMORY


def _cost(material: RunData, first: Record) -> types.SweepCost:
    known = [seconds for seconds in material.seconds if seconds is not None]
    point = first.point
    each = point.threads * point.workers if point.device == CPU else point.gpus
    tries = len(material.seconds)
    return types.SweepCost(seconds=each * sum(known), tries=tries, unknown=tries - len(known))
