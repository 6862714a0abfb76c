"""Which settings the objective and the constraints of a spec allow, and which of them is the best. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jobkit.answers import speed
from jobkit.answers.objective import Objective
from jobkit.answers.setting import Mean, Setting, setting_with, settings_of
from jobkit.answers.speed import Speed
from jobkit.core.errors import JobkitError
from jobkit.core.figures import MAX, MIN, SPEED, WORK, choosable, format_figure, reported, units_of
from jobkit.core.records import Record
from jobkit.core.terminal import did_you_mean, printable
from jobkit.core.units import format_count, format_list

MOST_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return next(own for own in self.settings if own.setting == setting.setting)

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
    if objective.by_speed and not run_as_one.values(SPEED):  # the workload reports no items
        objective = replace(objective, metric=WORK.key, direction=MIN)
    figure, well = objective.figure, run_as_one.well
    values = run_as_one.values(figure)
    if not values:
        raise _missing(run, objective, well)
    units = units_of(well, figure)
    if len(units) > 1:
        raise JobkitError(
            f"{run}: {objective.name} has several units, which cannot be compared: {', '.join(units)}",
            hint="the workload must report it in one unit",
        )
    measured = settings_of(well)
    judged = [(one.setting, setting_with(measured, one.params)) for one in settings]
    return Judgement(
        objective=objective,
        unit=units[0],
        settings=tuple(
            Judged(setting=words, values=one.values(figure), broken=objective.broken(one))
            for words, one in judged
        ),
        points=len(well),
        missing=len(well) - len(values),
    )


def _missing(run: str, objective: Objective, well: Sequence[Record]) -> JobkitError:
    names = list(dict.fromkeys(name for record in well for name in reported(record)))
    if objective.metric in choosable():
        return JobkitError(
            f"{run}: no point has measured {objective.metric}, by which objective chooses",
            hint=f"choose by another figure: {', '.join([*choosable(), *map(printable, names)])}",
        )
    known = did_you_mean(objective.metric, names) or f"reported are {format_list(names, MOST_LISTED)}"
    return JobkitError(
        f"{run}: no point reports the metric {objective.metric!r}, by which objective chooses",
        hint=printable(known) if names else "jobkit help workloads: how a workload reports its own figures",
    )


def refuse_none(run: str, judgement: Judgement, settings: Sequence[Speed]) -> None:
    """Raise an error if none of some settings may be recommended."""
    if judgement.allowed(settings):
        return
    judged = [judgement.of(setting) for setting in settings]
    lines = [f"  {own.setting}: {own.broken or f'{judgement.objective.name} is not known'}" for own in judged]
    more = [f"  and {len(lines) - MOST_LISTED:,} more"] if len(lines) > MOST_LISTED else []
    raise JobkitError(
        "\n".join([f"{run}: no setting keeps the constraints", *lines[:MOST_LISTED], *more]),
        hint="a wider bound: --set constraints.NAME.min=NUMBER, or .max",
    )


def taken_line(judgement: Judgement, settings: Sequence[Speed], chosen: Speed) -> str:
    """Return the metric of the recommended setting, and why it is the one to take, without a full stop."""
    extreme = "highest" if judgement.objective.direction == MAX else "lowest"
    best = max(map(judgement.rank, judgement.allowed(settings)))
    safe = " that is safe" if judgement.rank(chosen) < best else ""
    words = judgement.of(chosen).mean.words(judgement.unit)
    return f"{judgement.objective.name} {words}, the {extreme} mean{safe}"


def compared_lines(judgement: Judgement, settings: Sequence[Speed], chosen: Speed) -> Iterator[str]:
    """Yield how other settings that are allowed compare with the recommended one, without full stops."""
    name, unit, rank = judgement.objective.name, judgement.unit, judgement.rank(chosen)
    rest = [setting for setting in judgement.allowed(settings) if setting is not chosen]
    if same := [setting for setting in rest if judgement.rank(setting) == rank]:
        have = f"{format_count(len(same), 'other setting')} {'has' if len(same) == 1 else 'have'}"
        yield f"{have} the same {name}: speed decides"
    best = judgement.of(chosen).mean
    if behind := [setting for setting in rest if judgement.rank(setting) < rank]:
        other = max(behind, key=judgement.rank)
        mean, highest = judgement.of(other).mean, judgement.objective.direction == MAX
        apart = best.minus(mean) if highest else mean.minus(best)
        by = f"{format_figure(apart.mean, unit)} {'lower' if highest else 'higher'}"
        shown = "; single repeats cannot show whether the difference is more than scatter"
        if apart.low is not None and apart.high is not None:
            ends = f"{format_figure(apart.low, unit)} to {format_figure(apart.high, unit)}"
            shown = f" ({ends} with 95 % confidence){'' if apart.differs else ': no difference is shown'}"
        yield f"Next: {other.setting}, {mean.words(unit)}: {by}{shown}"
    alike = [one for one in behind if best.minus(judgement.of(one).mean).differs is False]
    quick = max(alike, key=lambda setting: setting.rate, default=None)
    if quick and chosen.rate and quick.rate > chosen.rate:
        times = f"{quick.rate / chosen.rate:.2f} times as fast"
        yield f"{quick.setting} is {times}, and no difference in {name} is shown"


def left_out_lines(judgement: Judgement) -> Iterator[str]:
    """Yield which settings are not taken and why, and how many points have no metric, without full stops."""
    for own in judgement.settings:
        if own.broken:
            yield f"Not taken: {own.setting}, because {own.broken}"
    if judgement.missing:
        points = f"{judgement.missing} of {format_count(judgement.points, 'point')}"
        yield f"{judgement.objective.name} has no value in {points}: left out of its means"
