from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.records import Outcome, Point, Record
from jobkit.worker import process
from jobkit.worker.measure import memory
from jobkit.worker.measure.memory import SEARCHED, STEP_BYTES, Device
from tests.support.fake_torch import FakeTorch
from tests.worker import test_supervisor as supervised
from tests.worker.test_supervisor import batches, restored
from tests.workloads.held import BYTES_PER_LOAD, Held

__all__ = ["restored"]  # for all tests here
TEXT = "Ada.\n\nShe went home.\n\nBeatrice Kelford asked for tea.\n\nNo.\n\nIt rained.\n"
LOAD = 2 * len("Beatrice Kelford asked for tea.\n")
"""Of the heaviest call of two paragraphs."""
GIB = 2**30


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Put a card that is not there under the workloads of `tests.workloads.held`."""
    torch = FakeTorch(100 * GIB)
    monkeypatch.setattr(Held, "card", torch)
    monkeypatch.setattr(memory, "open_device", lambda name: Device(name, torch))
    return torch


PLAIN = replace(
    supervised.PLAIN,
    params={"batch_size": 2},
    workload="tests.workloads.held:Held",
    workload_folder=None,
    allocator=SEARCHED,
    order="load",
    workers=1,
)


def tried(folder: Path, of: Point) -> Record:
    """Run one try of a point on `TEXT` and return its record."""
    found = supervised.tried(folder, of, TEXT)
    assert list(folder.parent.glob("metrics-*")) == [], "its temporary file"
    return found


@pytest.mark.slow
def test_the_need_of_the_heaviest_call_is_measured_after_the_batches(tmp_path: Path, card: FakeTorch) -> None:
    found = tried(tmp_path, PLAIN)
    [need] = found.needs
    assert (found.outcome, need.load) == (Outcome.OK, LOAD)
    assert need.allocated_bytes == LOAD * BYTES_PER_LOAD
    assert need.failed_bytes < 1.05 * need.allocated_bytes <= need.passed_bytes <= need.reserved_bytes
    assert need.passed_bytes - need.failed_bytes <= STEP_BYTES
    assert found.summary
    assert found.summary.batches == 3
    assert found.retries == 0, "what the measuring does to the allocator is not the batches'"
    assert card.retries > 0
    assert card.cap_bytes == card.total_bytes
    assert card.emptied == need.tries, "each try begins with an empty cache"


@pytest.mark.slow
def test_a_cap_of_the_point_holds_for_the_batches_and_after(tmp_path: Path, card: FakeTorch) -> None:
    cap = 107 * LOAD * BYTES_PER_LOAD // 100
    found = tried(tmp_path, replace(PLAIN, cap_bytes=cap))
    assert found.outcome is Outcome.OK
    assert found.retries == 1
    assert found.needs[0].reserved_bytes <= cap + 1024
    assert cap <= card.cap_bytes <= cap + 1024


@pytest.mark.slow
def test_on_a_cpu_no_need_is_measured_and_the_cpu_time_of_the_try_alone_is_recorded(tmp_path: Path) -> None:
    before_s = process.cpu_s()
    found = tried(tmp_path, replace(PLAIN, workload="count"))
    assert found.cpu_s is not None
    assert 0 < found.cpu_s <= process.cpu_s() - before_s
    assert (found.outcome, found.needs, found.retries, found.failed_load) == (Outcome.OK, (), None, None)


@pytest.mark.slow
@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(("workload", "load"), [("Held", None), ("Tells", LOAD)])
def test_a_batch_that_runs_out_leaves_its_load_where_that_is_reported(
    tmp_path: Path, workload: str, load: int | None
) -> None:
    small = replace(PLAIN, workload=f"tests.workloads.held:{workload}", cap_bytes=40 * BYTES_PER_LOAD)
    found = tried(tmp_path, small)
    assert (found.outcome, found.failed_load, found.needs) == (Outcome.GPU_OOM, load, ())
    assert found.point.cap_bytes == 40 * BYTES_PER_LOAD


@pytest.mark.slow
@pytest.mark.parametrize("order", ["load", "sorted"])
def test_a_point_may_work_on_a_part_of_the_text(tmp_path: Path, order: str) -> None:
    record = tried(tmp_path, replace(PLAIN, every=2, order=order))
    done, chosen = batches(tmp_path), TEXT.split("\n\n")[::2]
    assert record.summary
    assert (record.summary.items, record.summary.items_total) == (3, 3)
    assert sum(batch.characters for batch in done) == sum(map(len, chosen)) + 2
    assert all(batch.first_item % 2 == 0 for batch in done)


@pytest.mark.slow
@pytest.mark.usefixtures("card")
def test_a_profiled_point_leaves_its_profile_and_measures_no_need(tmp_path: Path) -> None:
    found = tried(tmp_path, replace(PLAIN, profile="python"))
    assert (found.outcome, found.needs, found.point.profile) == (Outcome.OK, (), "python")
    text = (tmp_path / "profile.txt").read_text(encoding="utf-8")
    assert "calls: all 3, " in text
    assert "jobkit/worker/workloads/count.py:" in text  # where the time of the few calls goes


@pytest.mark.fault
@pytest.mark.slow
def test_a_node_without_the_profiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT: a point is to be profiled with torch, and the Python of the job does not have it.

    HOW: a real try; Python finds no such package.
    REPORTED: `environment`, with the package and the Python; the remedy is the command that installs it.
    LOST: the try. If the job uses the Python that runs jobkit, jobkit refuses before the submission.
    """
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = tried(tmp_path, replace(PLAIN, profile="torch"))
    assert (found.outcome, found.message[:17]) == (Outcome.ENVIRONMENT, "profile: torch, b")
