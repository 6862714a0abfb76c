"""`jobkit verify` on a cluster, against a fake sbatch; on this machine: tests/whole/test_find_max.py."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers import search
from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line, write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.layout import SEARCH_GOAL_FILE, TRIALS_FILE
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Outcome, Point
from jobkit.core.units import GIB
from jobkit.launch import resume
from jobkit.runs.search_loop import next_point
from jobkit.runs.trials import Trial
from tests.support.builders import ITEMS, events, grid, record, write_answer, write_points, write_record
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

SPEC = """\
name: demo
workload: count
sweep: {batch_size: [10, 20, 30, 40]}
resources: {gpus: 0, memory: 2GiB}
scheduler: slurm
site: slurm-default
"""
POINTS = grid((10, 20, 30, 40), device="cpu")


@pytest.fixture
def run(tmp_path: Path, queue: Programs) -> Path:
    """Return a run on Slurm, and a fake sbatch that takes what it gets."""
    queue.add("sbatch", "echo 77")
    found = write_points(tmp_path / "runs" / "demo", POINTS)
    write_atomically(found / "sweep.yaml", f"{SPEC}find_max: {{memory: 1GiB}}\n")
    write_atomically(found / "job.sh", f"#!/bin/bash\nrun={shlex.quote(str(found))}\n")
    return found


def wanted(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / SEARCH_GOAL_FILE).read_text(encoding="utf-8"))
    return found


def measured(run: Path, points: Iterable[Point], bytes_of: Callable[[Point], int]) -> None:
    for point in points:
        memory = MemoryReadings(maxrss_bytes=bytes_of(point))
        write_record(run, replace(record(point), memory=memory))


@pytest.mark.slow
def test_on_a_cluster_it_is_one_job_also_if_a_link_leads_to_the_run(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    linked = run.with_name("linked") / "demo"
    linked.parent.symlink_to(run.parent)
    assert resume.verify(linked, memory=None) == 0
    assert queue.called()[-1] == f"sbatch --parsable --array=1-1 {linked}/find.sh --offset 4"
    assert wanted(run)["memory_bytes"] == GIB
    assert wanted(run)["after"] == 0
    assert "#SBATCH --mem=2G\n" in (run / "find.sh").read_text(encoding="utf-8")
    assert "submitted: slurm job 77" in capsys.readouterr().err
    found = [(event["event"], event["first"] + event["offset"]) for event in events(run)]
    assert found == [("submitting", 5), ("submitted", 5)]


def whole(run: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def unlocked(run: Path) -> dict[str, bytes]:
    return {name: text for name, text in whole(run).items() if not name.endswith(".lock")}


def test_a_batch_that_was_measured_is_no_job(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    largest = replace(grid((ITEMS,), device="cpu")[0], index=5, point_id="p005")
    append_line(run / "points.jsonl", to_json(largest))
    measured(run, [*POINTS, largest], lambda point: int(point.numbers["batch_size"]) * GIB)
    (run / "journal.jsonl").touch()
    before = whole(run)
    assert resume.verify(run, memory=2000 * GIB) == 0
    said = capsys.readouterr().out
    assert said.startswith("nothing to try: batch_size 881 was measured already: it needed 881.00 GiB, ")
    assert not queue.called()
    assert {name: text for name, text in whole(run).items() if not name.endswith(".lock")} == before


@pytest.mark.slow
def test_what_is_being_tried_is_not_submitted_again(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(run, POINTS, lambda point: int(point.numbers["batch_size"]) * GIB // 100 + point.index % 2)
    assert resume.verify(run, memory=None) == 0
    assert resume.verify(run, memory=None) == 5, "its job waits"
    point = next_point(run, search.propose_trial)
    assert point is not None
    before = unlocked(run)
    capsys.readouterr()
    assert resume.verify(run, memory=None) == 5, "its job runs"
    assert f"batch_size {point.numbers['batch_size']} is being tested already" in capsys.readouterr().out
    assert unlocked(run) == before
    assert len(queue.called("sbatch")) == 1
    row = f"77_1|FAILED|1:0|1||1G|1|n1|None|{point.run_id}\n"
    write_answer(run, "slurm", "accounting", row, argv=["sacct"])
    assert resume.verify(run, memory=None) == 0, "its job has ended, and nothing will try it"
    assert len(queue.called("sbatch")) == 2


@pytest.mark.slow
def test_a_job_whose_submission_had_no_answer_is_found(run: Path, queue: Programs) -> None:
    measured(run, POINTS, lambda point: int(point.numbers["batch_size"]) * GIB // 100)
    assert resume.verify(run, memory=None) == 0
    journal = run / "journal.jsonl"
    intent = json.loads(journal.read_text().splitlines()[0])
    journal.write_text(json.dumps(intent | {"at": "2026-01-02T10:15:00+00:00"}) + "\n")
    queue.squeue("77_1 PENDING")
    assert resume.verify(run, memory=None) == 5
    assert len(queue.called("sbatch")) == 1


@pytest.mark.slow
def test_what_cannot_be_predicted_is_no_job(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(run, POINTS[:3], lambda _: GIB // 100)
    assert resume.verify(run, memory=None) == 0, "a point is still to come"
    (run / "journal.jsonl").unlink()
    (run / SEARCH_GOAL_FILE).unlink()
    queue.calls()
    measured(run, POINTS[3:], lambda _: GIB // 100)
    before = unlocked(run)
    assert resume.verify(run, memory=None) == 4
    assert "the largest batch was not tested: memory does not grow with the load" in capsys.readouterr().out
    assert not queue.called("sbatch")
    assert unlocked(run) == before


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "bytes_"), [(3 * GIB, 3 * GIB), ("device", None), (None, None)])
def test_the_memory_may_be_named_and_earlier_trials_are_not_counted_again(
    run: Path, memory: int | str | None, bytes_: int | None
) -> None:
    if memory is None:  # as that of the spec would be taken
        write_atomically(run / "sweep.yaml", SPEC)
    for trial in (Trial(index=5, outcome=Outcome.OK), Trial(message="too few"), Trial(message="too few")):
        append_line(run / TRIALS_FILE, to_json(trial))
    resume.verify(run, memory=memory)
    goal = wanted(run)
    ram_bytes = max(2 * GIB, memory if isinstance(memory, int) else 0)  # of a CPU the job requests as much
    assert (goal["memory_bytes"], goal["ram_bytes"], goal["after"]) == (bytes_, ram_bytes, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "there", "why"),
    [
        ("cp -r demo copy", "copy", "works in .*/runs/demo, so this is a copy of it"),
        ("mv demo moved", "moved", "works in .*/runs/demo, so this is a folder that was moved"),
        ("rm demo/job.sh", "demo", "job.sh: gone"),
    ],
)
def test_a_run_that_is_not_where_its_script_works_is_refused_untouched(
    run: Path, tmp_path: Path, harm: str, there: str, why: str
) -> None:
    subprocess.run(harm.split(), cwd=run.parent, check=True)
    before, harmed = whole(tmp_path), run.with_name(there)
    commands: list[Callable[[], object]] = [
        lambda: resume.verify(harmed, memory=None),
        lambda: resume.run_again(harmed, (), ()),
    ]
    for command in commands:
        with pytest.raises(JobkitError, match=why):
            command()
        assert whole(tmp_path) == before
