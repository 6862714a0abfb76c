"""The answer of ``jobkit tune``: what was tried, the setting, what limits it, and the lines to paste."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from jobkit.answers.objective import Objective, SearchAnswer, SearchRow
from jobkit.answers.setting import Key, Mean, Ratio, Setting, key_of, settings_of
from jobkit.answers.speed import Speed
from jobkit.core import figures, knobs
from jobkit.core.blocks import Block, Column
from jobkit.core.layout import SETTING_FILE, SPEC_FILE
from jobkit.core.records import ModelRef, Outcome, Record, described
from jobkit.core.terminal import NoWrap, relative_path, shell_path
from jobkit.core.units import format_about, format_bytes_gib, format_count, format_setting, format_walltime
from jobkit.extensions.tune.goal import MEASURED_S, TuneGoal, whole
from jobkit.extensions.tune.measured import MEMORY, PHASES, SEARCH, Candidate, TuneAnswer
from jobkit.extensions.tune.search import Tuning, spec_lines
from jobkit.planning.texts import longer_text
from jobkit.runs.conditions import Conditions, condition_lines, conditions_of
from jobkit.runs.status import PointResult


def read_answer(run: Path, objective: Objective | None) -> SearchAnswer:
    """Return what the search of a run found; a given objective replaces its own."""
    tuning = Tuning.read(run)
    if objective:
        tuning = replace(tuning, goal=replace(tuning.goal, objective=objective))
    columns, rows, loop = phase_columns(tuning), _rows(tuning), key_of(tuning.goal.loop)
    part = " (every: one of so many paragraphs)" if any(one.head == knobs.EVERY for one in columns) else ""
    lines, worth, ending = [*_worth_lines(tuning)], "Next to the plain loop:", "."
    if tuning.is_loop:
        lines.insert(0, f"  answer     the plain loop: no setting is shown to be {tuning.better_words}")
        worth = _not_shown(tuning)
        ending = f" (the plain loop). {worth}"
    elif tuning.gain:
        worth = f"{_times(tuning.gain)} as fast as the plain loop."
        ending = f", {worth}"
    return SearchAnswer(
        phases=PHASES,
        finals=tuning.finals,
        ended=tuning.answer is not None,
        title=f"a search of {format_count(len(_settings(tuning)), 'setting')}",
        setting=tuning.setting,
        limit=_limit(tuning),
        why=tuning.answer.why if tuning.answer else "",
        sentence=f"The answer of the search: {format_setting(tuning.setting)}{ending}",
        worth=(worth, *(f"{line}." for line in _more_lines(tuning))),
        lines=lines,
        table=Block(title=f"What the search measured, by phase{part}", columns=tuple(columns)),
        rows=sorted(rows.values(), key=lambda row: row.last.value, reverse=True),
        base=rows.get(loop),
        best=rows.get(key_of(whole(tuning.winner.params))) if tuning.winner else None,
        data=as_data(tuning),
    )


def _limit(tuning: Tuning) -> str:
    """Return what limits the speed of the answer, and what may help: the key to change, if it is one."""
    goal, answer = tuning.goal, tuning.answer
    if not (tuning.winner and answer and goal.objective.by_speed and answer.limit):
        return ""
    return f"{answer.limit}: {answer.why}; {_advice(tuning, answer)}"


def _advice(tuning: Tuning, answer: TuneAnswer) -> str:
    """Return what may make a faster setting possible, by what limits the search."""
    goal = tuning.goal
    match answer.limit:
        case "cores":
            return _more_cores(goal, answer.why)
        case "GPU":
            return "a faster GPU, or a second one, may help"
        case "failure":
            return "the log of that point has the reason"
        case "time":
            return f"--set tune.budget={format_walltime(2 * goal.budget_s)} would let the search go on"
        case "text":
            return f"a longer text would keep more workers busy: {_longer(tuning)}"
        case _:  # memory
            return f"{'a GPU with more memory' if goal.on_gpu else 'more resources.memory'} would help"


def _more_cores(goal: TuneGoal, why: str) -> str:
    if not why.endswith(goal.limited_by):  # it is not the number of workers
        return "faster or more CPU cores may help"
    if goal.cpus > 1:
        return f"--set resources.cpus=1 would allow up to {goal.cpus} times as many workers"
    key = goal.limited_by.partition(":")[0]
    return f"{f'a higher {key}' if '.' in key else 'more CPUs for the job'} would allow more"


def _rows(tuning: Tuning) -> dict[Key, SearchRow]:
    """Return the settings that have a speed, on whatever part of the text, by their knobs."""
    found: dict[Key, dict[str, Mean]] = {}
    for phase in PHASES:
        for setting in settings_of(tuning.records(phase), lambda one: key_of(whole(one.params))).values():
            if mean := setting.mean(figures.SPEED):
                found.setdefault(key_of(whole(setting.params)), {})[phase] = mean
    loop = key_of(tuning.goal.loop)
    settings = [dict(key) for key in found if key != loop]
    every = dict.fromkeys(knob for setting in settings for knob in setting)
    varied = [knob for knob in every if len({setting.get(knob) for setting in settings}) > 1]
    names = {key: format_setting({k: v for k, v in key if k in (varied or every)}) for key in found}
    names[loop] = "plain loop"
    return {key: SearchRow(name=names[key], means=means) for key, means in found.items()}


def as_data(tuning: Tuning) -> dict[str, object]:
    """Return the answer for a program."""
    answer, winner, objective = tuning.answer, tuning.winner, tuning.goal.objective
    mean, joules = (_mean(tuning, winner, one) for one in (objective.figure, figures.ENERGY_PER_1000))
    best = tuning.finals.best
    return {
        "ended": answer is not None,
        **described(_model(tuning)),
        "setting": tuning.setting or None,
        "objective": {**asdict(objective), "mean": mean.value if mean else None},
        "plain_loop": tuning.is_loop,
        "best_other": {
            "setting": dict(best.params),
            "times_the_plain_loop": asdict(tuning.times) if tuning.times else None,
        }
        if best and tuning.is_loop
        else None,
        "items_per_s": winner.items_per_s if winner else None,
        "times_the_plain_loop": asdict(tuning.gain) if tuning.gain else None,
        "joules_per_1000": joules.value if joules else None,
        "limit": answer.limit if answer else None,
        "why": answer.why if answer else None,
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
    goal, model, run = tuning.goal, _model(tuning), shell_path(run_dir)
    records = [result.record for _, result in tuning.results if result.record]
    gpu = next((f"{record.gpu.name} and " for record in records if record.gpu), "")
    spent = f"{format_count(len(_settings(tuning)), 'setting')}, {format_count(len(tuning.results), 'point')}"
    held = f"{format_about(tuning.held_s)} of {gpu}{format_count(goal.workers * goal.cpus, 'CPU')}"
    warning = (model.warning,) if model and model.stand_in else ()
    columns = tuple(phase_columns(tuning))
    yield Block(title=f"{relative_path(run_dir)}: {spent}, {held}", before=warning, columns=columns)
    if isinstance(tuning.next, Candidate):
        title = f"The search has not ended. Next, {tuning.next.phase}: {format_setting(tuning.next.params)}"
        progress = NoWrap(f"jobkit status {run}", "  progress     ")
        go_on = NoWrap(f"jobkit resume {run}   # if its job was cancelled or killed", "  go on        ")
        yield Block(title=title, before=(progress, go_on))
    elif tuning.winner is None:
        yield Block(title=f"No setting was found: {tuning.next.why}")
    else:
        loop = " (the plain loop)" if tuning.is_loop else ""
        lines = [_not_shown(tuning)] if tuning.is_loop else []
        lines += [f"The setting: {format_setting(tuning.setting)}{loop}", *_worth_lines(tuning)]
        yield Block.of([*lines, f"  not tried  {_not_tried(tuning)}"])
        spec = tuple(NoWrap(line, "  ") for line in spec_lines(tuning))
        yield Block(title=f"In a spec (also in {relative_path(run_dir)}/{SETTING_FILE}):", before=spec)
        yield Block(after=(NoWrap(f"jobkit sweep SPEC --setting {run}", "  "),))
        yield Block.of(condition_lines(_conditions(tuning)))


def _settings(tuning: Tuning) -> set[Key]:
    """Return the settings that were measured, each on the whole text."""
    return {key_of(whole(one.params)) for one, _ in tuning.results}


def _model(tuning: Tuning) -> ModelRef | None:
    """Return the model of a search; ``None`` if it has none, or no point yet."""
    return tuning.results[0][1].point.model if tuning.results else None


def phase_columns(tuning: Tuning) -> list[Column]:
    rows = _by_phase(tuning)
    settings = [
        Setting(points=tuple(one.record for one in results if one.record and one.outcome is Outcome.OK))
        for _, results in rows
    ]
    columns = [Column("phase", [one.phase for one, _ in rows], left=True)]
    for knob in dict.fromkeys(knob for one, _ in rows for knob in one.params):
        values = [one.params.get(knob) for one, _ in rows]
        cells = [f"{value:,}" if isinstance(value, int) else value or "" for value in values]
        columns.append(Column(knob, cells))
    columns += _figure_columns(settings)
    remarks = [
        tuning.goal.objective.broken(setting) if setting.n else str(results[-1].outcome or "to come")
        for setting, (_, results) in zip(settings, rows, strict=True)
    ]
    columns.append(Column("", remarks, left=True))
    return [column for column in columns if any(column.cells)]


def _by_phase(tuning: Tuning) -> list[tuple[Candidate, list[PointResult]]]:
    """Return the repeats of each setting in each phase."""
    rows: dict[tuple[object, ...], tuple[Candidate, list[PointResult]]] = {}
    for candidate, result in tuning.results:
        key = (candidate.phase, *sorted(candidate.params.items()))
        rows.setdefault(key, (candidate, []))[1].append(result)
    return list(rows.values())


def _figure_columns(settings: Sequence[Setting[Record]]) -> Iterator[Column]:
    own = figures.own_columns(record for setting in settings for record in setting.well)
    shown: list[tuple[str, figures.Figure, Callable[[float], str]]] = [
        ("paragraphs/s", figures.SPEED, "{:,.1f}".format),
        *(
            (f"{one.label} [{one.unit}]" if one.unit else one.label, one, figures.format_figure)
            for one in own
        ),
        ("J/1,000", figures.ENERGY_PER_1000, "{:,.1f}".format),
        ("GPU memory", figures.GPU_MEMORY, format_bytes_gib),
    ]
    for head, figure, form in shown:
        means = [setting.mean(figure) for setting in settings]
        yield Column(head, [form(mean.value) if mean else "" for mean in means])


def _conditions(tuning: Tuning) -> Conditions | None:
    return next(map(conditions_of, tuning.finals.winner_records), None)


def _not_shown(tuning: Tuning) -> str:
    return f"No setting is shown to be {tuning.better_words} than the plain loop."


def _worth_lines(tuning: Tuning) -> Iterator[str]:
    if tuning.gain and tuning.winner and tuning.answer:
        times = f"{_times(tuning.gain)} as fast as the plain loop"
        yield f"  speed      {times} {_on(tuning, tuning.winner)}"
    yield from _more_lines(tuning)
    yield from _open_lines(tuning)
    if limit := _limit(tuning):
        yield f"  limit      {limit}"
    if len(hours := _by_cpus(tuning)) > 1:
        each = (f"{float(f'{hours[cpus]:.2g}'):,.0f} with {cpus}" for cpus in sorted(hours))
        yield f"  GPU-hour   paragraphs by the CPUs of the job, as measured on the way: {', '.join(each)}"


def _by_cpus(tuning: Tuning) -> dict[int, float]:
    """Return how many paragraphs an hour of the GPU does, by the CPUs of its job: at one size."""
    if tuning.is_loop or not tuning.goal.objective.by_speed:
        return {}
    same = {knob.name for knob in knobs.RUN_KNOBS} - {knobs.ORDER, knobs.THREADS}
    records = [record for record in tuning.records(MEMORY, SEARCH) if record.gpu]
    rates = dict[Key, dict[int, float]]()
    for setting in settings_of(records).values():
        params = setting.first.params
        if mean := setting.mean(figures.SPEED):
            own = rates.setdefault(key_of({k: v for k, v in params.items() if k not in same}), {})
            cpus = knobs.numbers(params)[knobs.WORKERS] * tuning.goal.cpus
            own[cpus] = max(own.get(cpus, 0.0), 3600 * mean.value)
    return max(rates.values(), key=len, default={})


def _more_lines(tuning: Tuning) -> Iterator[str]:
    """Yield how the answer compares with the plain loop and the next best setting, besides the speed."""
    if tuning.winner and tuning.answer:
        yield from _best_other(tuning) if tuning.is_loop else _next_to_loop(tuning, tuning.winner)


def _next_to_loop(tuning: Tuning, winner: Speed) -> Iterator[str]:
    finals = tuning.finals
    if tuning.gain and finals.plain and _text(finals.plain) != _text(winner):
        text = ""
        if tuning.padding:
            of_part, of_all = (f"{100 * share:.1f} %" for share in tuning.padding)
            text = f": {of_part} of its padded characters are text, of the whole text {of_all}"
        yield f"  plain loop on {_text(finals.plain)}{text}"
    own_j, loop_j = (_mean(tuning, one, figures.ENERGY_PER_1000) for one in (winner, finals.plain))
    if own_j and loop_j:
        yield f"  energy     {own_j.value:,.1f} J for 1,000 items, the plain loop {loop_j.value:,.1f} J"
    yield from _objective_line(tuning, winner)
    if second := next((speed for speed in finals.finalists if speed != finals.best), None):
        words = format_setting({k: v for k, v in second.params.items() if winner.params.get(k) != v})
        yield f"  next best  {words}: {_apart(tuning, winner, second)}"


def _best_other(tuning: Tuning) -> Iterator[str]:
    """Yield how the best setting compares with the plain loop, which is the answer; or why there is none."""
    finals = tuning.finals
    if best := finals.best:
        as_fast = f": {_times(tuning.times)} as fast" if tuning.times else ""
        yield f"  best other {format_setting(best.params)}{as_fast}, {_on(tuning, best)}"
        yield from _objective_line(tuning, best)
    elif broken := next(filter(None, map(finals.broken, finals.finalists)), ""):
        yield f"  others     no other setting keeps the constraints: {broken}"
    else:
        yield "  others     no other setting succeeded on the same text"


def _open_lines(tuning: Tuning) -> Iterator[str]:
    """Yield why the repeats of the finals leave the answer open, and the command that may close it."""
    goal, finals, best = tuning.goal, tuning.finals, tuning.finals.best
    slower = finals.comparison and finals.comparison.better is False
    if not best or not tuning.answer or finals.decided or slower:
        return
    work_s = Mean.of(best.works_s).value
    why, change = f"a repeat worked for {work_s:.2g} s, so chance may decide", _longer(tuning)
    if best.repeats == 1 or work_s >= MEASURED_S:
        why = "one repeat has no interval" if best.repeats == 1 else "the interval is wide"
        change = (
            f"--set tune.budget={format_walltime(2 * goal.budget_s)} --set tune.repeats={2 * goal.repeats}"
        )
    yield f"  open       {why}; for a clearer answer:"
    model = _model(tuning)
    command = (
        f"jobkit tune {shell_path(tuning.folder / SPEC_FILE)}{' --stand-in' * bool(model and model.stand_in)}"
    )
    yield NoWrap(f"{command} {change}", " " * 13)


def _longer(tuning: Tuning) -> str:
    """Return the option that gives a text on which the fastest setting works for long enough."""
    rate = max((speed.rate for speed in tuning.finals.speeds), default=0.0)
    wanted = max(tuning.goal.wanted, MEASURED_S * rate)
    sums = [(one.summary, one.point.every) for _, result in tuning.results if (one := result.record)]
    has = max((summary.items_total * every for summary, every in sums if summary), default=0)
    return longer_text(tuning.results[0][1].point.text, int(float(f"{wanted:.2g}")), has)


def _on(tuning: Tuning, speed: Speed) -> str:
    plain = tuning.finals.plain
    of_loop = f", {plain.repeats} of the plain loop" if plain and plain.repeats != speed.repeats else " each"
    return f"on {_text(speed)}, {format_count(speed.repeats, 'repeat')}{of_loop}"


def _text(speed: Speed) -> str:
    part = speed.params.get(knobs.EVERY, 1)
    return "the whole text" if part == 1 else f"one of every {part} paragraphs"


def _objective_line(tuning: Tuning, speed: Speed) -> Iterator[str]:
    """Yield the objective of a setting next to the plain loop's, unless it is the speed."""
    if (objective := tuning.goal.objective).by_speed:
        return
    unit = _unit(tuning)
    own, of_loop = (_mean(tuning, one, objective.figure) for one in (speed, tuning.finals.plain))
    words = f"{objective.name} {own.words(unit)}" if own else f"no {objective.name}"
    next_to = f", the plain loop {of_loop.words(unit)}" if of_loop else ""
    yield f"  objective  {words}{next_to}"


def _mean(tuning: Tuning, speed: Speed | None, figure: figures.Figure) -> Mean | None:
    """Return the mean of a figure of a finalist, or of the plain loop; ``None`` if it is not known."""
    return tuning.finals.setting(speed).mean(figure) if speed else None


def _unit(tuning: Tuning) -> str:
    records = tuning.finals.winner_records
    return " or ".join(figures.units_of(records, tuning.goal.objective.figure))


def _apart(tuning: Tuning, winner: Speed, second: Speed) -> str:
    """Return how much better the winner is than the next best setting, if that is more than scatter."""
    if broken := tuning.finals.broken(second):
        return broken
    apart = tuning.finals.compared(winner, second).apart
    if not apart.differs:
        return "no difference is shown"
    if isinstance(apart, Ratio):
        return f"the winner is {_times(apart)} as fast"
    return f"{tuning.goal.objective.name} differs by {figures.format_figure(abs(apart.mean), _unit(tuning))}"


def _times(times: Ratio) -> str:
    between = "" if times.low is None else f" ({times.low:.2f} to {times.high:.2f} with 95 % confidence)"
    return f"{times.mean:.2f} times{between}"


def _not_tried(tuning: Tuning) -> str:
    goal = tuning.goal
    tried = len(_settings(tuning) - {key_of(goal.loop)})
    assumed = []
    if goal.padding:
        other = min(goal.padding, key=lambda order: goal.padding[order])
        times = max(goal.padding.values()) / goal.padding[other]
        assumed.append(f"{other} order, which pads {times:.1f} times as much by the text alone, is slower")
    if goal.fills_gpu:
        assumed.append("the library's own way is slower at each of these")
    if goal.workers > 1:
        assumed.append("what is best at one number of workers is best at the other numbers")
        assumed.append("more workers past the limit are not faster")
    if goal.short:
        without = " or ".join(goal.simpler)
        and_so = f", and so is the best setting without {without}" if without else ""
        assumed.append(f"larger sizes are slower{and_so}")
    why = f", assumed: {'; '.join(assumed)}" if assumed else ""
    return f"{max(0, goal.combinations - tried)} of {goal.combinations} combinations{why}"
