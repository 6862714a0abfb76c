"""The fakes keep to what the real daemons showed: see contract.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.contract import expected, observe


@pytest.mark.parametrize("scheduler", ["slurm", "sge"])
def test_the_fake_shows_what_the_real_one_showed(
    scheduler: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cluster = request.getfixturevalue(f"fake_{scheduler}")
    cluster.set(kill_wait_s=0.5, reschedule_delay_s=0.5)
    seen, real = observe(scheduler, tmp_path), expected(scheduler)
    assert cluster.calls()
    for key in real["answers"]:
        assert seen["answers"][key] == real["answers"][key], key
    for key in real:
        assert seen[key] == real[key], key
