from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobkit.core.job_files import Begin
from jobkit.core.records import Outcome
from jobkit.outcome.journal import Task
from jobkit.outcome.timing import elapsed_s, moment, task_s
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles, Verdict
from jobkit.schedulers.types import Accounted, Queued, State
from jobkit.status.standing import PointStanding, Standing, running_s
from tests.support.builders import point, record

NOW = datetime(2026, 1, 2, 10, 30, tzinfo=UTC)
OK = Verdict(outcome=Outcome.OK, evidence="its record says so")
ACCOUNT = Accounted(job_id="77", task=1, ended=True, outcome=None, elapsed_s=42.0)


def test_a_record_says_how_long_its_try_took() -> None:
    assert elapsed_s(TryResult(TryFiles(number=1, record=record(point())), OK, account=ACCOUNT)) == 60


def test_a_clock_that_was_set_back_is_no_time_below_nothing() -> None:
    odd = replace(record(point()), ended_at="2026-01-02T10:00:00+00:00")
    assert elapsed_s(TryResult(TryFiles(number=1, record=odd), OK)) == 0


def test_a_time_that_is_none_is_not_known() -> None:
    odd = replace(record(point()), ended_at="soon")
    assert elapsed_s(TryResult(TryFiles(number=1, record=odd), OK)) is None


def test_without_a_record_the_accounting_says_it_of_a_task_of_one_point() -> None:
    lost = TryResult(TryFiles(number=1), Verdict(outcome=Outcome.NODE_FAIL, evidence=""), account=ACCOUNT)
    assert elapsed_s(lost) == 42
    assert elapsed_s(lost, shared=True) is None
    assert elapsed_s(replace(lost, account=None)) is None


def test_a_try_took_as_long_as_the_longest_that_any_source_reports(tmp_path: Path) -> None:
    files = TryFiles(number=1, record=record(point()))  # its worker took 60 s
    assert task_s(files, tmp_path) == 60
    assert task_s(files, tmp_path, replace(ACCOUNT, elapsed_s=75.0)) == 75
    assert task_s(TryFiles(number=1), tmp_path) is None
    for name, at in (("begin", 1000), ("exit", 1090)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert task_s(files, tmp_path, ACCOUNT) == task_s(TryFiles(number=1), tmp_path) == 90


def running(queued: Queued | None, begin: Begin | None = None) -> PointStanding:
    tried = TryResult(TryFiles(number=1, begin=begin), Verdict(outcome=None, evidence=""))
    return PointStanding(
        point=point(),
        standing=Standing.RUNNING,
        counts=tried,
        tries=(tried,) if begin else (),
        task=Task("slurm", "77", 1),
        queued=queued,
    )


BEGIN = Begin(scheduler="slurm", job="77", task=1, restart=0, round=1, at="2026-01-02T10:29:00Z")


def queued(task: int = 1, **known: object) -> Queued:
    return replace(Queued(job_id="77", task=task, state=State.RUNNING), **known)  # type: ignore[arg-type]


def test_a_task_of_one_point_runs_as_long_as_the_queue_says() -> None:
    assert running_s(running(queued(elapsed_s=7.0), BEGIN), NOW) == 7
    start = NOW.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    assert running_s(running(queued(start_at=start)), NOW) == 0
    assert running_s(running(queued()), NOW) is None


def test_a_point_that_shares_its_task_runs_since_its_own_try_began() -> None:
    assert running_s(running(queued(elapsed_s=700.0), BEGIN), NOW, shared=True) == 60
    assert running_s(running(queued(task=0), BEGIN), NOW) == 60, "a driver here is one task for all"
    assert running_s(running(None, BEGIN), NOW) == 60
    assert running_s(running(None), NOW) is None


def test_a_node_whose_clock_is_ahead_has_not_begun_in_the_future() -> None:
    ahead = replace(BEGIN, at="2026-01-02T11:00:00Z")
    assert running_s(running(None, ahead), NOW) == 0


@pytest.mark.parametrize("text", ["", "N/A", "Unknown", "0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_what_is_no_moment_is_none_and_nothing_breaks(text: str) -> None:
    found = moment(text)
    assert found is None or found.tzinfo is not None
