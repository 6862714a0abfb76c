"""How answers join points; what is collected from them is in test_collect.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobkit.accounts import read_accounts
from jobkit.records import ACCOUNTING_FILE, Outcome
from tests.builders import grid, write_answer, write_points, write_submitted

DATA = Path(__file__).parent / "data" / "slurm"
ENDED = "77_1|TIMEOUT|0:0|60||50M|1|node1|None\n"
RUNNING = "77_1|RUNNING|0:0|60||50M|1|node1|None\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run of one point, submitted to Slurm as task 1 of job 77."""
    folder = write_points(tmp_path / "run", grid([50]))
    write_submitted(folder, "slurm", "77", first=1, last=1)
    return folder


def test_an_answer_without_news_leaves_the_word_to_the_one_before(run: Path) -> None:
    write_answer(run, "slurm", "accounting", ENDED)
    write_answer(run, "slurm", "accounting", "")
    assert read_accounts(run).accounted[1].outcome is Outcome.TIMEOUT


def test_an_older_queue_does_not_unsay_the_end(run: Path) -> None:
    write_answer(run, "slurm", "queue", "77_1|RUNNING|None\n", argv=["squeue"])
    write_answer(run, "slurm", "accounting", ENDED, argv=["sacct"])
    told = read_accounts(run).accounted[1]
    assert (told.ended, told.outcome) == (True, Outcome.TIMEOUT)


def test_of_two_words_that_are_no_end_the_newer_stands(run: Path) -> None:
    write_answer(run, "slurm", "queue", "77_1|RUNNING|None\n", argv=["squeue"])
    write_answer(run, "slurm", "accounting", RUNNING, argv=["sacct"])
    assert read_accounts(run).accounted[1].evidence.startswith("sacct: RUNNING")


@pytest.mark.parametrize(
    "line",
    [
        {"argv": ["sacct"], "status": 0, "stdout": "", "stderr": "", "at": "", "kind": "accounting"},
        {"argv": None, "status": 0},
        {"argv": [], "status": "well", "stdout": "", "stderr": ""},
    ],
)
def test_a_line_that_is_no_answer_is_named(run: Path, line: dict[str, object]) -> None:
    (run / ACCOUNTING_FILE).write_text(json.dumps(line) + "\n")
    accounts = read_accounts(run)
    assert not accounts.accounted
    assert f"{run / ACCOUNTING_FILE}:1: not an answer: " in accounts.notes[0]


def test_answers_of_a_scheduler_that_is_not_there_are_passed_over(run: Path) -> None:
    write_answer(run, "pbs", "accounting", ENDED)
    assert not read_accounts(run).accounted
