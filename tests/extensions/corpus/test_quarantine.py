"""One paragraph's fault is one paragraph's: the others are done, and it is named."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome, Point
from jobkit.extensions.corpus.plan import QUARANTINE_FILE
from jobkit.extensions.corpus.work import WORK
from jobkit.worker.failure import TryFailed
from jobkit.worker.workloads.base import Result
from tests.extensions.corpus.test_work import SETTING, planned, tried
from tests.support.shards import read_rows
from tests.worker.test_supervisor import restored as restored  # noqa: PLC0414 - a fixture is found by its name here
from tests.workloads.poison import CALLS_VARIABLE

SIZE = 16
POISON = replace(
    SETTING,
    workload="poison:Poison",
    workload_folder=str(Path(__file__).parents[2] / "workloads"),
    order="text",
    params={"batch_size": SIZE},
    sort_window=None,
    hang_s=3,
)


def texts(poison: dict[int, str], number: int = 40) -> list[str]:
    return [f"{poison.get(place, 'plain')} words of paragraph {place}." for place in range(number)]


def quarantine(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / QUARANTINE_FILE).read_text().splitlines()]


def apart(folder: Path, of: Point, some: Sequence[str]) -> tuple[Any, Path]:
    folder.mkdir(exist_ok=True)
    [shard] = planned(folder, of, *some)
    return tried(folder, shard), folder / "out-1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "workers", "outcome", "message"),
    [
        ("raises", 2, "bug", "ValueError: cannot take ..."),
        ("hangs", 1, "timeout", "has not finished a batch of 1 paragraphs"),
    ],
)
def test_a_paragraph_that_fails_alone_goes_to_quarantine_and_the_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, workers: int, outcome: str, message: str
) -> None:
    monkeypatch.setenv(CALLS_VARIABLE, str(tmp_path / "calls"))
    some = texts({21: word})
    found, out = apart(tmp_path, replace(POISON, workers=workers), some)
    assert found.outcome is Outcome.OK, found.message
    assert [row["paragraph"] for row in read_rows(out)] == [n for n in range(40) if n != 21]
    [bad] = quarantine(out)
    assert (bad["document"], bad["paragraph"], bad["outcome"]) == ("told.txt", 21, outcome)
    assert message in bad["message"]
    assert "\n\n".join(some)[bad["start"] : bad["end"]] == some[21]
    assert some[21] not in (out / QUARANTINE_FILE).read_text()
    sizes = [int(line) for line in (tmp_path / "calls").read_text().splitlines()]
    extra = len(sizes) - workers - math.ceil(40 / SIZE)  # the warm-ups, and the calls
    assert extra <= 2 * math.log2(SIZE) + 2, sizes


@pytest.mark.slow
def test_several_paragraphs_are_found_wherever_they_are(tmp_path: Path) -> None:
    """Also in the warm-up, and all of a call."""
    poison = {0: "raises", 1: "exits", 17: "killed", 18: "segfaults", 36: "lacks", 37: "lacks"}
    found, out = apart(tmp_path, replace(POISON, workers=2, params={"batch_size": 2}), texts(poison))
    assert found.outcome is Outcome.OK, found.message
    bad = quarantine(out)
    assert [one["paragraph"] for one in bad] == [*poison]
    assert [one["outcome"] for one in bad] == ["bug", "bug", "lost", "bug", "ram_oom", "ram_oom"]
    said = (
        "ValueError",
        "ended with status 7",
        "killed by SIGKILL",
        "killed by SIGSEGV",
        *["MemoryError"] * 2,
    )
    for one, message in zip(bad, said, strict=True):
        assert message in one["message"]
    assert [row["paragraph"] for row in read_rows(out)] == [n for n in range(40) if n not in poison]


ENGINE = """
import os, signal, subprocess, sys

COLUMNS = ["length"]


def load():  # as vLLM's engine, it hears nothing of the end of the process that uses it
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.environ["TOLD"], "a") as stream:
        stream.write(f"{engine.pid} {os.getpgid(engine.pid) == os.getpgid(0) == int(os.environ['GROUP'])}\\n")


def tag(paragraphs):
    if any(one.startswith("killed") for one in paragraphs):
        os.kill(os.getpid(), signal.SIGKILL)
    return [len(one) for one in paragraphs]
"""


@pytest.mark.slow
def test_the_engine_of_a_killed_worker_is_in_its_group_and_does_not_live_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.setenv("GROUP", str(os.getpgid(0)))
    (tmp_path / "engine.py").write_text(ENGINE)
    of = replace(POISON, workload="./engine.py:tag", workload_folder=str(tmp_path), params={"batch_size": 4})
    found, out = apart(tmp_path / "run", of, texts({6: "killed"}, 8))
    assert found.outcome is Outcome.OK, found.message
    assert [(one["paragraph"], one["outcome"]) for one in quarantine(out)] == [(6, "lost")]
    engines = [line.split() for line in told.read_text().splitlines()]
    assert len(engines) > 1, "another worker began"
    assert {group for _, group in engines} == {"True"}
    assert not [pid for pid, _ in engines if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("poison", "outcome", "message"),
    [
        ({21: "device"}, Outcome.BUG, "CUDA error"),
        ({21: "disk"}, Outcome.BUG, "OSError: no answer"),
        (dict.fromkeys(range(40), "raises"), Outcome.BUG, "ValueError: cannot take"),
        (
            dict.fromkeys(range(12, 24), "raises"),
            Outcome.BUG,
            "more than 10 paragraphs would go to quarantine",
        ),
    ],
)
def test_what_is_no_paragraphs_fault_ends_the_try(
    tmp_path: Path, poison: dict[int, str], outcome: Outcome, message: str
) -> None:
    found, out = apart(tmp_path, POISON, texts(poison))
    assert found.outcome is outcome
    assert message in found.message
    assert not (out / "rows.json").exists()


@pytest.mark.slow
def test_a_number_that_is_none_goes_to_quarantine_or_is_null(tmp_path: Path) -> None:
    some = texts({7: "nan", 30: "infinite"})
    found, out = apart(tmp_path / "quarantine", POISON, some)
    assert found.outcome is Outcome.OK, found.message
    assert [(bad["paragraph"], bad["message"]) for bad in quarantine(out)] == [
        (7, "column score is nan"),
        (30, "column score is inf"),
    ]
    assert len(read_rows(out)) == 38
    found, out = apart(tmp_path / "null", replace(POISON, nan=None), some)
    assert found.outcome is Outcome.OK, found.message
    assert not (out / QUARANTINE_FILE).exists()
    assert [row["paragraph"] for row in read_rows(out) if row["score"] is None] == [7, 30]


def test_of_a_vector_every_number_is_one_and_a_row_fits_the_columns() -> None:
    vectors = np.zeros((3, 4))
    vectors[1, 2] = np.inf
    with pytest.raises(JobkitError, match=r"column embedding has inf at number 2, counted from 0"):
        WORK.rows(Result(vectors=vectors, load=0), ("embedding",), range(3))
    nested = [(0, {"score": [1.0, float("nan")]})]
    with pytest.raises(JobkitError, match="column scores is nan"):
        WORK.rows(Result(rows=nested, load=0), ("scores",), range(1), "quarantine")
    assert WORK.rows(Result(rows=nested, load=0), ("scores",), [5]) == [(5, {"score": [1.0, None]})]
    with pytest.raises(TryFailed, match="its columns are words, letters"):
        WORK.rows(Result(rows=[(0, 1)], load=0), ("words", "letters"), range(1))
