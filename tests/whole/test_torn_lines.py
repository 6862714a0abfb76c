"""Files of a run that are cut short amid a line: no point runs twice, and no job is forgotten."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.json_codec import to_json
from jobkit.core.shell import Completed
from jobkit.launch import resume
from jobkit.launch.cancel import cancel
from jobkit.launch.resume import run_again
from jobkit.report.tables import collect
from jobkit.runs.journal import Role, note, read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.status import RunStatus
from jobkit.runs.trials import Trial
from jobkit.spec.sweep_spec import load_spec
from tests.runs.test_driver_lock import another
from tests.support.builders import (
    batch,
    record,
    write_answer,
    write_batches,
    write_event,
    write_record,
    write_submitted,
)
from tests.support.swept import made

pytestmark = pytest.mark.fault
DONE, AT_WORK = (1, 2), (3, 4, 5, 6)
AROUND_ENDS = 1
"""So many bytes on either side of the end of a line are positions to cut at."""


class Slurm:
    """What a Slurm holds and does, within this process; it answers in the form of tests/data/slurm.

    Its jobs run from the start. An answer that it does not have is empty, with status 0.
    """

    def __init__(self, run: Path, name: str) -> None:
        self.run, self.name = run, name
        self.jobs: dict[str, dict[int, tuple[int, ...]]] = {}
        self.ended: dict[str, set[int]] = {}
        self.last = 100

    def take(self, tasks: dict[int, tuple[int, ...]]) -> str:
        self.last += 1
        self.jobs[str(self.last)], self.ended[str(self.last)] = tasks, set()
        return str(self.last)

    def alive(self) -> list[tuple[str, int]]:
        return [
            (job, task) for job, tasks in self.jobs.items() for task in tasks if task not in self.ended[job]
        ]

    def at_work(self) -> list[int]:
        """Return the points of all tasks that have not ended, as often as they would run."""
        return sorted(point for job, task in self.alive() for point in self.jobs[job][task])

    def __call__(self, argv: Sequence[str], **_: object) -> Completed:
        answer = getattr(self, f"_{argv[0]}", lambda *_: "")(list(argv))
        return Completed(tuple(argv), 0, answer, "")

    def _submitted(self, argv: list[str]) -> str:
        """Take a job of the script that is named; return its number."""
        (script,) = (word for word in argv if word.endswith(".sh"))
        number = re.search(r"job-(\d+)\.sh", script)
        if not number:
            return self.take({1: ()})
        lines = (self.run / f"tasks-{number[1]}.txt").read_text().splitlines()
        return self.take({n: tuple(map(int, line.split())) for n, line in enumerate(lines, 1)})

    def _squeue(self, _: list[str]) -> str:
        return "".join(f"{job}_{task}|RUNNING|None|n1|0:10|N/A|{self.name}\n" for job, task in self.alive())

    def _sacct(self, _: list[str]) -> str:
        row = "{}_{}|{}|0:0|1||1G|1|n1|None|{}\n"
        return "".join(
            row.format(job, task, "CANCELLED by 0" if task in self.ended[job] else "RUNNING", self.name)
            for job, tasks in self.jobs.items()
            for task in tasks
        )

    def _scontrol(self, _: list[str]) -> str:
        return "MaxArraySize = 1001\n"

    def _scancel(self, argv: list[str]) -> str:
        for word in argv[1:]:
            self.ended[word.partition("_")[0]] |= self.jobs[word.partition("_")[0]].keys()
        return ""

    def _sbatch(self, argv: list[str]) -> str:
        return "" if "--test-only" in argv else f"{self._submitted(argv)}\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run of six points of which two are done, made for Slurm, its journal still empty."""
    monkeypatch.setattr(shell, "run", Slurm(tmp_path, ""))
    prepared = made(tmp_path, "slurm")
    monkeypatch.setattr(resume, "PATIENCE_S", 0.0)
    cached = functools.cache(load_spec)  # the spec is not what is cut
    monkeypatch.setattr(resume, "load_spec", lambda path, given=(): cached(path, tuple(given)))
    for point in prepared.points[: len(DONE)]:
        said = record(point)
        write_record(prepared.run_dir, replace(said, job=replace(said.job, job_id="101")))
    return prepared.run_dir


@pytest.fixture
def controller(run: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Return a controller that works on all points in job 101, and has the job that follows, 102."""
    found = Slurm(run, run.name)
    monkeypatch.setattr(shell, "run", found)
    found.take({task: (task,) for task in range(1, 7)})
    found.take({1: ()})
    found.ended["101"] |= set(DONE)
    for job, role, last in (("101", Role.POINTS, 6), ("102", Role.FOLLOW, 1)):
        write_event(run, "submitting", scheduler="slurm", first=1, last=last, offset=0, role=role, round=1)
        write_submitted(run, "slurm", job, first=1, last=last, role=role, round=1)
    note(run, "throttled", job_id="101", cluster="", status=0, said="", throttle=2, refused="")
    return found


def positions(data: bytes) -> list[int]:
    """Return where a file is cut: around the ends of its lines, and amid them."""
    ends = [0, *(one.end() for one in re.finditer(b"\n", data))]
    near = {end + by for end in ends for by in range(-AROUND_ENDS, AROUND_ENDS + 1)}
    middles = {(one + two) // 2 for one, two in pairwise(ends)}
    return sorted(one for one in near | middles if 0 <= one < len(data))


def each_cut(path: Path) -> Iterator[int]:
    """Cut a file at one position after the other, in a run folder that is restored each time."""
    folder = path.parent if path.parent.name.startswith("t-") else path.parents[3]
    kept = folder.with_name(f"{folder.name}.kept")
    shutil.copytree(folder, kept)
    data = path.read_bytes()
    for position in positions(data):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        path.write_bytes(data[:position])
        yield position


def seen(run: Path) -> RunStatus:
    """Look at a run, and collect it: neither may fail."""
    collect([run])
    return read_status([run])[0]


def tried(what: Callable[[], object]) -> str:
    """Do something that may be refused in words, and nothing else; return the words."""
    try:
        what()
    except JobkitError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("appended", [False, True], ids=["cut", "cut, then appended to"])
def test_a_journal_of_a_cluster(run: Path, controller: Slurm, *, appended: bool) -> None:
    """FAULT: `journal.jsonl` is cut short while jobs wait and run, and later lines may be appended.

    HOW: real: files cut around the end of each line, and in the middle; fake: Slurm answers
    within the test.
    REPORTED: if the line of a job is lost, jobkit finds the job by the run's name; if its points are not
    known, `jobkit resume` refuses and names the job. `jobkit cancel` ends every job. The line is named and
    skipped.
    LOST: nothing: no point runs twice, no job is forgotten, and cancelled points run again.
    """
    fresh = {job: set(tasks) for job, tasks in controller.ended.items()}
    for position in each_cut(run / "journal.jsonl"):
        controller.jobs = {job: controller.jobs[job] for job in fresh}
        controller.ended = {job: set(tasks) for job, tasks in fresh.items()}
        if appended:
            note(run, "throttled", job_id="101", cluster="", status=0, said="", throttle=3, refused="")
        assert len(seen(run).points) == 6
        tried(lambda: run_again(run, (), ()))
        assert controller.at_work() == list(AT_WORK), f"cut at {position}: each once"
        assert tried(lambda: cancel(run, [], [])) == "", f"cut at {position}"
        assert controller.alive() == [], f"cut at {position}: all are ended"
        assert tried(lambda: run_again(run, (), ())) == ""
        assert controller.at_work() == list(AT_WORK), f"cut at {position}: all run again, once"


@pytest.mark.parametrize("name", ["accounting.jsonl", "trials.jsonl", "batches.jsonl"])
def test_the_other_files_that_grow(run: Path, controller: Slurm, name: str) -> None:
    """FAULT: `accounting.jsonl`, `trials.jsonl` or `batches.jsonl` is cut short.

    HOW: real: files cut around the end of each line, and in the middle.
    REPORTED: nothing: jobkit asks the scheduler again, and the record holds the measurements.
    LOST: nothing.
    """
    for at in range(3):
        row = f"101_{at + 1}|COMPLETED|0:0|1||1G|1|n1|None|{run.name}\n"
        write_answer(run, "slurm", "accounting", row, argv=["sacct", str(at)])
        append_line(run / "trials.jsonl", to_json(Trial(message=f"no {at}")))
    point = seen(run).points[2].point
    write_batches(run, point, [batch(0), batch(1)])
    path = run / name if name != "batches.jsonl" else run / "results" / point.point_id / "try-1" / name
    for _ in each_cut(path):
        assert len(seen(run).points) == 6
        assert tried(lambda: run_again(run, (), ())) == ""
        assert controller.at_work() == list(AT_WORK)


def test_the_list_of_points(run: Path, controller: Slurm) -> None:
    """FAULT: `points.jsonl` is cut short.

    HOW: real: the file cut around the end of each line, and in the middle.
    REPORTED: how many points of the journal are missing in the list, and the line that was cut.
    LOST: those points are not shown; none of them runs twice, and `jobkit cancel` ends their tasks too.
    """
    fresh = set(controller.ended["101"])
    for position in each_cut(run / "points.jsonl"):
        controller.ended = {"101": set(fresh), "102": set()}
        if not (run / "points.jsonl").read_text().count("\n"):
            continue
        look_ = seen(run)
        assert len(look_.points) == 6 or any("points.jsonl" in one for one in look_.notes), position
        tried(lambda: run_again(run, (), ()))
        assert controller.at_work() == list(AT_WORK)
        tried(lambda: cancel(run, [], []))
        assert controller.alive() == []


@pytest.fixture
def here(run: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Make it a run on this machine; return what is driven here from now on."""
    spec = run / "sweep.yaml"
    text = re.sub("(?m)^scheduler: .*", "scheduler: local", spec.read_text())
    spec.write_text(re.sub("(?m)^site: .*", "site: local-default", text))
    driven: list[tuple[int, ...]] = []
    monkeypatch.setattr("jobkit.launch.local.drive", lambda *words: driven.append(tuple(words[3].points)))
    return driven


@pytest.mark.parametrize("lives", [True, False], ids=["lives", "dead"])
def test_a_journal_of_this_machine(
    run: Path, here: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch, *, lives: bool
) -> None:
    """FAULT: `journal.jsonl` of a run on this machine is cut short, its driver alive or killed.

    HOW: real: the file cut around the end of each line; a process that holds the driver's lock, and kill -9.
    REPORTED: `jobkit resume` writes the lost line again. While the driver lives it runs nothing; \
    if the driver is dead, it runs every point that is not done; `jobkit cancel` ends the driver.
    LOST: nothing.
    """
    killed: list[str] = []

    def ends(argv: Sequence[str], **_: object) -> Completed:
        killed.append(argv[-1])
        return Completed(tuple(argv), 0, "", "")

    with another(run) as (process, job):
        monkeypatch.setattr(shell, "run", ends)
        span = {"first": 1, "last": 6, "offset": 0, "round": 1, "job_id": job.id, "cluster": job.cluster}
        write_event(run, "submitting", scheduler="local", **span)
        write_event(run, "submitted", scheduler="local", **span)
        if not lives:
            process.kill()
            process.wait()
        inode = (run / ".driver.lock").stat().st_ino
        path = run / "journal.jsonl"
        data = path.read_bytes()
        for position in positions(data):
            path.write_bytes(data[:position])
            here.clear()
            killed.clear()
            assert len(seen(run).points) == 6
            words = tried(lambda: run_again(run, (), ()))
            assert here == ([] if lives else [AT_WORK]), (position, words)
            if lives:
                assert tried(lambda: cancel(run, [], [])) == ""
                assert killed == [str(process.pid)], position
        assert (run / ".driver.lock").stat().st_ino == inode


def test_what_a_lost_line_is_called(run: Path, controller: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """FAULT: the disk fills while sbatch answers, so that half of the line `submitted` is in the journal.

    HOW: real: that line cut in the middle; fake: Slurm answers within the test.
    REPORTED: "a submission was cut off; its job 101 was found by its name", once; the cut line is named.
    LOST: nothing.
    """
    path = run / "journal.jsonl"
    first, second, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[: len(second) // 2])
    del controller.jobs["102"]
    assert run_again(run, (), ()) == 0
    assert "its job 101 was found by its name" in capsys.readouterr().err
    assert read_journal(run).submissions[0].job.id == "101"
    assert "journal.jsonl:2: not JSON" in read_status([run])[0].notes[0]
    run_again(run, (), ())
    assert "found by its name" not in capsys.readouterr().err
    assert controller.at_work() == list(AT_WORK)
