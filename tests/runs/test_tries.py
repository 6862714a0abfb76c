"""The tries of a point, each with what the scheduler knows of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.core.layout import (
    BATCHES_FILE,
    BEGIN_FILE,
    EXIT_FILE,
    RECORD_FILE,
    Exit,
    names,
    read_batches,
    try_numbers,
)
from jobkit.core.records import JobFacts, Outcome, Point
from jobkit.runs.accounting import Accounts, join_answers, read_accounts
from jobkit.runs.journal import JobTask, Journal
from jobkit.runs.tries import Try, not_started, read_tries, try_that_counts
from jobkit.schedulers.types import Accounted
from tests.support.builders import (
    batch,
    point,
    record,
    try_folder,
    write_batches,
    write_begin,
    write_exit,
    write_record,
    write_submitted,
)
from tests.support.meanwhile import meanwhile

ONE, TWO = JobTask("slurm", "77", 1), JobTask("slurm", "78", 1)
LEFT = frozenset({None, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.TIMEOUT})
NUMBERED = [Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.RAM_OOM]


def accounted(
    outcome: Outcome | None, task: JobTask = ONE, *, ended: bool = True, node: str = ""
) -> Accounted:
    words = f"sacct: {outcome}"
    return Accounted(
        job_id=task.job_id, task=task.task, ended=ended, outcome=outcome, evidence=words, node=node
    )


def accounts(
    *runs: Outcome | None, submitted: JobTask | None = ONE, gone: bool = False, cancelled: bool = False
) -> Accounts:
    known = tuple(accounted(outcome) for outcome in runs)
    journal = Journal(submissions=(), cancelled={ONE: "ten"} if cancelled else {})
    return replace(
        join_answers(journal, ()),
        submitted={1: submitted} if submitted else {},
        runs={ONE: known} if known else {},
        gone={ONE: "eleven"} if gone else {},
    )


def read(run: Path, known: Accounts, of: Point | None = None) -> list[Try]:
    of = of or point()
    home = f"{run}/results/{of.point_id}"
    return list(read_tries(home, of, known, try_numbers(home)))


def outcomes(tries: list[Try]) -> list[Outcome | None]:
    return [tried.verdict.outcome for tried in tries]


@settings(deadline=None)  # it writes files
@given(st.integers(1, 5), st.lists(st.sampled_from(NUMBERED), max_size=5))
def test_the_last_try_goes_with_the_last_account_and_so_on_backwards(count: int, runs: list[Outcome]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        for number in range(1, count + 1):
            write_begin(run, point(), number)
        told = outcomes(read(run, accounts(*runs)))
    matched = list(reversed(runs))[:count]
    rest = count - len(matched)
    without = (
        [None] if rest == count else []
    )  # of the latest nothing is known; of those before, that it is over
    assert told == [*matched, *without, *[Outcome.LOST] * (rest - len(without))]


def test_a_start_that_failed_left_no_try(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    assert outcomes(read(tmp_path, accounts(Outcome.QUEUE_ERROR))) == [None]
    assert outcomes(read(tmp_path, accounts(Outcome.QUEUE_ERROR, Outcome.TIMEOUT))) == [Outcome.TIMEOUT]
    assert not_started(point(), accounts(Outcome.QUEUE_ERROR)).verdict.outcome is Outcome.QUEUE_ERROR


def test_tries_of_two_tasks_have_accounts_of_their_own(tmp_path: Path) -> None:
    write_begin(tmp_path, point(), 1)
    write_begin(tmp_path, point(), 2, job=78)
    known = accounts(Outcome.TIMEOUT, submitted=TWO)
    both = replace(known, runs={**known.runs, TWO: (accounted(Outcome.NODE_FAIL, TWO),)})
    assert outcomes(read(tmp_path, both)) == [Outcome.NODE_FAIL, Outcome.TIMEOUT]
    assert outcomes(read(tmp_path, known)) == [None, Outcome.TIMEOUT]
    assert [one.task for one in read(tmp_path, known)] == [TWO, ONE]


def test_a_submission_that_left_no_try_comes_first(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    known = accounts(submitted=TWO)
    first, before = read(tmp_path, known)
    assert (first.number, first.task, first.verdict.outcome) == (0, TWO, None)
    assert (before.task, before.verdict.outcome) == (ONE, Outcome.LOST)
    assert "it was run again" in before.verdict.evidence
    write_begin(tmp_path, point(), 2, job=78)
    write_begin(tmp_path, point(), 3, scheduler="hand", job=1, task="")
    assert [one.number for one in read(tmp_path, known)] == [2, 1, 3], "by hand comes last"


def test_the_record_tells_who_ran_it_and_else_begin_and_for_the_latest_the_journal(tmp_path: Path) -> None:
    write_record(
        tmp_path,
        replace(record(point()), job=JobFacts(scheduler="sge", job_id="5", task_id="3"), try_number=4),
    )
    write_record(
        tmp_path,
        replace(record(point()), job=JobFacts(scheduler="hand", job_id="5", task_id=""), try_number=3),
    )
    write_begin(tmp_path, point(), 2, job=78)
    try_folder(tmp_path, point(), 1)
    assert [one.task for one in read(tmp_path, accounts(submitted=None))] == [
        JobTask("sge", "5", 3),
        TWO,
        None,
        None,
    ]
    write_exit(tmp_path, point(), Exit(status=1, stage="run"), 5)
    assert read(tmp_path, accounts())[0].task == ONE


def test_a_begin_file_that_is_not_whole_only_fails_to_add(tmp_path: Path) -> None:
    (try_folder(tmp_path, point()) / BEGIN_FILE).write_text("scheduler=slurm\n", encoding="utf-8")
    (one,) = read(tmp_path, accounts())
    assert (one.task, one.begin, one.problem) == (ONE, None, "")


@pytest.mark.parametrize(
    ("gone", "cancelled", "outcome"),
    [
        (False, False, None),
        (True, False, Outcome.LOST),
        (False, True, None),
        (True, True, Outcome.CANCELLED),
    ],
)
def test_what_is_known_of_the_task_besides(
    tmp_path: Path,
    gone: bool,  # noqa: FBT001 - pytest passes by name
    cancelled: bool,  # noqa: FBT001 - the same
    outcome: Outcome | None,
) -> None:
    write_begin(tmp_path, point())
    assert outcomes(read(tmp_path, accounts(gone=gone, cancelled=cancelled))) == [outcome]


def test_a_node_keeps_the_name_that_the_scheduler_gives_it_once_the_record_is_home(tmp_path: Path) -> None:
    write_begin(tmp_path, point(), host="n1")
    assert read(tmp_path, accounts())[0].node == "n1"
    ended = replace(record(point()), host="vm", job=JobFacts(scheduler="slurm", job_id="77", task_id="1"))
    write_record(tmp_path, replace(ended, environment={"HOSTNAME": "n1"}))
    assert read(tmp_path, accounts())[0].node == "n1"
    write_record(tmp_path, ended)
    assert read(tmp_path, accounts())[0].node == "vm", "where nobody else says"


def test_the_node_by_the_best_source(tmp_path: Path) -> None:
    told = replace(accounts(), runs={ONE: (accounted(Outcome.TIMEOUT, node="by-sacct"),)})
    assert not_started(point(), told).node == "by-sacct"
    write_begin(tmp_path, point(), host="by-begin")
    assert read(tmp_path, accounts())[0].node == "by-begin"
    write_exit(tmp_path, point(), Exit(status=1, stage="run", host="by-exit"), 2)
    assert read(tmp_path, accounts())[0].node == "by-exit"
    try_folder(tmp_path, point(), 3)
    assert read(tmp_path, accounts())[0].node == ""


def test_a_point_that_was_never_submitted() -> None:
    one = not_started(point(), accounts(submitted=None))
    assert (one.verdict.outcome, one.verdict.evidence, one.task) == (None, "not submitted", None)
    waiting = not_started(point(), accounts()).verdict
    assert waiting.evidence == "slurm job 77, task 1: not started, or its folder is not copied home yet"
    earlier = not_started(point(), accounts(Outcome.TIMEOUT, submitted=TWO), ONE)
    assert (earlier.verdict.outcome, earlier.task) == (Outcome.TIMEOUT, ONE)


LOG = "logs/77_1.out"
CANCELLED = "slurmstepd-n1: error: *** JOB 99 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***"


def log(run: Path, text: str) -> None:
    (run / "logs").mkdir(exist_ok=True)
    (run / LOG).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("account", "words"), [(Outcome.TIMEOUT, "reached its"), (None, "was warned before the end of its")]
)
def test_a_timeout_names_the_walltime(tmp_path: Path, account: Outcome | None, words: str) -> None:
    timeout = replace(record(point()), outcome=Outcome.TIMEOUT, message="SIGUSR1", provisional=True)
    write_record(tmp_path, replace(timeout, job=JobFacts(scheduler="slurm", job_id="77", task_id="1")))
    write_submitted(tmp_path, "slurm", "77", first=1, last=1, walltime_s=60)
    (tried,) = read(tmp_path, replace(read_accounts(tmp_path), runs={ONE: (accounted(account),)}))
    assert tried.verdict.evidence.startswith(f"{words} walltime of 00:01:00: SIGUSR1")
    (other,) = read(tmp_path, accounts(account))
    assert other.verdict.evidence.startswith("SIGUSR1")


def test_the_log_is_asked_last(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    log(tmp_path, f"hello\n{CANCELLED}\n")
    assert outcomes(read(tmp_path, accounts())) == [None], "it may still run"
    (lost,) = read(tmp_path, accounts(gone=True))
    assert lost.verdict.outcome is Outcome.TIMEOUT
    assert lost.verdict.evidence.endswith(f"; log: {CANCELLED}")
    assert outcomes(read(tmp_path, accounts(Outcome.NODE_FAIL, gone=True))) == [Outcome.NODE_FAIL]


def test_the_last_words_of_a_log_are_evidence(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    write_exit(tmp_path, point(), Exit(status=1, stage="run"))
    assert "log" not in read(tmp_path, accounts())[0].verdict.evidence
    log(tmp_path, "x" * 20_000 + "\nSegmentation fault\n\n")
    (bug,) = read(tmp_path, accounts())
    assert bug.verdict.outcome is Outcome.BUG
    assert bug.verdict.evidence.endswith("; end of the log: Segmentation fault")
    log(tmp_path, "\n")
    assert "log" not in read(tmp_path, accounts())[0].verdict.evidence


@pytest.mark.parametrize("scheduler", ["local", "pbs"])
def test_where_the_log_is_not_known_it_tells_nothing(tmp_path: Path, scheduler: str) -> None:
    write_begin(tmp_path, point(), scheduler=scheduler)
    write_exit(tmp_path, point(), Exit(status=1, stage="run"))
    log(tmp_path, CANCELLED)
    assert outcomes(read(tmp_path, accounts(submitted=None))) == [Outcome.BUG]


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    folder = try_folder(tmp_path, point())
    (folder / RECORD_FILE).write_text('{"schema": 1', encoding="utf-8")
    (folder / EXIT_FILE).write_text("noise", encoding="utf-8")
    (one,) = read(tmp_path, accounts())
    assert one.verdict.outcome is Outcome.LOST
    assert f"{folder / RECORD_FILE}: not JSON" in one.problem
    assert f"{folder / EXIT_FILE}" in one.problem


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


def test_a_try_that_ended_well_without_a_record_is_lost(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    write_exit(tmp_path, point(), Exit(status=0, stage="done"))
    assert outcomes(read(tmp_path, accounts())) == [Outcome.LOST]


@pytest.mark.parametrize("name", [RECORD_FILE, EXIT_FILE])
def test_a_folder_in_the_place_of_a_file_is_reported(tmp_path: Path, name: str) -> None:
    (try_folder(tmp_path, point()) / name).mkdir()
    assert f"{name}: cannot be read: Is a directory" in read(tmp_path, accounts())[0].problem


@pytest.mark.parametrize("text", ["[" * 100_000, '{"point": 5}', '{"point": {"run_id": "other"}}'])
def test_a_record_that_is_none_is_reported(tmp_path: Path, text: str) -> None:
    folder = try_folder(tmp_path, point())
    (folder / RECORD_FILE).write_text(text, encoding="utf-8")
    assert str(folder / RECORD_FILE) in read(tmp_path, accounts())[0].problem


def test_the_record_of_another_point_is_reported(tmp_path: Path) -> None:
    write_record(tmp_path, record(point(2)))
    folder = tmp_path / "results"
    (folder / "p002").rename(folder / "p001")
    assert "of another point" in read(tmp_path, accounts())[0].problem


def test_batches_and_folders(tmp_path: Path) -> None:
    write_batches(tmp_path, point(), [batch(0), batch(1)])
    home = f"{tmp_path}/results/p001"
    assert len(read_batches(f"{home}/try-1")[0]) == 2
    (Path(home) / "try-1" / BATCHES_FILE).write_text("noise\n", encoding="utf-8")
    batches, notes = read_batches(f"{home}/try-1")
    assert (batches, len(notes)) == ([], 1)
    for name in ("try-10", "try-9", "try-x", "notes"):
        (Path(home) / name).mkdir()
    assert try_numbers(home) == [10, 9, 1]
    assert names(tmp_path / "nowhere") == set()


def test_a_try_whose_task_the_scheduler_began_again_says_so(tmp_path: Path) -> None:
    cut = replace(record(point()), outcome=Outcome.CANCELLED, provisional=True, signal="TERM")
    job = JobFacts(scheduler="slurm", job_id="77", task_id="1")
    write_record(tmp_path, replace(cut, job=job))
    write_begin(tmp_path, point(), 2, restart=1)
    latest, first = read(tmp_path, accounts())
    assert first.verdict.outcome is Outcome.CANCELLED
    assert first.verdict.evidence == "signal TERM; the scheduler began the task again"
    assert latest.verdict.outcome is None
    for runs in ((Outcome.PREEMPTED, None), (Outcome.PREEMPTED,)):
        latest, first = read(tmp_path, accounts(*runs))
        assert (first.verdict.outcome, first.verdict.provisional) == (Outcome.PREEMPTED, False)
        assert latest.verdict.outcome in {None, Outcome.LOST}, "the first account is the first try's"
    write_record(tmp_path, replace(record(point()), try_number=3, job=replace(job, restart=1)))
    assert "began" not in read(tmp_path, accounts())[1].verdict.evidence, "one restart, two tries: by hand?"


BY_HAND = JobFacts(scheduler="hand", job_id="4711", task_id="")


def test_a_try_by_hand_counts_only_while_no_other_has_begun(tmp_path: Path) -> None:
    write_record(tmp_path, replace(record(point()), job=BY_HAND))
    (alone,) = read(tmp_path, accounts(submitted=None))
    assert try_that_counts([alone]) == alone
    waits, by_hand = read(tmp_path, accounts())
    assert (waits.number, try_that_counts([waits, by_hand])) == (0, by_hand)
    write_begin(tmp_path, point(), 2)
    write_exit(tmp_path, point(), Exit(status=1, stage="run"), 2)
    own, by_hand = read(tmp_path, accounts())
    assert (try_that_counts([own, by_hand]), own.verdict.outcome) == (own, Outcome.BUG)


def test_a_try_by_hand_takes_no_account_from_the_task(tmp_path: Path) -> None:
    write_begin(tmp_path, point())
    write_record(tmp_path, replace(record(point()), job=BY_HAND, try_number=2))
    own, by_hand = read(tmp_path, accounts(Outcome.TIMEOUT))
    assert (own.task, own.verdict.outcome) == (ONE, Outcome.TIMEOUT)
    assert (by_hand.task, by_hand.account, by_hand.verdict.outcome) == (None, None, Outcome.OK)
