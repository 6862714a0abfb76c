from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.core.units import moment
from jobkit.runs.results import elapsed_s, task_s, timed
from jobkit.runs.tries import Try, TryOutcome
from jobkit.schedulers.types import Accounted
from tests.support.builders import point, record

OK = TryOutcome(outcome=Outcome.OK, evidence="")
ACCOUNT = Accounted(job_id="77", task=1, ended=True, outcome=None, elapsed_s=42.0)
RECORD = record(point())


@pytest.mark.parametrize(
    ("ended_at", "took_s"), [(RECORD.ended_at, 60), ("2026-01-02T10:00:00+00:00", 0), ("soon", None)]
)
def test_a_record_reports_how_long_its_try_took(ended_at: str, took_s: float | None) -> None:
    """A clock that was set back makes no time below zero."""
    record = replace(RECORD, ended_at=ended_at)
    assert elapsed_s(Try(number=1, record=record, verdict=OK, account=ACCOUNT)) == took_s


def test_without_a_record_the_accounting_reports_it_of_a_task_of_one_point() -> None:
    lost = Try(number=1, verdict=TryOutcome(outcome=Outcome.NODE_FAIL, evidence=""), account=ACCOUNT)
    assert elapsed_s(lost) == task_s(lost) == 42
    assert elapsed_s(lost, shared=True) is None
    assert elapsed_s(replace(lost, account=None)) is None


def test_a_try_took_as_long_as_the_longest_that_any_source_reports(tmp_path: Path) -> None:
    tried = Try(number=1, record=RECORD, folder=str(tmp_path), verdict=OK)  # its worker took 60 s
    bare = Try(number=1, folder=str(tmp_path), verdict=OK)
    assert task_s(tried) == 60
    assert task_s(replace(tried, account=replace(ACCOUNT, elapsed_s=75.0))) == 75
    assert task_s(bare) is None
    for name, at in (("begin", 1000), ("exit", 1090)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert task_s(tried) == task_s(bare) == 90


@pytest.mark.parametrize("text", ["", "N/A", "Unknown", "0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_what_is_no_moment_is_none_and_nothing_breaks(text: str) -> None:
    found = moment(text)
    assert found is None or found.tzinfo is not None


def test_a_folder_that_was_copied_has_the_time_in_the_file_begin(tmp_path: Path) -> None:
    """Its job had begun ten seconds before the worker, which took a minute."""
    tried = Try(number=1, record=RECORD, folder=str(tmp_path), verdict=OK)
    began = moment(RECORD.started_at)
    assert began
    at = (began - timedelta(seconds=10)).isoformat()
    lines = ["scheduler=slurm", "job=77", "task=1", "restart=0", "round=1", f"at={at}"]
    (tmp_path / "begin").write_text("\n".join(lines))
    assert task_s(tried) == 70
    told = timed(tried)
    assert told
    assert told.task_s == 70
    (tmp_path / "begin").write_text("\n".join(lines[:-1]))
    assert task_s(tried) == 60
    assert timed(Try(number=1, verdict=OK)) is None


def test_the_account_of_a_task_of_several_points_is_the_time_of_none() -> None:
    alone = Try(number=1, record=RECORD, verdict=OK, account=replace(ACCOUNT, elapsed_s=75.0))
    assert (task_s(alone), task_s(replace(alone, alone=False))) == (75, 60)
