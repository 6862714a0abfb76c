from __future__ import annotations

import gzip
import json
import pstats
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.layout import PROFILE_FILES
from jobkit.core.records import JobFacts, Outcome, Point
from jobkit.extensions.profile import work as profiling
from jobkit.extensions.profile.work import (
    WORK,
    ProfileCost,
    ProfileRecording,
    TorchProfiler,
    missing,
    short_path,
    table,
)
from jobkit.worker.failure import TryFailed
from jobkit.worker.kinds import Launcher, work_of
from jobkit.worker.record import Task
from tests.support.builders import point


def profiled(with_: str) -> Point:
    return replace(point(device="cpu"), profile=with_)


def task(with_: str, out: Path) -> Task:
    return Task(point=profiled(with_), try_number=1, inputs=out, out=out, job=JobFacts(scheduler="hand"))


def work() -> int:
    return sum(len(str(number)) for number in range(2000))


def lines_of(out: Path) -> list[str]:
    return (out / "profile.txt").read_text(encoding="utf-8").splitlines()


def test_the_largest_costs_come_first_with_their_share() -> None:
    costs = [ProfileCost(f"f{n}", f"a.py:{n}", float(n), n) for n in range(30)] + [
        ProfileCost("f29", "a.py:29", 29.0, 1)
    ]
    heading, first, *rest = table(costs)
    assert heading.split() == ["share", "seconds", "calls", "where", "what"]
    assert first.split() == ["12.5", "%", "58.000", "30", "a.py:29", "f29"]
    assert len(rest) == 19


def test_a_sampled_cost_has_no_calls_and_a_long_line_is_cut() -> None:
    _, line = table([ProfileCost("x" * 99, "a.py:1", 1.0)])
    assert line.split() == ["100.0", "%", "1.000", "a.py:1", f"{'x' * 57}..."]


def test_without_costs_the_text_says_so() -> None:
    assert list(table([ProfileCost("f", "a.py:1", 0.0)])) == ["nothing was recorded"]


def test_python_names_each_function_with_file_and_line(tmp_path: Path) -> None:
    recording = ProfileRecording(profiled("python"))
    for _ in range(3):
        with recording.of_call():
            work()
    recording.write(tmp_path, 2)
    first, calls, *_ = lines = lines_of(tmp_path)
    assert first == "p001, try 2, profiled with python"
    assert calls.startswith("calls: all 3, ")
    assert any(re.search(r"test_work\.py:\d+ +<genexpr>$", line) for line in lines)
    assert any(line.endswith("builtins.len in <genexpr>") for line in lines), "a built-in, at its caller"
    assert vars(pstats.Stats(str(tmp_path / PROFILE_FILES["python"])))["total_calls"] > 6000


def test_what_is_not_a_call_is_not_recorded(tmp_path: Path) -> None:
    recording = ProfileRecording(profiled("python"))
    work()
    with recording.of_call():
        pass
    work()
    recording.write(tmp_path, 1)
    assert "genexpr" not in "".join(lines_of(tmp_path))


def test_of_several_workers_the_text_names_the_one(tmp_path: Path) -> None:
    recording = ProfileRecording(replace(profiled("python"), workers=2, gpus=2))
    with recording.of_call():
        work()
    recording.write(tmp_path, 1)
    assert "worker: the first of 4; the calls are its own" in lines_of(tmp_path)


def test_torch_names_operations_by_module_and_stops_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert any(re.search(r" 2 +\S*test_work\.py:\d+ +aten::addmm in Linear$", line) for line in lines), (
        "the place is that of the user's module"
    )


def test_a_profiler_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert (missing("off"), missing("python")) == ("", "")
    assert missing("scalene").endswith("has no package scalene")
    WORK.launcher(task("python", tmp_path))
    with pytest.raises(TryFailed, match=r"^profile: scalene, but .*has no package") as caught:
        WORK.launcher(task("scalene", tmp_path))
    assert caught.value.outcome is Outcome.ENVIRONMENT


def test_only_scalene_starts_the_process_itself(tmp_path: Path) -> None:
    assert WORK.launcher(task("torch", tmp_path)) == Launcher()
    launcher = WORK.launcher(task("scalene", tmp_path))
    assert launcher.arguments[:3] == ("-m", "scalene", "run")
    assert launcher.variables


def test_only_the_first_process_that_works_is_profiled(tmp_path: Path) -> None:
    other = replace(task("scalene", tmp_path), observed=False)
    assert work_of(other.point) is WORK
    assert WORK.launcher(other) == Launcher()
    assert not isinstance(WORK.recording(other), ProfileRecording)


def test_a_path_loses_the_folder_in_which_python_found_it() -> None:
    assert short_path(profiling.__file__) == "jobkit/extensions/profile/work.py"
    assert short_path("/elsewhere/a.py") == "/elsewhere/a.py"
