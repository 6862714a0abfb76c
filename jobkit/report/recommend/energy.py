"""What the recommended setting and a corpus take of energy, as data and in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobkit.answers.setting import Mean, Setting, settings_of
from jobkit.answers.speed import CorpusVolume, Speed
from jobkit.core.figures import ENERGY, ENERGY_PER_1000, NET_PER_1000
from jobkit.core.knobs import Value
from jobkit.core.measurements import Attribution
from jobkit.core.records import Outcome, Record
from jobkit.core.student import half_width, unknown_spread
from jobkit.core.units import format_energy, format_setting

EVEN = 0.005
"""A share that would be printed as 0 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    counted: bool  # whether each repeat has the energy counter
    repeats: int  # how many there are

    def of(self, items: int, characters: int | None) -> float:
        """Return the energy of a text, by its characters if they are known."""
        if characters is not None and self.per_character_j is not None:
            return characters * self.per_character_j
        return items * self.per_1000_j / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyAnswer:
    """The energy of the GPUs over the work."""

    recommended: EnergyUse | None  # of the recommended setting; ``None`` if it is not attributable
    least: EnergyUse | None  # of the setting that takes the least for an item
    corpus_j: float | None  # for the corpus, with the recommended setting
    attribution: Attribution  # `attribution`, `reason`: the worst of all points that succeeded
    reason: str


def uses(records: Iterable[Record]) -> tuple[EnergyUse, ...]:
    """Return the energy of each setting, from the records of points that succeeded."""
    known = (record for record in records if record.value(ENERGY_PER_1000) is not None)
    return tuple(map(_use, settings_of(known)))


def _use(setting: Setting[Record]) -> EnergyUse:
    each, net = Mean.of(setting.values(ENERGY_PER_1000)), setting.mean(NET_PER_1000)
    letters = [
        joules / record.summary.characters
        for record in setting.well
        if (joules := record.value(ENERGY)) is not None and record.summary and record.summary.characters
    ]
    return EnergyUse(
        params=dict(sorted(setting.params.items())),
        per_1000_j=each.value,
        per_1000_j_sd=each.sd,
        net_per_1000_j=net.value if net and net.n == each.n else None,
        per_character_j=Mean.of(letters).value if len(letters) == each.n else None,
        counted=all(record.energy and record.energy.counter_j is not None for record in setting.well),
        repeats=each.n,
    )


def energy_answer(records: Sequence[Record], chosen: Speed, corpus: CorpusVolume) -> EnergyAnswer | None:
    """Return the energy of a setting and of a corpus; ``None`` if no point has measured any."""
    well = [record for record in records if record.outcome is Outcome.OK]
    whose = [(record.energy.attribution, record.energy.reason) for record in well if record.energy]
    if not whose:
        return None
    settings = uses(well)
    own = next((use for use in settings if use.params == chosen.params), None)
    order = list(Attribution)
    attribution, reason = max(whose, key=lambda found: order.index(found[0]))
    return EnergyAnswer(
        recommended=own,
        least=min(settings, key=lambda use: use.per_1000_j, default=None),
        corpus_j=own.of(corpus.paragraphs, corpus.characters) if own else None,
        attribution=attribution,
        reason=reason,
    )


def energy_lines(answer: EnergyAnswer, settings: Sequence[Speed], corpus: str) -> Iterator[str]:
    """Yield the sentences.

    ``settings``: the speeds of all settings.
    ``corpus``: in words.
    """
    own, least = answer.recommended, answer.least
    if own is None or answer.corpus_j is None:
        yield "Energy: not known for the recommended setting."
    else:
        half = half_width(own.per_1000_j_sd, own.repeats)
        unknown = half is not None and unknown_spread(own.per_1000_j, half)
        interval = " (spread unknown)" if unknown else "" if half is None else f" ± {format_energy(half)}"
        net = "" if own.net_per_1000_j is None else f", {format_energy(own.net_per_1000_j)} of it above idle"
        source = f"by the {'energy counter' if own.counted else 'sampled power'} (n={own.repeats}){net}"
        each = f"{format_energy(own.per_1000_j)}{interval} for 1,000 paragraphs {source}"
        yield f"Energy for {corpus}, with {format_setting(own.params)}: {format_energy(answer.corpus_j)}."
        yield f"  It is {each}. Loading, the CPU and the rest of the machine are not in it."
    if own and least and least is not own:
        rates = {format_setting(setting.params): setting.rate for setting in settings}
        faster = rates[format_setting(least.params)] / rates[format_setting(own.params)] - 1
        rate = f"{100 * abs(faster):.0f} % {'slower' if faster < 0 else 'faster'}"
        less = f"{100 * (1 - least.per_1000_j / own.per_1000_j):.0f} % less"
        each = f"{format_energy(least.per_1000_j)} for 1,000 paragraphs, {less}"
        rate = rate if abs(faster) >= EVEN else "as fast"
        yield f"  Least energy: {format_setting(least.params)}, {each}; it is {rate}."
    if answer.attribution is Attribution.NOT_ATTRIBUTABLE:
        yield f"  Points whose energy is not attributable are left out: {answer.reason}."
    elif answer.attribution is Attribution.UNKNOWN:
        yield f"  The energy may be of other processes too: {answer.reason}."
