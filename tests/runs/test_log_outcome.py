"""What a log tells: lines that real daemons wrote into real logs, and the job script's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.records import Outcome
from jobkit.runs.tries import is_fault, last_words, reported_outcome

CANCELLED = "slurmstepd-n1: error: *** JOB 99 ON n1 CANCELLED AT 2026-01-02T03:04:05"
LINES = {
    f"{CANCELLED} DUE TO TIME LIMIT ***": Outcome.TIMEOUT,
    f"{CANCELLED} DUE TO PREEMPTION ***": Outcome.PREEMPTED,
    f"{CANCELLED} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***": Outcome.NODE_FAIL,
    f"{CANCELLED} DUE TO JOB REQUEUE ***": Outcome.CANCELLED,
    f"{CANCELLED} ***": Outcome.CANCELLED,
    "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.batch.": Outcome.RAM_OOM,
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch cgroup.": Outcome.RAM_OOM,
    "slurmstepd-n1: error: Job 7 exceeded memory limit (312320 > 51200), being killed": Outcome.RAM_OOM,
    "job.sh: scratch_full: cannot make a folder in /scratch": Outcome.SCRATCH_FULL,
    "job-2.sh: stage_in: the text could not be copied to /scratch/x": Outcome.STAGE_IN,
    "job.sh: nonsense: x": Outcome.LOST,
    "OSError: [Errno 28] No space left on device": Outcome.SCRATCH_FULL,
}


@pytest.mark.parametrize(("line", "outcome"), LINES.items())
def test_a_line_that_tells(line: str, outcome: Outcome) -> None:
    assert reported_outcome(f"hello\n{line}\nbye\n") == (outcome, line)


def test_the_more_telling_line_counts_and_of_two_alike_the_last() -> None:
    first, last = f"{CANCELLED} DUE TO TIME LIMIT ***", f"{CANCELLED[:-1]}9 DUE TO TIME LIMIT ***"
    text = f"No space left on device\n{first}\n{last}\n{CANCELLED} ***\n"
    assert reported_outcome(text) == (Outcome.TIMEOUT, last)


@given(st.text(alphabet=st.characters(exclude_categories=["Lu", "Cs"]), max_size=200))
def test_other_text_tells_nothing_and_is_cut(text: str) -> None:
    if "job" not in text and "oom" not in text:
        assert reported_outcome(text) is None
    assert len(last_words(text)) <= 300


def test_last_words() -> None:
    assert last_words("a\nValueError: on purpose\n\n  \n") == "ValueError: on purpose"
    assert last_words("\n") == ""


@pytest.mark.parametrize(
    ("ended", "signal"),
    [
        ("Segmentation fault      ", "Segmentation fault"),
        ("Aborted                 (core dumped) ", "Aborted (core dumped)"),
        ("Floating point exception", "Floating point exception"),
    ],
)
def test_a_crash_of_the_worker_is_named_without_the_code_of_the_script(ended: str, signal: str) -> None:
    command = "( trap '' USR1 USR2; exec \"$python\" -m jobkit.worker )"
    log = f"loading\n/runs/x/job.sh: line 245: 12444 {ended}{command}\n"
    assert last_words(log) == f"the worker crashed: {signal}"


@pytest.mark.parametrize(
    "line",
    [
        *LINES,
        "Traceback (most recent call last):",
        "Fatal Python error: Segmentation fault",
        "/var/spool/slurmd/job00012/slurm_script: line 7: nvidia-smi: command not found",
        "srun: error: n1: task 0: Killed",
        "rsync error: some files could not be transferred (code 23) at main.c(1338)",
        "find.sh: line 3: x",
        "Killed",
        "cp: error writing '/home/x': Disk quota exceeded",
    ],
)
def test_a_line_that_looks_like_an_error(line: str) -> None:
    assert is_fault(line)


@pytest.mark.parametrize(
    "line", ["", "jobkit: point 1 batch_size-1-r1: ok", "0 errors", "a killed process", "loading: 3 lines"]
)
def test_a_line_that_does_not(line: str) -> None:
    assert not is_fault(line)
