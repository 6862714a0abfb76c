"""What a search of settings found.

A search chooses the settings that it measures, and one of them is its answer. An extension with such runs has
a hook ``search`` in `jobkit.core.extensions` that reads a run folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from jobkit.answers.objective import Objective
from jobkit.answers.setting import Mean
from jobkit.answers.speed import Speed
from jobkit.core.blocks import Block
from jobkit.core.extensions import extension_of, load
from jobkit.core.knobs import Value
from jobkit.core.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    name: str  # in words
    means: Mapping[str, Mean]  # paragraphs a second, by phase, the first phase first; at least one

    @property
    def last(self) -> Mean:
        """The speed in its last phase, which has the most repeats."""
        return [*self.means.values()][-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPanel:
    phases: Sequence[str]  # as in `SearchAnswer`
    rows: Sequence[SearchRow]  # the settings that have a speed, the fastest first
    base: SearchRow | None  # the one that the others are compared with; ``None`` if it has no speed
    answer: SearchRow | None  # the one that is the answer; ``None`` if it has no speed


class SearchAnswer(ABC):
    phases: ClassVar[Sequence[str]]  # in order; the answer rests on the points of the last

    def rank(self, phase: str | None) -> int:
        """Return which phase of the search it is, from 1; 0 for a point of another run."""
        return self.phases.index(phase) + 1 if phase in self.phases else 0

    def rests_on(self, phase: str | None) -> bool:
        return phase == self.phases[-1]

    @property
    @abstractmethod
    def objective(self) -> Objective:
        """What the answer is chosen by."""

    @property
    @abstractmethod
    def setting(self) -> dict[str, Value]:
        """The knobs of the answer, ``auto`` as it ran; empty if there is none."""

    @property
    @abstractmethod
    def winner(self) -> Speed | None:
        """The speed of the answer; ``None`` if there is none."""

    @property
    @abstractmethod
    def winner_records(self) -> tuple[Record, ...]:
        """The records of the answer; empty if there is none."""

    @property
    @abstractmethod
    def limit(self) -> str:
        """What limits the speed of the answer, and what may help; empty if that is unknown."""

    @property
    @abstractmethod
    def why(self) -> str:
        """What ended the search, in a sentence without a full stop; empty while it goes on."""

    @property
    @abstractmethod
    def title(self) -> str:
        """How much it measured."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The answer of a search that has one, and what it is worth."""

    @property
    @abstractmethod
    def table(self) -> Block:
        """All settings that it measured."""

    @property
    @abstractmethod
    def panel(self) -> SearchPanel:
        """What to draw of it."""

    @abstractmethod
    def probability(self, phase: str | None) -> float:
        """Return the probability of the quantile that ends the intervals of a phase."""

    @abstractmethod
    def last_records(self, run: str) -> list[Record]:
        """Return the records of the last phase, each with its setting as the answer names it."""

    @abstractmethod
    def named(self, record: Record) -> dict[str, Value]:
        """Return the setting of a record of the last phase as the answer names settings."""

    @abstractmethod
    def cautions(self) -> Iterator[str]:
        """Yield what to beware of in the answer, in sentences without a full stop."""

    @abstractmethod
    def worth(self) -> Iterator[str]:
        """Yield what the answer of a search that has one is worth, in sentences."""

    @abstractmethod
    def answer_lines(self) -> Iterator[str]:
        """Yield the worth of the answer, the next best setting, and what limits it, as lines."""

    @abstractmethod
    def as_data(self) -> dict[str, object]:
        """Return the answer for a program."""


def read_search(run: Path, objective: Objective | None = None) -> SearchAnswer | None:
    """Return what the search of a run found; ``None`` if it is none; ``objective`` replaces its own."""
    read = load(extension_of(run), "search")
    found: SearchAnswer | None = read(run, objective) if read else None
    return found
