"""One paragraph's fault is one paragraph's: the others are done, and it is named."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.records import Outcome, Point
from jobkit.extensions.corpus.plan import QUARANTINE_FILE
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
    [shard] = planned(folder, of, *some)
    return tried(folder, shard), folder / "out-1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "workers", "outcome", "message"),
    [
        ("raises", 1, "bug", "ValueError: cannot take ..."),
        ("raises", 2, "bug", "ValueError: cannot take ..."),
        ("segfaults", 1, "bug", "was killed by SIGSEGV"),
        ("aborts", 2, "bug", "was killed by SIGABRT"),
        ("lacks", 1, "ram_oom", "MemoryError"),
        ("killed", 1, "lost", "was killed by SIGKILL"),
        ("exits", 1, "bug", "ended with status 7"),
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
    warm_ups = workers
    extra = len(sizes) - warm_ups - math.ceil(40 / SIZE)
    assert extra <= 2 * math.log2(SIZE) + 2, sizes
