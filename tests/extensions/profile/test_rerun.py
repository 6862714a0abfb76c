"""`jobkit profile` on a cluster, against a controller that is not there, and on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import Exit, read_points
from jobkit.core.records import Point
from jobkit.extensions.profile.rerun import profile
from jobkit.launch import sweep as submit
from jobkit.launch.resume import run_again
from jobkit.planning.prepare import Options, prepare
from jobkit.planning.resolve import refuse_missing_packages
from jobkit.report.tables import collect
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import write_begin, write_event, write_exit
from tests.support.swept import BUG, OK, SPEC, Sweep
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - a fixture is found by its name here


def added(run: Path) -> list[Point]:
    points, _ = read_points(run)
    return [point for point in points if not point.kind.swept]


def test_on_a_cluster_it_is_one_job_with_a_point_of_its_own(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.ended(OK, OK, OK, OK, BUG, OK)
    assert profile(sweep.run, "3", "python") == 0
    (point,) = added(sweep.run)
    assert (point.index, point.point_id, point.profile) == (7, "batch_size-3-r1-profile-python", "python")
    assert (point.params, point.repeat) == (sweep.points[2].params, 1)
    assert [call.rpartition("/")[2].split()[0] for call in sweep.calls()] == ["job-2.sh", "follow.sh"]
    assert (sweep.run / "tasks-2.txt").read_text() == "7\n"
    assert f"jobkit profile {sweep.run} 7" in capsys.readouterr().err

    assert profile(sweep.run, "3", "python") == ExitCode.TO_COME
    assert (len(added(sweep.run)), len(sweep.calls())) == (1, 2), "it is in the queue"

    sweep.queue()
    write_begin(sweep.run, point, job=101, task=1)
    write_exit(sweep.run, point, Exit(status=1, stage="run", outcome=BUG))
    assert profile(sweep.run, "3", "python") == 0
    assert (len(added(sweep.run)), len(sweep.calls())) == (1, 4), "it failed, and runs again"

    assert profile(sweep.run, "3", "torch") == 0
    assert [each.profile for each in added(sweep.run)] == ["python", "torch"]


def test_no_point_is_added_that_did_not_succeed_or_cannot_be_profiled(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.ended(BUG, BUG, BUG, BUG, BUG, BUG)
    with pytest.raises(JobkitError, match="is bug: only a point that succeeded"):
        profile(sweep.run, "1", None)
    with pytest.raises(JobkitError, match="no point has succeeded"):
        profile(sweep.run, None, None)
    sweep.end(sweep.points[0], OK)
    with monkeypatch.context() as patch:
        patch.setattr("jobkit.extensions.profile.packages.missing", lambda name: f"{name} is not there")
        with pytest.raises(JobkitError, match=r"^profile: scalene is not there") as caught:
            profile(sweep.run, "1", "scalene")
        given = {"name": "t", "profile": "scalene", "environment": {"venv": "/venv"}}
        # another Python of the jobs may have it
        refuse_missing_packages(SweepSpec.model_validate(given), load_site("slurm-default", "slurm"))
    assert "pip install 'jobkit[profile]'" in caught.value.hint
    span: dict[str, object] = {"scheduler": "slurm", "first": 1, "last": 1, "offset": 6, "role": "find"}
    write_event(sweep.run, "submitted", job_id="101", cluster="", **span)
    sweep.queue(f"101_1|PENDING|Dependency||0:00|N/A|{sweep.points[0].run_id}\n")
    with pytest.raises(JobkitError, match="tests the largest batch has not ended"):
        profile(sweep.run, "1", None)
    assert (added(sweep.run), sweep.calls()) == ([], [])


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Return a run that was made for this machine, with its first point done."""
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace("[1, 2, 3]", "[1]").replace("repeats: 2", "repeats: 1"), encoding="utf-8")
    prepared = prepare(spec, Options(scheduler="local", runs_dir=tmp_path / "runs"), build=True)
    submit.write_run(prepared)
    run_again(prepared.run_dir, (), ())
    return prepared.run_dir


def test_here_it_runs_at_once_prints_the_profile_and_changes_no_table(
    local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = collect([local])
    capsys.readouterr()
    assert profile(local, None, None) == 0
    said = capsys.readouterr()
    assert said.out.startswith("batch_size-1-r1-profile-python, try 1, profiled with python\n")
    assert "profile.pstats" in said.err
    record = json.loads((local / f"results/{added(local)[0].point_id}/try-1/record.json").read_text())
    assert (record["outcome"], record["point"]["profile"]) == ("ok", "python")

    found = collect([local])
    assert [row.point for row in found.rows] == [row.point for row in before.rows]
    assert len(found.profiled) == 1
    assert "batch_size-1-r1-profile-python (ok)" in found.notes[0]

    assert profile(local, "1", "python") == 0, "printed again, and not run again"
    assert profile(local, "2", None) == 0, "the profile itself may be named"
    assert len(added(local)) == 1
    assert profile(local, "1", "python", again=True) == 0
    assert added(local)[-1].point_id == "batch_size-1-r1-profile-python-2"


def test_a_profile_that_fails_is_reported_with_a_remedy(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(local.parent))
    (local.parent / "cProfile.py").write_text("raise RuntimeError('on purpose')\n", encoding="utf-8")
    with pytest.raises(JobkitError, match="is bug: RuntimeError: on purpose") as caught:
        profile(local, "1", "python")
    assert caught.value.exit_code == ExitCode.FAILED
    assert "jobkit logs" in caught.value.hint
