"""Tries that are forked from a parent which has imported the framework."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.records import ModelRef, Outcome
from jobkit.worker import parent_socket
from tests.support import commands
from tests.support.halted import Halted, ended, outcome
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.processes import gone, parent_of, with_variable
from tests.whole.test_job_script import WORKLOADS, ScriptRun, wait_until

SIZES = {"batch_size": [1, 2, 3]}
SPEC = """\
name: twice
workload: tests.workloads.framework:Framework
text: sample:20
sweep: {batch_size: [5]}
repeats: 1
scheduler: local
device: cpu
resources: {gpus: 0, cpus: 1}
"""


class Owned:
    """A process that owns a parent, and the points that run under it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.imports = folder / "imports"
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        monkeypatch.setenv(parent_socket.VARIABLE, str(self.process.pid))
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


def framework(folder: Path, name: str = "Framework", **changes: Any) -> ScriptRun:
    """Return a run folder of a workload that says who imports its framework."""
    return ScriptRun(folder, workload=f"tests.workloads.framework:{name}", sweep=SIZES, **changes)


def started(halted: Halted, run: ScriptRun, point: int = 1) -> subprocess.Popen[str]:
    """Start a point that waits after its first batch."""
    return halted.start(run, point, at="batch")


def follow(run: ScriptRun, halted: Halted) -> None:
    """Run point 2 with the environment with which `started` ran point 1."""
    halted.go()
    told, go = str(halted.told()), str(halted.folder / "go")
    status, said = run.run(2, BROKEN_AT="batch", BROKEN_TOLD=told, BROKEN_GO=go, ODD_TOLD=told)
    assert status == 0, said


def test_tries_that_follow_each_other_import_the_framework_once(
    tmp_path: Path, owned: Owned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN_AT", "")
    run = framework(tmp_path)
    assert [run.run(point)[0] for point in (1, 2)] == [0, 0]
    status, said = run.run(3, OMP_NUM_THREADS="1")
    assert status == 0, said
    assert "runs in a fresh process: OMP_NUM_THREADS changed" in said
    assert [run.record(point).forked for point in (1, 2, 3)] == [True, True, False]
    assert len(owned.parents()) == 2, "the parent, and the fresh process"
    assert run.record(3).environment["OMP_NUM_THREADS"] == "1"
    entities = {(run.home(point) / "entities.tsv").read_bytes() for point in (1, 2, 3)}
    assert len(entities) == 1
    assert run.left_on_scratch() == []


@pytest.mark.fault
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSEGV])
def test_kill_9_of_a_forked_worker(
    tmp_path: Path, owned: Owned, halted: Halted, sent: signal.Signals
) -> None:
    """FAULT: a worker that was forked is killed outright, or crashes.

    HOW: real: kill -9 and a segmentation fault.
    REPORTED: `lost` or `bug` with 128 and the signal as exit status, as for a fresh one.
    LOST: nothing: the batches that were done are home; the next try is forked from the same parent.
    """
    run = framework(tmp_path)
    process = started(halted, run)
    os.kill(halted.worker(), sent)
    said = ended(process)
    assert (process.returncode, run.exit().status) == (128 + sent, 128 + sent), said
    assert outcome(run) == ("lost" if sent == signal.SIGKILL else "bug")
    follow(run, halted)
    assert run.record(2).forked
    assert len(owned.parents()) == 1
    assert run.left_on_scratch() == []


@pytest.mark.fault
def test_kill_9_of_the_client_of_a_forked_worker(tmp_path: Path, owned: Owned, halted: Halted) -> None:
    """FAULT: the process that the job script started for a forked try is killed outright.

    HOW: real: kill -9.
    REPORTED: `lost` with exit status 137.
    LOST: nothing: its parent kills the worker, and the batches that were done are home.
    """
    run = framework(tmp_path)
    process = started(halted, run)
    worker = halted.worker()
    assert parent_of(worker) == owned.parents()[0]
    (client,) = (
        pid
        for pid in with_variable(f"{parent_socket.VARIABLE}={owned.process.pid}")
        if parent_of(pid) == process.pid
        and b"jobkit.worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    )
    os.kill(client, signal.SIGKILL)
    said = ended(process)
    assert (process.returncode, run.exit().status) == (137, 137), said
    wait_until(lambda: gone(worker))
    assert outcome(run) == "lost"


@pytest.mark.fault
def test_kill_9_of_the_parent_of_a_forked_worker(tmp_path: Path, owned: Owned, halted: Halted) -> None:
    """FAULT: the parent of forked tries is killed outright.

    HOW: real: kill -9 while a try runs.
    REPORTED: `lost` with exit status 137 for that try; the next one starts another parent.
    LOST: nothing: the kernel kills the worker with it, and the batches that were done are home.
    """
    run = framework(tmp_path)
    process = started(halted, run)
    os.kill(owned.parents()[0], signal.SIGKILL)
    ended(process)
    assert (process.returncode, outcome(run)) == (137, "lost")
    wait_until(lambda: gone(halted.worker()))
    follow(run, halted)
    assert (outcome(run, 2), run.record(2).forked, len(owned.parents())) == ("ok", True, 2)


@pytest.mark.fault
def test_kill_9_of_what_runs_the_points(tmp_path: Path, owned: Owned, halted: Halted) -> None:
    """FAULT: the script or the driver that runs several points is killed outright, but not the running point.

    HOW: real: kill -9.
    REPORTED: `ok`: the point ends as it would have.
    LOST: nothing; the parent ends after it.
    """
    run = framework(tmp_path)
    process = started(halted, run)
    owned.process.kill()
    owned.process.wait()
    assert not gone(owned.parents()[0])
    halted.go()
    ended(process)
    assert outcome(run) == "ok"


@pytest.mark.fault
@pytest.mark.parametrize(("sent", "word"), [(signal.SIGTERM, "cancelled"), (signal.SIGUSR1, "timeout")])
def test_a_signal_to_all_processes_of_a_forked_try(
    tmp_path: Path, owned: Owned, halted: Halted, sent: signal.Signals, word: str
) -> None:
    """FAULT: a forked try is cancelled, or its walltime is near.

    HOW: real: TERM or USR1 to all processes of the script.
    REPORTED: `cancelled` or `timeout`, in a record with the batches that were done.
    LOST: nothing; the parent goes on.
    """
    run = framework(tmp_path)
    process = started(halted, run)
    os.killpg(process.pid, sent)
    said = ended(process)
    assert process.returncode == 143, said
    record = run.record()
    assert (record.outcome, record.signal, record.forked) == (word, sent.name.removeprefix("SIG"), True)
    assert not gone(owned.parents()[0])
    assert run.left_on_scratch() == []


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
    _, said = run.run(1)
    assert reason in said
    assert (run.record().outcome, run.record().forked) == (word, False)


def test_fork_false(tmp_path: Path, owned: Owned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN_AT", "")
    run = framework(tmp_path, fork=False, workers=2, threads=1)
    status, said = run.run(1)
    assert status == 0, said
    assert not run.record().forked
    assert len(owned.parents()) == 2, "each worker imports it"


@pytest.mark.usefixtures("owned")
def test_the_tiny_tagger_forked_twice_with_two_threads(tmp_path: Path, tiny_model: ModelRef) -> None:
    text = "\n\n".join(f"Ada Kelford went to Paris {n} times with Beatrice." for n in range(12))
    run = ScriptRun(tmp_path, workload="stanza-ner", model=tiny_model, text=text, threads=2)
    for point in (1, 2):
        status, said = run.run(point)
        assert status == 0, said
    points = run.dir / "points.jsonl"
    points.write_text(points.read_text().replace('"workers": 1', '"workers": 2'))
    assert run.run(1)[0] == 0
    records = [run.record(1), run.record(2), run.record(1, 2)]
    assert [record.forked for record in records] == [True, True, True]
    assert [record.point.threads for record in records] == [2, 2, 2]
    first, *later = (record.import_s or 0.0 for record in records)
    assert max(later) < first / 2
    homes = [run.home(1), run.home(2), run.home(1, 2)]
    assert len({(home / "entities.tsv").read_bytes() for home in homes}) == 1


def test_a_client_imports_nothing_that_it_does_not_need() -> None:
    code = "import jobkit.worker.__main__, sys; print(*(name for name in sys.modules if 'jobkit' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needed = {"__main__", "parent", "parent_socket", "process"}
    assert set(done.stdout.split()) <= {
        "jobkit",
        "jobkit.worker",
        *(f"jobkit.worker.{name}" for name in needed),
    }


def test_a_sweep_on_this_machine_leaves_no_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = tmp_path / "imports"
    monkeypatch.setenv("FRAMEWORK", str(imports))
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    for again in ("1", "2"):
        monkeypatch.setenv("BROKEN_AT", "")
        monkeypatch.setenv("OMP_NUM_THREADS", again)
        spec = tmp_path / f"spec{again}.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        done = commands.jobkit("sweep", spec, "--runs-dir", tmp_path / f"runs{again}", "--new", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    records = [path.read_text() for path in tmp_path.glob("runs*/*/results/*/try-1/record.json")]
    assert len(records) == 2
    assert all('"forked": true' in text for text in records)
    assert len(imports.read_text(encoding="ascii").splitlines()) == 2
    wait_until(lambda: not any(is_parent(pid) for pid in with_variable(f"FRAMEWORK={imports}")))


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
        status, said = run.run(point, **card)
        assert status == 0, said
    assert owned.process.poll() is None
    records = [run.record(point) for point in (1, 2)]
    assert [record.forked for record in records] == [True, True]
    energies = [record.energy for record in records]
    assert [energy and energy.idle_w for energy in energies] == [pytest.approx(200, rel=0.05)] * 2
    assert energies[0]
    assert energies[1]
    assert energies[0].idle_s == energies[1].idle_s
    assert [record.memory.context_bytes for record in records] == [2**28, 2**28]
