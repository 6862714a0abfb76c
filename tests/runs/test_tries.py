"""The tries of a point: what is read of each, how it ended, and how long it took."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.json_codec import to_json
from jobkit.core.layout import BEGIN_FILE, EXIT_FILE, RECORD_FILE, Exit, try_numbers
from jobkit.core.records import JobFacts, Outcome, Point
from jobkit.core.units import format_moment, moment
from jobkit.runs.journal import Accounts, JobTask, Journal, join_answers
from jobkit.runs.results import not_started, read_tries
from jobkit.runs.tries import (
    NO_HOME,
    OVERRULING,
    TaskFacts,
    Try,
    decide_outcome,
    elapsed_s,
    is_fault,
    last_words,
    reported_outcome,
    task_s,
    timed,
    try_that_counts,
)
from jobkit.schedulers.types import Accounted
from tests.support.builders import point, record, try_folder, write_begin, write_exit, write_record
from tests.support.meanwhile import meanwhile

ONE, TWO = JobTask("slurm", "77", 1), JobTask("slurm", "78", 1)
BY_HAND = JobFacts(scheduler="hand", job_id="4711", task_id="")


def accounted(
    outcome: Outcome | None,
    task: JobTask = ONE,
    *,
    ended: bool = True,
    status: int | None = None,
    node: str = "",
) -> Accounted:
    known = Accounted(job_id=task.job_id, task=task.task, ended=ended, outcome=outcome, exit_status=status)
    return replace(known, evidence="State WORDS", node=node)


def accounts(*runs: Outcome | None, submitted: JobTask | None = ONE, gone: bool = False) -> Accounts:
    known = {ONE: tuple(accounted(outcome) for outcome in runs)} if runs else {}
    at, away = {1: submitted} if submitted else {}, {ONE: "eleven"} if gone else {}
    return replace(join_answers(Journal(submissions=()), ()), submitted=at, runs=known, gone=away)


def read(run: Path, known: Accounts, of: Point | None = None) -> list[Try]:
    of = of or point()
    home = f"{run}/results/{of.point_id}"
    return list(read_tries(home, of, known, try_numbers(home)))


def outcomes(tries: list[Try]) -> list[Outcome | None]:
    return [tried.outcome for tried in tries]


def test_the_last_try_goes_with_the_last_account_and_so_on_backwards(tmp_path: Path) -> None:
    for number in (8, 9, 10):
        write_begin(tmp_path, point(), number)
    early, late, lost = Outcome.PREEMPTED, Outcome.TIMEOUT, Outcome.LOST
    told = [outcomes(read(tmp_path, accounts(*runs))) for runs in ((), (late,), (early, early, late, late))]
    assert told == [[None, lost, lost], [late, lost, lost], [late, late, early]]


def test_a_submission_that_left_no_try_comes_first(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    known = accounts(submitted=TWO)
    assert outcomes(read(tmp_path, accounts(Outcome.QUEUE_ERROR))) == [None], "of a start that failed"
    assert outcomes(read(tmp_path, accounts(Outcome.QUEUE_ERROR, Outcome.TIMEOUT))) == [Outcome.TIMEOUT]
    first, before = read(tmp_path, known)
    assert (first.number, first.task, first.outcome) == (0, TWO, None)
    assert (before.task, before.outcome) == (ONE, Outcome.LOST)
    assert "it was run again" in before.evidence
    write_begin(tmp_path, point(), 2, job=78)
    write_begin(tmp_path, point(), 3, scheduler="hand", job=1, task="")
    assert [one.number for one in read(tmp_path, known)] == [2, 1, 3], "by hand comes last"


def test_the_record_tells_who_ran_it_and_else_begin_and_for_the_latest_the_journal(tmp_path: Path) -> None:
    for number, job in ((4, JobFacts(scheduler="sge", job_id="5", task_id="3")), (3, BY_HAND)):
        write_record(tmp_path, replace(record(point()), job=job, try_number=number))
    write_begin(tmp_path, point(), 2, job=78)
    (try_folder(tmp_path, point()) / BEGIN_FILE).write_text("scheduler=slurm\n", encoding="utf-8")
    found = read(tmp_path, accounts(submitted=None))
    assert [one.task for one in found] == [JobTask("sge", "5", 3), TWO, None, None]
    assert {one.problem for one in found} == {""}, "a begin file that is not whole only fails to add"
    write_exit(tmp_path, point(), Exit(status=1, stage="run"), 5)
    assert read(tmp_path, accounts())[0].task == ONE


def test_a_try_by_hand_counts_only_while_no_other_has_begun_and_has_no_account(tmp_path: Path) -> None:
    write_record(tmp_path, replace(record(point()), job=BY_HAND))
    (alone,) = read(tmp_path, accounts(submitted=None))
    assert try_that_counts([alone]) == alone
    waits, by_hand = read(tmp_path, accounts())
    assert (waits.number, try_that_counts([waits, by_hand])) == (0, by_hand)
    write_begin(tmp_path, point(), 2)
    own, by_hand = read(tmp_path, accounts(Outcome.TIMEOUT))
    assert (by_hand.task, by_hand.account, by_hand.outcome) == (None, None, Outcome.OK)
    assert (try_that_counts([own, by_hand]), own.outcome) == (own, Outcome.TIMEOUT)


def test_a_point_that_was_never_submitted() -> None:
    one = not_started(point(), accounts(submitted=None))
    assert (one.outcome, one.evidence, one.task) == (None, "not submitted", None)
    waiting = not_started(point(), accounts())
    assert waiting.evidence == "slurm job 77, task 1: not started, or its folder is not copied home yet"
    earlier = not_started(point(), accounts(Outcome.TIMEOUT, submitted=TWO), ONE)
    assert (earlier.outcome, earlier.task) == (Outcome.TIMEOUT, ONE)
    assert not_started(point(), accounts(Outcome.QUEUE_ERROR)).outcome is Outcome.QUEUE_ERROR


LOG = "logs/77_1.out"
LIMIT_LINE = "slurmstepd-n1: error: *** JOB 99 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***"


def log(run: Path, text: str) -> None:
    (run / "logs").mkdir(exist_ok=True)
    (run / LOG).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("before", range(4))
def test_a_try_that_ends_while_it_is_read_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    def end() -> None:  # as a job script: the record, and then how it ended
        write_record(tmp_path, record(point()))
        write_exit(tmp_path, point(), Exit(status=0, stage="done"))

    write_begin(tmp_path, point())
    meanwhile(monkeypatch, before, end)
    assert outcomes(read(tmp_path, accounts())) in ([None], [Outcome.OK])
    assert outcomes(read(tmp_path, accounts())) == [Outcome.OK]


def test_a_try_whose_task_the_scheduler_began_again_says_so(tmp_path: Path) -> None:
    cut = replace(record(point()), outcome=Outcome.CANCELLED, provisional=True, signal="TERM")
    job = JobFacts(scheduler="slurm", job_id="77", task_id="1")
    write_record(tmp_path, replace(cut, job=job))
    write_begin(tmp_path, point(), 2, restart=1)
    latest, first = read(tmp_path, accounts())
    assert first.outcome is Outcome.CANCELLED
    assert first.evidence == "signal TERM; the scheduler began the task again"
    assert latest.outcome is None
    for runs in ((Outcome.PREEMPTED, None), (Outcome.PREEMPTED,)):
        latest, first = read(tmp_path, accounts(*runs))
        assert (first.outcome, first.provisional) == (Outcome.PREEMPTED, False)
        assert latest.outcome in {None, Outcome.LOST}, "the first account is the first try's"
    write_record(tmp_path, replace(record(point()), try_number=3, job=replace(job, restart=1)))
    assert "began" not in read(tmp_path, accounts())[1].evidence, "one restart, two tries: by hand?"


def test_the_node_is_named_by_the_scheduler_or_else_by_the_files(tmp_path: Path) -> None:
    def node(told: str = "") -> str:
        known = replace(accounts(), runs={ONE: (accounted(Outcome.TIMEOUT, node=told),)})
        return read(tmp_path, known)[0].node

    try_folder(tmp_path, point())
    assert node() == ""
    write_exit(tmp_path, point(), Exit(status=1, stage="run", host="by-exit"))
    assert node() == "by-exit"
    write_begin(tmp_path, point(), host="by-begin")
    assert node() == "by-begin"
    ended = replace(record(point()), host="by-record")
    write_record(tmp_path, ended)
    assert node() == "by-record"
    write_record(tmp_path, replace(ended, environment={"HOSTNAME": "as-in-begin"}))
    assert (node(), node("by-sacct")) == ("as-in-begin", "by-sacct")


def test_the_log_is_asked_last(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    log(tmp_path, f"hello\n{LIMIT_LINE}\n")
    assert outcomes(read(tmp_path, accounts())) == [None], "it may still run"
    (lost,) = read(tmp_path, accounts(gone=True))
    assert lost.outcome is Outcome.TIMEOUT
    assert lost.evidence.endswith(f"; log: {LIMIT_LINE}")
    assert outcomes(read(tmp_path, accounts(Outcome.NODE_FAIL, gone=True))) == [Outcome.NODE_FAIL]
    write_exit(tmp_path, point(), Exit(status=1, stage="run"))
    for text, words in (
        ("x" * 20_000 + "\nSegfault\n\n", "; end of the log: Segfault"),
        ("\n", "copied home"),
    ):
        log(tmp_path, text)
        (bug,) = read(tmp_path, accounts())
        assert (bug.outcome, bug.evidence.endswith(words)) == (Outcome.BUG, True)
    write_begin(tmp_path, point(), scheduler="pbs")
    log(tmp_path, LIMIT_LINE)
    (bug,) = read(tmp_path, accounts(submitted=None))
    assert "log" not in bug.evidence, "where it is is not known"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (RECORD_FILE, '{"schema": 1', "not JSON"),
        (RECORD_FILE, "[" * 100_000, ""),
        (RECORD_FILE, '{"point": 5}', ""),
        (RECORD_FILE, None, "cannot be read: Is a directory"),
        (RECORD_FILE, to_json(record(point(2))), "of another point"),
        (EXIT_FILE, "noise", ""),
        (EXIT_FILE, None, "cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_read_is_reported(tmp_path: Path, name: str, text: str | None, problem: str) -> None:
    path = try_folder(tmp_path, point()) / name
    if text is None:
        path.mkdir()
    else:
        path.write_text(text, encoding="utf-8")
    (one,) = read(tmp_path, accounts())
    assert one.outcome is Outcome.LOST
    assert f"{path}:" in one.problem
    assert problem in one.problem


def with_exit(**fields: object) -> Try:
    defaults: dict[str, object] = {"status": 1, "stage": "run"}
    return Try(number=1, exit=Exit(**(defaults | fields)))  # type: ignore[arg-type]


AT, LATER = "2026-01-02T10:00:00+00:00", "2026-01-02T10:01:00+00:00"
FULL = Try(number=1, record=record(point()))
CUT = Try(
    number=1, record=replace(record(point()), outcome=Outcome.CANCELLED, provisional=True, signal="TERM")
)
EMPTY, NONE = Try(number=1), Try(number=0)
NOT_HOME = with_exit(stage="stage_out", scratch="/scratch/77.1", host="node1")
KILLED = with_exit(status=137, signal="KILL", message="the job script was killed")
UNKNOWN, LAGS = accounted(None), accounted(None, ended=False)
BY_JOBKIT = f"by jobkit at {format_moment(AT)}"
TAKEN_BACK, GONE, HERE = TaskFacts(cancelled=AT), TaskFacts(gone=AT), TaskFacts(gone=AT, here=True)


@pytest.mark.parametrize("told", sorted(OVERRULING))
@pytest.mark.parametrize("tried", [CUT, KILLED, with_exit(status=137), with_exit(signal="USR1")])
def test_the_accounting_overrules_a_provisional_outcome(tried: Try, told: Outcome) -> None:
    verdict = decide_outcome(replace(tried, account=accounted(told)))
    assert (verdict.outcome, verdict.provisional) == (told, False)
    assert verdict.evidence.endswith("; accounting: State WORDS")


@pytest.mark.parametrize(
    ("tried", "told", "known", "outcome", "words"),
    [
        # A record, provisional or not.
        (CUT, UNKNOWN, None, "cancelled?", "signal TERM"),
        (CUT, accounted(Outcome.TIMEOUT, ended=False), None, "cancelled?", "signal TERM"),
        (CUT, None, TaskFacts(requeued=True), "cancelled?", "; the scheduler began the task again"),
        (FULL, None, TaskFacts(requeued=True), "ok", "by its record"),
        (FULL, accounted(Outcome.NODE_FAIL), GONE, "ok", "by its record"),
        (replace(FULL, exit=NOT_HOME.exit), None, None, "ok", "files kept in node1:/scratch/77.1"),
        # An exit file, without a record.
        (with_exit(outcome=Outcome.SCRATCH_FULL, stage="stage_in"), None, None, "scratch_full", "status 1"),
        (with_exit(stage="stage_in"), accounted(Outcome.NODE_FAIL), TAKEN_BACK, "stage_in", "status 1"),
        (with_exit(stage="environment"), None, None, "environment", "status 1"),
        (NOT_HOME, None, None, "stage_out", "results kept in node1:/scratch/77.1"),
        (with_exit(stage="run"), None, None, "bug", "status 1"),
        (with_exit(stage="done", status=0), None, None, "lost", "no record was copied home"),
        (with_exit(signal="SIGUSR1"), None, None, "timeout?", "signal SIGUSR1"),
        (with_exit(signal="USR2"), None, None, "cancelled?", "signal USR2"),
        (with_exit(status=137), None, None, "lost?", "killed"),
        (with_exit(status=137), UNKNOWN, None, "lost", "killed"),
        (KILLED, None, None, "lost?", "the job script was killed"),
        (KILLED, accounted(None, status=137), None, "lost?", "; accounting: State WORDS"),
        # Neither is home.
        (None, None, None, "None", "not started"),
        (EMPTY, None, None, "None", "no record yet"),
        (EMPTY, LAGS, None, "None", "State WORDS"),
        (None, accounted(Outcome.NODE_FAIL), None, "node_fail", "accounting: State WORDS"),
        (None, accounted(Outcome.OK, status=0), None, "lost", "it ended (State WORDS)"),
        (None, accounted(None, status=NO_HOME), None, "stage_out", "could not write in the run folder"),
        (None, accounted(Outcome.QUEUE_ERROR, ended=False), None, "queue_error?", "State WORDS"),
        (Try(number=1, problem="record.json: not JSON"), None, None, "lost", "record.json: not JSON; "),
        # What jobkit cancelled.
        (None, None, TAKEN_BACK, "cancelled", BY_JOBKIT),
        (EMPTY, None, TAKEN_BACK, "None", "no record yet"),
        (EMPTY, None, TaskFacts(cancelled=AT, gone=LATER), "cancelled", BY_JOBKIT),
        (None, accounted(None, status=137), TAKEN_BACK, "cancelled", BY_JOBKIT),
        (EMPTY, UNKNOWN, TaskFacts(cancelled=AT, packed=True), "cancelled", "State WORDS"),
        (None, accounted(Outcome.NODE_FAIL), TAKEN_BACK, "node_fail", "State WORDS"),
        # A task that ran several points, left no trace, or was followed by another.
        (None, UNKNOWN, TaskFacts(packed=True), "stopped", "ended before its turn came (State WORDS)"),
        (None, None, GONE, "lost?", f"not in the queue since {format_moment(AT)}"),
        (EMPTY, accounted(Outcome.TIMEOUT), GONE, "timeout", "State WORDS"),
        (None, None, HERE, "None", "did not begin"),
        (EMPTY, None, HERE, "lost?", "its process is gone"),
        (EMPTY, None, TaskFacts(superseded=True), "lost", "it was run again, and nothing reports how"),
    ],
)
def test_the_best_source_decides(
    tried: Try | None, told: Accounted | None, known: TaskFacts | None, outcome: str, words: str
) -> None:
    """A question mark stands behind an outcome that the accounting may still overrule."""
    verdict = decide_outcome(replace(tried or NONE, account=told), known)
    assert f"{verdict.outcome}{'?' if verdict.provisional else ''}" == outcome
    assert words in verdict.evidence


JOB_99 = "slurmstepd-n1: error: *** JOB 99 ON n1 CANCELLED AT 2026-01-02T03:04:05"
CRASH = "loading\n/runs/x/job.sh: line 245: 12444"
COMMAND = "( trap '' USR1 USR2; exec \"$python\" -m jobkit.worker )\n"
LINES = {
    f"{JOB_99} DUE TO TIME LIMIT ***": Outcome.TIMEOUT,
    f"{JOB_99} DUE TO PREEMPTION ***": Outcome.PREEMPTED,
    f"{JOB_99} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***": Outcome.NODE_FAIL,
    f"{JOB_99} DUE TO JOB REQUEUE ***": Outcome.CANCELLED,
    f"{JOB_99} ***": Outcome.CANCELLED,
    "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.batch.": Outcome.RAM_OOM,
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch cgroup.": Outcome.RAM_OOM,
    "slurmstepd-n1: error: Job 7 exceeded memory limit (312320 > 51200), being killed": Outcome.RAM_OOM,
    "job.sh: scratch_full: cannot make a folder in /scratch": Outcome.SCRATCH_FULL,
    "job-2.sh: stage_in: the text could not be copied to /scratch/x": Outcome.STAGE_IN,
    "job.sh: nonsense: x": Outcome.LOST,
    "OSError: [Errno 28] No space left on device": Outcome.SCRATCH_FULL,
}


def test_the_most_telling_line_of_a_log_counts_and_of_two_alike_the_last() -> None:
    for line, outcome in LINES.items():
        assert reported_outcome(f"hello\n{line}\nbye\n") == (outcome, line)
    first, last = f"{JOB_99} DUE TO TIME LIMIT ***", f"{JOB_99[:-1]}9 DUE TO TIME LIMIT ***"
    text = f"No space left on device\n{first}\n{last}\n{JOB_99} ***\n"
    assert reported_outcome(text) == (Outcome.TIMEOUT, last)


def test_the_last_words_of_a_log_hold_no_code_of_the_script() -> None:
    assert last_words("a\nValueError: on purpose\n\n  \n") == "ValueError: on purpose"
    for signal in ("Segmentation fault      ", "Floating point exception"):
        assert last_words(f"{CRASH} {signal}{COMMAND}") == f"the worker crashed: {signal.rstrip()}"


def test_which_lines_look_like_an_error() -> None:
    faults = [
        *LINES,
        "Traceback (most recent call last):",
        "Fatal Python error: Segmentation fault",
        "/var/spool/slurmd/job00012/slurm_script: line 7: nvidia-smi: command not found",
        "rsync error: some files could not be transferred (code 23) at main.c(1338)",
        "Killed",
        "cp: error writing '/home/x': Disk quota exceeded",
    ]
    fine = ["", "jobkit: point 1 batch_size-1-r1: ok", "0 errors", "a killed process", "loading: 3 lines"]
    assert [line for line in (*faults, *fine) if is_fault(line)] == faults


@given(st.text(alphabet=st.characters(exclude_categories=["Lu", "Cs"]), max_size=200))
def test_other_text_tells_nothing_and_is_cut(text: str) -> None:
    if "job" not in text and "oom" not in text:
        assert reported_outcome(text) is None
    assert len(last_words(text)) <= 300


ACCOUNT = Accounted(job_id="77", task=1, ended=True, outcome=None, elapsed_s=42.0)
RECORD = record(point())


def test_a_try_took_as_long_as_the_longest_that_any_source_reports(tmp_path: Path) -> None:
    tried = Try(number=1, record=RECORD, folder=str(tmp_path), outcome=Outcome.OK)  # its worker took 60 s
    bare = Try(number=1, folder=str(tmp_path), outcome=Outcome.OK)
    assert (task_s(tried), task_s(bare)) == (60, None)
    for name, at in (("begin", 1000), ("exit", 1090)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert task_s(tried) == task_s(bare) == 90
    (tmp_path / "exit").unlink()  # the folder was copied; the job had begun ten seconds before the worker
    began = moment(RECORD.started_at)
    assert began
    begun = (began - timedelta(seconds=10)).isoformat()
    lines = ["scheduler=slurm", "job=77", "task=1", "restart=0", "round=1", f"at={begun}"]
    (tmp_path / "begin").write_text("\n".join(lines))
    assert task_s(tried) == 70
    told = timed(tried)
    assert told
    assert told.task_s == 70
    (tmp_path / "begin").write_text("\n".join(lines[:-1]))
    assert task_s(tried) == 60
    assert timed(Try(number=1, outcome=Outcome.OK)) is None


def test_a_try_takes_as_long_as_its_record_or_else_the_account_of_its_own_task_reports() -> None:
    """A clock that was set back makes no time below zero."""
    home = Try(number=1, record=RECORD, outcome=Outcome.OK, account=ACCOUNT)
    spans = {RECORD.ended_at: 60, "2026-01-02T10:00:00+00:00": 0, "soon": None}
    assert {at: elapsed_s(replace(home, record=replace(RECORD, ended_at=at))) for at in spans} == spans
    lost = Try(number=1, outcome=Outcome.NODE_FAIL, account=ACCOUNT)
    assert elapsed_s(lost) == task_s(lost) == 42
    assert elapsed_s(replace(lost, alone=False)) is None
    assert elapsed_s(replace(lost, account=None)) is None
    longer = replace(home, account=replace(ACCOUNT, elapsed_s=75.0))
    assert (task_s(longer), task_s(replace(longer, alone=False))) == (75, 60)
