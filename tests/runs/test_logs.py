from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.layout import ORDER_FILE, POINTS_FILE, Exit
from jobkit.core.records import JobFacts, Outcome
from jobkit.runs.journal import JobTask
from jobkit.runs.logs import ErrorFilter, Log, find_log, print_log, show
from jobkit.runs.status import point_named
from jobkit.runs.tries import is_fault
from tests.support.builders import (
    grid,
    point,
    record,
    write_begin,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.whole.test_job_script import wait_until

POINTS = grid([50, 100, 150])
TEXT = b"stanza: loading\n\xff warming up\nTraceback (most recent call last):\n  File x\nValueError: no\nbye"

SHOWN = TEXT.replace(b"\xff", b"\\xff")
"""What is no UTF-8, and what a terminal would obey, is spelt out."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run whose first point has begun as task 1 of Slurm's job 77; Slurm is away."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    folder = write_points(tmp_path / "run", POINTS)
    (folder / "logs").mkdir()
    write_submitted(folder, "slurm", "77", first=1, last=3)
    write_begin(folder, POINTS[0])
    return folder


How = Callable[..., None]


def printed(
    run: Path, word: str = "1", *, number: int | None = None, err: bool = False, how: How = show
) -> tuple[bytes, list[str]]:
    """Return what goes to stdout, and what is said besides."""
    out, said = io.BytesIO(), list[str]()
    how(run, find_log(run, word, number), ErrorFilter(faults=err), out, said.append)
    return out.getvalue(), said


def refused(run: Path, word: str = "1", *, number: int | None = None, how: How = show) -> JobkitError:
    with pytest.raises(JobkitError) as raised:
        printed(run, word, number=number, how=how)
    return raised.value


@pytest.mark.slow
def test_a_log_is_printed_whole_and_of_an_empty_log_what_is_known(run: Path) -> None:
    path = run / "logs" / "77_1.out"
    path.write_bytes(TEXT)
    title = f"p001 try 1: slurm job 77, task 1, {path}"
    assert printed(run) == (SHOWN, [title])
    path.write_bytes(b"all is well\nbye")
    nothing = "nothing in the log looks like an error; without --err jobkit prints the whole log"
    out, said = printed(run, err=True)
    assert (out, said[:2]) == (b"", [title, nothing])
    path.write_bytes(b"")
    assert printed(run)[1][1].startswith("p001 try 1 has printed nothing: unsettled, slurm does not answer")
    failed = replace(record(POINTS[0]), outcome=Outcome.MODEL_MISSING, message="no tokenizer\nin \x1b[31m/m")
    write_record(run, failed)
    write_exit(run, POINTS[0], Exit(status=1, stage="run"))
    for how in (show, print_log):
        out, said = printed(run, how=how)
        known = r"p001 try 1 has printed nothing: model_missing; no tokenizer in \x1b[31m/m"
        assert (out, said[1]) == (b"", known)


@pytest.mark.slow
def test_a_log_that_is_to_come_is_no_mistake_and_one_that_is_gone_is(run: Path, tmp_path: Path) -> None:
    error = refused(run, "2")
    assert error.message.startswith("p002 has no log yet")
    assert "(slurm job 77, task 2)" in error.message
    assert error.exit_code == 5
    never = write_points(tmp_path / "new", POINTS)
    error = refused(never)
    assert "p001 has no log: missing, never submitted" in error.message
    assert (error.exit_code, error.hint) == (5, f"jobkit resume {never} submits it")
    write_exit(run, POINTS[0], Exit(status=0, stage="done"))
    error = refused(run)
    assert re.search(r"has ended \(lost; .*\), but .*77_1.out is not there", error.message)
    assert error.exit_code == 2
    (run / "results" / "p001" / "try-1" / "begin").write_text("nonsense")
    (run / "journal.jsonl").write_text("")
    assert re.search(r"try 1 has ended \(lost; .*\), but its job is not known", refused(run).message)


@pytest.mark.slow
def test_following_goes_on_with_the_job_that_a_point_was_submitted_again_as(run: Path) -> None:
    """The job that was waited for was taken back; its log never came."""

    def job() -> None:
        wait_until(lambda: len(said) > 1)
        write_submitted(run, "slurm", "78", first=1, last=1, offset=1, round=2)
        (run / "logs" / "78_1.out").write_bytes(b"hello\n")
        write_begin(run, POINTS[1], job="78", task=1)
        write_exit(run, POINTS[1], Exit(status=0, stage="done"))

    out, said = io.BytesIO(), list[str]()
    thread = threading.Thread(target=job)
    thread.start()
    print_log(run, find_log(run, "2"), ErrorFilter(faults=False), out, said.append)
    thread.join()
    assert out.getvalue() == b"hello\n"
    assert said[-1] == f"p002 try 1: slurm job 78, task 1, {run / 'logs' / '78_1.out'}"


PIECES = st.sampled_from(
    [b"fine", b"\n", b"job.sh: bug: x", b"Trace", b"back (most recent call last):", "é".encode()]
)


@given(st.lists(PIECES, max_size=12), st.booleans())
def test_in_whatever_pieces_a_log_comes_the_same_is_let_through(pieces: list[bytes], faults: bool) -> None:  # noqa: FBT001
    sieve = ErrorFilter(faults=faults)
    let_through = b"".join(sieve.through(piece) for piece in pieces) + sieve.end()
    whole = b"".join(pieces)
    lines = whole.split(b"\n")
    first = next((n for n, line in enumerate(lines) if is_fault(line.decode("utf-8", "replace"))), None)
    expected = whole if not faults else b"" if first is None else b"\n".join(lines[first:])
    assert let_through == expected
    assert sieve.open is (not faults or first is not None)


def name(log: Log) -> str | None:
    return log.path.name if log.path else None


def test_the_try_tells_who_runs_it_and_before_it_has_begun_the_journal(run: Path) -> None:
    log = find_log(run, "2")
    assert (log.point, log.tried.number, log.tries) == (POINTS[1], 0, ())
    assert (log.tried.task, name(log), log.name) == (JobTask("slurm", "77", 2), "77_2.out", "p002")
    write_begin(run, POINTS[1], 1, job="76", task=9)
    assert name(find_log(run, "p002", 1)) == "76_9.out"
    assert name(find_log(run, "p002")) == "77_2.out", "the journal knows of a later task"
    write_record(run, record(POINTS[0]))
    log = find_log(run, "1")
    assert (log.tried.number, name(log), log.tries, log.name) == (1, "77_1.out", (1,), "p001 try 1")


def test_the_job_that_was_submitted_since_is_the_latest_and_its_points_share_a_log(run: Path) -> None:
    write_exit(run, POINTS[0], Exit(status=1, stage="run"))
    write_submitted(run, "slurm", "78", first=1, last=1, round=2)
    latest, first = find_log(run, "1"), find_log(run, "1", 1)
    assert (latest.tried.number, name(latest), latest.tries) == (0, "78_1.out", ())
    assert (first.tried.number, name(first), first.tries) == (1, "77_1.out", (1,))
    (run / "tasks-3.txt").write_text("1 3\n2\n")
    write_submitted(run, "slurm", "79", first=1, last=2, list="tasks-3.txt", round=3)
    assert [find_log(run, word).others for word in "123"] == [("p003",), (), ("p001",)]


def test_a_try_that_there_is_not(run: Path, tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="not a run folder"):
        find_log(tmp_path, "1")
    for file, text in ((POINTS_FILE, ""), (ORDER_FILE, '{"run_id": "demo-1"}')):
        (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises(JobkitError, match="not planned yet"):
        find_log(tmp_path, "1")
    with pytest.raises(JobkitError, match="p002 has no try 2: none has begun"):
        find_log(run, "2", 2)
    write_begin(run, POINTS[0], 3)
    with pytest.raises(JobkitError, match="p001 has no try 2: there is 1, 3"):
        find_log(run, "1", 2)


def test_a_beginning_names_a_point_if_it_is_the_only_one() -> None:
    names = ("size-5", "size-50-r1", "size-50-r2", "other-1")
    points = [replace(point(index), point_id=name) for index, name in enumerate(names, 1)]
    assert point_named(points, "o").point_id == "other-1"
    assert point_named(points, "2").point_id == "size-50-r1"
    assert point_named(points, "size-5").point_id == "size-5"
    with pytest.raises(JobkitError, match=r"'size-50' begins 2 points: size-50-r1, size-50-r2\n"):
        point_named(points, "size-50")
    with pytest.raises(JobkitError, match=r"no point 'sise-50-r1'; did you mean 'size-50-r1'\?"):
        point_named(points, "sise-50-r1")


@pytest.mark.parametrize("how", [show, print_log])
def test_what_a_person_ran_went_to_the_terminal(run: Path, how: How) -> None:
    write_begin(run, POINTS[0], 2, scheduler="hand", job="", task="")
    by_hand = JobFacts(scheduler="hand", job_id="4711", task_id="")
    write_record(run, replace(record(POINTS[0]), job=by_hand, try_number=3))
    for number in (2, 3):
        error = refused(run, number=number, how=how)
        assert f"p001 try {number} was run by hand" in error.message
        assert error.hint == f"jobkit logs {run} 1 --try N prints another try"
