"""Tries that are forked from a parent which has imported the framework."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.files import write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, read_points
from jobkit.core.records import ModelRef, Outcome
from jobkit.worker import parent
from tests.support.commands import ran
from tests.support.halted import Halted, ended, outcome
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.processes import gone, parent_of, with_variable
from tests.whole.specs import write_spec
from tests.whole.test_job_script import WORKLOADS, ScriptRun, wait_until


class Owned:
    """A process that owns a parent, and the points that run under it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.imports = folder / "imports"
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        monkeypatch.setenv(parent.VARIABLE, str(self.process.pid))
        monkeypatch.setenv("FRAMEWORK", str(self.imports))

    def parents(self) -> list[int]:
        """Return the processes that have imported the framework, in order."""
        return [int(line) for line in self.imports.read_text(encoding="ascii").splitlines()]

    def end(self) -> None:
        """End the owner; check that nothing of its parent is left."""
        with self.process:
            self.process.kill()
        wait_until(lambda: with_variable(f"FRAMEWORK={self.imports}") == [])


@pytest.fixture
def owned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owned]:
    """Return an owner; at the end it is killed outright, and its parent has to end by itself."""
    owner = Owned(tmp_path, monkeypatch)
    yield owner
    owner.end()


def framework(folder: Path, name: str = "Framework", paragraphs: int = 6) -> ScriptRun:
    """Return a run folder of a workload that says who imports its framework."""
    sizes = {"batch_size": [1, 2, 3]}
    text = "".join(f"Paragraph {number}.\n\n" for number in range(paragraphs))
    return ScriptRun(folder, workload=f"tests.workloads.framework:{name}", sweep=sizes, text=text)


def test_tries_that_follow_each_other_import_the_framework_once(
    tmp_path: Path, owned: Owned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKEN_AT", "")
    run = framework(tmp_path)
    assert [run.run(point)[0] for point in (1, 2)] == [0, 0]
    said = run.ok(3, OMP_NUM_THREADS="1")
    assert "runs in a fresh process: OMP_NUM_THREADS changed" in said
    assert [run.record(point).forked for point in (1, 2, 3)] == [True, True, False]
    assert len(owned.parents()) == 2, "the parent, and the fresh process"
    assert run.record(3).environment["OMP_NUM_THREADS"] == "1"
    entities = {(run.home(point) / "entities.tsv").read_bytes() for point in (1, 2, 3)}
    assert len(entities) == 1
    assert run.left_on_scratch() == []
    monkeypatch.setattr(parent, "installed", lambda: "another")
    assert parent.run_in_child(str(owned.process.pid), ["--points", "of another version"]) is None
    assert "the installed jobkit" in capsys.readouterr().err


@pytest.mark.fault
def test_kill_9_of_a_process_of_a_forked_try(tmp_path: Path, owned: Owned, halted: Halted) -> None:
    """FAULT: a worker that was forked is killed outright, or its client, or the parent of forked tries.

    The client is the process that the job script started.

    HOW: real: kill -9, while a try runs.
    REPORTED: `lost` with exit status 137, as for a fresh one; after the parent's end the next try starts
    another.
    LOST: nothing: the parent kills the worker of a client, the kernel that of a parent; the batches that were
    done are home.
    """
    run = framework(tmp_path)
    for point in (1, 2, 3):
        process = started(halted, run, point)
        worker, (parent,) = halted.worker(), owned.parents()
        assert parent_of(worker) == parent
        os.kill((worker, client_of(process, owned), parent)[point - 1], signal.SIGKILL)
        said = ended(process)
        assert (process.returncode, outcome(run, point)) == (137, "lost"), said
        assert len((run.home(point) / "batches.jsonl").read_bytes().splitlines()) == 1
        wait_until(lambda pid=worker: gone(pid))  # type: ignore[misc]
    halted.go()
    ended(started(halted, run, 1))
    assert (run.record(1, 2).outcome, run.record(1, 2).forked) == (Outcome.OK, True)
    assert len(owned.parents()) == 2
    assert run.left_on_scratch() == []


def searched(folder: Path, workers: int) -> ScriptRun:
    """Return a run folder whose points are those of a search, of some workers."""
    run = framework(folder, paragraphs=24)
    points = [replace(one, phase="search", workers=workers) for one in read_points(run.dir)[0]]
    write_atomically(run.dir / POINTS_FILE, "".join(f"{to_json(one)}\n" for one in points))
    return run


@pytest.mark.parametrize("workers", [1, 2])
def test_the_sizes_of_a_search_are_measured_in_the_same_processes(
    tmp_path: Path, owned: Owned, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN_AT", "")
    run = searched(tmp_path, workers)
    for point in (1, 2, 3):
        run.ok(point)
    records = [run.record(point) for point in (1, 2, 3)]
    assert [record.standing for record in records] == [False, True, True]
    assert [record.effective["batch_size"] for record in records] == [1, 2, 3]
    assert [record.load_s for record in records[1:]] == [0, 0]
    assert len({(run.home(point) / "entities.tsv").read_bytes() for point in (1, 2, 3)}) == 1
    assert len(with_variable(f"FRAMEWORK={owned.imports}")) == 1 + 1 + (workers if workers > 1 else 0)
    assert run.left_on_scratch() == []


@pytest.mark.fault
@pytest.mark.usefixtures("owned")
@pytest.mark.parametrize("workers", [1, 2])
def test_kill_9_of_a_process_that_goes_on_with_a_search(tmp_path: Path, halted: Halted, workers: int) -> None:
    """FAULT: a process of a search is killed outright in its second try, and later between two tries.

    HOW: real: kill -9 of the process that holds the model.
    REPORTED: `lost`, by a record if one of several workers was killed; the next try has fresh processes.
    LOST: the rest of that try.
    """
    run = searched(tmp_path, workers)
    halted.go()
    ended(started(halted, run, 1))
    (halted.folder / "go").unlink()
    process = started(halted, run, 2)
    os.kill(halted.worker(), signal.SIGKILL)
    said = ended(process)
    assert outcome(run, 2) == "lost", said
    assert (run.home(2) / "record.json").exists() == (workers > 1)
    halted.go()
    for point in (3, 1):
        ended(started(halted, run, point))
        holder = halted.worker()
        os.kill(holder, signal.SIGKILL)
        wait_until(lambda pid=holder: gone(pid))  # type: ignore[misc]
    assert [record.standing for record in (run.record(3), run.record(1, 2))] == [False, False]


def started(halted: Halted, run: ScriptRun, point: int) -> subprocess.Popen[str]:
    """Start a point and return when it waits after its first batch; all have one environment."""
    halted.told().unlink(missing_ok=True)
    told, go = str(halted.told()), str(halted.folder / "go")
    process = run.start(point, BROKEN_AT="batch", BROKEN_TOLD=told, BROKEN_GO=go)
    halted.started.append(process)
    wait_until(halted.told().exists)
    return process


def client_of(script: subprocess.Popen[str], owned: Owned) -> int:
    """Return the process that a job script started for a forked try."""
    (client,) = (
        pid
        for pid in with_variable(f"{parent.VARIABLE}={owned.process.pid}")
        if parent_of(pid) == script.pid
        and b"jobkit.worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    )
    return client


@pytest.mark.fault
def test_the_walltime_of_a_forked_try_and_the_end_of_what_runs_the_points(
    tmp_path: Path, owned: Owned, halted: Halted
) -> None:
    """FAULT: the walltime of a forked try is near; then the driver of several points is killed outright.

    HOW: real: USR1 to all processes of the script; kill -9 of the driver, but not of the running point.
    REPORTED: `timeout`, in a record with the batches that were done; `ok`: the point ends as it would have.
    LOST: nothing: the parent goes on, and ends after the point.
    """
    run = framework(tmp_path)
    process = started(halted, run, 1)
    os.killpg(process.pid, signal.SIGUSR1)
    said = ended(process)
    record = run.record()
    assert (process.returncode, record.outcome, record.signal) == (143, "timeout", "USR1"), said
    process = started(halted, run, 2)
    owned.process.kill()
    owned.process.wait()
    assert not gone(owned.parents()[0])
    halted.go()
    ended(process)
    assert (outcome(run, 2), record.forked, run.record(2).forked) == ("ok", True, True)
    assert len(owned.parents()) == 1
    assert run.left_on_scratch() == []


def test_a_sweep_on_this_machine_leaves_no_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = tmp_path / "imports"
    monkeypatch.setenv("FRAMEWORK", str(imports))
    monkeypatch.setenv("BROKEN_AT", "")
    for fork in ("true", "false"):
        (tmp_path / fork).mkdir()
        workload = "tests.workloads.framework:Framework"
        ran("sweep", write_spec(tmp_path / fork, workload=workload, fork=fork == "true"), cwd=tmp_path / fork)
        records = [path.read_text() for path in tmp_path.glob(f"{fork}/runs/*/results/*/try-1/record.json")]
        assert [f'"forked": {fork}' in text for text in records] == [True, True]
    assert len(imports.read_text(encoding="ascii").splitlines()) == 3, "a parent, and two fresh processes"
    wait_until(lambda: not any(is_parent(pid) for pid in with_variable(f"FRAMEWORK={imports}")))


@pytest.mark.fault
@pytest.mark.parametrize(
    ("name", "word", "reason"),
    [
        ("Missing", Outcome.ENVIRONMENT, "cannot import the framework: ModuleNotFoundError"),
        ("Without", Outcome.OK, "has no preload()"),
    ],
)
@pytest.mark.usefixtures("owned")
def test_a_framework_that_cannot_be_imported_in_advance(
    tmp_path: Path, name: str, word: Outcome, reason: str
) -> None:
    """FAULT: the parent of forked tries cannot import the framework, or the workload has no `preload`.

    HOW: real.
    REPORTED: the outcome of a fresh process, in which the try runs then; the log has the reason.
    LOST: nothing.
    """
    run = framework(tmp_path, name)
    assert reason in run.run(1)[1]
    assert (run.record().outcome, run.record().forked) == (word, False)


@pytest.mark.long
@pytest.mark.usefixtures("owned")
def test_the_tiny_tagger_forked_twice_with_two_threads(tmp_path: Path, tiny_model: ModelRef) -> None:
    text = "\n\n".join(f"Ada Kelford went to Paris {n} times with Beatrice." for n in range(12))
    keys: dict[str, Any] = {"workload": "stanza-ner", "threads": 2, "shortcuts": "exact"}
    run = ScriptRun(tmp_path, model=tiny_model, text=text, **keys)
    for point in (1, 2):
        run.ok(point)
    first, second = run.record(1), run.record(2)
    assert [record.check and record.check.reused for record in (first, second)] == [False, True]
    assert [(record.forked, record.point.threads) for record in (first, second)] == [(True, 2)] * 2
    assert (second.import_s or 0) < (first.import_s or 0) / 2
    assert [record.ran("shortcuts") for record in (first, second)] == ["exact"] * 2
    assert (run.home(1) / "entities.tsv").read_bytes() == (run.home(2) / "entities.tsv").read_bytes()


def test_a_client_imports_nothing_that_it_does_not_need() -> None:
    code = "import jobkit.worker.__main__, sys; print(*(name for name in sys.modules if 'jobkit' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needed = {"jobkit", "jobkit.worker", "jobkit.worker.__main__", "jobkit.worker.process"}
    needed |= {"jobkit.core", "jobkit.core.frozen"}
    assert set(done.stdout.split()) <= needed | {"jobkit.worker.parent"}


def is_parent(pid: int) -> bool:
    """Tell whether a process was started as a parent."""
    return b"jobkit.worker.parent" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_forked_tries_on_a_gpu_have_the_idle_power_that_their_parent_measured(
    tmp_path: Path, owned: Owned
) -> None:
    """The GPU is not there; each try opens it for itself."""
    (tmp_path / "held").mkdir()
    folders = (WORKLOADS / "card", WORKLOADS / "nvml", WORKLOADS, WORKLOADS.parents[1])
    card = {"FAKE_CARD": "T4", "FAKE_HELD": str(tmp_path / "held"), "CUDA_VISIBLE_DEVICES": "0"}
    card |= {"PYTHONPATH": os.pathsep.join(map(str, folders)), "FAKE_IMPORT_S": "1.2"}
    run = ScriptRun(tmp_path, workload="tests.workloads.framework:SlowOnCard", device="cuda")
    for point in (1, 2):
        run.ok(point, **card)
    assert owned.process.poll() is None
    records = [run.record(point) for point in (1, 2)]
    assert [record.forked for record in records] == [True, True]
    energies = [record.energy for record in records if record.energy]
    assert [energy.idle_w for energy in energies] == [pytest.approx(200, rel=0.05)] * 2
    assert energies[0].idle_s == energies[1].idle_s
    assert [record.memory.context_bytes for record in records] == [2**28, 2**28]
