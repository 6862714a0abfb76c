"""What the fake of tests/fakes is held to is what the real daemons show.

They are asked on a cluster alone: an array begins at once only where jobs of other tests hold no slot.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.contract import EXPECTED, observe


@pytest.mark.slurm
@pytest.mark.usefixtures("slurm_alone")
def test_slurm_shows_what_the_fake_is_held_to(tmp_path: Path) -> None:
    assert observe(tmp_path) == EXPECTED
