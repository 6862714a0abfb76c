"""What the picture of a search shows, as data: its settings by speed, and the plain loop. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.figures import SPEED
from jobkit.core.knobs import Value
from jobkit.core.records import Record
from jobkit.core.units import format_setting
from jobkit.fit.setting import Mean, settings_of
from jobkit.fit.tune import Tuning
from jobkit.fit.tune_steps import FINAL, MEMORY, SEARCH, whole

PLAIN_LOOP = "plain loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """A setting of a search.

    Attributes
    ----------
    name
        In words.
    means
        Paragraphs a second, by phase, the first phase first; at least one.
    answer
        Whether it is the answer.
    """

    name: str
    means: Mapping[str, Mean]
    answer: bool

    @property
    def last(self) -> Mean:
        """The speed in the last of its phases, which has the most repeats."""
        return [*self.means.values()][-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPanel:
    """The settings of a search that have a speed, the fastest first; and the speed of the plain loop."""

    rows: tuple[SearchRow, ...]
    loop: Mean | None

    @property
    def answer(self) -> SearchRow | None:
        """The row of the answer; ``None`` if it has no speed."""
        return next((row for row in self.rows if row.answer), None)


def search_panel(search: Tuning) -> SearchPanel:
    """Return what to draw of a search."""
    found: dict[tuple[tuple[str, Value], ...], dict[str, Mean]] = {}
    for phase in (MEMORY, SEARCH, FINAL):
        for setting in settings_of(search.records(phase), _key):
            if mean := setting.mean(SPEED):
                found.setdefault(_key(setting.first), {})[phase] = mean
    loop = tuple(sorted(search.goal.loop.items()))
    answer = tuple(sorted(whole(search.winner.params).items())) if search.winner else ()
    knobs = _apart([dict(key) for key in found if key != loop])
    rows = [
        SearchRow(
            name=PLAIN_LOOP if key == loop else format_setting({k: v for k, v in key if k in knobs}),
            means=means,
            answer=key == answer,
        )
        for key, means in found.items()
    ]
    ordered = sorted(rows, key=lambda row: row.last.value, reverse=True)
    of_loop = next((row.last for row in rows if row.name == PLAIN_LOOP), None)
    return SearchPanel(rows=tuple(ordered), loop=of_loop)


def _key(record: Record) -> tuple[tuple[str, Value], ...]:
    """Return a setting on the whole text."""
    return tuple(sorted(whole(record.params).items()))


def _apart(settings: Sequence[Mapping[str, Value]]) -> list[str]:
    """Return the knobs that set these settings apart; all of them if none does."""
    knobs = list(dict.fromkeys(knob for setting in settings for knob in setting))
    apart = [knob for knob in knobs if len({setting.get(knob) for setting in settings}) > 1]
    return apart or knobs
