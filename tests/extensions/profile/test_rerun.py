"""A point run again with a profiler, and what is recorded of its calls."""

from __future__ import annotations

import gzip
import json
import pstats
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import PROFILE_FILES, Exit, read_points
from jobkit.core.records import Point
from jobkit.extensions.profile.rerun import profile
from jobkit.extensions.profile.work import (
    ProfileCost,
    ProfileRecording,
    TorchProfiler,
    costs_of_trace,
    table,
)
from jobkit.launch.resume import run_again
from jobkit.planning.prepare import refuse_missing_packages
from jobkit.report.tables import collect
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import point, write_begin, write_event, write_exit
from tests.support.swept import BUG, OK, Sweep
from tests.support.swept import local as local  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - the same


def added(run: Path) -> list[Point]:
    points, _ = read_points(run)
    return [point for point in points if not point.kind.swept]


@pytest.mark.slow
def test_on_a_cluster_it_is_a_job_with_its_point(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.slow
def test_no_point_is_added_that_cannot_be_profiled(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep.ended(BUG, BUG, BUG, BUG, BUG, BUG)
    with pytest.raises(JobkitError, match="is bug: only a point that succeeded"):
        profile(sweep.run, "1", None)
    with pytest.raises(JobkitError, match="no point has succeeded"):
        profile(sweep.run, None, None)
    sweep.end(sweep.points[0], OK)
    with monkeypatch.context() as patch:
        patch.setattr("jobkit.extensions.profile.work.missing", lambda name: f"{name} is not there")
        with pytest.raises(JobkitError, match=r"^profile: torch is not there") as caught:
            profile(sweep.run, "1", "torch")
        given = {"name": "t", "profile": "torch", "environment": {"venv": "/venv"}}
        # another Python of the jobs may have it
        refuse_missing_packages(SweepSpec.model_validate(given), load_site("slurm-default", "slurm"))
    assert "python needs no package" in caught.value.hint
    span: dict[str, object] = {"scheduler": "slurm", "first": 1, "last": 1, "offset": 6, "role": "find"}
    write_event(sweep.run, "submitted", job_id="101", cluster="", **span)
    sweep.queue(f"101_1|PENDING|Dependency||0:00|N/A|{sweep.points[0].run_id}\n")
    with pytest.raises(JobkitError, match="tests the largest batch has not ended"):
        profile(sweep.run, "1", None)
    assert (added(sweep.run), sweep.calls()) == ([], [])


@pytest.mark.slow
def test_here_it_runs_at_once_changes_no_table_and_a_failure_is_reported_with_a_remedy(
    local: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_again(local, ("1",), ())
    before = collect([local])
    capsys.readouterr()
    assert profile(local, None, None) == 0
    said = capsys.readouterr()
    assert said.out.startswith("batch_size-1-r1-profile-python, try 1, profiled with python\n")
    assert "profile.pstats" in said.err
    record = json.loads((local / f"results/{added(local)[0].point_id}/try-1/record.json").read_text())
    assert (record["outcome"], record["point"]["profile"]) == ("ok", "python")

    found = collect([local])
    assert [row.point.point_id for row in found.rows] == [row.point.point_id for row in before.rows]
    assert len(found.sources.profiled) == 1
    assert "batch_size-1-r1-profile-python (ok)" in found.notes[0]

    assert profile(local, "1", "python") == 0, "printed again, and not run again"
    assert profile(local, "4", None) == 0, "the profile itself may be named"
    assert len(added(local)) == 1
    assert profile(local, "1", "python", again=True) == 0
    assert added(local)[-1].point_id == "batch_size-1-r1-profile-python-2"

    monkeypatch.setenv("PYTHONPATH", str(local.parent))
    (local.parent / "cProfile.py").write_text("raise RuntimeError('on purpose')\n", encoding="utf-8")
    with pytest.raises(JobkitError, match="is bug: RuntimeError: on purpose") as caught:
        profile(local, "1", "python", again=True)
    assert (caught.value.exit_code, "jobkit logs" in caught.value.hint) == (ExitCode.FAILED, True)


@pytest.mark.slow
def test_scalene_of_an_earlier_version_is_read_and_what_waits_for_it_ends(
    local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, off in (("sweep.yaml", "profile: 'off'"), ("points.jsonl", '"profile": "off"')):
        text = (local / name).read_text(encoding="utf-8")
        (local / name).write_text(text.replace(off, off.replace("off", "scalene")), encoding="utf-8")
    run_again(local, ("1",), ())
    assert profile(local, "1", None) == 0
    said = capsys.readouterr()
    assert ("profiled with python" in said.out, "profile.pstats" in said.err) == (True, True)
    (found,) = local.glob("results/*/try-1/profile.pstats")
    found.rename(found.with_name("profile.json"))
    assert profile(local, "1", None) == 0
    assert "scalene view " in capsys.readouterr().err


def profiled(with_: str) -> Point:
    return replace(point(device="cpu"), profile=with_)


def work() -> int:
    return sum(len(str(number)) for number in range(2000))


def between() -> int:
    return sum(map(int, "1" * 9000))


def lines_of(out: Path) -> list[str]:
    return (out / "profile.txt").read_text(encoding="utf-8").splitlines()


def test_the_largest_costs_come_first_with_their_share() -> None:
    costs = [ProfileCost(f"f{n}", f"a.py:{n}", float(n), n) for n in range(30)]
    heading, first, *rest = table([*costs, ProfileCost("f29", "a.py:29", 29.0, 1)])
    assert heading.split() == ["share", "seconds", "calls", "where", "what"]
    assert first.split() == ["12.5", "%", "58.000", "30", "a.py:29", "f29"]
    assert len(rest) == 19


def test_python_names_each_function_of_the_calls_alone_with_file_and_line(tmp_path: Path) -> None:
    recording = ProfileRecording(profiled("python"))
    for _ in range(3):
        with recording.of_call():
            work()
        between()
    recording.write(tmp_path, 2)
    first, calls, *_ = lines = lines_of(tmp_path)
    assert first == "p001, try 2, profiled with python"
    assert calls.startswith("calls: all 3, ")
    assert any(re.search(r"test_rerun\.py:\d+ +<genexpr>$", line) for line in lines)
    assert any(line.endswith("builtins.len in <genexpr>") for line in lines), "a built-in, at its caller"
    assert not any("between" in line for line in lines)
    assert vars(pstats.Stats(str(tmp_path / PROFILE_FILES["python"])))["total_calls"] > 6000


@pytest.mark.xdist_group("torch")
def test_torch_names_modules_and_stops_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    class Tagger(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, values: object) -> object:
            return self.inner(values)

    tagger, values = Tagger(), torch.ones(4, 8)
    monkeypatch.setattr(TorchProfiler, "LIMIT_S", 1e-9)
    recording = ProfileRecording(profiled("torch"))
    for _ in range(3):
        with recording.of_call():
            torch.mm(values, values.T)
            tagger(values)
            tagger(values)
    recording.write(tmp_path, 1)
    lines = lines_of(tmp_path)
    assert lines[1].startswith("calls: the first 1 of 3, ")
    assert lines[1].endswith("; the other 2 ran without the profiler")
    assert any(line.endswith("aten::mm") for line in lines), "before the limit"
    with gzip.open(tmp_path / PROFILE_FILES["torch"], "rt") as stream:
        assert json.load(stream)["traceEvents"]
    assert not torch.nn.modules.module._global_forward_hooks

    monkeypatch.setattr(TorchProfiler, "LIMIT_S", 60.0)
    recording = ProfileRecording(profiled("torch"))
    for _ in range(2):
        with recording.of_call():
            tagger(values)
    recording.write(tmp_path, 1)
    lines = lines_of(tmp_path)
    assert lines[1].startswith("calls: all 2, ")
    assert any(re.search(r" 2 +\S*test_rerun\.py:\d+ +aten::addmm in Linear$", line) for line in lines), (
        "the place is that of the user's module"
    )


NER = "forward NERTagger stanza/models/ner/model.py:151"
LSTM = "forward LSTM torch/nn/modules/rnn.py:1081"


def event(cat: str, name: str, ts: float, dur: float, external: int | None = None) -> dict[str, object]:
    """Return an event of one thread, in microseconds."""
    args = {} if external is None else {"External id": external}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


CPU: list[dict[str, object]] = [
    {"ph": "M", "name": "process_name"},
    event("user_annotation", NER, 0, 100),
    event("user_annotation", LSTM, 10, 50),
    event("cpu_op", "aten::lstm", 20, 30, 1),
    event("cpu_op", "aten::addmm", 25, 10, 2),
    event("cpu_op", "aten::mm", 70, 20, 3),
    event("cpu_op", "aten::to", 200, 5, 4),
    event("cuda_runtime", "cudaLaunchKernel", 26, 1, 2),
]


def test_on_a_gpu_the_kernels_count_at_the_operation_that_launched_them() -> None:
    kernels = [
        event("kernel", "gemm", 40, 60, 2),
        event("kernel", "gemm", 100, 40, 2),
        event("gpu_memcpy", "Memcpy HtoD", 205, 7, 4),
        event("gpu_memset", "Memset", 300, 3, 99),
        event("gpu_user_annotation", NER, 40, 400),
    ]
    costs, on_gpu = costs_of_trace([*CPU, *kernels])
    assert on_gpu
    assert [(cost.what, round(1e6 * cost.seconds)) for cost in costs] == [
        ("aten::addmm in LSTM", 60),
        ("aten::addmm in LSTM", 40),
        ("aten::to", 7),
        ("Memset", 3),
    ]
