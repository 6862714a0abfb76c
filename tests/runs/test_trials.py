from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.files import append_line
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, TRIALS_FILE, read_points
from jobkit.core.records import Outcome
from jobkit.core.units import GIB
from jobkit.runs.trials import ALLOCATOR, PROCESS, Trial, describe_trials, memory_of, settled_trials, trials
from tests.support.builders import point, write_points

TRIED = Trial(
    index=6,
    batch_size=1245,
    load=1000,
    capacity_bytes=16.0 * GIB,
    expected_bytes=15.0 * GIB,
    bound_bytes=15.9 * GIB,
    memory=ALLOCATOR,
)
LIMIT = "16.00 GiB of allocator memory (plus the CUDA context)"
ABOVE = "above the bound of 15.90 GiB (95 %)"
LIKELY = "most likely for its memory"
PROCESS_LIMIT = "16.00 GiB of process memory"


def write(run: Path, *found: Trial, tail: str = "") -> Path:
    for one in found:
        append_line(run / TRIALS_FILE, to_json(one))
        append_line(run / POINTS_FILE, to_json(point(one.index)))
    with (run / TRIALS_FILE).open("a", encoding="utf-8") as stream:
        stream.write(tail)
    return run


def test_a_trial_of_an_earlier_version_has_the_knob_of_today(tmp_path: Path) -> None:
    (tmp_path / TRIALS_FILE).write_text('{"batch_size": 0, "padded_chars": 9000}\n', encoding="utf-8")
    (found,) = trials(tmp_path)
    assert (found.knob, found.size) == ("padded", 9000)


def test_the_last_line_for_a_point_counts_and_every_message_stands_for_itself(tmp_path: Path) -> None:
    assert trials(tmp_path) == []
    assert describe_trials([]) == ()
    settled, second = replace(TRIED, outcome=Outcome.GPU_OOM), replace(TRIED, index=7)
    few, other = Trial(message="too few"), Trial(message="another card")
    run = write(tmp_path, few, TRIED, settled, few, other, second, tail='{"index": 8')
    assert trials(run) == [few, settled, few, other, second]
    assert len(describe_trials([few, TRIED, few])) == 2, "nothing is said twice"


NEEDED = "needed 15.50 GiB, predicted 15.00 GiB (-3.2 %)"
EACH = "16.00 GiB of allocator memory of each of 4 workers (plus the CUDA contexts)"
FITS: dict[str, Any] = {"outcome": Outcome.OK, "measured_bytes": int(15.5 * GIB)}


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({"message": "run it"}, f", to be tested for {LIMIT}, never began: run it"),
        (FITS, f"fits in {LIMIT}: {NEEDED}"),
        (
            FITS | {"measured_bytes": 17 * GIB, "memory": PROCESS},
            f"does not fit in {PROCESS_LIMIT}: needed 17.00 GiB, predicted 15.00 GiB (-11.8 %), {ABOVE}",
        ),
        ({"memory": memory_of(False, 4)}, f"is being tested for {EACH}"),  # noqa: FBT003 - as above
        ({"outcome": Outcome.LOST, "killed": True}, f"was tested for {LIMIT}, and was killed, {LIKELY}"),
    ],
)
def test_what_is_said_of_a_trial(known: dict[str, Any], sentence: str) -> None:
    (said,) = describe_trials([replace(TRIED, **known)])
    assert said == f"batch_size 1,245{'' if sentence.startswith(',') else ' '}{sentence}"
    assert describe_trials([Trial(message="few")]) == ("the largest batch was not tested: few",)


def test_it_held_where_it_ran_and_stayed_within() -> None:
    assert not TRIED.held
    assert TRIED.error is None
    assert replace(TRIED, measured_bytes=12 * GIB).error == 0.25, "a share of what was measured"
    assert replace(TRIED, outcome=Outcome.OK, measured_bytes=16 * GIB).held
    assert not replace(TRIED, outcome=Outcome.OK, measured_bytes=16 * GIB + 1).held
    assert not replace(TRIED, outcome=Outcome.GPU_OOM).held
    assert not replace(TRIED, outcome=Outcome.OK).held, "nothing was measured"


def test_what_nobody_settled_ended_as_its_point_did() -> None:
    settled = replace(TRIED, index=7, outcome=Outcome.OK)
    message = Trial(message="too few")
    lost, running, *same = settled_trials(
        [TRIED, replace(TRIED, index=9), settled, message], {6: Outcome.LOST, 7: Outcome.BUG, 9: None}
    )
    assert lost.outcome is Outcome.LOST
    assert running.under_way
    assert same == [settled, message]


def test_a_trial_of_an_earlier_version_is_known_by_its_id(tmp_path: Path) -> None:
    ids = {"batch_size-9-verify": True, "batch_size-9-verify-2": True, "batch_size-9-verify-r2": False}
    planned = [replace(point(n), point_id=name) for n, name in enumerate([*ids, "batch_size-9-r2"], 1)]
    points, _ = read_points(write_points(tmp_path / "run", planned))
    assert [each.trial for each in points] == [*ids.values(), False]
