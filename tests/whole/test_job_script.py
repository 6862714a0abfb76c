"""The rendered job script, run by bash on this machine as `bash job.sh K`, without a scheduler."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core import json_codec
from jobkit.core.layout import Exit, read_begin, read_exit
from jobkit.core.records import ModelRef, Outcome, Record, TextRef
from jobkit.planning.job_script import render
from jobkit.planning.points import Inputs, plan
from jobkit.report.tables import collect
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec

WORKLOADS = Path(__file__).parents[1] / "workloads"
TEXT = "One paragraph. It has two sentences.\n\n  An indented one,\n  on two lines.\n\nThe third.\n"
DEADLINE_S = 120


class ScriptRun:
    """A run folder with one script, and what became of its points."""

    def __init__(
        self,
        folder: Path,
        *,
        site: Mapping[str, object] | None = None,
        text: str = TEXT,
        run_id: str = "t-1",
        model: ModelRef | None = None,
        device: str = "cpu",
        **changes: object,
    ) -> None:
        self.dir = folder / "my runs" / "r1"
        self.scratch = folder / "scratch"
        self.text = folder / "text.txt"
        self.text.write_text(text, encoding="utf-8")
        for name in ("logs", "results"):
            (self.dir / name).mkdir(parents=True)
        data = self.text.read_bytes()
        ref = TextRef(
            path=str(self.text),
            sha256=hashlib.sha256(data).hexdigest(),
            size_bytes=len(data),
            name="text.txt",
        )
        spec = SweepSpec.model_validate(
            {"name": "t", "workload": "count", "repeats": 1, "sweep": {"batch_size": [1, 2]}, **changes}
        )
        points = plan(spec, Inputs(run_id=run_id, text=ref, model=model, device=device))
        (self.dir / "points.jsonl").write_text(
            "".join(json_codec.to_json(p) + "\n" for p in points), encoding="utf-8"
        )
        here = {"name": "x", "scheduler": "local", "scratch": str(self.scratch), "sync_interval_s": 1}
        script = render(spec, Site.model_validate({**here, **(site or {})}), points[0], self.dir)
        (self.dir / "job.sh").write_text(script, encoding="utf-8")

    def start(self, *words: int | str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", self.dir / "job.sh", *map(str, words)],
            env={**os.environ, "PYTHONPATH": str(WORKLOADS), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: int | str, **env: str) -> tuple[int, str]:
        process = self.start(*words, **env)
        said, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, said

    def home(self, point: int = 1, number: int = 1) -> Path:
        return self.dir / "results" / f"batch_size-{point}-r1" / f"try-{number}"

    def record(self, point: int = 1, number: int = 1) -> Record:
        path = self.home(point, number) / "record.json"
        return json_codec.from_json(Record, path.read_text(encoding="utf-8"), where=str(path))

    def exit(self, point: int = 1, number: int = 1) -> Exit:
        return read_exit(self.home(point, number) / "exit")

    def own(self) -> Path:
        """Return the folder on scratch that only this user can enter."""
        return self.scratch / f"jobkit-{os.geteuid()}-{socket.gethostname()}"

    def left_on_scratch(self) -> list[str]:
        return left_on(self.scratch)


def left_on(scratch: Path) -> list[str]:
    """Return what lies on scratch, less the empty folder of a user and the lock in it."""
    folders = [scratch, *scratch.glob("jobkit-*-*")]
    return sorted(
        path.name
        for folder in folders
        for path in folder.iterdir()
        if path not in folders and (folder == scratch or path.name != "lock")
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def test_a_point_by_hand(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path)
    status, said = run.run(2)
    assert status == 0, said
    record = run.record(2)
    assert record.outcome is Outcome.OK
    assert record.job.scheduler == "hand"
    assert record.summary is not None
    assert (record.summary.items, record.summary.batches) == (3, 2)
    assert record.effective == {"batch_size": 2}
    assert run.exit(2) == Exit(status=0, stage="done", host=record.host)
    paragraphs = [
        "One paragraph. It has two sentences.\n",
        "  An indented one,\n  on two lines.\n",
        "The third.\n",
    ]
    with (run.home(2) / "entities.tsv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, dialect="excel-tab"))
    assert len(rows) == 3
    for row in rows:
        assert paragraphs[int(row["paragraph"])][int(row["start"]) : int(row["end"])] == row["text"]
    assert run.left_on_scratch() == []


def test_a_record_names_its_node_as_the_scheduler_does(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path)
    assert run.run(2, HOSTNAME="n1")[0] == 0
    assert read_begin(run.home(2) / "begin").host == run.record(2).environment["HOSTNAME"] == "n1"


def test_a_second_try_never_overwrites_the_first(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path)
    assert run.run(1)[0] == run.run(1)[0] == 0
    assert (run.record(number=1).try_number, run.record(number=2).try_number) == (1, 2)


def test_a_point_that_is_done_does_not_run_again_with_a_task_that_the_scheduler_begins_again(
    tmp_path: Path,
) -> None:
    site = {
        "scheduler": "slurm",
        "requests": {name: f"--{name}={{{name}}}" for name in ("cpus", "memory", "walltime")},
    }
    run = ScriptRun(tmp_path, site=site, resources={"gpus": 0})
    job = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "1"}
    for restart in ({}, {"SLURM_RESTART_COUNT": "1"}):
        assert run.run(**job, **restart)[0] == 0
    assert [path.name for path in run.home().parent.iterdir()] == ["try-1"]
    assert run.run(**job)[0] == 0
    assert run.home(1, 2).is_dir(), "a new job is somebody's word"


@pytest.mark.parametrize("arguments", ["0", "3", "x", "../1", "1 2", ".*", "-1", "1p"])
def test_a_point_that_does_not_exist(tmp_path: Path, arguments: str) -> None:
    run = ScriptRun(tmp_path)
    done = subprocess.run(
        ["bash", run.dir / "job.sh", arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no point" in done.stderr
    assert not list((run.dir / "results").iterdir())


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [(signal.SIGTERM, "cancelled"), (signal.SIGUSR1, "timeout"), (signal.SIGUSR2, "cancelled")],
)
def test_a_signal_brings_partial_results_home(tmp_path: Path, sent: signal.Signals, outcome: str) -> None:
    run = ScriptRun(tmp_path, workload="odd:Slow")
    told = tmp_path / "told"
    process = run.start(1, ODD_TOLD=str(told))
    wait_until(told.exists)
    process.send_signal(sent)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143, said
    record = run.record()
    assert (record.outcome, record.provisional) == (outcome, True)
    assert record.signal == sent.name.removeprefix("SIG")
    assert record.summary is not None
    assert (record.summary.batches, record.summary.batches_total) == (1, 3)
    assert len((run.home() / "batches.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    assert run.exit().signal == record.signal
    assert run.left_on_scratch() == []


@pytest.mark.fault
@pytest.mark.parametrize(("status", "seen"), [(7, 7), (99, 98), (100, 98)])
def test_a_status_that_grid_engine_would_obey_is_remapped(tmp_path: Path, status: int, seen: int) -> None:
    """FAULT: the worker crashes outside Python.

    HOW: real: it ends with a status of its own and leaves no record.
    REPORTED: `bug`, "status 7 in step run"; 99 and 100, which Grid Engine takes for orders, become 98.
    LOST: nothing.
    """
    run = ScriptRun(tmp_path, workload="odd:Exits")
    assert run.run(1, ODD_STATUS=str(status))[0] == seen
    assert run.exit().status == status
    (row,) = collect([run.dir]).points.iloc[[0]].itertuples()
    said = f"exit file: status {status} in step run, but no record was copied home"
    assert (row.outcome, row.evidence) == ("bug", said)


def test_the_template_on_the_page_runs_and_what_it_leaves_comes_home(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "templates-and-sites.md"
    (example,) = re.findall(
        r"^```jinja\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "mine.sh.j2").write_text(example, encoding="utf-8")
    run = ScriptRun(tmp_path, template=str(tmp_path / "mine.sh.j2"))
    status, said = run.run(1)
    assert status == 0, said
    assert run.record().outcome is Outcome.OK
    assert "open files" in (run.home() / "limits.txt").read_text(encoding="utf-8")


@pytest.mark.fault
def test_a_text_that_has_changed_is_not_tagged(tmp_path: Path) -> None:
    """FAULT: the text is changed after the submission.

    HOW: real: it is changed.
    REPORTED: `stage_in`: the text is not the planned one, with the beginnings of both checksums.
    LOST: nothing; a run never mixes figures of two texts.
    """
    run = ScriptRun(tmp_path)
    run.text.write_text("Another text.\n", encoding="utf-8")
    assert run.run(1)[0] == 1
    assert run.record().outcome is Outcome.STAGE_IN
    assert "is not the text that was planned: sha256 " in run.record().message


@pytest.mark.fault
def test_cuda_is_never_replaced_by_the_cpu(tmp_path: Path) -> None:
    """FAULT: a job requested a GPU and finds none.

    HOW: real: a point for `cuda` on a machine without a GPU.
    REPORTED: `no_gpu`; it never falls back to the CPU.
    LOST: nothing; a GPU run has no figures from a CPU.
    """
    run = ScriptRun(tmp_path)
    points = run.dir / "points.jsonl"
    points.write_text(points.read_text(encoding="utf-8").replace('"device": "cpu"', '"device": "cuda"'))
    assert run.run(1, CUDA_VISIBLE_DEVICES="")[0] == 1
    assert run.record().outcome is Outcome.NO_GPU


def test_tasks_on_one_node_share_inputs_and_the_last_one_cleans_up(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path, workload="odd:Slow")
    said = [tmp_path / "told1", tmp_path / "told2"]
    processes = [run.start(number, ODD_TOLD=str(path)) for number, path in enumerate(said, 1)]
    wait_until(lambda: all(path.exists() for path in said))
    assert sum(name.endswith(".inputs") for name in run.left_on_scratch()) == 1
    processes[0].send_signal(signal.SIGTERM)
    processes[0].communicate(timeout=DEADLINE_S)
    assert (run.own() / "t-1.inputs" / "text").is_file()
    processes[1].send_signal(signal.SIGTERM)
    processes[1].communicate(timeout=DEADLINE_S)
    assert run.left_on_scratch() == []


def test_two_tasks_that_end_at_the_same_moment_clean_up_once(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path, workload="odd:Slow")
    told = [tmp_path / "told1", tmp_path / "told2"]
    processes = [run.start(number, ODD_TOLD=str(path)) for number, path in enumerate(told, 1)]
    wait_until(lambda: all(path.exists() for path in told))
    turn = os.open(run.own() / "lock", os.O_RDONLY)
    fcntl.flock(turn, fcntl.LOCK_EX)  # both see the shared inputs, and wait for their turn to look after them
    for process in processes:
        process.send_signal(signal.SIGTERM)
    wait_until(lambda: run.left_on_scratch() == ["t-1.inputs"])
    os.close(turn)
    said = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
    assert run.left_on_scratch() == []
    assert not any("No such file" in text for text in said), said


@pytest.mark.fault
def test_a_set_up_that_leaves_the_script_is_no_success(tmp_path: Path) -> None:
    """FAULT: a line of the set-up ends the job script with status 0.

    HOW: real: `exit 0` in `environment.setup`.
    REPORTED: `environment`: only the worker can make a try succeed.
    LOST: nothing.
    """
    run = ScriptRun(tmp_path, environment={"setup": ["exit 0"]})
    assert run.run(1)[0] == 1
    assert (run.exit().status, run.exit().stage) == (1, "environment")


def test_a_run_folder_that_was_moved_says_so(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path)
    moved = run.dir.rename(run.dir.with_name("moved"))
    done = subprocess.run(["bash", moved / "job.sh", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"the run folder is no longer at {run.dir}" in done.stderr


def test_a_repeat_that_is_not_needed_ends_before_anything_is_copied(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path, sweep={"batch_size": [1]}, repeats={"share": "5%", "least": 2, "most": 4})

    def task(point: int) -> int:
        status, said = run.run("--offset", 0, JOBKIT_TASK=str(point), JOBKIT_JOB="77")
        assert status == 0, said
        return status

    def home(repeat: int, number: int = 1) -> Path:
        return run.dir / "results" / f"batch_size-1-r{repeat}" / f"try-{number}"

    for repeat in (1, 2):
        task(repeat)
        path = home(repeat) / "record.json"
        record = json_codec.from_json(Record, path.read_text(encoding="utf-8"), where=str(path))
        assert record.summary
        even = replace(record, summary=replace(record.summary, items_per_s=100.0))
        path.write_text(json_codec.to_json(even), encoding="utf-8")
    task(3)
    ended = read_exit(home(3) / "exit")
    assert (ended.outcome, ended.stage, ended.because) == (Outcome.PRUNED, "gate", "batch_size-1-r2")
    assert ended.message == "half the 95 % interval of 2 repeats is 0.0 % of their mean, under 5 %"
    assert not (home(3) / "record.json").exists()
    assert not (run.dir / "flags").exists()
    task(3)  # as `jobkit resume RUN --only batch_size-1-r3` submits it
    assert (home(3, 2) / "record.json").exists()
