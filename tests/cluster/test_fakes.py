"""What the fakes of tests/fakes are held to is what the real daemons show.

They are asked on a cluster alone: an array begins at once only where jobs of other tests hold no slot.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.contract import expected, observe


@pytest.mark.slurm
@pytest.mark.usefixtures("slurm_alone")
def test_slurm_shows_what_the_fake_is_held_to(tmp_path: Path) -> None:
    shows("slurm", tmp_path)


@pytest.mark.sge
@pytest.mark.usefixtures("sge_alone")
def test_grid_engine_shows_what_the_fake_is_held_to(tmp_path: Path) -> None:
    shows("sge", tmp_path)


def shows(scheduler: str, folder: Path) -> None:
    seen, kept = observe(scheduler, folder), expected(scheduler)
    for key in kept:
        assert seen[key] == kept[key], key
