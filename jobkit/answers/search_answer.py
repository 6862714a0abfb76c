"""What a search of settings found.

A search chooses the settings that it measures, and one of them is its answer. An extension with such runs has
a hook ``search`` in `jobkit.core.extensions` that reads a run folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobkit.answers.objective import Finals, Objective
from jobkit.answers.setting import Mean
from jobkit.core.blocks import Block
from jobkit.core.errors import JobkitError
from jobkit.core.extensions import extension_of, load
from jobkit.core.knobs import EVERY, MPS, ON, Value
from jobkit.core.records import Record
from jobkit.core.student import TWO_SIDED
from jobkit.core.terminal import shell_path


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    name: str  # in words
    means: Mapping[str, Mean]  # paragraphs a second, by phase, the first phase first; at least one

    @property
    def last(self) -> Mean:
        """The speed in its last phase, which has the most repeats."""
        return [*self.means.values()][-1]


@dataclass(frozen=True, kw_only=True)
class SearchAnswer:
    phases: Sequence[str]  # in order; the answer rests on the points of the last
    finals: Finals  # the points of that phase that succeeded, and the answer
    ended: bool
    title: str  # how much it measured
    setting: dict[str, Value]  # the knobs of the answer, ``auto`` as it ran; empty without one
    limit: str  # what limits the speed of the answer, and what may help; empty if that is unknown
    why: str  # what ended the search, in a sentence without a full stop; empty while it goes on
    sentence: str  # the answer, and what it is worth
    worth: Sequence[str]  # what the answer is worth, in sentences
    lines: Sequence[str]  # the worth of the answer, the next best setting, and what limits it
    table: Block  # all settings that it measured
    rows: Sequence[SearchRow]  # the settings that have a speed, the fastest first
    base: SearchRow | None  # the one that the others are compared with; ``None`` if it has no speed
    best: SearchRow | None  # the one that is the answer; ``None`` if it has no speed
    data: Mapping[str, object]  # the answer for a program

    def rank(self, phase: str | None) -> int:
        """Return which phase of the search it is, from 1; 0 for a point of another run."""
        return self.phases.index(phase) + 1 if phase in self.phases else 0

    def rests_on(self, phase: str | None) -> bool:
        return phase == self.phases[-1]

    def probability(self, phase: str | None) -> float:
        """Return the probability of the quantile that ends the intervals of a phase."""
        return self.finals.probability if self.rests_on(phase) else TWO_SIDED

    def named(self, record: Record) -> dict[str, Value]:
        """Return the setting of a record of the last phase as the answer names it: on the whole text."""
        if self.finals.winner and record.params == self.finals.winner.params:
            return self.setting
        params = {knob: value for knob, value in record.params.items() if knob != EVERY}
        return {**params, MPS: ON} if record.mps == ON and MPS in params else params

    def last_records(self, run: str) -> list[Record]:
        """Return the records of the last phase, each with its setting as the answer names it.

        Points of other phases worked on a part of the text, or ran once: no recommendation rests on them.
        """
        folder = shell_path(Path(run))
        if not self.ended:
            hint = f"jobkit status {folder} shows how far it is; jobkit resume {folder} goes on"
            raise JobkitError(f"{run}: the search has not ended, so it has no setting yet", hint=hint)
        if self.finals.winner is None:
            hint = f"what was tried: jobkit tune {folder}"
            raise JobkitError(f"{run}: the search found no setting: {self.why}", hint=hint)
        return [replace(one, point=replace(one.point, params=self.named(one))) for one in self.finals.records]

    @property
    def cautions(self) -> Sequence[str]:
        """What to beware of if the last phase worked on a part of the text, without a full stop."""
        every = max((record.point.every for record in self.finals.winner_records), default=1)
        paragraphs = f"the finals worked on one of every {every} paragraphs: "
        scaled = "time, energy and request are computed from them for the whole text"
        return (paragraphs + scaled,) if every > 1 else ()


def read_search(run: Path, objective: Objective | None = None) -> SearchAnswer | None:
    """Return what the search of a run found; ``None`` if it is none; ``objective`` replaces its own."""
    read = load(extension_of(run), "search")
    found: SearchAnswer | None = read(run, objective) if read else None
    return found
