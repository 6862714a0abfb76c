"""Points whose worker runs in a container: real job scripts, and a stand-in for apptainer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from tests.support.commands import JOBKIT
from tests.whole.test_environments import FAKES, linked_python
from tests.whole.test_job_script import DEADLINE_S, ScriptRun, wait_until

SYSTEM = os.environ["PATH"]


class Node:
    """A machine that has an image, and apptainer under one of its names."""

    def __init__(self, folder: Path, engine: str = "apptainer") -> None:
        self.image = folder / "my image.sif"
        self.image.write_text("SIF", encoding="utf-8")
        linked_python(folder / "inside").rename(folder / "inside" / "bin" / "python3")
        (folder / "bin").mkdir()
        (folder / "bin" / engine).symlink_to(FAKES / "apptainer")
        self.log = folder / "calls"
        self.env = {
            "PATH": f"{folder}/bin:{SYSTEM}",
            "FAKE_IMAGE_PATH": f"{folder}/inside/bin:{SYSTEM}",
            "FAKE_APPTAINER_LOG": str(self.log),
        }

    def calls(self) -> list[list[str]]:
        """Return the words of each call, the name of the program first."""
        return [call.split("\t") for call in self.log.read_text(encoding="utf-8").splitlines()]

    def binds(self, call: Sequence[str]) -> list[str]:
        """Return the paths that a call binds, and check that nothing else stands before the image."""
        before = list(call[2 : call.index(str(self.image))])
        assert [word for word in before[::2] if word != "--bind"] == []
        return before[1::2]


@pytest.mark.parametrize("engine", ["apptainer", "singularity"])
def test_the_worker_runs_in_the_image(tmp_path: Path, engine: str) -> None:
    node = Node(tmp_path, engine)
    run = ScriptRun(tmp_path, environment={"container": str(node.image)})
    status, said = run.run(1, **node.env)
    assert status == 0, said
    record = run.record()
    assert record.outcome is Outcome.OK
    assert record.environment["SINGULARITY_CONTAINER"] == str(node.image)
    first, last = node.calls()
    assert node.binds(first) == node.binds(last) == [str(run.dir), str(run.own()), str(run.text)]
    assert [call[:2] for call in (first, last)] == [[engine, "exec"]] * 2
    assert last[last.index("python3") :][:3] == ["python3", "-m", "jobkit.worker"]
    assert run.left_on_scratch() == []


def test_gpus_are_passed_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    run = ScriptRun(tmp_path, environment={"container": str(node.image)}, device="cuda")
    run.run(1, **node.env)
    assert {tuple(call[:3]) for call in node.calls()} == {("apptainer", "exec", "--nv")}


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_job_reaches_the_worker(tmp_path: Path, sent: signal.Signals) -> None:
    """USR1 goes to the whole process group, as from a scheduler: in the container it must not kill Python."""
    node = Node(tmp_path)
    run = ScriptRun(tmp_path, workload="odd:Slow", environment={"container": str(node.image)})
    begun = tmp_path / "begun"
    process = run.start(1, ODD_TOLD=str(begun), **node.env)
    wait_until(begun.exists)
    os.killpg(process.pid, sent) if sent == signal.SIGUSR1 else process.send_signal(sent)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143, said
    record = run.record()
    assert record.outcome == ("cancelled" if sent == signal.SIGTERM else "timeout")
    assert record.summary is not None
    assert record.summary.batches == 1
    assert run.left_on_scratch() == []


def test_an_exit_status_passes_through(tmp_path: Path) -> None:
    node = Node(tmp_path)
    run = ScriptRun(tmp_path, workload="odd:Exits", environment={"container": str(node.image)})
    assert run.run(1, ODD_STATUS="7", **node.env)[0] == 7
    assert run.exit().status == 7


@pytest.mark.fault
def test_an_image_that_is_not_on_the_node(tmp_path: Path) -> None:
    """FAULT: the node has no file at `environment.container`.

    HOW: real: the file is removed; a stand-in for apptainer.
    REPORTED: `environment`: "there is no image ... on HOST"; `jobkit doctor` finds it before.
    LOST: nothing: no worker was started.
    """
    node = Node(tmp_path)
    node.image.unlink()
    run = ScriptRun(tmp_path, environment={"container": str(node.image)})
    status, said = run.run(1, **node.env)
    assert (status, run.exit().outcome, run.left_on_scratch()) == (1, Outcome.ENVIRONMENT, []), said
    assert f"there is no image {node.image} on " in run.exit().message
    assert not node.log.exists()


@pytest.mark.fault
def test_a_node_without_apptainer(tmp_path: Path) -> None:
    """FAULT: the node has neither apptainer nor singularity.

    HOW: real: this machine has none.
    REPORTED: `environment`: "neither apptainer nor singularity is on PATH on HOST".
    LOST: nothing: no worker was started.
    """
    node = Node(tmp_path)
    run = ScriptRun(tmp_path, environment={"container": str(node.image)})
    status, said = run.run(1, **node.env | {"PATH": SYSTEM})
    assert (status, run.exit().outcome) == (1, Outcome.ENVIRONMENT), said
    assert "neither apptainer nor singularity is on PATH" in run.exit().message


@pytest.mark.fault
def test_an_image_that_cannot_run_the_worker(tmp_path: Path) -> None:
    """FAULT: the image has no jobkit.

    HOW: its Python is one that cannot import jobkit; a stand-in for apptainer.
    REPORTED: `environment`: "python3 in the container cannot import jobkit"; the log has Python's message.
    LOST: nothing: no worker was started.
    """
    node = Node(tmp_path)
    (tmp_path / "inside" / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n')
    run = ScriptRun(tmp_path, environment={"container": str(node.image)})
    status, said = run.run(1, **node.env)
    assert (status, run.exit().outcome) == (1, Outcome.ENVIRONMENT), said
    assert "python3 in the container cannot import jobkit" in run.exit().message
    assert "No module named 'jobkit'" in said


def test_a_sweep_whose_image_is_next_to_the_spec(tmp_path: Path) -> None:
    """The driver of a local run would fork its tries from one parent, which would leave its image."""
    node = Node(tmp_path)
    spec = {
        "name": "boxed",
        "workload": "count",
        "text": "sample:20",
        "repeats": 1,
        "sweep": {"batch_size": [4, 8]},
        "environment": {"container": node.image.name},
    }
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "boxed.yaml").write_text(json.dumps(spec), encoding="utf-8")
    node.image.rename(tmp_path / "specs" / node.image.name)
    env = {**os.environ, **node.env, "JOBKIT_CACHE": str(tmp_path / "cache"), "JOBKIT_CONFIG": str(tmp_path)}
    argv = [str(JOBKIT), "sweep", "specs/boxed.yaml", "--scheduler", "local"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/results/*/try-1/record.json")]
    image = str(tmp_path / "specs" / node.image.name)
    assert [(one["outcome"], one["environment"]["SINGULARITY_CONTAINER"]) for one in records] == [
        ("ok", image)
    ] * 2
    workers = [call for call in node.calls() if "jobkit.worker" in call]
    assert len(workers) == 2
    assert not [call for call in node.calls() if "jobkit.worker.parent" in call]


def test_a_shard_sees_the_folder_of_its_corpus(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "corpus.txt").write_text("One two.\n\nThree.\n", encoding="utf-8")
    env = {**os.environ, **node.env, "JOBKIT_CACHE": str(tmp_path / "cache"), "JOBKIT_CONFIG": str(tmp_path)}
    spec = {"name": "far", "workload": "count", "text": "sample:5", "sweep": {"batch_size": [4]}}
    spec["environment"] = {"container": str(node.image)}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    words = ["--corpus", "far", "--scheduler", "local", "--shards", "1", "--out", "out"]
    argv = [str(JOBKIT), "apply", "spec.yaml", *words]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    worker = next(call for call in node.calls() if "jobkit.worker" in call)
    assert str(tmp_path / "far") in node.binds(worker)
