"""Whether a task that begins is still worth running: by what others left in the run folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.layout import FLAGS_FOLDER, Exit
from jobkit.core.measurements import Gpu
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.worker import skip_check
from jobkit.worker.skip_check import (
    FailedTry,
    check_repeats,
    check_still_needed,
    failed_tries,
    other_repeats,
)
from tests.support.builders import (
    GPU,
    point,
    record,
    try_folder,
    write_begin,
    write_exit,
    write_points,
    write_record,
)

STOPPING = sorted(skip_check.SETUP_OUTCOMES)


def load(index: int, batch_size: int, per_call: int = 100, **params: int) -> Point:
    knobs = {"batch_size": batch_size, "sentences_per_ner_batch": per_call, **params}
    return point(index, params=knobs)


def failed(
    of: Point, outcome: Outcome = Outcome.GPU_OOM, message: str = "", card: Gpu | None = GPU
) -> FailedTry:
    told: Record = replace(record(of), outcome=outcome, message=message, gpu=card)
    return FailedTry(point=of, outcome=outcome, message=message, record=told)


def pruned(about: Point, by: FailedTry, card: Gpu | None = GPU) -> bool:
    told = check_still_needed(about, [by], card, prune=True, stop_after=2)
    return told is not None and told[0] is Outcome.PRUNED


SIZES = st.integers(1, 6)


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 1), st.integers(0, 1))
def test_pruned_is_what_is_no_smaller_in_any_knob_and_larger_in_one(
    size: int, per_call: int, other: int, per_other: int, beam: int, beam_other: int
) -> None:
    about = load(2, size, per_call, beam=beam)
    cause = failed(load(1, other, per_other, beam=beam_other))
    larger = size >= other and per_call >= per_other and (size, per_call) != (other, per_other)
    assert pruned(about, cause) is (larger and beam == beam_other)


SMALL, LARGE = load(1, 10), load(2, 20)


def test_another_card_cap_knob_or_outcome_a_shared_card_and_no_record_prune_nothing() -> None:
    for changes in ({"name": "NVIDIA A100"}, {"total_bytes": 40 * GIB}, {"foreign_processes": 1}):
        assert not pruned(LARGE, failed(SMALL, card=replace(GPU, **changes)))
    assert not pruned(LARGE, failed(SMALL, card=None))
    assert pruned(LARGE, failed(SMALL, card=replace(GPU, uuid="GPU-2", foreign_processes=0)))
    assert not pruned(replace(LARGE, cap_bytes=GIB), failed(SMALL))
    assert pruned(replace(LARGE, cap_bytes=GIB), failed(replace(SMALL, cap_bytes=GIB)))
    assert not pruned(point(2, params={"batch_size": 20}), failed(SMALL))
    assert not pruned(LARGE, failed(SMALL, Outcome.RAM_OOM))
    assert not pruned(LARGE, FailedTry(point=SMALL, outcome=Outcome.GPU_OOM, message="", record=None))
    assert not pruned(LARGE, failed(SMALL), card=None)
    assert check_still_needed(LARGE, [failed(SMALL)], GPU, prune=False, stop_after=2) is None
    assert check_still_needed(LARGE, [failed(LARGE)], GPU, prune=True, stop_after=1) is None, (
        "its own earlier try"
    )


def test_a_task_stops_where_enough_other_points_failed_the_same_way() -> None:
    def stops(*others: FailedTry, after: int = 2) -> bool:
        verdict = check_still_needed(load(3, 30), others, None, prune=True, stop_after=after)
        return verdict is not None and verdict[0] is Outcome.STOPPED

    for outcome in STOPPING:
        one, other, own = (failed(load(n, 10), outcome, f"ValueError: {n} of 9") for n in (1, 2, 3))
        assert [stops(one, other), stops(one, one), stops(one, own)] == [True, False, False]
        assert not stops(one, failed(load(2, 10), outcome, "KeyError: 'x'"))
        assert [stops(one, other, after=after) for after in (0, 1, 3)] == [False, True, False]
    assert not stops(*(failed(load(n, 10), Outcome.TIMEOUT, "late") for n in (1, 2)))


def flag(run: Path, name: str) -> None:
    (run / FLAGS_FOLDER).mkdir(exist_ok=True)
    (run / FLAGS_FOLDER / name).touch()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run whose points 1 to 4 failed in round 2: by record, by exit file, and by nothing."""
    points = [load(n, 10 * n) for n in range(1, 5)]
    folder = write_points(tmp_path / "run", points)
    for one in points:
        write_begin(folder, one, round=2)
        flag(folder, f"{one.index}-1")
    write_record(folder, replace(record(points[0]), outcome=Outcome.GPU_OOM, message="CUDA out of memory"))
    write_exit(folder, points[1], Exit(status=1, stage="run"))
    write_exit(
        folder, points[2], Exit(status=1, stage="environment", outcome=Outcome.ENVIRONMENT, message="m")
    )
    write_exit(folder, points[3], Exit(status=143, stage="run", signal="TERM"))
    return folder


def told(run: Path, round_: int = 2) -> list[tuple[int, Outcome, str]]:
    return [(one.point.index, one.outcome, one.message) for one in failed_tries(run, round_)]


def test_the_tries_that_left_a_flag_are_read_and_no_others(run: Path) -> None:
    assert told(run) == [
        (1, Outcome.GPU_OOM, "CUDA out of memory"),
        (2, Outcome.BUG, "status 1 in step run"),
        (3, Outcome.ENVIRONMENT, "m"),
        (4, Outcome.LOST, "status 143 in step run"),
    ]
    for name in ("1-1", "2-1", "3-1"):
        (run / FLAGS_FOLDER / name).unlink()
    assert [index for index, *_ in told(run)] == [4]


def test_another_round_tries_by_hand_and_what_cannot_be_read_do_not_count(run: Path) -> None:
    assert told(run, 1) == []
    write_begin(run, load(2, 20), scheduler="hand", task="", round=2)
    assert [index for index, *_ in told(run)] == [1, 3, 4]
    for name in ("notes", "x-1", "1-x", "99-1", "2-7", "1-"):
        flag(run, name)
    (try_folder(run, load(1, 10)) / "record.json").write_text("{", encoding="utf-8")
    (try_folder(run, load(3, 30)) / "exit").unlink()
    assert [index for index, *_ in told(run)] == [4]
    (try_folder(run, load(4, 40)) / "begin").write_text("scheduler=slurm\n", encoding="utf-8")
    assert told(run) == []


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that asks about a point, as the job script does, and returns the line for it."""

    def asked(run: Path, index: int, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["skip_check", str(run), str(index), "2", *words])
        assert skip_check.main() == 0
        return capsys.readouterr().out

    return asked


def test_a_line_for_the_job_script_or_none(run: Path, ask: Callable[..., str]) -> None:
    assert ask(run, 3, "--prune", "--stop-after", "2") == ""
    message = "ValueError: \n  on\tpurpose " + "x" * 500
    for index in (2, 4):
        one = load(index, 10 * index)
        write_record(run, replace(record(one), outcome=Outcome.BUG, message=message))
    line = ask(run, 1, "--stop-after", "2")
    assert line.startswith("stopped bug 2 points failed the same way: bug: ValueError: on purpose xxx")
    assert (line.count("\n"), len(line)) == (1, len("stopped bug ") + 400 + 1)


def measured(repeat: int, speed: float, *, card: Gpu | None = GPU, host: str = "node1") -> Record:
    """Return a repeat of one setting with a speed."""
    one = replace(load(repeat, 10), repeat=repeat, point_id=f"batch_size-10-r{repeat}")
    told = replace(record(one), gpu=card, host=host)
    assert told.summary
    return replace(told, summary=replace(told.summary, items_per_s=speed))


def test_a_repeat_is_skipped_if_the_interval_of_the_others_is_short() -> None:
    """Half the interval of 99, 100 and 101 is t of two degrees, 4.303, over the root of 3: 2.48 % of 100."""
    repeats = [measured(n, 98.0 + n) for n in (1, 2, 3)]
    message = "half the 95 % interval of 3 repeats is 2.5 % of their mean, under 3 %"
    assert check_repeats(repeats, 0.03, 3) == (Outcome.PRUNED, "batch_size-10-r3", message)
    assert check_repeats(repeats, 0.0248, 3) is None
    assert check_repeats(repeats, 0.03, 4) is None
    assert check_repeats(repeats[:1], 0.03, 1) is None, "it has no interval"


def test_repeats_on_several_kinds_of_gpu_or_on_several_hosts_without_one_have_no_mean() -> None:
    for card in (replace(GPU, name="NVIDIA A100"), None):
        repeats = [measured(1, 100), measured(2, 100), measured(3, 100, card=card)]
        assert check_repeats(repeats, 0.03, 3) is None
        assert check_repeats([*repeats, measured(4, 100)], 0.03, 3)
    repeats = [measured(n, 100, card=None, host=f"node{n}") for n in (1, 2, 3)]
    assert check_repeats(repeats, 0.03, 3) is None
    assert check_repeats([replace(one, host="node1") for one in repeats], 0.03, 3)


@pytest.fixture
def repeated(tmp_path: Path) -> Path:
    """Return a run of five repeats of a setting, of which three succeeded with one speed."""
    repeats = [measured(n, 100) for n in range(1, 6)]
    folder = write_points(tmp_path / "run", [one.point for one in repeats])
    for one in repeats[:3]:
        write_begin(folder, one.point)
        write_record(folder, one)
    return folder


def others(run: Path, repeat: int) -> list[int]:
    found = other_repeats(run, measured(repeat, 100).point, 5)
    return [one.point.repeat for one in found]


def test_the_other_repeats_that_succeeded_are_read(repeated: Path) -> None:
    assert others(repeated, 4) == [1, 2, 3]
    assert others(repeated, 2) == [1, 3]
    write_record(repeated, replace(measured(1, 100), outcome=Outcome.TIMEOUT))
    write_begin(repeated, measured(2, 100).point, scheduler="hand", task="")
    (try_folder(repeated, measured(3, 100).point) / "record.json").write_text("{", encoding="utf-8")
    assert others(repeated, 4) == []


def test_a_repeat_that_a_person_submits_again_a_trial_and_a_profile_run(repeated: Path) -> None:
    point = measured(4, 100).point
    write_exit(repeated, point, Exit(status=1, stage="stage_in", outcome=Outcome.STAGE_IN))
    assert others(repeated, 4) == [1, 2, 3]
    write_exit(repeated, point, Exit(status=0, stage="gate", outcome=Outcome.PRUNED))
    assert others(repeated, 4) == []
    for added in ("batch_size-10-verify", "batch_size-10-r4-profile-torch"):
        assert list(other_repeats(repeated, replace(point, point_id=added), 5)) == []
