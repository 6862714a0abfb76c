from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.json_codec import to_json
from jobkit.core.layout import PLAN_FILE, PROMISE_FILE, SPEC_FILE
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Outcome
from jobkit.core.units import MIB
from jobkit.extensions.corpus.plan import Shard
from jobkit.runs.hints import is_limited, needed_by
from jobkit.runs.journal import JobTask
from jobkit.runs.standing import PointState, PointStatus, RunStanding
from jobkit.runs.tries import Try, TryOutcome
from jobkit.schedulers.types import Accounted
from tests.support.builders import batch, record
from tests.support.statuses import a_point, a_run, submission, tried

SPEC = """\
name: demo
workload: count
text: sample
sweep: {batch_size: 10}
resources: {memory: 400MiB, walltime: 1m}
policy: {ram_oom: {memory: x2}}
"""


def out_of_time(
    folder: Path, index: int, batches: int, spent_s: float | None, total: int = 28
) -> PointStatus:
    """Return a point that ran out of time after some batches of half a second each."""
    folder.mkdir(parents=True)
    lines = [
        replace(batch(number), batches_total=total, characters_total=5_000 * total)
        for number in range(batches)
    ]
    (folder / "batches.jsonl").write_text("".join(f"{to_json(line)}\n" for line in lines), encoding="utf-8")
    task = JobTask("slurm", "77", index)
    account = Accounted(job_id="77", task=index, ended=True, outcome=Outcome.TIMEOUT, elapsed_s=spent_s)
    found = Try(
        number=1,
        folder=str(folder),
        verdict=TryOutcome(outcome=Outcome.TIMEOUT, evidence=""),
        task=task,
        account=account,
    )
    return a_point(index, PointState.FAILED, Outcome.TIMEOUT, tries=[found])


def test_the_walltime_is_that_of_the_measured_pace(tmp_path: Path) -> None:
    point = out_of_time(tmp_path / "try-1", 1, batches=9, spent_s=20.0)
    (need,) = needed_by(a_run([point]), [point])
    # 20 s, and 19 batches of half a second, a quarter more, and the warning, in whole minutes
    assert need.option == "--set resources.walltime=00:01:00"
    assert "9 of 28 batches took 20 s" in need.because


def test_several_workers_go_on_at_their_common_pace(tmp_path: Path) -> None:
    point = out_of_time(tmp_path / "try-1", 1, batches=240, spent_s=60.0, total=480)
    (need,) = needed_by(a_run([point]), [point])
    assert need.value == "00:04:00", "120 s of batches in 60 s: as long again, and a quarter more"


def test_the_slowest_point_decides_and_the_policy_where_no_pace_is_measured(tmp_path: Path) -> None:
    slow = out_of_time(tmp_path / "slow", 1, batches=9, spent_s=600.0)
    fast = out_of_time(tmp_path / "fast", 2, batches=9, spent_s=20.0)
    (need,) = needed_by(a_run([slow, fast]), [slow, fast])
    assert need.value == "00:14:00"
    for unknown in (
        out_of_time(tmp_path / "none", 3, batches=0, spent_s=20.0),
        out_of_time(tmp_path / "when", 4, batches=9, spent_s=None),
    ):
        (need,) = needed_by(a_run([slow, unknown]), [slow, unknown])
        assert need.option == "--set resources.walltime=HH:MM:SS", "no spec, no policy"
        (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
        (need,) = needed_by(a_run([unknown], folder=tmp_path), [unknown])
        assert need.option == "--set resources.walltime=00:02:00"
        (both,) = needed_by(a_run([slow, unknown], folder=tmp_path), [slow, unknown])
        assert both.value == "00:14:00"
        for found in (need, both):
            assert f"the time of {unknown.point.point_id} was not measured yet" in found.because


@pytest.mark.parametrize(("expected_s", "walltime"), [(10.0, "00:02:00"), (300.0, "00:08:00")])
def test_the_walltime_of_a_shard_without_a_pace_is_no_less_than_was_planned(
    tmp_path: Path, expected_s: float, walltime: str
) -> None:
    point = out_of_time(tmp_path / "none", 1, batches=0, spent_s=20.0)
    point = replace(point, point=replace(point.point, shard=True))
    (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
    shard = Shard(index=1, pieces=(), load=1, expected_s=expected_s)
    (tmp_path / PLAN_FILE).write_text(f"{to_json(shard)}\n", encoding="utf-8")
    (need,) = needed_by(a_run([point], folder=tmp_path), [point])
    assert need.value == walltime


def ran_out(*given: str, folder: Path) -> tuple[RunStanding, PointStatus]:
    point = a_point(1, PointState.FAILED, Outcome.RAM_OOM)
    return a_run([point], folder=folder, submissions=(replace(submission(), given=given),)), point


@pytest.mark.parametrize(
    ("given", "memory"),
    [((), "800MiB"), (("resources.memory=1GiB",), "2GiB"), (("resources.cpus=2",), "800MiB")],
)
def test_the_memory_is_what_the_policy_adds_to_what_it_had(
    tmp_path: Path, given: tuple[str, ...], memory: str
) -> None:
    (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
    run, point = ran_out(*given, folder=tmp_path)
    (need,) = needed_by(run, [point])
    assert need.option == f"--set resources.memory={memory}"


@pytest.mark.parametrize("measured", ["before the corpus", "in the run"])
def test_the_memory_is_no_less_than_was_measured(tmp_path: Path, measured: str) -> None:
    (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
    run, point = ran_out(folder=tmp_path)
    if measured == "in the run":
        told = replace(record(point.point), memory=MemoryReadings(rss_peak_bytes=900 * MIB))
        done = a_point(2, PointState.DONE, Outcome.OK, tries=[tried(1, Outcome.OK, record=told)])
        run = replace(run, points=(point, done))
    else:
        point = replace(point, point=replace(point.point, shard=True))
        (tmp_path / PROMISE_FILE).write_text(f'{{"peak_bytes": {900 * MIB}}}', encoding="utf-8")
    (need,) = needed_by(run, [point])
    assert need.option == "--set resources.memory=2GiB", "the policy would give 800MiB"
    assert "900.0 MiB" in need.because


def test_without_a_spec_the_memory_is_not_known(tmp_path: Path) -> None:
    run, point = ran_out(folder=tmp_path)
    (need,) = needed_by(run, [point])
    assert need.option == "--set resources.memory=SIZE"


def test_a_batch_that_hung_and_a_bug_lack_neither() -> None:
    hung = a_point(1, PointState.FAILED, Outcome.TIMEOUT)
    hung = replace(
        hung, all_tries=tuple(replace(one, verdict=replace(one.verdict, hung=True)) for one in hung.all_tries)
    )
    others = [hung, a_point(2, PointState.FAILED, Outcome.BUG)]
    assert not any(map(is_limited, others))
    assert needed_by(a_run(others), others) == []
