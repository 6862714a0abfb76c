"""Whether a task that begins is still worth running: asked before anything is staged.

``python -m jobkit.run.gate RUN POINT ROUND`` prints nothing, or ``pruned`` or ``stopped``, the point
or the outcome that is the reason, and a message. Tries that failed leave an empty file in the run's
``flags/``, so that a task reads those tries and no others: a thousand tasks would otherwise read a
million records. Standard library and jobkit only, for it runs on the node.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core import files, json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.job_files import BY_HAND, read_begin, read_exit
from jobkit.core.layout import (
    BEGIN_FILE,
    EXIT_FILE,
    FLAGS_FOLDER,
    POINTS_FILE,
    RECORD_FILE,
    read_point,
    try_folder,
)
from jobkit.core.measurements import Gpu
from jobkit.core.records import BATCH_SIZE, Outcome, Point, Record
from jobkit.core.units import format_count
from jobkit.run.measure import nvml

SET_UP = frozenset({Outcome.BUG, Outcome.ENVIRONMENT, Outcome.MODEL_MISSING, Outcome.NO_GPU})
"""Outcomes that a point does not have by its size: where two fail so, the others will."""
LOAD_KNOBS = frozenset({BATCH_SIZE, "sentences_per_ner_batch"})
"""Knobs that a batch's load grows with; a workload's other knobs may do anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A try of this round that did not end well.

    Attributes
    ----------
    record
        ``None`` where the job script ended it.
    message
        Of the record, else of the exit file.
    """

    point: Point
    outcome: Outcome
    message: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """What a task ends with at once, and why.

    Attributes
    ----------
    because
        The id of the point that ran out of memory, or the outcome of the points that failed.
    """

    outcome: Outcome
    because: str
    message: str


def check_still_needed(
    point: Point, failed: Sequence[Failed], card: Gpu | None, *, prune: bool, stop_after: int
) -> EarlyExit | None:
    """Return what a point ends with at once; ``None`` where it is to run.

    Parameters
    ----------
    point
        That is about to run.
    failed
        The tries of the same round that did not end well.
    card
        The card of this task, ``None`` where it is not known: then nothing is pruned.
    prune
        Whether larger loads than one that ran out of GPU memory are left out.
    stop_after
        How many points must fail the same way; 0 for never.
    """
    others = [one for one in failed if one.point.index != point.index]
    same_way: dict[tuple[Outcome, str], set[int]] = defaultdict(set)
    for one in others:
        if one.outcome in SET_UP:
            same_way[one.outcome, normalise_message(one.message)].add(one.point.index)
    for (outcome, _), indices in same_way.items():
        if 0 < stop_after <= len(indices):
            first = next(other for other in others if other.point.index in indices)
            return EarlyExit(
                Outcome.STOPPED,
                str(outcome),
                f"{format_count(len(indices), 'point')} failed the same way: {outcome}: {first.message}",
            )
    if not prune or card is None:
        return None
    smaller = (other for other in others if _ran_out(other, card) and _larger(point, other.point))
    cause = next(smaller, None)
    if cause is None:
        return None
    name = cause.point.point_id
    return EarlyExit(Outcome.PRUNED, name, f"{name} ran out of memory on {card.name}, with a smaller load")


def normalise_message(message: str) -> str:
    """Return what is alike in two messages of one fault: no numbers, no addresses, no cards."""
    return re.sub(r"0x[0-9a-f]+|(GPU|MIG)-[0-9a-f-]+|\d+", "#", message)


def _ran_out(one: Failed, card: Gpu) -> bool:
    """Tell whether a try ran out of this kind of card's memory, with nobody else on it."""
    if one.outcome is not Outcome.GPU_OOM or one.record is None or one.record.gpu is None:
        return False
    seen = one.record.gpu
    return (seen.name, seen.total_bytes) == (card.name, card.total_bytes) and not seen.foreign_processes


def _larger(point: Point, than: Point) -> bool:
    """Tell whether a point's load is surely larger: no knob smaller, and those of no load alike."""
    if point.cap_bytes != than.cap_bytes or point.params.keys() != than.params.keys():
        return False
    pairs = [(name, value, than.params[name]) for name, value in point.params.items()]
    alike = all(mine == theirs for name, mine, theirs in pairs if name not in LOAD_KNOBS)
    grown = [mine - theirs for name, mine, theirs in pairs if name in LOAD_KNOBS]
    return alike and min(grown, default=0) >= 0 and max(grown, default=0) > 0


def flagged(run: Path, round_: int) -> Iterator[Failed]:
    """Yield the tries of a round that left a flag; one that cannot be read is left out."""
    for name in sorted(os.listdir(run / FLAGS_FOLDER)):  # noqa: PTH208 - names only
        index, _, number = name.partition("-")
        if index.isdecimal() and number.isdecimal():
            try:
                found = _read(run, int(index), int(number), round_)
            except (JobkitError, OSError):
                continue
            if found:
                yield found


def _read(run: Path, index: int, number: int, round_: int) -> Failed | None:
    point = read_point(run / POINTS_FILE, index)
    home = Path(try_folder(run, point.point_id, number))
    begin = read_begin(home / BEGIN_FILE)
    if begin.round != round_ or begin.scheduler == BY_HAND:
        return None
    path = home / RECORD_FILE
    if path.is_file():
        record = json_codec.from_json(Record, files.read_text(path), where=str(path))
        return Failed(point=point, outcome=record.outcome, message=record.message, record=record)
    exit_ = read_exit(home / EXIT_FILE)
    outcome = exit_.outcome or (Outcome.BUG if exit_.stage == "run" and not exit_.signal else Outcome.LOST)
    message = exit_.message or f"status {exit_.status} in step {exit_.stage}"
    return Failed(point=point, outcome=outcome, message=message, record=None)


def _card(point: Point) -> Gpu | None:
    uuid = nvml.visible_uuid(None) if point.device == "cuda" else None
    return nvml.describe(uuid, os.getpid()) if uuid else None


def main() -> int:
    """Print what a point ends with at once, or nothing."""
    parser = argparse.ArgumentParser(prog="python -m jobkit.run.gate", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("point", type=int)
    parser.add_argument("round", type=int)
    parser.add_argument("--prune", action="store_true", help="leave larger loads out")
    parser.add_argument("--stop-after", type=int, default=0, help="points that fail the same way")
    asked = parser.parse_args()
    point = read_point(asked.run / POINTS_FILE, asked.point)
    failed = list(flagged(asked.run, asked.round))
    prune = asked.prune and any(one.outcome is Outcome.GPU_OOM for one in failed)
    told = check_still_needed(
        point, failed, _card(point) if prune else None, prune=asked.prune, stop_after=asked.stop_after
    )
    if told:
        sys.stdout.write(f"{told.outcome} {told.because} {' '.join(told.message.split())[:400]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
