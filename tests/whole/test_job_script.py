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
from pathlib import Path

import pytest

from jobkit.core import json_codec
from jobkit.core.layout import Exit, read_begin, read_exit, read_points
from jobkit.core.records import ModelRef, Outcome, Record, TextRef
from jobkit.planning.job_script import render
from jobkit.planning.points import Inputs, plan
from jobkit.report.tables import collect
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import record, write_begin, write_record

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

    def start(self, *words: int | str, script: str = "job.sh", **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", self.dir / script, *map(str, words)],
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

    def ok(self, *words: int | str, **env: str) -> str:
        """Run what must end well; return what it said."""
        status, said = self.run(*words, **env)
        assert status == 0, said
        return said

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
    run.ok(2, HOSTNAME="n1")
    found = run.record(2)
    assert found.outcome is Outcome.OK
    assert found.job.scheduler == "hand"
    assert read_begin(run.home(2) / "begin").host == found.environment["HOSTNAME"] == "n1"
    assert found.summary is not None
    assert (found.summary.items, found.summary.batches) == (3, 2)
    assert found.effective == {"batch_size": 2}
    assert run.exit(2) == Exit(status=0, stage="done", host="n1")
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
    assert run.run(2)[0] == 0
    assert (run.record(2).try_number, run.record(2, 2).try_number) == (1, 2), "none is overwritten"


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


def test_a_point_that_does_not_exist_and_a_run_folder_that_was_moved(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path)
    for argument in ("3", "x", "../1", ".*", "-1", "1 2"):
        status, said = run.run(argument)
        assert (status, "no point" in said) == (2, True), argument
    assert not list((run.dir / "results").iterdir())
    moved = run.dir.rename(run.dir.with_name("moved"))
    done = subprocess.run(["bash", moved / "job.sh", "1"], capture_output=True, text=True, check=False)
    assert (done.returncode, f"the run folder is no longer at {run.dir}" in done.stderr) == (2, True)


def slow_tasks(folder: Path) -> tuple[ScriptRun, list[subprocess.Popen[str]]]:
    """Start two points that never end; return once both have done a batch."""
    run = ScriptRun(folder, workload="odd:Slow", sweep={"batch_size": [1, 2]}, text=f"{TEXT}\nA fourth.\n")
    told = [folder / "told1", folder / "told2"]
    processes = [run.start(number, ODD_TOLD=str(path)) for number, path in enumerate(told, 1)]
    wait_until(lambda: all(path.exists() for path in told))
    return run, processes


def test_a_signal_brings_partial_results_home_and_the_last_task_of_a_node_cleans_up(tmp_path: Path) -> None:
    run, processes = slow_tasks(tmp_path)
    assert sum(name.endswith(".inputs") for name in run.left_on_scratch()) == 1
    ends = [(signal.SIGTERM, "cancelled"), (signal.SIGUSR1, "timeout")]
    for point, (process, (sent, outcome)) in enumerate(zip(processes, ends, strict=True), 1):
        assert (run.own() / "t-1.inputs" / "text").is_file()
        process.send_signal(sent)
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 143, said
        found = run.record(point)
        assert (found.outcome, found.provisional) == (outcome, True)
        assert run.exit(point).signal == found.signal == sent.name.removeprefix("SIG")
        assert found.summary is not None
        assert (found.summary.batches, found.summary.batches_total) == (1, 4 // point)
        assert len((run.home(point) / "batches.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    assert run.left_on_scratch() == []


@pytest.mark.fault
def test_a_status_that_grid_engine_would_obey_is_remapped(tmp_path: Path) -> None:
    """FAULT: the worker crashes outside Python.

    HOW: real: it ends with a status of its own and leaves no record.
    REPORTED: `bug`, "status 7 in step run"; 99 and 100, which Grid Engine takes for orders, become 98.
    LOST: nothing.
    """
    run = ScriptRun(tmp_path, workload="odd:Exits")
    for point, status, seen in ((1, 7, 7), (2, 99, 98)):
        assert run.run(point, ODD_STATUS=str(status))[0] == seen
        assert run.exit(point).status == status
    rows = collect([run.dir]).points
    assert rows["outcome"].tolist() == ["bug", "bug"]
    assert [words.partition(" in step run, but no record")[0] for words in rows["evidence"]] == [
        "exit file: status 7",
        "exit file: status 99",
    ]


def test_the_template_on_the_page_runs_and_what_it_leaves_comes_home(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "templates-and-sites.md"
    (example,) = re.findall(
        r"^```jinja\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "mine.sh.j2").write_text(example, encoding="utf-8")
    run = ScriptRun(tmp_path, template=str(tmp_path / "mine.sh.j2"))
    run.ok(1)
    assert run.record().outcome is Outcome.OK
    assert "open files" in (run.home() / "limits.txt").read_text(encoding="utf-8")


def test_two_tasks_that_end_at_the_same_moment_clean_up_once(tmp_path: Path) -> None:
    run, processes = slow_tasks(tmp_path)
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


def test_a_repeat_that_is_not_needed_ends_before_anything_is_copied(tmp_path: Path) -> None:
    run = ScriptRun(tmp_path, sweep={"batch_size": [1]}, repeats={"share": "5%", "least": 2, "most": 4})
    for point in read_points(run.dir)[0][:2]:
        write_begin(run.dir, point)
        write_record(run.dir, record(point))
    third = run.dir / "results" / "batch_size-1-r3"
    for _ in range(2):  # the second time as `jobkit resume RUN --only batch_size-1-r3` submits it
        run.ok("--offset", 0, JOBKIT_TASK="3", JOBKIT_JOB="77")
    ended = read_exit(third / "try-1" / "exit")
    assert (ended.outcome, ended.stage, ended.because) == (Outcome.PRUNED, "gate", "batch_size-1-r2")
    assert ended.message == "half the 95 % interval of 2 repeats is 0.0 % of their mean, under 5 %"
    assert not (third / "try-1" / "record.json").exists()
    assert not (run.dir / "flags").exists()
    assert (third / "try-2" / "record.json").exists()


SILENT = (
    "module() { case ${2:-} in"
    " '') echo '  ERROR: Unload of sticky module skipped' >&2; return 1 ;;"
    " absent) echo 'module(7):ERROR:105: no file for absent' >&2 ;;"
    " there) echo 'there is there' >&2 ;;"
    " known) echo 'an error that is none' >&2; export LOADEDMODULES=by-another-name ;; esac; }"
)


@pytest.mark.parametrize(
    ("where", "word", "command"),
    [("modules", "absent", "load"), ("setup", "module restore absent", "restore")],
)
def test_a_module_that_fails_with_status_0_ends_the_try(
    tmp_path: Path, where: str, word: str, command: str
) -> None:
    run = ScriptRun(tmp_path, site={"setup": [SILENT]}, environment={where: [word]})
    status, said = run.run(1)
    assert (status, run.exit().outcome, "ERROR:105" in said) == (1, Outcome.ENVIRONMENT, True), said
    assert run.exit().message == f"module {command} absent: module(7):ERROR:105: no file for absent"


def test_a_module_that_has_another_name_is_a_note(tmp_path: Path) -> None:
    setup = [SILENT, "module purge"]  # of which a sticky module stays
    run = ScriptRun(tmp_path, site={"setup": setup}, environment={"modules": ["there", "known"]})
    run.ok(1)
    assert all("is not in LOADEDMODULES (by-another-name)" in note for note in run.record().notes)
    assert [note.split()[1] for note in run.record().notes] == ["there", "known"]


@pytest.mark.parametrize(
    ("limit", "program", "allows"),
    [
        (
            "-v 2000000",
            "bytearray(3 * 10**9)",
            "-v allows processes of 1.91 GiB, less than the 8.00 GiB requested",
        ),
        ("-t 2", "while True: pass", "-t allows 2 s of CPU"),
        ("-f 20", "open('big', 'wb').write(bytes(10**6))", "-f allows files of 0.0 MiB"),
    ],
)
def test_a_limit_that_is_not_the_request_is_no_lack_of_memory(
    tmp_path: Path, limit: str, program: str, allows: str
) -> None:
    run = ScriptRun(
        tmp_path,
        workload={"command": f'python3 -c "{program}" {{batch_size}}'},
        environment={"setup": [f"ulimit -S {limit}"]},
        resources={"gpus": 0, "memory": "8GiB"},
    )
    assert run.run(1)[0] == 1
    assert run.record().outcome is Outcome.ENVIRONMENT
    assert allows in run.record().message
    assert run.record().limits.keys() >= {"open_files"}
