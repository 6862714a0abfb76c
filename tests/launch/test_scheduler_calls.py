"""What is done to a scheduler: asked, journalled, done, journalled. The answers are those of real ones."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobkit.core.errors import JobkitError
from jobkit.launch import scheduler_calls
from jobkit.launch.job import Job
from jobkit.launch.scheduler_calls import (
    MOST_SAID,
    SubmissionUnconfirmed,
    cancel_tasks,
    check_submission,
    submission_environment,
    submit_array,
    throttle,
)
from jobkit.runs.journal import Role, read_journal
from jobkit.schedulers import sge, slurm
from jobkit.schedulers.types import Array, JobId, JobRequest

DATA = Path(__file__).parents[1] / "data"
ARRAY = Array(first=1, last=3, offset=0, throttle=None)
SEVEN = JobId("7")
JOB = Job(script="job.sh", array=ARRAY)
Program = Callable[..., None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return a maker of programs that say what was captured, or what a test writes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(name: str, captured: str = "", *, out: str = "", err: str = "", status: int = 0) -> None:
        if captured:
            text = (DATA / f"{captured}.txt").read_text(encoding="utf-8")
            found = re.fullmatch(r"\$ .*\nstatus (\d+)\n--- stdout\n(.*)--- stderr\n(.*)", text, re.DOTALL)
            assert found
            status, out, err = int(found[1]), found[2], found[3]
        (folder / f"{name}.out").write_text(out, encoding="utf-8")
        (folder / f"{name}.err").write_text(err, encoding="utf-8")
        body = f'echo "$*" >>{folder}/{name}.calls; cat {folder}/{name}.out; cat {folder}/{name}.err >&2'
        (folder / name).write_text(f"#!/bin/sh\n{body}\nexit {status}\n", encoding="utf-8")
        (folder / name).chmod(0o755)

    return make


def events(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()]


def request_of(**fields: object) -> JobRequest:
    plain: dict[str, object] = {"name": "d", "queue": None, "gpus": 0, "gpu_type": None, "cpus": 1}
    plain |= {"memory_bytes": 2**20, "walltime_s": 60, "account": None, "qos": None}
    return JobRequest(**(plain | fields))  # type: ignore[arg-type]  # a test names the fields it changes


def test_every_refusal_is_reported_once(program: Program) -> None:
    program("sinfo", "slurm/sinfo")
    program("sbatch", "slurm/test-only-memory")
    with pytest.raises(JobkitError, match="slurm would refuse this sweep; nothing was submitted") as caught:
        check_submission(slurm, request_of(queue="nowhere"), "job.sh", ARRAY)
    assert caught.value.exit_code == 3
    assert "no partition 'nowhere'" in caught.value.message
    assert caught.value.message.count("sbatch refuses the job") == 1


def test_what_it_lets_one_expect_is_handed_on(program: Program) -> None:
    program("sinfo", status=1)
    program("sbatch", "slurm/test-only-ok")
    program("sacctmgr", status=1)
    (told,) = check_submission(slurm, request_of(), "job.sh", ARRAY)
    assert "start" in told


def test_intent_and_answer_are_journalled_with_the_errand(tmp_path: Path, program: Program) -> None:
    program("sbatch", "slurm/submit-cluster")
    listed = Array(first=1, last=3, offset=2, throttle=4, listed="tasks-2.txt")
    (tmp_path / "tasks-2.txt").write_text("1\n2\n4\n5\n6\n", encoding="utf-8")
    taken = submit_array(slurm, tmp_path, Job(script="job-2.sh", array=listed, round=2), [SEVEN])
    assert taken.id
    assert (taken.id.cluster, taken.array, taken.role) == ("lab", listed, Role.POINTS)
    before, after = events(tmp_path)
    script = f"{tmp_path}/job-2.sh"
    words = f"sbatch --parsable --dependency=afterany:7 --array=1-3%4 {script} --list tasks-2.txt 2"
    assert before["argv"] == words.split()
    assert {key: value for key, value in after.items() if key in before and key not in {"at", "event"}} == {
        key: value for key, value in before.items() if key not in {"at", "event", "argv"}
    }
    (one,) = read_journal(tmp_path).submissions
    assert (one.job, [points for _, points in one.tasks()]) == (taken.id, [(4,), (5,), (6,)])


@pytest.mark.parametrize(
    ("scheduler", "name", "captured"),
    [("slurm", "sbatch", "slurm/refused-partition"), ("sge", "qsub", "sge/refused-queue")],
)
def test_a_refusal_is_journalled_in_its_words(
    tmp_path: Path, program: Program, scheduler: str, name: str, captured: str
) -> None:
    program(name, captured)
    module = {"slurm": slurm, "sge": sge}[scheduler]
    with pytest.raises(JobkitError, match=f"{scheduler} refused the sweep") as caught:
        submit_array(module, tmp_path, JOB)
    assert (caught.value.exit_code, isinstance(caught.value, SubmissionUnconfirmed)) == (3, False)
    assert [event["event"] for event in events(tmp_path)] == ["submitting", "refused"]
    assert str(events(tmp_path)[-1]["said"]) in caught.value.message
    assert read_journal(tmp_path).unanswered is None


@pytest.mark.parametrize(
    "answer",
    [
        {"out": "welcome\n"},
        {"err": "sbatch: error: Batch job submission failed: Socket timed out on send/recv\n", "status": 1},
    ],
)
def test_an_answer_that_tells_nothing_leaves_the_intent_open(
    tmp_path: Path, program: Program, answer: dict[str, object]
) -> None:
    program("sbatch", **answer)
    with pytest.raises(SubmissionUnconfirmed, match="not known whether slurm took the job") as caught:
        submit_array(slurm, tmp_path, JOB)
    assert (caught.value.exit_code, f"jobkit resume {tmp_path}" in caught.value.hint) == (3, True)
    assert read_journal(tmp_path).unanswered is not None


def calls(tmp_path: Path, name: str) -> list[str]:
    return (tmp_path / "bin" / f"{name}.calls").read_text(encoding="utf-8").splitlines()


def test_a_busy_controller_is_asked_again(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(scheduler_calls, "time", SimpleNamespace(sleep=pauses.append))
    program("sbatch", err="sbatch: error: Rate limit exceeded, please retry\n", status=1)
    with pytest.raises(JobkitError, match="Rate limit exceeded"):
        submit_array(slurm, tmp_path, JOB)
    assert (len(calls(tmp_path, "sbatch")), tuple(pauses)) == (len(pauses) + 1, scheduler_calls.PAUSES_S)
    assert [event["event"] for event in events(tmp_path)] == ["submitting", "refused"], "one intent"


@pytest.mark.parametrize(("whole", "argv"), [(True, "7"), (False, "7_[2-3]")])
def test_tasks_are_taken_back_by_one_command_and_named(
    tmp_path: Path,
    program: Program,
    whole: bool,  # noqa: FBT001 - pytest passes by name
    argv: str,
) -> None:
    program("scancel", "slurm/scancel-all")
    assert cancel_tasks(slurm, tmp_path, SEVEN, [3, 2], whole=whole) is None
    assert calls(tmp_path, "scancel") == [argv]
    (event,) = events(tmp_path)
    assert (event["event"], event["job_id"], event["tasks"], event["refused"]) == (
        "cancelled",
        "7",
        [3, 2],
        "",
    )


def test_a_change_that_is_refused_is_reported_and_journalled(tmp_path: Path, program: Program) -> None:
    program("qdel", "sge/qdel-denied")
    program("qalter", "sge/throttle-denied")
    told = [cancel_tasks(sge, tmp_path, SEVEN, [4, 5], whole=False), throttle(sge, tmp_path, SEVEN, 2)]
    assert [event["refused"] for event in events(tmp_path)] == told
    assert all(told)
    assert [(event["event"], event.get("throttle")) for event in events(tmp_path)] == [
        ("cancelled", None),
        ("throttled", 2),
    ]
    assert read_journal(tmp_path).cancelled == {}


def test_of_a_long_answer_the_beginning_is_kept(tmp_path: Path, program: Program) -> None:
    program("scancel", out="x" * 3 * MOST_SAID)
    cancel_tasks(slurm, tmp_path, SEVEN, [1], whole=True)
    assert len(str(events(tmp_path)[0]["said"])) == MOST_SAID


def test_a_job_around_and_options_of_the_shell_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SGE_ROOT"):
        monkeypatch.setenv(name, "x")
    left = {name for name in submission_environment() if name.startswith(("SBATCH_", "SLURM_", "SGE_ROOT"))}
    assert left == {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SGE_ROOT"}
