"""Trials of predicted batch sizes or budgets, and the files that hold them. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from jobkit.core.files import read_tolerantly
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import from_dict, parse_json
from jobkit.core.knobs import BATCH_SIZE, PADDED, renamed
from jobkit.core.layout import SEARCH_GOAL_FILE, TRIALS_FILE, read_points
from jobkit.core.records import Outcome
from jobkit.core.units import format_memory
from jobkit.runs import search_loop

ALLOCATOR = "of the allocator, the CUDA context on top"
PROCESS = "of the process"
_SHOWN = {
    r"of the allocator(.*), the CUDA (contexts?) on top": r"of allocator memory\1 (plus the CUDA \2)",
    r"of the process": "of process memory",
    r"of the (\d+) workers together": r"of process memory of the \1 workers together",
}  # how `Trial.memory`, which every version writes in the words above, is printed
MOST_TRIALS = 3


@keyed
class SearchGoal:
    """What the search is to find: ``find_max.json``."""

    # for torch's allocator, on a CPU for the process; ``None`` for all of the GPU, or ``ram_bytes``
    memory_bytes: int | None
    ram_bytes: int  # what the job requests from the scheduler
    after: int = 0  # how many trials there were at the start: these are not counted again


@keyed
class Trial:
    """A prediction and its result: a line of ``trials.jsonl``. The last line for an index counts."""

    index: int = 0  # of its point; 0 if nothing could be tried
    # what was tried: the knob that does not cap the batches is 0
    batch_size: int = 0
    padded: int = 0
    load: int = 0
    capacity_bytes: float = 0.0  # limit of the allocator on a GPU, of the process on a CPU
    expected_bytes: float = 0.0  # by the line, before it ran
    bound_bytes: float = 0.0  # by the bound, before it ran
    outcome: Outcome | None = None  # ``None`` while it runs, or if nothing could be tried
    measured_bytes: int | None = None  # what it needed
    memory: str = ""  # which memory the figures are of: what `memory_of` returns
    message: str = ""  # why nothing (more) could be tried; of a trial that never began, how to run it
    killed: bool = False  # for an unknown reason, most likely its memory, and without a record
    proved: bool = False  # whether it was not run because the run had measured that batch already
    condition: str = ""  # `jobkit.runs.conditions.memory_condition`; empty in earlier versions

    @property
    def knob(self) -> str:
        return PADDED if self.padded else BATCH_SIZE

    @property
    def size(self) -> int:
        return self.padded or self.batch_size

    @property
    def setting(self) -> str:
        return f"{self.knob} {self.size:,}"

    @property
    def under_way(self) -> bool:
        """Whether it has begun and is not known to have ended."""
        return bool(self.index) and self.outcome is None

    @property
    def error(self) -> float | None:
        """(expected - measured) / measured; ``None`` if nothing was measured."""
        return self.expected_bytes / self.measured_bytes - 1 if self.measured_bytes else None

    @property
    def too_large(self) -> bool:
        """Whether it ran out of memory, was killed for it, or needed more than the capacity."""
        over = self.measured_bytes is not None and self.measured_bytes > self.capacity_bytes
        return over or self.killed or self.outcome in {Outcome.GPU_OOM, Outcome.RAM_OOM}

    @property
    def held(self) -> bool:
        """Whether it ran, and is known to have stayed within the capacity."""
        return (
            self.outcome is Outcome.OK
            and self.measured_bytes is not None
            and self.measured_bytes <= self.capacity_bytes
        )


def memory_of(ram: bool, workers: int) -> str:  # noqa: FBT001 - one of two kinds
    """Return in words which memory the figures of a trial are of."""
    allocators = "of the allocator of each of {} workers, the CUDA contexts on top"
    if workers > 1:
        return ("of the {} workers together" if ram else allocators).format(workers)
    return PROCESS if ram else ALLOCATOR


def trials(run_dir: Path) -> list[Trial]:
    """Return the trials of a run, in order.

    A trial is written before its point. If the point is missing, the process was killed between the two: the
    trial never began, and does not count.
    """
    lines, _ = read_tolerantly(
        run_dir / TRIALS_FILE,
        lambda line, where: from_dict(Trial, renamed(parse_json(line, where)), where=where),
    )
    # A message belongs to no point, and each counts by itself: `SearchGoal.after` counts them.
    latest = list({trial.index or -number: trial for number, trial in enumerate(lines, 1)}.values())
    if not any(trial.under_way for trial in latest):
        return latest
    points, _ = read_points(run_dir)
    begun = {point.index for point in points}
    return [trial for trial in latest if not trial.under_way or trial.index in begun]


def added_id(name: str, suffix: str, taken: Container[str]) -> str:
    """Return an id for an added point, such as ``batch_size-100-verify-2`` for the suffix ``-verify``.

    Ids that are ``taken`` are avoided: two points of one id would share their results.
    """
    ids = (f"{name}{suffix}{f'-{number}' if number > 1 else ''}" for number in count(1))
    return next(id_ for id_ in ids if id_ not in taken)


def settled_trials(
    tried: Sequence[Trial], outcomes: Mapping[int, Outcome | None], idle: Mapping[int, str] | None = None
) -> list[Trial]:
    """Return the trials, those under way with the outcomes of their points, by the point's index.

    ``idle`` says, by the point's index, how to run trials that never began and that nothing will begin.
    """
    idle = idle or {}
    return [
        replace(trial, outcome=outcomes.get(trial.index), message=idle.get(trial.index, ""))
        if trial.under_way
        else trial
        for trial in tried
    ]


def describe_trials(tried: Sequence[Trial]) -> tuple[str, ...]:
    """Return a sentence for each trial, each once, without a full stop."""
    return tuple(dict.fromkeys(map(_describe, tried)))


def _describe(trial: Trial) -> str:
    if not trial.index:
        return f"the largest batch was not tested: {trial.message}"
    batch, memory = trial.setting, trial.memory
    for pattern, shown in _SHOWN.items():
        memory = re.sub(pattern, shown, memory)
    limit = f"{format_memory(trial.capacity_bytes)} {memory}"
    if trial.outcome is None:
        never = f"{batch}, to be tested for {limit}, never began: {trial.message}"
        return never if trial.message else f"{batch} is being tested for {limit}"
    tested = f"{batch} was tested for {limit}"
    if trial.killed:
        return f"{tested}, and was killed, most likely for its memory"
    if trial.outcome is Outcome.OK and trial.measured_bytes is None:
        return f"{tested} and ended as ok, but its memory was not measured"
    if trial.measured_bytes is None or trial.error is None:
        return f"{tested} and ended as {trial.outcome}"
    fits = "fits" if trial.held else "does not fit"
    needed = f"needed {format_memory(trial.measured_bytes)}, predicted {format_memory(trial.expected_bytes)}"
    most = format_memory(trial.bound_bytes)
    above = trial.measured_bytes > trial.bound_bytes > 0 and format_memory(trial.measured_bytes) != most
    bound = f", above the bound of {most} (95 %)" * above
    return f"{batch} {fits} in {limit}: {needed} ({100 * trial.error:+.1f} %){bound}{trial.condition}"


def finished(run_dir: Path) -> bool:
    """Return whether a run's search has ended, so that no trial will follow; false without one."""
    if not (run_dir / SEARCH_GOAL_FILE).is_file():
        return False
    done = trials(run_dir)[read_goal(run_dir).after :]
    return bool(done) and not done[-1].under_way and not goes_on(done)


def read_goal(run_dir: Path) -> SearchGoal:
    return search_loop.read_goal(SearchGoal, run_dir / SEARCH_GOAL_FILE, "jobkit verify RUN writes it")


def goes_on(done: Sequence[Trial]) -> bool:
    """Return whether to try a smaller batch: the last trial ran out of memory, or took too much."""
    last = done[-1]
    silent = last.outcome is Outcome.OK and last.measured_bytes is None
    # Outcomes that show whether a prediction was right; a bug or a full scratch does not
    conclusive = frozenset({Outcome.OK, Outcome.GPU_OOM, Outcome.RAM_OOM})
    return (
        len(done) < MOST_TRIALS and not (last.held or silent) and (last.killed or last.outcome in conclusive)
    )
