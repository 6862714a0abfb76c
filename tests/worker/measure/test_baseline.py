"""The memory of the try before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobkit.worker.measure import memory, nvml
from jobkit.worker.measure.memory import DEADLINE_S, POLL_S, STEADY_S, Wait

GIB, MIB = 2**30, 2**20
Reader = Callable[..., Wait]


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Return a function that waits, with the readings of each GPU; the last of them stays."""
    clock = SimpleNamespace(now_s=0.0)
    clock.monotonic = lambda: clock.now_s
    clock.sleep = lambda seconds: setattr(clock, "now_s", clock.now_s + seconds)
    monkeypatch.setattr(memory, "time", clock)
    monkeypatch.setattr(nvml, "nvml", lambda: contextlib.nullcontext(True))  # noqa: FBT003 - as it yields

    def wait(*gpus: list[int | None]) -> Wait:
        series: dict[str, Iterator[int | None]] = {
            f"GPU-{number}": chain(readings, repeat(readings[-1])) for number, readings in enumerate(gpus)
        }
        monkeypatch.setattr(nvml, "used_bytes", lambda uuids: {uuid: next(series[uuid]) for uuid in uuids})
        return memory.wait(tmp_path / "gpus", tuple(series))

    return wait


def polled(found: Wait) -> tuple[int, int | None]:
    """Return after how many intervals the wait ended, and the baseline."""
    assert found.seconds is not None
    return round(found.seconds / POLL_S), found.baseline_bytes


def kept(folder: Path) -> dict[str, int]:
    return {path.name: int(path.read_text()) for path in (folder / "gpus").iterdir()}


def test_the_first_try_waits_until_two_readings_agree_the_next_until_the_memory_is_back(
    waiting: Reader, tmp_path: Path
) -> None:
    assert polled(waiting([3 * GIB, 2 * GIB, GIB])) == (3, GIB)
    assert kept(tmp_path) == {"GPU-0": GIB}
    assert waiting([GIB + 16 * MIB]) == Wait(0, GIB)
    assert waiting([GIB - MIB]) == Wait(0, GIB - MIB)
    assert kept(tmp_path) == {"GPU-0": GIB - MIB}, "the least that was seen"


@pytest.mark.fault
def test_a_try_waits_while_the_driver_frees_memory(waiting: Reader) -> None:
    """FAULT: the driver frees the GPU memory of the try before only after its end.

    HOW: simulated: readings of NVML that fall, and a clock of the test.
    REPORTED: nothing: the try waits, and its record has for how long (`memory_wait_s`).
    LOST: nothing.
    """
    waiting([GIB])
    freed = [5 * GIB, 5 * GIB, 5 * GIB, 3 * GIB, GIB + MIB]
    assert polled(waiting(freed)) == (4, GIB)


@pytest.mark.fault
def test_memory_that_stays_is_not_waited_for(waiting: Reader, tmp_path: Path) -> None:
    """FAULT: another process holds memory of the GPU that was free when the run began.

    HOW: simulated: a reading of NVML that stays, and a clock of the test.
    REPORTED: the record has what was in use and the baseline, and `jobkit collect` a note.
    LOST: 2 s for each try: memory that does not change is not being freed.
    """
    waiting([GIB])
    found = waiting([3 * GIB])
    assert found.seconds == pytest.approx(STEADY_S, abs=2 * POLL_S)
    assert found.baseline_bytes == GIB
    assert kept(tmp_path) == {"GPU-0": GIB}


def test_no_try_waits_beyond_the_deadline(waiting: Reader) -> None:
    waiting([GIB])
    found = waiting([GIB * (3 + number % 2) for number in range(1000)])
    assert found.seconds == pytest.approx(DEADLINE_S, abs=2 * POLL_S)


def test_every_gpu_of_a_try_must_be_back(waiting: Reader) -> None:
    waiting([GIB], [2 * GIB])
    assert polled(waiting([GIB], [4 * GIB, 3 * GIB, 2 * GIB])) == (2, 3 * GIB)


def test_what_nvml_does_not_answer_is_unknown(waiting: Reader, tmp_path: Path) -> None:
    assert waiting() == Wait(None, None)
    assert polled(waiting([None])) == (1, None)
    assert not (tmp_path / "gpus").exists()


def test_a_baseline_that_cannot_be_read_or_written_is_none(waiting: Reader, tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "GPU-0").write_text("much\n", encoding="ascii")
    assert polled(waiting([GIB])) == (1, GIB)
    (tmp_path / "gpus" / "GPU-0").unlink()
    (tmp_path / "gpus").rmdir()
    (tmp_path / "gpus").touch()
    assert polled(waiting([GIB])) == (1, GIB)


def test_the_gpus_of_a_try_are_known_by_name_or_if_there_are_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [SimpleNamespace(uuid=uuid) for uuid in ("GPU-aa", "GPU-bb")]
    monkeypatch.setattr(nvml, "list_gpus", lambda: gpus)
    for visible, number, found in (
        ("GPU-b, GPU-a", 2, ["GPU-bb", "GPU-aa"]),
        ("GPU-b,GPU-a", 1, ["GPU-bb"]),
        ("GPU-b,GPU-x", 2, []),
        ("MIG-7", 1, ["MIG-7"]),
        ("0,1", 2, ["GPU-aa", "GPU-bb"]),
        ("", 2, ["GPU-aa", "GPU-bb"]),
        ("1", 1, []),
    ):
        monkeypatch.setenv(nvml.VISIBLE_VARIABLE, visible)
        assert nvml.visible_uuids(number) == found
