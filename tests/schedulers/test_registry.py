from __future__ import annotations

import pytest

from jobkit.errors import JobkitError
from jobkit.schedulers.registry import SCHEDULERS, by_name


def test_every_scheduler_is_registered_under_its_own_name() -> None:
    assert {name: scheduler.NAME for name, scheduler in SCHEDULERS.items()} == {n: n for n in SCHEDULERS}
    assert by_name("slurm") is SCHEDULERS["slurm"]


def test_an_unknown_scheduler_gets_the_nearest_name() -> None:
    with pytest.raises(JobkitError, match=r"none called 'slrum'\s+hint: did you mean 'slurm'\?"):
        by_name("slrum")
