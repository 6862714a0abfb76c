"""What a run recommends: setting, batch size, GPUs, time, energy and request; of a search its one answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from jobkit.answers import speed
from jobkit.answers.gpus import GpuKind, common_gpus
from jobkit.answers.memory import Memory, Prediction, Wanted, memory_by_setting
from jobkit.answers.memory_line import Fit
from jobkit.answers.objective import Objective, SearchAnswer
from jobkit.answers.setting import Mean, Ratio, Setting, key_of, other_knobs, settings_of
from jobkit.answers.speed import CorpusVolume, Duration, Speed
from jobkit.core import figures
from jobkit.core.errors import JobkitError
from jobkit.core.figures import by_key
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import CPU, FP32, PRECISION, Value
from jobkit.core.layout import SPEC_FILE
from jobkit.core.records import Outcome, Point, Record, described
from jobkit.core.terminal import did_you_mean, printable, shell_quote
from jobkit.core.units import first_lines, format_count, format_f1, format_list, format_walltime
from jobkit.report.recommend.material import RequestAdvice, RunData, read_material, request, requested
from jobkit.runs.agreement import Agreement, changing_words
from jobkit.runs.conditions import Conditions, conditions_of, memory_condition
from jobkit.runs.request import WARNING_S, shard_s
from jobkit.schedulers.survey import RequestedQueues


@frozen
class Judged:
    """A setting as the objective and the constraints judge it."""

    setting: str  # its knobs in words, as in `jobkit.answers.speed.Speed`
    values: tuple[float, ...]  # the metric of the objective, of each repeat that has it
    broken: str  # which constraints it breaks, in words; empty if none

    @property
    def mean(self) -> Mean:
        """The mean of these values, if there are any."""
        return Mean.of(self.values)

    @property
    def allowed(self) -> bool:
        """Whether it may be recommended."""
        return bool(self.values) and not self.broken


@dataclass(frozen=True)
class Judgement:
    """All settings of a run under an objective."""

    # of the spec, with its constraints; the time of the work, if there is no speed to choose by
    objective: Objective
    unit: str  # of its metric
    settings: tuple[Judged, ...]  # in the order of the speeds
    points: int  # `points`, `missing`: how many points succeeded, and how many of them do not have the metric
    missing: int

    def of(self, setting: Speed) -> Judged:
        """Return how a setting is judged."""
        return self._by_words[setting.setting]

    @cached_property
    def _by_words(self) -> Mapping[str, Judged]:
        return {own.setting: own for own in self.settings}

    def allowed(self, settings: Sequence[Speed]) -> tuple[Speed, ...]:
        """Return the settings that have the metric and keep the constraints."""
        return tuple(setting for setting in settings if self.of(setting).allowed)

    def best(self, settings: Sequence[Speed]) -> Speed:
        """Return the setting with the best mean, or with the fastest the smallest that is near to it.

        Of several with the same mean it is the smallest that is near to the fastest of them.
        """
        if self.objective.by_speed:
            return speed.recommended(settings)
        top = max(map(self.rank, settings))
        return speed.recommended([setting for setting in settings if self.rank(setting) == top])

    def rank(self, setting: Speed) -> float:
        """Return a number that is the higher, the better the setting is."""
        return self.objective.rank(self.of(setting).mean.value)


def judge(run: str, settings: Sequence[Speed], records: Sequence[Record], objective: Objective) -> Judgement:
    """Judge the settings of a run.

    ``run``: the folder, for messages.
    ``settings``: that succeeded.
    ``records``: of the points of the run.
    """
    run_as_one = Setting(points=tuple(records))
    if objective.by_speed and not run_as_one.values(figures.SPEED):  # the workload reports no items
        objective = replace(objective, metric=figures.WORK.key, direction=figures.MIN)
    figure, well = objective.figure, run_as_one.well
    values = run_as_one.values(figure)
    if not values:
        names = list(dict.fromkeys(name for record in well for name in figures.reported(record)))
        why = f"no point reports the metric {objective.metric!r}"
        hint = "jobkit help workloads: how a workload reports its own figures"
        if objective.metric in figures.choosable():
            why = f"no point has measured {objective.metric}"
            hint = f"choose by another figure: {', '.join([*figures.choosable(), *map(printable, names)])}"
        elif names:
            known = did_you_mean(objective.metric, names)
            hint = printable(known or f"reported are {format_list(names, 8)}")
        raise JobkitError(f"{run}: {why}, by which objective chooses", hint=hint)
    units = figures.units_of(well, figure)
    if len(units) > 1:
        raise JobkitError(
            f"{run}: {objective.name} has several units, which cannot be compared: {', '.join(units)}",
            hint="the workload must report it in one unit",
        )
    measured = settings_of(well)
    judged = []
    for one in settings:
        repeats = measured[key_of(one.params)]
        judged.append(Judged(one.setting, repeats.values(figure), objective.broken(repeats)))
    return Judgement(objective, units[0], tuple(judged), len(well), len(well) - len(values))


def refuse_none(run: str, judgement: Judgement, settings: Sequence[Speed]) -> None:
    """Raise an error if none of some settings may be recommended."""
    if judgement.allowed(settings):
        return
    judged = [judgement.of(setting) for setting in settings]
    lines = [f"{own.setting}: {own.broken or f'{judgement.objective.name} is not known'}" for own in judged]
    raise JobkitError(
        "\n  ".join([f"{run}: no setting keeps the constraints", *first_lines(lines, 8)]),
        hint="a wider bound: --set constraints.NAME.min=NUMBER, or .max",
    )


def refuse_changing(material: RunData, objective: Objective) -> None:
    """Raise an error if settings find different rows, and no figure of the workload's own judges these."""
    if not material.changing or any(by_key(name).own for name in (objective.metric, *objective.bounds)):
        return
    words = "; ".join(changing_words(material.changing))
    chosen = " ".join(
        f"--set sweep.{knob}={next(iter(counts))}" for knob, counts in material.changing.items()
    )
    raise JobkitError(
        f"{material.run}: {words}, and speed alone cannot choose it",
        hint=f"choose a value: jobkit recommend {shell_quote(material.run)} {chosen}; "
        "`jobkit apply` takes the same option",
    )


@frozen
class OfPrecision:
    """A setting of another precision than fp32, in a run that has fp32 too."""

    setting: str  # its knobs in words, as in `jobkit.answers.speed.Speed`
    # of the repeat that agrees least with fp32; ``None`` if one could not be compared
    agreement: Agreement | None
    accepted: bool  # whether it may be recommended

    @property
    def words(self) -> str:
        """How its entities agree with those of fp32."""
        if self.agreement is None:
            return "it has no entities that could be compared with those of fp32"
        if not self.agreement.differ:
            return f"the entities are those of fp32, {self.agreement.entities:,} in all"
        differ = format_count(self.agreement.differ, "entity", "entities")
        return f"{differ} of it or of fp32 are not in the other (F1 {format_f1(self.agreement.f1)})"


def of_precisions(
    speeds: Iterable[Speed], records: Sequence[Record], agreements: Mapping[int, Agreement], min_f1: float
) -> tuple[OfPrecision, ...]:
    """Return the settings of other precisions than fp32; none if fp32 did not succeed.

    ``agreements`` are by the point's index; ``min_f1`` is the least agreement that is accepted.
    """
    named, found = [(one, one.params.get(PRECISION)) for one in speeds], []
    if FP32 not in {precision for _, precision in named}:
        return ()
    measured = settings_of(records)
    for setting in (one for one, precision in named if precision != FP32):
        well = measured[key_of(setting.params)].well
        known = [agreements.get(record.point.index) for record in well]
        least = min(filter(None, known), key=lambda own: own.f1) if all(known) else None
        found.append(OfPrecision(setting.setting, least, least is not None and least.f1 >= min_f1))
    return tuple(found)


def without_refused(speeds: Iterable[Speed], precisions: Iterable[OfPrecision]) -> tuple[Speed, ...]:
    """Return the settings that may be recommended."""
    refused = {precision.setting for precision in precisions if not precision.accepted}
    return tuple(speed for speed in speeds if speed.setting not in refused)


@keyed
class EnergyUse:
    """The energy of one setting: means over the repeats whose energy is attributable."""

    params: Mapping[str, Value]  # the knobs
    # `per_1000_j`, `per_1000_j_sd`: joules for 1,000 items, and the standard deviation; ``None`` for
    # the latter of one repeat
    per_1000_j: float
    per_1000_j_sd: float | None
    net_per_1000_j: float | None  # the same above idle; ``None`` if a repeat has no idle power
    # joules for a character of the text; ``None`` if the characters are unknown
    per_character_j: float | None
    repeats: int  # how many there are

    def of(self, items: int, characters: int | None) -> float:
        """Return the energy of a text, by its characters if they are known."""
        if characters is not None and self.per_character_j is not None:
            return characters * self.per_character_j
        return items * self.per_1000_j / 1000


@frozen
class EnergyAnswer:
    """The energy of the GPUs over the work."""

    recommended: EnergyUse | None  # of the recommended setting; ``None`` if it is not attributable
    least: EnergyUse | None  # of the setting that takes the least for an item
    corpus_j: float | None  # for the corpus, with the recommended setting


def uses(records: Iterable[Record]) -> list[EnergyUse]:
    """Return the energy of each setting, from the records of points that succeeded."""
    found = []
    known = (record for record in records if record.value(figures.ENERGY_PER_1000) is not None)
    for setting in settings_of(known).values():
        each, net = Mean.of(setting.values(figures.ENERGY_PER_1000)), setting.mean(figures.NET_PER_1000)
        letters = [
            joules / record.summary.characters
            for record in setting.well
            if (joules := record.value(figures.ENERGY)) is not None
            and record.summary
            and record.summary.characters
        ]
        use = EnergyUse(
            params=dict(sorted(setting.params.items())),
            per_1000_j=each.value,
            per_1000_j_sd=each.sd,
            net_per_1000_j=net.value if net and net.n == each.n else None,
            per_character_j=Mean.of(letters).value if len(letters) == each.n else None,
            repeats=each.n,
        )
        found.append(use)
    return found


def energy_answer(records: Sequence[Record], chosen: Speed, corpus: CorpusVolume) -> EnergyAnswer | None:
    """Return the energy of a setting and of a corpus; ``None`` if no point has measured any."""
    well = [record for record in records if record.outcome is Outcome.OK]
    if not any(record.energy for record in well):
        return None
    settings = uses(well)
    own = next((use for use in settings if use.params == chosen.params), None)
    corpus_j = own.of(corpus.paragraphs, corpus.characters) if own else None
    least = min(settings, key=lambda use: use.per_1000_j, default=None)
    return EnergyAnswer(own, least, corpus_j)


THROUGHPUT, SATURATION, MEMORY, SWEEP = "throughput", "saturation", "memory", "sweep"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """All that ``jobkit recommend`` prints."""

    material: RunData  # of the whole run
    records: Sequence[Record]  # of the settings: in a search those of its last phase
    settings: tuple[Speed, ...]  # all that succeeded, the smallest first
    judged: Judgement  # the same, by the objective and the constraints of the spec
    precisions: tuple[OfPrecision, ...]  # of each setting of another precision than fp32
    accepted: tuple[Speed, ...]  # the settings that may be recommended
    recommended: Speed
    fastest: Speed  # of these
    memory: Memory  # of the other knobs of the recommended setting
    memories: Mapping[str, Memory]  # of all other knobs in words, each with a line of its own
    unsafe: bool  # whether another setting would be recommended if it were safe
    corpus: CorpusVolume
    named: CorpusVolume | None  # the corpus, if the user named one
    margin: float  # share of the memory to keep free besides what the bound keeps
    time: Duration
    energy: EnergyAnswer | None  # ``None`` if none was measured
    request: RequestAdvice | None  # ``None`` if the spec could not be read
    gpus: Sequence[GpuKind]  # to look at
    conditions: Conditions | None  # under which the recommended setting was measured; ``None`` for a command

    @property
    def search(self) -> SearchAnswer | None:
        return self.material.search

    @property
    def point(self) -> Point:
        """The first point that succeeded."""
        return next(record.point for record in self.records if record.outcome is Outcome.OK)

    @property
    def largest(self) -> Prediction:
        """The largest batch that was asked for."""
        return self.memory.asked or self.memory.largest

    @property
    def binds(self) -> str | None:
        """What keeps the batch from being larger than the recommended one.

        It is `THROUGHPUT`, `SATURATION`, `MEMORY` or `SWEEP`, which measured nothing larger; ``None`` if
        nothing is predicted, or the objective is not the speed.
        """
        largest, size = self.largest, self.recommended.size
        if self.search or not self.judged.objective.by_speed:
            return None
        if self.unsafe:
            return MEMORY
        if any(setting.size > size for setting in self.accepted):
            return THROUGHPUT
        if largest.reason:
            return None
        return SATURATION if largest.saturated else SWEEP if largest.safe_batch > size else MEMORY

    @property
    def times(self) -> Ratio | None:
        """How many times as fast as the recommended setting the fastest is; ``None`` if that is not known."""
        return None if self.recommended is self.fastest else speed.ratio(self.fastest, self.recommended)

    @property
    def others(self) -> str:
        """The values of the other knobs that the recommended setting has, in words; empty if none varies."""
        own = (words for words, memory in self.memories.items() if memory is self.memory)
        return next(own) if len(self.memories) > 1 else ""

    @property
    def lines(self) -> dict[str, Prediction]:
        """The largest batch for each other value of the other knobs."""
        rest = {words: memory for words, memory in self.memories.items() if memory is not self.memory}
        return {words: memory.largest for words, memory in rest.items() if memory.records}

    @property
    def leave_largest_out(self) -> float | None:
        """How far off the line without its largest point was there."""
        return self.memory.line.leave_largest_out if isinstance(self.memory.line, Fit) else None

    @property
    def most_workers(self) -> int | None:
        """How many workers the GPU holds with the recommended setting, by the bound."""
        limit_bytes, load = self.memory.limit_bytes, self.recommended.load
        if limit_bytes is None or load is None or self.memory.on_cpu:
            return None
        return self.memory.most_workers(limit_bytes, load)

    @property
    def allocator(self) -> str:
        """The allocator setting that the largest batches hold for, in words after a comma."""
        return memory_condition(self.records)

    @property
    def paragraphs(self) -> int:
        """How many paragraphs the text has that was measured."""
        return paragraphs(self.material.records)

    @property
    def points(self) -> int:
        return sum(record.outcome is Outcome.OK for record in self.material.records)

    @property
    def predictions(self) -> list[tuple[GpuKind, Prediction]]:
        """The largest batch on each GPU."""
        return [(gpu, self.memory.within(gpu.usable_bytes)) for gpu in self.gpus]

    @property
    def cost(self) -> dict[str, float]:
        """What the sweep itself took: seconds of the GPU, or on a CPU of the CPUs, over all its tries.

        ``unknown`` is how many of the tries left no times.
        """
        tries, point = self.material.seconds, self.point
        known = [seconds for seconds in tries if seconds is not None]
        each = point.threads * point.workers if point.device == CPU else point.gpus
        return {"seconds": each * sum(known), "tries": len(tries), "unknown": len(tries) - len(known)}

    def holds(self, prediction: Prediction) -> bool | None:
        """Return whether the recommended setting stays within the bound; ``None`` if nothing is predicted."""
        return prediction.holds(self.recommended.size, self.recommended.load)

    @cached_property
    def beware(self) -> tuple[str, ...]:
        """What to beware of besides what the first screen names, the weightiest first, without full stops."""
        chosen, largest, material = self.recommended, self.largest, self.material
        notes: list[str] = []
        if self.holds(largest) is False:
            safe = f"{largest.knob} {largest.safe_batch:,}" if largest.safe_batch else "not even a batch of 1"
            notes.append(
                f"{chosen.setting} ran, but takes more than is safe ({safe} is safe), as all measured "
                "settings do: a later run may end out of memory"
            )
        doubts = list(dict.fromkeys((*largest.doubts, *self.memory.largest.doubts)))
        if self.search:  # it has no line of memory, and its cautions are in its answer
            notes += [*self.search.cautions, *doubts]
        else:
            notes += doubts or self.memory.remarks
        record = next((record for record in self.records if record.params == chosen.params), None)
        precision = record.ran(PRECISION) if record else None
        if precision not in {None, FP32} and all(own.setting != chosen.setting for own in self.precisions):
            why = "no point with precision fp32 has succeeded"
            notes.append(f"{why}, so jobkit compared the entities of {precision} with nothing")
        hosts = sorted({record.host for record in self.records if record.outcome is Outcome.OK})
        if len(hosts) > 1 and self.records[0].point.device == CPU:
            notes.append(
                f"the points ran on {len(hosts)} machines, whose speeds may differ: {', '.join(hosts)}"
            )
        elsewhere = material.site is not None
        shared = elsewhere and material.resources is not None and not material.resources.exclusive
        notes += speed.not_sampled(chosen, elsewhere=elsewhere, shared=shared)
        if material.to_come:
            notes.append(f"{format_count(material.to_come, 'point')} still to come")
        if material.failed:
            notes.append(f"{format_count(material.failed, 'point')} ended without a result")
        return (*notes, *self._of_corpus(), *material.notes)

    def _of_corpus(self) -> list[str]:
        corpus, chosen, largest = self.named, self.recommended, self.largest
        if corpus is None:
            return []
        if not chosen.rates:
            return ["the workload reports no items, so the time is that of one run and not of your corpus"]
        notes, batch, name = [], chosen.size, corpus.name
        if corpus.loads is None and name:
            model = self.records[0].point.model
            spec = shell_quote(f"{self.material.run}/{SPEC_FILE}")
            stand_in = " --stand-in" if model and model.stand_in else ""
            finds = f"jobkit preflight {spec} --set text=FILE{stand_in} finds them"
            notes.append(f"the longest items of {name} are not known, and they decide the memory: {finds}")
        elif corpus.loads is None:
            notes.append(
                "a corpus with longer items than the text that was measured needs more memory and time"
            )
        elif batch and not largest.reason and (load := corpus.loads.load(batch)) > largest.safe_load:
            at_most = corpus.loads.largest_batch(largest.safe_load)
            notes.append(
                f"{name} makes a load of {load:,} at this size, more than is safe: at most {at_most:,}"
            )
        done = paragraphs(self.records)
        # A corpus of this many times the measured text may need more RAM than was measured
        if corpus.paragraphs > 10 * done:
            notes.append(
                f"RAM was measured over {format_count(done, 'paragraph')}, and the results of "
                f"{corpus.paragraphs:,} are kept there until the end: request more, or work through the "
                "corpus in parts"
            )
        return notes

    def as_data(self) -> dict[str, object]:
        """Return all of it for a program, in bytes and seconds."""
        memory, point, text = self.memory, self.point, self.corpus
        return {
            "measured": {
                "run": self.material.run,
                "workload": point.workload,
                "text": point.text.name,
                **described(point.model),
                "device": point.device,
                "gpu": memory.gpu,
                "points": self.points,
                "paragraphs": self.paragraphs,
                "kind": memory.kind,
                "capacity_bytes": None if memory.limit_bytes is None else int(memory.limit_bytes),
                "overhead_bytes": memory.overhead_bytes,
                "workers": memory.workers,
            },
            "batch": {
                **{name: getattr(self, name) for name in ("settings", "judged", "recommended", "fastest")},
                "times": self.times,
                "others": self.others,
                "largest": memory.largest,
                "lines": [{"others": words, "largest": largest} for words, largest in self.lines.items()],
                "leave_largest_out": self.leave_largest_out,
                "binds": self.binds,
                "most_workers": self.most_workers,
                "allocator": self.allocator,
                "precisions": self.precisions,
                "asked": memory.asked,
            },
            "beware": self.beware,
            "cards": [
                {
                    **{name: getattr(gpu, name) for name in ("name", "usable_bytes", "link")},
                    "fits": self.holds(largest),
                    "prediction": largest,
                }
                for gpu, largest in self.predictions
            ],
            "corpus": {"name": text.name, "paragraphs": text.paragraphs, "characters": text.characters},
            **{name: getattr(self, name) for name in ("time", "energy", "request", "cost")},
            "margin": self.margin,
            "trials": self.material.trials,
            "conditions": self.conditions,
            "search": self.search.data if self.search else None,
        }


def recommend(
    material: RunData,
    *,
    gpus: Sequence[GpuKind] | None = None,
    corpus: CorpusVolume | None = None,
    margin: float = 0.0,
    min_f1: float = 1.0,
    queues: Callable[[], RequestedQueues | None] = lambda: None,
) -> Advice:
    """Return what a run recommends.

    ``gpus``: to look at; ``None`` for those of `jobkit.answers.gpus.COMMON_GPUS`.
    ``corpus``: to estimate the time for; ``None`` for one pass of the measured text.
    ``min_f1``: the least agreement with the entities of fp32 that a precision must have to be recommended.
    ``queues``: asks for those that the run's request names.
    """
    search, records, objective = material.search, material.records, material.objective
    if search:
        records, objective = search.last_records(material.run), search.finals.objective
    memories = _memories(material, margin)
    if search:  # settings that ran once have no line
        name = other_knobs(search.finals.winner_records[0])
        memories = {name: memories[name]}
    settings = speed.speeds_of(records, material.records)
    judged = judge(material.run, settings, records, objective)
    if search is None:
        refuse_changing(material, judged.objective)
    point = next(record.point for record in records if record.outcome is Outcome.OK)
    if gpus is not None and point.device == CPU:
        raise JobkitError(
            "these points ran on a CPU, which shows nothing about a GPU", hint="measure on a GPU"
        )
    precisions = of_precisions(settings, records, material.agreements, min_f1)
    accepted = without_refused(settings, precisions)
    if search is None:
        refuse_none(material.run, judged, accepted)
    allowed, measured = judged.allowed(accepted), settings_of(records)

    known: dict[tuple[str, float | None], Memory] = {}  # each finds its largest batch once

    def memory_of(words: str, first: Record) -> Memory:
        own = _with_request(memories[words], material, first)
        return known.setdefault((words, own.limit_bytes), own)

    def safe(setting: Speed) -> bool | None:
        first = measured[key_of(setting.params)].first
        # a search has one memory, and its settings have the names that its answer has
        own = memory_of(next(iter(memories)) if search else other_knobs(first), first)
        return (own.asked or own.largest).holds(setting.size, setting.load)

    if search:
        chosen = next(setting for setting in settings if setting.params == search.setting)
    else:  # if no measured setting is safe, it is the smallest, with a caution
        chosen = judged.best([setting for setting in allowed if safe(setting) is not False] or allowed[:1])
    repeat = measured[key_of(chosen.params)].first
    words = next(iter(memories)) if search else other_knobs(repeat)
    memories = {name: memory_of(name, repeat) for name in memories}
    own = memories[words]
    text = (corpus if chosen.rates else None) or _one_pass(material)
    time = speed.duration(chosen, items=text.paragraphs, characters=text.characters)
    return Advice(
        material=material,
        records=records,
        settings=settings,
        judged=judged,
        precisions=precisions,
        accepted=allowed,
        recommended=chosen,
        fastest=speed.fastest(allowed or settings),
        memory=own,
        memories=memories,
        unsafe=bool(allowed) and safe(judged.best(allowed)) is False,
        corpus=text,
        named=corpus,
        margin=margin,
        time=time,
        energy=energy_answer(records, chosen, text),
        request=_request(material, repeat, chosen, text, time, queues),
        gpus=() if own.on_cpu else common_gpus() if gpus is None else gpus,
        conditions=conditions_of(repeat),
    )


def _request(
    material: RunData,
    repeat: Record,
    chosen: Speed,
    text: CorpusVolume,
    time: Duration,
    queues: Callable[[], RequestedQueues | None],
) -> RequestAdvice | None:
    """Return what to request for the corpus, or for each job into which `jobkit apply` cuts a long one."""
    whole = request(material, repeat, time)
    # what the points requested is within the limit
    short = not whole or not material.resources or whole.walltime_s <= material.resources.walltime
    known = None if short else queues()
    limit_s = known and known.longest_s
    if not whole or not known or not limit_s or whole.walltime_s <= limit_s:
        return whole
    asked, allows = format_walltime(whole.walltime_s), f"{known.where} allows ({format_walltime(limit_s)})"
    too_long = f"{asked} is longer than {allows}"
    if not chosen.rates or repeat.point.command:
        return replace(whole, too_long=too_long)
    warning_s = material.site.warning_s if material.site else WARNING_S
    each_s = shard_s(limit_s, time.longest_s / time.expected_s, warning_s)
    jobs = math.ceil((time.expected_s - time.start_s) / max(each_s - time.start_s, each_s / 2))
    characters = text.characters and math.ceil(text.characters / jobs)
    part = speed.duration(chosen, items=math.ceil(text.paragraphs / jobs), characters=characters)
    return replace(request(material, repeat, part) or whole, jobs=jobs, too_long=too_long)


def advised(folders: Collection[str]) -> Advice | None:
    """Return what the only one of some run folders recommends; ``None`` if there is no answer."""
    try:
        return recommend(read_material(Path(next(iter(folders))))) if len(folders) == 1 else None
    except JobkitError:
        return None


def _memories(material: RunData, margin: float = 0.0) -> dict[str, Memory]:
    found = memory_by_setting(
        material.records,
        material.batches,
        material.lengths,
        Wanted(asked_bytes=material.asked_bytes, margin=margin, tried=material.tried),
    )
    if isinstance(found, str):
        waits = material.to_come and not any(record.outcome is Outcome.OK for record in material.records)
        wait = f"wait for its points: jobkit status {shell_quote(material.run)} --watch"
        hint = wait if waits else f"see what there is: jobkit collect {shell_quote(material.run)}"
        raise JobkitError(f"{material.run}: {found}", hint=hint)
    return found


def memory_of_setting(material: RunData, record: Record) -> Memory | None:
    """Return the memory of a record's setting; ``None`` if its largest batch is not known."""
    try:
        own = _memories(material).get(other_knobs(record))
    except JobkitError:
        return None
    own = own and _with_request(own, material, record)
    return None if own is None or own.largest.reason else own


def _with_request(memory: Memory, material: RunData, record: Record) -> Memory:
    """Return a memory: the limit of RAM is what jobkit requests for a record's setting."""
    if not memory.on_cpu or not (wanted := requested(material, record)):
        return memory
    tried = (trial.capacity_bytes for trial in material.tried)
    limit_bytes = max(wanted.memory, material.asked_bytes or 0, *tried)
    return replace(memory, wanted=replace(memory.wanted, limit_bytes=limit_bytes))


def paragraphs(records: Sequence[Record]) -> int:
    """Return how many paragraphs the text has that was measured."""
    return max((record.summary.items_total for record in records if record.summary), default=0)


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
    return CorpusVolume(name=name, paragraphs=min(parts, default=0))  # a part is rounded up
