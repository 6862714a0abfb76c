"""Find the largest batch size, or budget, by running it: predict, try, step down if it failed.

``python -m jobkit.answers.search RUN`` prints the number of the next point to run, or nothing, in the job
that follows a sweep and after a local sweep. The goal is in ``find_max.json``, the results in
``trials.jsonl`` of the run folder. It imports the standard library and jobkit only: the node may have no
more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobkit.answers.loads import read_lengths
from jobkit.answers.memory import Memory, measured_bytes, memory_of, too_small
from jobkit.core import layout
from jobkit.core.files import append_line
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import CUDA, SIZES, size_knob
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import format_memory
from jobkit.runs import search_loop, trials
from jobkit.runs.conditions import memory_condition
from jobkit.runs.journal import Role, read_accounts
from jobkit.runs.results import batches_of, read_run
from jobkit.runs.status import PointResult
from jobkit.runs.trials import SearchGoal, Trial
from jobkit.runs.tries import KILLED
from jobkit.worker.measure import nvml


def propose_trial(run_dir: Path) -> Point | None:
    """Settle the last trial, and return the next point to run; ``None`` if all is done.

    A trial without a result yet is the last: it may still run, and one killed without a trace is not run
    again.
    """
    wanted = trials.read_goal(run_dir)
    results = read_run(run_dir).points
    done = _settled(run_dir, results)[wanted.after :]
    if done and not trials.goes_on(done):
        return None
    trial = _predicted(run_dir, wanted, results, done)
    if trial.index and (why := _another_gpu(results)):
        trial = Trial(message=why)
    append_line(run_dir / layout.TRIALS_FILE, to_json(trial))
    return _point(run_dir, [result.point for result in results], trial, wanted) if trial.index else None


def _settled(run_dir: Path, results: Sequence[PointResult]) -> list[Trial]:
    """Return the trials, with the outcome of those that have come home since."""
    by_index, settled = {result.point.index: result for result in results}, []
    for trial in trials.trials(run_dir):
        result = by_index.get(trial.index) if trial.under_way else None
        if result is None or result.outcome is None:
            settled.append(trial)
            continue
        left, record, outcome = result.verdict.exit, result.record, result.outcome
        killed = not record and bool(left and left.status == KILLED and not left.signal)
        size_bytes = measured_bytes(record)
        settled.append(replace(trial, outcome=outcome, measured_bytes=size_bytes, killed=killed))
        append_line(run_dir / layout.TRIALS_FILE, to_json(settled[-1]))
    return settled


def foreseen(run_dir: Path, wanted: SearchGoal) -> tuple[Trial, bool]:
    """Return the trial that the records at home lead to, or why there is none, without writing.

    The second value says whether that is final: no point of the sweep is still to come.
    """
    results = read_run(run_dir).points
    final = all(result.outcome is not None for result in results if result.point.kind.swept)
    return _predicted(run_dir, wanted, results, ()), final


def under_way(run_dir: Path, asked: SearchGoal) -> Trial | None:
    """Return the trial that a job for this memory runs or will run; ``None`` if no job does.

    A job counts until it is known to have ended, or to have nothing left to try. The trial of a job that has
    not begun one has no index.
    """
    accounts = read_accounts(run_dir)
    finds = [sent for sent in accounts.journal.submissions if sent.role is Role.FIND]
    if not finds or not (run_dir / layout.SEARCH_GOAL_FILE).is_file():
        return None
    before = trials.read_goal(run_dir)
    if (before.memory_bytes, before.ram_bytes) != (asked.memory_bytes, asked.ram_bytes):
        return None
    outcomes = {result.point.index: result.outcome for result in read_run(run_dir).points}
    done = trials.settled_trials(trials.trials(run_dir), outcomes)[before.after :]
    last = done[-1] if done else Trial()
    if done and not (last.under_way or trials.goes_on(done)):
        return None
    tasks = [task for task, _ in finds[-1].tasks()]
    if last.under_way and last.index in accounts.submitted:
        tasks.append(accounts.submitted[last.index])
    return None if set(tasks) <= accounts.ended | accounts.journal.cancelled.keys() else last


def _predicted(
    run_dir: Path, wanted: SearchGoal, results: Sequence[PointResult], done: Sequence[Trial]
) -> Trial:
    points = [result.point for result in results]
    results = [result for result in results if result.point.kind.tabled]
    if why := _not_one_knob(points):
        return Trial(message=why)
    records = [result.record for result in results if result.record]
    asked = {trial.index for trial in done}
    # Trials of an earlier search count only if they failed: otherwise a run would get two largest batches.
    telling = [
        record
        for record in records
        if not record.point.trial or record.point.index in asked or record.outcome is not Outcome.OK
    ]
    memory = memory_of(telling, batches_of(results), read_lengths(run_dir))
    if isinstance(memory, str):
        return Trial(message=memory)
    capacity = _capacity(wanted, memory)
    if capacity is None:
        return Trial(message="the GPU does not report its memory: set find_max.memory")
    batch = memory.testable(_batch(memory, capacity, done))
    if isinstance(memory.line, str) or not batch:
        why = memory.predict(capacity).reason or too_small(memory.knob)
        return Trial(capacity_bytes=capacity, message=why)
    load = memory.own_load(batch)
    size: dict[str, Any] = {memory.knob: batch}
    trial = Trial(
        index=points[-1].index + 1,
        **size,
        load=load,
        capacity_bytes=capacity,
        expected_bytes=memory.line.at(load),
        bound_bytes=memory.line.upper(load),
        memory=trials.memory_of(memory.on_cpu, points[0].workers),
        condition=memory_condition(records),
    )
    return _known(trial, records) or trial


def _known(trial: Trial, records: Sequence[Record]) -> Trial | None:
    """Return a trial as one that is not run, if the run has measured its batch within the capacity."""
    same = [record for record in records if record.point.numbers[trial.knob] == trial.size]
    needed = max((size for record in same if (size := measured_bytes(record)) is not None), default=None)
    if needed is None or needed > trial.capacity_bytes:
        return None
    sizes = f"it needed {format_memory(needed)}, predicted {format_memory(trial.expected_bytes)}"
    sizes += f", of {format_memory(trial.capacity_bytes)}{trial.condition}"
    why = f"{trial.setting} was measured already: {sizes}"
    return Trial(message=why, proved=True, capacity_bytes=trial.capacity_bytes)


def _not_one_knob(points: Sequence[Point]) -> str:
    """Return why the points cannot be extended; empty if only the batch size varies, or the budget."""
    knob = size_knob(points[0].params if points else {})
    fixed = {tuple(sorted((k, v) for k, v in point.params.items() if k != knob)) for point in points}
    if any(knob not in point.params for point in points) or len(fixed) > 1:
        return f"find_max needs a sweep of {' or '.join(SIZES)} in which no other knob varies"
    return ""


def _another_gpu(results: Sequence[PointResult]) -> str:
    """Return why the point cannot run on this GPU: the others ran on another; empty if it can."""
    ran = (result.record.gpu for result in results if result.record and result.point.gpus == 1)
    on = next((gpu.name for gpu in ran if gpu), None)
    uuid = nvml.visible_uuid(None) if on else None
    here = nvml.read_gpu(uuid) if uuid else None
    if here is None or here.name == on:
        return ""
    return f"the points ran on {on}, but this job was given {here.name}: set resources.gpu_type"


def _capacity(wanted: SearchGoal, memory: Memory) -> float | None:
    if wanted.memory_bytes is not None:
        return wanted.memory_bytes // memory.workers
    if memory.on_cpu:
        return wanted.ram_bytes
    return None if memory.limit_bytes is None else memory.allocator_bytes(memory.limit_bytes)


def _batch(memory: Memory, capacity_bytes: float, done: Sequence[Trial]) -> int:
    """Return the batch size, or budget, to try: the safe one, or well below one that failed."""
    largest, failed = memory.predict(capacity_bytes), [trial for trial in done if not trial.held]
    if not failed:
        return largest.safe_batch
    # share of the load of a failed trial that the next trial takes at most
    step_down = 0.95
    if memory.loads is None:
        return min(largest.safe_batch, int(step_down * min(trial.size for trial in failed)))
    return memory.largest_batch(min(largest.safe_load, step_down * min(trial.load for trial in failed)))


def _point(run_dir: Path, points: Sequence[Point], trial: Trial, wanted: SearchGoal) -> Point:
    first = points[0]
    capped = wanted.memory_bytes if first.device == CUDA else None
    cap = capped and capped // first.workers  # of the allocator of each worker
    taken = {point.point_id for point in points} | layout.names(run_dir / layout.RESULTS_FOLDER)
    return replace(
        first,
        index=trial.index,
        point_id=trials.added_id(f"{trial.knob}-{trial.size}", layout.TRIAL_SUFFIX, taken),
        params={**first.params, trial.knob: trial.size},
        repeat=1,
        cap_bytes=cap,
        trial=True,
    )


def main() -> int:
    return search_loop.main(
        "find_max", propose_trial, lambda run_dir, _: trials.describe_trials(trials.trials(run_dir))
    )


if __name__ == "__main__":
    sys.exit(main())
