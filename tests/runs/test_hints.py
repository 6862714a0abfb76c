from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.json_codec import to_json
from jobkit.core.layout import ORDER_FILE, PLAN_FILE, PROMISE_FILE, SPEC_FILE
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import FileRef, Outcome
from jobkit.core.units import MIB
from jobkit.extensions.corpus.plan import Piece, Shard
from jobkit.runs.hints import FixKind, advice, is_limited, needed_by
from jobkit.runs.journal import JobTask, Role
from jobkit.runs.status import PointStanding, PointStatus, RunStatus
from jobkit.runs.status_text import job_line
from jobkit.schedulers.types import Accounted, State
from tests.support.builders import batch, record
from tests.support.statuses import AT, a_point, a_run, submission, tried, waits, with_job

DONE, RUNNING = a_point(1, PointStanding.DONE, Outcome.OK), a_point(7, PointStanding.RUNNING)
RESUME, COLLECT = "jobkit resume runs/demo", "jobkit collect runs/demo"
MEMORY = "--set resources.memory=SIZE"
WHY, WATCH = "jobkit status runs/demo 2", "jobkit status runs/demo --watch"


def commands(run: RunStatus, folder: str = "runs/demo") -> list[str]:
    found = [step.command for step in advice(run, folder)[1]]
    assert len(found) == len(set(found)), "each once"
    return found


def marked(folder: Path, mark: str) -> Path:
    """Return a run folder that a file marks as one of an extension."""
    (folder / mark).touch()
    return folder


def failed(index: int, outcome: Outcome = Outcome.BUG) -> PointStatus:
    return a_point(index, PointStanding.FAILED, outcome)


@pytest.mark.parametrize(
    ("points", "typed"),
    [
        # The remedy of a full disk and the advice for the run are the same command.
        ([failed(2, Outcome.STAGE_OUT), failed(3, Outcome.STAGE_OUT)], [WHY, RESUME]),
        ([DONE], [COLLECT]),
        ([DONE, failed(2)], [WHY, RESUME, COLLECT]),
        ([failed(2, Outcome.CANCELLED)], [RESUME]),
        ([failed(2, Outcome.TIMEOUT)], [WHY, f"{RESUME} --set resources.walltime=HH:MM:SS"]),
        ([failed(2, Outcome.RAM_OOM), failed(3)], [WHY, f"{RESUME} --only ram_oom {MEMORY}", RESUME]),
        ([RUNNING], [WATCH, "jobkit logs runs/demo 7 -f"]),
    ],
)
def test_what_to_type_next(points: list[PointStatus], typed: list[str]) -> None:
    assert commands(a_run(points)) == typed


def test_a_bug_in_a_file_that_the_run_has_a_copy_of_does_not_run_again() -> None:
    bug, file = failed(2), FileRef(name="tag.py", path="/home/a/tag.py", sha256="0" * 64, size_bytes=1)
    bug = replace(bug, point=replace(bug.point, files=(file,)))
    assert commands(a_run([DONE, bug])) == [WHY, "jobkit sweep SPEC", COLLECT]
    run = a_run([DONE, bug, failed(3, Outcome.STOPPED)])
    assert commands(run) == [WHY, f"{RESUME} --only stopped", COLLECT]


def test_what_to_type_next_in_other_folders_and_about_the_run_of_another_user() -> None:
    run = a_run([DONE, failed(2, Outcome.TIMEOUT)], mine=False)
    assert commands(run) == [WHY, COLLECT]
    assert "only its owner" in advice(run, "runs/demo")[0][-1]
    assert commands(a_run([DONE]), "my runs/$(x)") == ["jobkit collect 'my runs/$(x)'"]
    assert WATCH in commands(with_job(a_run([DONE]), Role.FIND, State.RUNNING)), "it may add points"


def test_a_task_in_error_is_released_by_a_command_and_holds_the_job_that_follows() -> None:
    stuck = [a_point(n, PointStanding.STUCK, queued=waits(State.ERROR, "Eqw")) for n in (3, 4, 6, 9)]
    run = with_job(a_run([DONE, *stuck]), Role.FOLLOW, State.PENDING, "Dependency")
    assert commands(run)[0] == "qmod -cj 77.3-4 77.6 77.9"
    ((notice,), _) = advice(run, "runs/demo")
    assert "p003, p004, p006 and 1 more (Eqw)" in notice
    assert "a person must release them" in job_line(run, run.jobs[0])
    # A job that is stuck itself is released too.
    run = with_job(a_run([DONE]), Role.FOLLOW, State.ERROR, "Eqw")
    run = with_job(run, Role.FIND, State.HELD, "JobHeldUser", job="80")
    run = with_job(run, Role.FIND, State.ERROR, "DependencyNeverSatisfied", job="81")
    assert commands(run)[:2] == ["scontrol release 80_1", "qmod -cj 79.1"]
    assert not any("81" in command for command in commands(run))


def test_tasks_that_wait_for_different_reasons_are_released_apart() -> None:
    held = a_point(3, PointStanding.WAITING, queued=waits(State.HELD, "JobHeldUser"))
    long = a_point(4, PointStanding.STUCK, queued=waits(State.ERROR, "QOSMaxWallDurationPerJobLimit"))
    never = a_point(5, PointStanding.STUCK, queued=waits(State.ERROR, "DependencyNeverSatisfied"))
    admin = a_point(6, PointStanding.WAITING, queued=waits(State.HELD, "JobHeldAdmin"))
    allows = "Job's QOS not permitted to use this partition (nlp allows gpuq not normal)"
    barred = a_point(7, PointStanding.STUCK, queued=waits(State.ERROR, allows))
    notices, steps = advice(a_run([held, long, barred, never, admin]), "runs/demo")
    assert [step.command for step in steps if step.kind is not FixKind.WATCH] == [
        "scontrol release 77_3",
        f"{RESUME} --set resources.walltime=HH:MM:SS",
        f"{RESUME} --set resources.qos=gpuq",
        "jobkit cancel runs/demo 5",
        RESUME,
    ]
    assert "submits it again" in next(step.does for step in steps if "walltime" in step.command)
    assert len(notices) == 5
    assert notices[-1].endswith("; an administrator types: scontrol release 77_6")


def test_a_scheduler_that_does_not_answer_is_named_and_nothing_is_submitted() -> None:
    points = [a_point(1, PointStanding.UNSETTLED), failed(2)]
    run = with_job(a_run(points, silent={"slurm": JobkitError("slurm does not answer")}), Role.FOLLOW)
    notices, _ = advice(run, "runs/demo")
    assert len(notices) == 1
    assert "slurm does not answer" in notices[0]
    assert commands(run) == [WHY]
    assert job_line(run, run.jobs[0]) == ""


def test_a_submission_of_this_half_minute_is_under_way_and_nothing_is_submitted_beside_it() -> None:
    run = a_run([failed(1)], unanswered={"at": AT, "scheduler": "slurm"})
    began = datetime.fromisoformat(AT)
    soon, late = (replace(run, now=began + timedelta(seconds=seconds)) for seconds in (1, 31))
    notices, steps = advice(soon, "runs/demo")
    assert "a submission is under way" in notices[0]
    assert not any("resume" in step.command for step in steps)
    assert "got no answer" in advice(late, "runs/demo")[0][0]
    assert any("resume" in step.command for step in advice(late, "runs/demo")[1])


def test_a_corpus_that_could_not_be_planned_is_planned_again_by_resume(tmp_path: Path) -> None:
    left = {"role": "plan", "why": "a.txt:3: not UTF-8\nb.gz: broken"}
    run = a_run([], left=left, folder=marked(tmp_path, ORDER_FILE))
    notices, steps = advice(run, "runs/demo")
    assert notices == ["the corpus could not be planned: a.txt:3: not UTF-8", "b.gz: broken"]
    assert [(step.command, step.does) for step in steps] == [
        (RESUME, "submits the job that plans the corpus again")
    ]


def test_what_a_job_of_the_run_could_not_submit_is_reported(tmp_path: Path) -> None:
    why = {"points": [2, 3], "why": "no\nsubmit host"}
    for left, words in (
        ({"points": "?"}, "could not submit again: "),
        (why, "could not submit 2 points again: no submit host"),
        ({"role": "plan", **why}, "planned the corpus could not submit 2 points: no submit host"),
    ):
        folder = marked(tmp_path, ORDER_FILE) if "role" in left else tmp_path
        ((notice,), _) = advice(a_run([DONE], left=left, folder=folder), "runs/demo")
        assert notice.endswith(words)


@pytest.mark.parametrize(
    ("points", "role", "state", "reason", "words"),
    [
        ([DONE], Role.FIND, State.RUNNING, "", "job 79, which tries the largest batch, is running"),
        ([DONE], Role.FIND, None, "", "has left the queue; how it ended is not known yet"),
        ([DONE], Role.FOLLOW, State.ERROR, "BadConstraints", "is stuck: BadConstraints: no node has what it"),
        ([DONE], Role.FOLLOW, State.HELD, "JobHeldUser", "waits though the points have ended: JobHeldUser"),
        ([], Role.PLAN, State.PENDING, "Resources", "plans the corpus, waits: Resources"),
        # Nothing is wrong.
        ([RUNNING], Role.FOLLOW, State.PENDING, "Dependency", ""),
        ([DONE], Role.FOLLOW, State.RUNNING, "", ""),
        ([DONE], Role.FOLLOW, None, "sacct: COMPLETED, ExitCode 0:0", ""),
        ([failed(1, Outcome.CANCELLED)], Role.FOLLOW, None, "cancelled", ""),
    ],
)
def test_a_job_that_waits_for_the_points_has_a_line_if_a_person_should_know(
    points: list[PointStatus], role: Role, state: State | None, reason: str, words: str
) -> None:
    """A job without a state has ended for the reason."""
    run = with_job(a_run(points), role, state, reason, end="" if state else reason)
    line = job_line(run, run.jobs[0])
    assert words in line if words else line == ""
    assert not any(command.startswith("qrls") for command in commands(run))
    assert role is not Role.PLAN or RESUME not in commands(run)


def test_a_job_that_is_let_go_at_the_next_look_of_the_scheduler_needs_no_person() -> None:
    at = datetime.fromisoformat(AT)
    done = replace(DONE, all_tries=(replace(DONE.verdict, record=replace(record(DONE.point), ended_at=AT)),))
    for seconds, words in ((5, ""), (90, "waits though the points have ended: hqw")):
        run = replace(a_run([done]), now=at + timedelta(seconds=seconds))
        run = with_job(run, Role.FOLLOW, State.HELD, "hqw")
        line = job_line(run, run.jobs[0])
        assert words in line if words else line == ""


SPEC = """\
name: demo
workload: count
text: sample
sweep: {batch_size: 10}
resources: {memory: 400MiB, walltime: 1m}
policy: {ram_oom: {memory: x2}}
"""


def out_of_time(
    folder: Path, index: int, batches: int, spent_s: float | None, total: int = 28
) -> PointStatus:
    """Return a point that ran out of time after some batches of half a second each."""
    folder.mkdir(parents=True)
    (folder / "batches.jsonl").touch()
    for number in range(batches):
        line = replace(batch(number), batches_total=total, characters_total=5_000 * total)
        append_line(folder / "batches.jsonl", to_json(line))
    task = JobTask("slurm", "77", index)
    account = Accounted(job_id="77", task=index, ended=True, outcome=Outcome.TIMEOUT, elapsed_s=spent_s)
    found = replace(tried(1, Outcome.TIMEOUT, task=task), folder=str(folder), account=account)
    return a_point(index, PointStanding.FAILED, Outcome.TIMEOUT, tries=[found])


def test_the_walltime_is_that_of_the_measured_pace_or_else_of_the_policy(tmp_path: Path) -> None:
    workers = out_of_time(tmp_path / "several", 1, batches=240, spent_s=60.0, total=480)
    (need,) = needed_by(a_run([workers]), [workers])
    assert need.value == "00:05:00", "120 s of batches in 60 s: as long again, and the room"
    point = out_of_time(tmp_path / "try-1", 1, batches=9, spent_s=20.0)
    (need,) = needed_by(a_run([point]), [point])
    assert need.option == "--set resources.walltime=00:05:00"
    assert "9 of 28 batches took 20 s" in need.because
    slow = out_of_time(tmp_path / "slow", 1, batches=9, spent_s=600.0)
    (need,) = needed_by(a_run([slow, point]), [slow, point])
    assert need.value == "00:20:00", "the slowest point decides"
    for unknown in (
        out_of_time(tmp_path / "none", 3, batches=0, spent_s=20.0),
        out_of_time(tmp_path / "when", 4, batches=9, spent_s=None),
    ):
        (need,) = needed_by(a_run([slow, unknown]), [slow, unknown])
        assert need.option == "--set resources.walltime=HH:MM:SS", "no spec, no policy"
        (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
        (need,) = needed_by(a_run([unknown], folder=tmp_path), [unknown])
        assert need.option == "--set resources.walltime=00:02:00"
        (both,) = needed_by(a_run([slow, unknown], folder=tmp_path), [slow, unknown])
        assert both.value == "00:20:00"
        for found in (need, both):
            assert f"the time of {unknown.point.point_id} was not measured yet" in found.because


def test_the_walltime_of_a_shard_without_a_pace_is_no_less_than_was_planned(tmp_path: Path) -> None:
    point = out_of_time(tmp_path / "none", 1, batches=0, spent_s=20.0)
    point = replace(point, point=replace(point.point, shard=True))
    (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
    piece = Piece(source=0, start=0, end=1, paragraphs=1, characters=1, longest=1, sha256="")
    for expected_s, walltime in ((10.0, "00:05:00"), (300.0, "00:10:00")):
        shard = Shard(index=1, pieces=(piece,), load=1, expected_s=expected_s)
        (tmp_path / PLAN_FILE).write_text(f"{to_json(shard)}\n", encoding="utf-8")
        (need,) = needed_by(a_run([point], folder=tmp_path), [point])
        assert need.value == walltime


def ran_out(*given: str, folder: Path) -> tuple[RunStatus, PointStatus]:
    point = a_point(1, PointStanding.FAILED, Outcome.RAM_OOM)
    return a_run([point], folder=folder, submissions=(replace(submission(), given=given),)), point


def test_the_memory_is_what_the_policy_adds_to_what_it_had(tmp_path: Path) -> None:
    run, point = ran_out(folder=tmp_path)
    (need,) = needed_by(run, [point])
    assert need.option == "--set resources.memory=SIZE", "without a spec"
    (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
    for given, memory in (("resources.cpus=2", "800MiB"), ("resources.memory=1GiB", "2GiB")):
        run, point = ran_out(given, folder=tmp_path)
        (need,) = needed_by(run, [point])
        assert need.option == f"--set resources.memory={memory}"
        assert commands(run)[0] == f"{RESUME} {need.option}", "before the page of the point"


@pytest.mark.parametrize("measured", ["before the corpus", "in the run"])
def test_the_memory_is_no_less_than_was_measured(tmp_path: Path, measured: str) -> None:
    (tmp_path / SPEC_FILE).write_text(SPEC, encoding="utf-8")
    run, point = ran_out(folder=tmp_path)
    if measured == "in the run":
        told = replace(record(point.point), memory=MemoryReadings(rss_peak_bytes=900 * MIB))
        done = a_point(2, PointStanding.DONE, Outcome.OK, tries=[tried(1, Outcome.OK, record=told)])
        run = replace(run, points=(point, done))
    else:
        point = replace(point, point=replace(point.point, shard=True))
        (tmp_path / PROMISE_FILE).write_text(f'{{"peak_bytes": {900 * MIB}}}', encoding="utf-8")
    (need,) = needed_by(run, [point])
    assert need.option == "--set resources.memory=2GiB", "the policy would give 800MiB"
    assert "900.0 MiB" in need.because


def test_a_batch_that_hung_and_a_bug_lack_neither() -> None:
    hung = replace(tried(1), outcome=Outcome.TIMEOUT, hung=True)
    others = [a_point(1, PointStanding.FAILED, Outcome.TIMEOUT, tries=[hung]), failed(2)]
    assert not any(map(is_limited, others))
    assert needed_by(a_run(others), others) == []
