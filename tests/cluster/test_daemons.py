"""A test may have a cluster alone, kill its daemons, and leaves it as it was: what other tests rely on."""

from __future__ import annotations

import fcntl

import pytest

from tests.cluster.conftest import PLACE
from tests.cluster.daemons import SgeDaemons, SlurmDaemons, said


def shared(name: str) -> bool:
    """Tell whether another test could use the cluster now."""
    with (PLACE / f"{name}.quiet").open("w") as quiet:
        try:
            fcntl.flock(quiet, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.slurm
def test_slurm_is_had_alone_and_healed(slurm_alone: SlurmDaemons) -> None:
    assert not shared("slurm")
    slurm_alone.set_slurmd_timeout(7)
    assert (
        "7 sec" in (said("scontrol", "show", "config") or "").partition("SlurmdTimeout")[2].partition("\n")[0]
    )
    for name in ("slurmdbd", "slurmctld", "slurmd-n1"):
        slurm_alone.kill(name)
        assert name == "slurmd-n1" or not slurm_alone.healthy()
    slurm_alone.healed()
    assert slurm_alone.healthy()


@pytest.mark.sge
def test_grid_engine_is_had_alone_and_healed(sge_alone: SgeDaemons) -> None:
    assert not shared("sge")
    for name in ("execd", "qmaster"):
        sge_alone.kill(name)
    assert not sge_alone.healthy()
    sge_alone.healed()
    assert sge_alone.healthy()
