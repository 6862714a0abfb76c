"""The answer of ``jobkit tune``: what was tried, the setting, what limits it, and the lines to paste."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from jobkit.answers.objective import Objective
from jobkit.answers.search_answer import SearchAnswer, SearchPanel, SearchRow
from jobkit.answers.setting import Mean, Ratio, Setting, settings_of
from jobkit.answers.speed import Speed
from jobkit.core.blocks import Block, Column
from jobkit.core.figures import (
    ENERGY_PER_1000,
    GPU_MEMORY,
    SPEED,
    Figure,
    format_figure,
    own_columns,
    units_of,
)
from jobkit.core.knobs import EVERY, Value
from jobkit.core.layout import SETTING_FILE
from jobkit.core.records import ModelRef, Outcome, Record, described
from jobkit.core.terminal import NoWrap, relative_path, shell_path
from jobkit.core.units import format_about, format_bytes_gib, format_count, format_setting, format_walltime
from jobkit.extensions.tune.search import Tuning, spec_lines
from jobkit.extensions.tune.steps import FINAL, PHASES, Candidate, TuneAnswer, whole
from jobkit.runs.request import Conditions, condition_lines, conditions_of
from jobkit.runs.status import PointResult

HELP = {
    "cores": "faster or more CPU cores may help",
    "GPU": "a faster GPU, or a second one, may help",
    "text": "a longer text would keep more workers busy",
    "failure": "the log of that point has the reason",
}
"""Advice that may make a faster setting possible, by what limits the search."""

PLAIN_LOOP = "plain loop"
NO_DIFFERENCE = "no difference is shown"
Key = tuple[tuple[str, Value], ...]


def read_answer(run: Path, objective: Objective | None) -> SearchAnswer:
    """Return what the search of a run found; a given objective replaces its own."""
    tuning = Tuning.read(run)
    if objective:
        tuning = replace(tuning, goal=replace(tuning.goal, objective=objective))
    columns = phase_columns(tuning)
    part = " (every: one of so many paragraphs)" if any(one.head == EVERY for one in columns) else ""
    times = f", {_gain_words(tuning.gain)}" if tuning.gain else _named_loop(tuning)
    why = f" {_not_shown(tuning)}" if tuning.is_loop else ""
    worth = _not_shown(tuning) if tuning.is_loop else "Next to the plain loop:"
    loop = f"  answer     the plain loop: no setting is shown to be {tuning.better_words}"
    return SearchAnswer(
        phases=PHASES,
        objective=tuning.goal.objective,
        ended=isinstance(tuning.next, TuneAnswer),
        title=f"a search of {format_count(len(_settings(tuning)), 'setting')}",
        winner=tuning.winner,
        setting=tuning.setting,
        winner_records=tuning.records_of(tuning.winner),
        records=tuning.records(FINAL),
        limit=_limit(tuning),
        why=tuning.next.why if isinstance(tuning.next, TuneAnswer) else "",
        sentence=f"The answer of the search: {format_setting(tuning.setting)}{times}.{why}",
        worth=(
            f"{_gain_words(tuning.gain)}." if tuning.gain else worth,
            *(f"{line}." for line in _more_lines(tuning)),
        ),
        lines=(*([loop] if tuning.is_loop else ()), *_worth_lines(tuning)),
        table=Block(title=f"What the search measured, by phase{part}", columns=tuple(columns)),
        panel=_panel(tuning),
        last_probability=tuning.finals.probability,
        data=as_data(tuning),
    )


def _limit(tuning: Tuning) -> str:
    """Return what limits the speed of the answer, and what may help; empty if that is unknown."""
    answer = tuning.next
    if tuning.winner and isinstance(answer, TuneAnswer) and tuning.goal.objective.by_speed and answer.limit:
        return f"{answer.limit}: {answer.why}; {_help(tuning, answer)}"
    return ""


def _panel(tuning: Tuning) -> SearchPanel:
    found: dict[Key, dict[str, Mean]] = {}
    for phase in PHASES:
        for setting in settings_of(tuning.records(phase), lambda record: _key(record.params)):
            if mean := setting.mean(SPEED):
                found.setdefault(_key(setting.first.params), {})[phase] = mean
    loop = _key(tuning.goal.loop)
    settings = [dict(key) for key in found if key != loop]
    every = dict.fromkeys(knob for setting in settings for knob in setting)
    knobs = [knob for knob in every if len({setting.get(knob) for setting in settings}) > 1] or every
    rows = {
        key: SearchRow(
            name=PLAIN_LOOP if key == loop else format_setting({k: v for k, v in key if k in knobs}),
            means=means,
        )
        for key, means in found.items()
    }
    return SearchPanel(
        phases=PHASES,
        rows=tuple(sorted(rows.values(), key=lambda row: row.last.value, reverse=True)),
        base=rows.get(loop),
        answer=rows.get(_key(tuning.winner.params)) if tuning.winner else None,
    )


def as_data(tuning: Tuning) -> dict[str, object]:
    """Return the answer for a program."""
    answer, winner, objective = tuning.next, tuning.winner, tuning.goal.objective
    mean, joules = (_mean(tuning, winner, one) for one in (objective.figure, ENERGY_PER_1000))
    best = tuning.finals.best
    return {
        "ended": isinstance(answer, TuneAnswer),
        **described(_model(tuning)),
        "setting": tuning.setting or None,
        "objective": {**asdict(objective), "mean": mean.value if mean else None},
        "plain_loop": tuning.is_loop,
        "best_other": {"setting": dict(best.params), "times_the_plain_loop": _ratio_json(tuning.times)}
        if best and tuning.is_loop
        else None,
        "items_per_s": winner.items_per_s if winner else None,
        "times_the_plain_loop": _ratio_json(tuning.gain),
        "joules_per_1000": joules.value if joules else None,
        "limit": answer.limit if isinstance(answer, TuneAnswer) else None,
        "why": answer.why if isinstance(answer, TuneAnswer) else None,
        "held_s": tuning.held_s,
        "conditions": asdict(conditions) if (conditions := _conditions(tuning)) else None,
        "points": [
            {
                "point": result.point.point_id,
                "phase": one.phase,
                "params": dict(one.params),
                "outcome": result.outcome,
            }
            for one, result in tuning.results
        ],
    }


def blocks(run_dir: Path, tuning: Tuning) -> Iterator[Block]:
    answer, model, run = tuning.next, _model(tuning), shell_path(run_dir)
    warning = (model.warning,) if model and model.stand_in else ()
    yield Block(title=headline(run_dir, tuning), before=warning, columns=tuple(phase_columns(tuning)))
    if isinstance(answer, Candidate):
        title = f"The search has not ended. Next, {answer.phase}: {format_setting(answer.params)}"
        progress = NoWrap(f"jobkit status {run}", "  progress     ")
        go_on = NoWrap(f"jobkit resume {run}   # if its job was cancelled or killed", "  go on        ")
        yield Block(title=title, before=(progress, go_on))
    elif tuning.winner is None:
        yield Block(title=f"No setting was found: {answer.why}")
    else:
        yield from _found(run_dir, tuning)


def _settings(tuning: Tuning) -> set[Key]:
    """Return the settings that were measured, each on the whole text."""
    return {_key(one.params) for one, _ in tuning.results}


def _key(params: Mapping[str, Value]) -> Key:
    """Return a key for a setting, whatever part of the text it ran on."""
    return tuple(sorted(whole(params).items()))


def _model(tuning: Tuning) -> ModelRef | None:
    """Return the model of a search; ``None`` if it has none, or no point yet."""
    return tuning.results[0][1].point.model if tuning.results else None


def headline(run_dir: Path, tuning: Tuning) -> str:
    goal = tuning.goal
    records = [result.record for _, result in tuning.results if result.record]
    gpu = next((record.gpu.name for record in records if record.gpu), None)
    spent = f"{format_count(len(_settings(tuning)), 'setting')}, {format_count(len(tuning.results), 'point')}"
    cpus = format_count(goal.workers * goal.cpus, "CPU")
    where = f"{gpu} and {cpus}" if gpu else cpus
    return f"{relative_path(run_dir)}: {spent}, {format_about(tuning.held_s)} of {where}"


def phase_columns(tuning: Tuning) -> list[Column]:
    rows: dict[tuple[object, ...], tuple[Candidate, list[PointResult]]] = {}
    for candidate, result in tuning.results:
        key = (candidate.phase, *sorted(candidate.params.items()))
        rows.setdefault(key, (candidate, []))[1].append(result)
    phases = list(rows.values())
    settings = [_measured(results) for _, results in phases]
    knobs = list(dict.fromkeys(knob for one, _ in phases for knob in one.params))
    own = own_columns(record for setting in settings if setting for record in setting.well)
    columns = [Column("phase", [one.phase for one, _ in phases], left=True)]
    for knob in knobs:
        values = [one.params.get(knob) for one, _ in phases]
        cells = [f"{value:,}" if isinstance(value, int) else value or "" for value in values]
        columns.append(Column(knob, cells))
    shown: list[tuple[str, Figure, Callable[[float], str]]] = [
        ("paragraphs/s", SPEED, "{:,.1f}".format),
        *((f"{one.label} [{one.unit}]" if one.unit else one.label, one, format_figure) for one in own),
        ("J/1,000", ENERGY_PER_1000, "{:,.1f}".format),
        ("GPU memory", GPU_MEMORY, format_bytes_gib),
    ]
    for head, figure, form in shown:
        means = [setting.mean(figure) if setting else None for setting in settings]
        columns.append(Column(head, [form(mean.value) if mean else "" for mean in means]))
    objective = tuning.goal.objective
    remarks = [
        objective.broken(setting) if setting else str(results[-1].outcome or "to come")
        for setting, (_, results) in zip(settings, phases, strict=True)
    ]
    columns.append(Column("", remarks, left=True))
    return [column for column in columns if any(column.cells)]


def _measured(results: Sequence[PointResult]) -> Setting[Record] | None:
    """Return the repeats of a setting that succeeded; ``None`` if none did."""
    records = [result.record for result in results if result.record and result.outcome is Outcome.OK]
    return Setting(points=tuple(records)) if records else None


def _found(run_dir: Path, tuning: Tuning) -> Iterator[Block]:
    yield Block.of(_setting(tuning))
    spec = tuple(NoWrap(line, "  ") for line in spec_lines(tuning))
    yield Block(title=f"In a spec (also in {relative_path(run_dir)}/{SETTING_FILE}):", before=spec)
    yield Block(after=(NoWrap(f"jobkit sweep SPEC --setting {shell_path(run_dir)}", "  "),))
    yield Block.of(condition_lines(_conditions(tuning)))


def _setting(tuning: Tuning) -> Iterator[str]:
    if tuning.is_loop:
        yield _not_shown(tuning)
    yield f"The setting: {format_setting(tuning.setting)}{_named_loop(tuning)}"
    yield from _worth_lines(tuning)
    yield f"  not tried  {_not_tried(tuning)}"


def _conditions(tuning: Tuning) -> Conditions | None:
    return next(map(conditions_of, tuning.records_of(tuning.winner)), None)


def _not_shown(tuning: Tuning) -> str:
    return f"No setting is shown to be {tuning.better_words} than the plain loop."


def _named_loop(tuning: Tuning) -> str:
    return " (the plain loop)" if tuning.is_loop else ""


def _worth_lines(tuning: Tuning) -> Iterator[str]:
    if tuning.gain and tuning.winner and isinstance(tuning.next, TuneAnswer):
        yield f"  speed      {_gain_words(tuning.gain)} {_on(tuning.winner)}"
    yield from _more_lines(tuning)
    if limit := _limit(tuning):
        yield f"  limit      {limit}"


def _gain_words(gain: Ratio) -> str:
    return f"{_times(gain)} as fast as the plain loop"


def _more_lines(tuning: Tuning) -> Iterator[str]:
    winner = tuning.winner
    if winner and isinstance(tuning.next, TuneAnswer):
        yield from _best_other(tuning) if tuning.is_loop else _gains(tuning, winner)


def _help(tuning: Tuning, answer: TuneAnswer) -> str:
    """Return what may make a faster setting possible: the key to change, if it is one."""
    goal = tuning.goal
    if answer.limit == "time":
        return f"--set tune.budget={format_walltime(2 * goal.budget_s)} would let the search go on"
    if answer.limit == "memory":
        return "a GPU with more memory would help" if goal.mps else "more resources.memory would help"
    if answer.limit != "cores" or not answer.why.endswith(goal.limited_by):
        return HELP[answer.limit]
    if goal.cpus > 1:
        return f"--set resources.cpus=1 would allow up to {goal.cpus} times as many workers"
    key = goal.limited_by.partition(":")[0]
    return f"a higher {key} would allow more" if "." in key else "more CPUs for the job would allow more"


def _best_other(tuning: Tuning) -> Iterator[str]:
    finals, best = tuning.finals, tuning.finals.best
    broken = [finals.broken(speed) for speed in finals.finalists if finals.broken(speed)]
    if best is None:
        why = (
            f"no other setting keeps the constraints: {broken[0]}"
            if broken
            else "no other setting succeeded on the same text"
        )
        yield f"  others     {why}"
        return
    if tuning.times:
        yield f"  best other {format_setting(best.params)}: {_times(tuning.times)} as fast, {_on(best)}"
    else:
        yield f"  best other {format_setting(best.params)}, {_on(best)}"
    if not tuning.goal.objective.by_speed:
        yield f"  objective  {_objective(tuning, best)}"
    if tuning.times and tuning.times.low is None:
        yield "  doubt      one repeat has no interval: tune.repeats: 3 and a longer tune.budget give one"


def _on(speed: Speed) -> str:
    return f"on {_text(speed)}, {format_count(speed.repeats, 'repeat')} each"


def _text(speed: Speed) -> str:
    part = speed.params.get(EVERY, 1)
    return "the whole text" if part == 1 else f"one of every {part} paragraphs"


def _gains(tuning: Tuning, winner: Speed) -> Iterator[str]:
    if tuning.gain and tuning.finals.plain and _text(tuning.finals.plain) != _text(winner):
        padded = ""
        if tuning.padding:
            of_part, of_all = (f"{100 * share:.1f} %" for share in tuning.padding)
            padded = f": {of_part} of its padded characters are text, of the whole text {of_all}"
        yield f"  plain loop on {_text(tuning.finals.plain)}{padded}"
    own_j, loop_j = (_mean(tuning, one, ENERGY_PER_1000) for one in (winner, tuning.finals.plain))
    if own_j and loop_j:
        yield f"  energy     {own_j.value:,.1f} J for 1,000 items, the plain loop {loop_j.value:,.1f} J"
    if not tuning.goal.objective.by_speed:
        yield f"  objective  {_objective(tuning, winner)}"
    if second := tuning.second:
        words = format_setting({k: v for k, v in second.params.items() if winner.params.get(k) != v})
        yield f"  next best  {words}: {_apart(tuning, winner, second)}"


def _objective(tuning: Tuning, winner: Speed) -> str:
    objective, unit = tuning.goal.objective, _unit(tuning)
    own, of_loop = (_mean(tuning, one, objective.figure) for one in (winner, tuning.finals.plain))
    words = f"{objective.name} {own.words(unit)}" if own else f"no {objective.name}"
    return f"{words}, the plain loop {of_loop.words(unit)}" if of_loop else words


def _mean(tuning: Tuning, speed: Speed | None, figure: Figure) -> Mean | None:
    """Return the mean of a figure of a finalist, or of the plain loop; ``None`` if it is not known."""
    return tuning.finals.setting(speed).mean(figure) if speed else None


def _unit(tuning: Tuning) -> str:
    records = tuning.records_of(tuning.winner)
    return " or ".join(units_of(records, tuning.goal.objective.figure))


def _apart(tuning: Tuning, winner: Speed, second: Speed) -> str:
    """Return how much better the winner is than the next best setting, if that is more than scatter."""
    if broken := tuning.finals.broken(second):
        return broken
    apart = tuning.finals.compared(winner, second).apart
    if not apart.differs:
        return NO_DIFFERENCE
    if isinstance(apart, Ratio):
        return f"the winner is {_times(apart)} as fast"
    return f"{tuning.goal.objective.name} differs by {format_figure(abs(apart.mean), _unit(tuning))}"


def _times(times: Ratio) -> str:
    between = "" if times.low is None else f" ({times.low:.2f} to {times.high:.2f} with 95 % confidence)"
    return f"{times.mean:.2f} times{between}"


def _not_tried(tuning: Tuning) -> str:
    goal = tuning.goal
    tried = len(_settings(tuning) - {tuple(sorted(goal.loop.items()))})
    assumed = []
    if goal.padding:
        other = min(goal.padding, key=lambda order: goal.padding[order])
        times = goal.padding[max(goal.padding, key=lambda order: goal.padding[order])] / goal.padding[other]
        assumed.append(f"{other} order, which pads {times:.1f} times as much by the text alone, is slower")
    if goal.fills_gpu:
        assumed.append("the library's own way is slower at each of these")
    if goal.workers > 1:
        assumed.append("what is best at one number of workers is best at the other numbers")
        assumed.append("more workers past the limit are not faster")
    if goal.short:
        without = ["MPS"] * goal.mps + ["shortcuts"] * (goal.shortcuts and not goal.fills_gpu)
        and_so = f", and so is the best setting without {' or '.join(without)}" if without else ""
        assumed.append(f"larger sizes are slower{and_so}")
    why = f", assumed: {'; '.join(assumed)}" if assumed else ""
    return f"{max(0, goal.combinations - tried)} of {goal.combinations} combinations{why}"


def _ratio_json(ratio: Ratio | None) -> dict[str, float | None] | None:
    return {"mean": ratio.mean, "low": ratio.low, "high": ratio.high} if ratio else None
