"""Decide, before anything is staged, whether a task is still worth running.

``python -m jobkit.worker.skip_check RUN POINT ROUND`` prints nothing, or ``pruned`` or ``stopped``, the point
or the outcome that is the reason, and a message. A try that failed leaves an empty file in the run's
``flags/``, so that a task reads only those tries and the other repeats of its setting: otherwise a thousand
tasks would read a million records. The node imports this: standard library and jobkit only.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from jobkit.core import files, json_codec, layout
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.knobs import WORKERS
from jobkit.core.layout import BY_HAND, POINTS_FILE, Exit, read_begin, read_exit, read_point
from jobkit.core.measurements import Gpu
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.student import deviation, half_width
from jobkit.core.units import format_count
from jobkit.worker.measure import nvml

SETUP_OUTCOMES = frozenset({Outcome.BUG, Outcome.ENVIRONMENT, Outcome.MODEL_MISSING, Outcome.NO_GPU})
"""Outcomes that do not depend on a point's size: if two points fail so, the others will too."""


@keyed
class FailedTry:
    point: Point
    outcome: Outcome
    message: str  # from the record, else from the exit file
    record: Record | None  # ``None`` if the job script ended the try


EarlyExit = tuple[Outcome, str, str]
"""The outcome; the id of the point that ran out of memory or was measured, or the outcome of the points that
failed; and a message."""


def check_still_needed(
    point: Point, failed: Sequence[FailedTry], gpu: Gpu | None, *, prune: bool, stop_after: int
) -> EarlyExit | None:
    """Return the early exit of a point by the failed tries of its round; ``None`` if it is to run.

    On an unknown GPU nothing is pruned. ``stop_after``: the number of points that must fail in one way; 0 for
    never.
    """
    others = [other for other in failed if other.point.index != point.index]
    same_way: dict[tuple[Outcome, str], dict[int, str]] = defaultdict(dict)
    for other in others:
        if other.outcome in SETUP_OUTCOMES:
            # Without numbers, addresses and GPU UUIDs the messages of one fault are equal.
            alike = re.sub(r"0x[0-9a-f]+|(GPU|MIG)-[0-9a-f-]+|\d+", "#", other.message)
            same_way[other.outcome, alike].setdefault(other.point.index, other.message)
    for (outcome, _), messages in same_way.items():
        if 0 < stop_after <= len(messages):
            number, [first, *_] = format_count(len(messages), "point"), messages.values()
            return Outcome.STOPPED, str(outcome), f"{number} failed the same way: {outcome}: {first}"
    for other in others if prune and gpu else ():
        used = other.record.gpu if other.record and other.outcome is Outcome.GPU_OOM else None
        alone = used and not used.foreign_processes
        if gpu and used and alone and _kind(used) == _kind(gpu) and _needs_more(point, other.point):
            name = other.point.point_id
            return Outcome.PRUNED, name, f"{name} ran out of memory on {gpu.name}, with a smaller load"
    return None


def _kind(gpu: Gpu) -> tuple[str, int | None]:
    return gpu.name, gpu.total_bytes


def check_repeats(repeats: Iterable[Record], share: float, least: int) -> EarlyExit | None:
    """Return the early exit of a repeat of a setting whose speed is known well enough, else ``None``.

    ``repeats``: records of other repeats that succeeded. Only those on one kind of GPU, or on one host if
    they used a CPU, are compared: a table has no mean over others.
    ``share``: half the 95 % interval of the mean speed, as a share of the mean.
    ``least``: repeats that run in any case.
    """
    alike: dict[object, list[Record]] = defaultdict(list)
    for record in repeats:
        alike[_kind(record.gpu) if record.gpu else record.host].append(record)
    for records in alike.values():
        rates = [record.summary.items_per_s or 0.0 for record in records if record.summary]
        half, mean = half_width(deviation(rates), len(rates)), fmean(rates or (0.0,))
        if len(rates) >= least and half is not None and half < share * mean:
            interval = f"half the 95 % interval of {len(rates)} repeats"
            message = f"{interval} is {100 * half / mean:.1f} % of their mean, under {100 * share:g} %"
            return Outcome.PRUNED, records[-1].point.point_id, message
    return None


def other_repeats(run: Path, point: Point, most: int) -> Iterator[Record]:
    """Yield the record of each other repeat of a point's setting that succeeded under a scheduler.

    Nothing is yielded for a point that is no repeat, such as a trial, and for a point that was skipped
    before: only a person submits it again.
    """
    if not point.point_id.endswith(f"r{point.repeat}"):
        return
    for home in _tries(run, point.point_id):
        with contextlib.suppress(JobkitError, OSError):
            if read_exit(home / layout.EXIT_FILE).outcome is Outcome.PRUNED:
                return
    for repeat in range(1, most + 1):
        for home in _tries(run, layout.repeat_id(point.point_id, repeat)) if repeat != point.repeat else ():
            with contextlib.suppress(JobkitError, OSError):
                record = _record(home)
                if record.outcome is Outcome.OK and read_begin(home / layout.BEGIN_FILE).scheduler != BY_HAND:
                    yield record
                    break


def _tries(run: Path, point_id: str) -> list[Path]:
    numbers = layout.try_numbers(layout.point_folder(run, point_id))
    return [Path(layout.try_folder(run, point_id, number)) for number in numbers]


def _record(home: Path) -> Record:
    path = home / layout.RECORD_FILE
    return json_codec.from_json(Record, files.read_text(path), where=str(path))


def _needs_more(point: Point, than: Point) -> bool:
    """Return whether a point surely needs more: no load knob smaller, no fewer workers, the rest equal."""
    if (
        point.kind.extension != than.kind.extension
        or point.cap_bytes != than.cap_bytes
        or point.params.keys() != than.params.keys()
    ):
        return False
    names = {WORKERS, *point.load_knobs} & point.numbers.keys()
    alike = all(point.params[name] == than.params[name] for name in point.params.keys() - names)
    grown = [point.numbers[name] - than.numbers[name] for name in names]
    return alike and min(grown, default=0) >= 0 and max(grown, default=0) > 0


def failed_tries(run: Path, round_: int) -> Iterator[FailedTry]:
    """Yield the tries of a round that left a flag, without those that cannot be read."""
    for name in sorted(layout.names(run / layout.FLAGS_FOLDER)):
        index, _, number = name.partition("-")
        if not (index.isdecimal() and number.isdecimal()):
            continue
        with contextlib.suppress(JobkitError, OSError):
            point = read_point(run / POINTS_FILE, int(index))
            home = Path(layout.try_folder(run, point.point_id, int(number)))
            begin = read_begin(home / layout.BEGIN_FILE)
            if begin.round != round_ or begin.scheduler == BY_HAND:
                continue
            record = _record(home) if (home / layout.RECORD_FILE).is_file() else None
            ended = record or read_exit(home / layout.EXIT_FILE)
            outcome, message = ended.outcome, ended.message
            if isinstance(ended, Exit):
                failed = ended.stage == "run" and not ended.signal
                outcome = outcome or (Outcome.BUG if failed else Outcome.LOST)
                message = message or f"status {ended.status} in step {ended.stage}"
            yield FailedTry(point=point, outcome=outcome or Outcome.LOST, message=message, record=record)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jobkit.worker.skip_check", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("point", type=int)
    parser.add_argument("round", type=int)
    parser.add_argument("--prune", action="store_true", help="skip loads larger than a failed one")
    parser.add_argument("--stop-after", type=int, default=0, help="number of points that fail the same way")
    parser.add_argument("--share", type=float, help="half the interval of a mean that is known well enough")
    parser.add_argument("--repeats", type=int, nargs=2, default=(0, 0), help="the least, and the most")
    arguments = parser.parse_args()
    point = read_point(arguments.run / POINTS_FILE, arguments.point)
    failed = list(failed_tries(arguments.run, arguments.round))
    # NVML is opened only if it can matter.
    prune = arguments.prune and any(other.outcome is Outcome.GPU_OOM for other in failed)
    uuid = nvml.visible_uuid(None) if prune and point.device == "cuda" else None
    gpu = nvml.read_gpu(uuid) if uuid else None
    early = check_still_needed(point, failed, gpu, prune=prune, stop_after=arguments.stop_after)
    if not early and arguments.share:
        least, most = arguments.repeats
        early = check_repeats(other_repeats(arguments.run, point, most), arguments.share, least)
    if early:
        outcome, because, message = early
        sys.stdout.write(f"{outcome} {because} {' '.join(message.split())[:400]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
