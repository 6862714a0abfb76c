"""Find the largest batch by running it: predict, try, step down where it failed.

Runs in the job that follows a sweep (``python -m jobkit.find RUN`` prints the number of the next
point to run, or nothing), and after a local sweep. What it is to do lies in ``find_max.json`` and
what came of it in ``trials.jsonl``, both in the run folder. No package beyond jobkit's own and the
standard library is imported, for the node may have no more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobkit import ledger
from jobkit.errors import JobkitError
from jobkit.evidence import RAM, Evidence, gather, ram_peak
from jobkit.loads import Loads
from jobkit.predict import Prediction, predict
from jobkit.records import (
    POINTS_FILE,
    Outcome,
    Point,
    Record,
    append_line,
    from_json,
    read_text,
    to_json,
)
from jobkit.run import gpu
from jobkit.run_folder import PointResult, read_run
from jobkit.run_loads import KNOB, agreeing, loads_of, read_lengths
from jobkit.trials import ALLOCATOR, PROCESS, TRIALS_FILE, WANTED_FILE, Trial, Wanted, said, trials

SUFFIX = "-verify"
"""Ends the id of a point that tries a prediction."""
MOST_TRIALS = 3
STEP_DOWN = 0.95
"""A trial after one that failed takes at most this share of its load."""


def next_trial(run_dir: Path) -> Point | None:
    """Settle the last trial, and return the next point to run; ``None`` where all is done.

    The point is appended to ``points.jsonl``.

    Raises
    ------
    JobkitError
        Where the run folder holds no ``find_max.json``.
    """
    wanted = from_json(Wanted, read_text(run_dir / WANTED_FILE), where=str(run_dir / WANTED_FILE))
    results = read_run(run_dir).points
    done = _settled(run_dir, wanted, results)[wanted.after :]
    if done and (done[-1].held or len(done) >= MOST_TRIALS or not _may_step_down(done[-1])):
        return None
    trial, point = _plan(run_dir, wanted, results, done)
    append_line(run_dir / TRIALS_FILE, to_json(trial))
    if point is not None:
        append_line(run_dir / POINTS_FILE, to_json(point))
    return point


def _may_step_down(last: Trial) -> bool:
    """Tell whether a smaller batch makes sense: the last one ran out of memory, or took too much."""
    return last.outcome in {Outcome.GPU_OOM, Outcome.RAM_OOM, Outcome.OK}


def _settled(run_dir: Path, wanted: Wanted, results: Sequence[PointResult]) -> list[Trial]:
    """Return the trials, those that have come home since with their outcome."""
    by_index = {one.point.index: one for one in results}
    found = []
    for trial in trials(run_dir):
        result = by_index.get(trial.index)
        if trial.outcome is None and result and result.verdict.outcome is not None:
            record = result.chosen.record if result.chosen else None
            settled = replace(trial, outcome=result.verdict.outcome, measured_bytes=_measured(record))
            append_line(run_dir / TRIALS_FILE, to_json(settled))
            if record:
                ledger.note(Path(wanted.ledger), _entry(settled, record))
            found.append(settled)
        else:
            found.append(trial)
    return found


def _measured(record: Record | None) -> int | None:
    if record is None or record.outcome is not Outcome.OK:
        return None
    if record.point.device == "cpu":
        return ram_peak(record)
    return record.needs[0].passed_bytes if record.needs else record.memory.reserved_peak_bytes


def _plan(
    run_dir: Path, wanted: Wanted, results: Sequence[PointResult], done: Sequence[Trial]
) -> tuple[Trial, Point | None]:
    """Return the next trial and its point, or why there is none."""
    points = [one.point for one in results]
    evidence = gather([one.chosen.record for one in results if one.chosen and one.chosen.record])
    why = evidence if isinstance(evidence, str) else _not_one_knob(points) or _another_card(evidence)
    if isinstance(evidence, str) or why:
        return Trial(message=why), None
    loads = agreeing(loads_of(read_lengths(run_dir), points), evidence.load_by_batch)
    capacity = _capacity(wanted, evidence)
    prediction = predict(evidence, capacity, loads)
    batch = _batch(prediction, loads, done)
    if isinstance(evidence.fit, str) or not batch:
        return Trial(capacity_bytes=capacity, message=prediction.reason or "not even a batch of 1 fits"), None
    load = loads.load(batch) if loads else round(prediction.safe_load)
    trial = Trial(
        index=len(points) + 1,
        batch_size=batch,
        load=load,
        capacity_bytes=capacity,
        expected_bytes=evidence.fit.at(load),
        bound_bytes=evidence.fit.upper(load),
        memory=PROCESS if evidence.kind == RAM else ALLOCATOR,
    )
    return trial, _point(points, trial, wanted)


def _not_one_knob(points: Sequence[Point]) -> str:
    """Return why the points cannot be extended; empty where only the batch size varies."""
    fixed = {tuple(sorted((k, v) for k, v in one.params.items() if k != KNOB)) for one in points}
    if any(KNOB not in one.params for one in points) or len(fixed) > 1:
        return f"find_max needs a sweep of {KNOB} in which no other knob varies"
    return ""


def _another_card(evidence: Evidence) -> str:
    """Return why this card will not do: the points ran on another kind. Empty also where NVML is dumb."""
    uuid = gpu.visible_uuid(None) if evidence.gpu else None
    here = gpu.describe(uuid, os.getpid()) if uuid else None
    if here is None or here.name == evidence.gpu:
        return ""
    return (
        f"the points ran on {evidence.gpu}, and this job was given {here.name}: name it in resources.gpu_type"
    )


def _capacity(wanted: Wanted, evidence: Evidence) -> float:
    if wanted.memory_bytes is not None:
        return wanted.memory_bytes
    if evidence.kind == RAM or evidence.card_bytes is None:
        return wanted.ram_bytes
    return evidence.allocator_bytes(evidence.card_bytes)


def _batch(prediction: Prediction, loads: Loads | None, done: Sequence[Trial]) -> int:
    """Return the batch size to try: the safe one, or where one failed well below that."""
    failed = [one for one in done if not one.held]
    if not failed:
        return prediction.safe_batch
    if loads is None:
        return min(prediction.safe_batch, int(STEP_DOWN * min(one.batch_size for one in failed)))
    return loads.largest_batch(min(prediction.safe_load, STEP_DOWN * min(one.load for one in failed)))


def _point(points: Sequence[Point], trial: Trial, wanted: Wanted) -> Point:
    first = points[0]
    return replace(
        first,
        index=trial.index,
        point_id=f"{KNOB}-{trial.batch_size}{SUFFIX}",
        params={**first.params, KNOB: trial.batch_size},
        repeat=1,
        cap_bytes=wanted.memory_bytes if first.device == "cuda" else None,
    )


def _entry(trial: Trial, record: Record) -> ledger.Entry:
    point = record.point
    return ledger.Entry(
        at=record.ended_at,
        run_id=point.run_id,
        index=trial.index,
        workload=point.workload,
        model=point.model.fingerprint if point.model else None,
        gpu=record.gpu.name if record.gpu else None,
        torch=record.versions.get("torch"),
        cuda=record.versions.get("cuda"),
        allocator=point.allocator,
        order=point.order,
        batch_size=trial.batch_size,
        load=trial.load,
        capacity_bytes=trial.capacity_bytes,
        expected_bytes=trial.expected_bytes,
        bound_bytes=trial.bound_bytes,
        measured_bytes=trial.measured_bytes,
        outcome=str(record.outcome),
        held=trial.held,
    )


def main() -> int:
    """Print the number of the next point to run, or nothing, and tell on stderr what was found."""
    run_dir = Path(sys.argv[1])
    try:
        point = next_trial(run_dir)
    except (JobkitError, OSError) as error:
        sys.stderr.write(f"find_max: {error}\n")
        return 1
    sys.stderr.write("".join(f"find_max: {line}\n" for line in said(trials(run_dir))))
    if point:
        sys.stdout.write(f"{point.index}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
