from __future__ import annotations

import pytest

from jobkit.errors import JobkitError
from jobkit.schedulers.registry import SCHEDULERS, by_name, own_option


def test_every_scheduler_is_registered_under_its_own_name() -> None:
    assert {name: scheduler.NAME for name, scheduler in SCHEDULERS.items()} == {n: n for n in SCHEDULERS}
    assert by_name("slurm") is SCHEDULERS["slurm"]


def test_an_unknown_scheduler_gets_the_nearest_name() -> None:
    with pytest.raises(JobkitError, match=r"none called 'slrum'; did you mean 'slurm'\?"):
        by_name("slrum")


@pytest.mark.parametrize(
    ("scheduler", "line", "option"),
    [
        ("slurm", "--array=1-3", "--array"),
        ("slurm", "--output /tmp/x", "--output"),
        ("slurm", "-a1-3", "-a"),
        ("slurm", " -o x.log", "-o"),
        ("slurm", "--signal=B:USR1@5", "--signal"),
        ("sge", "-t 1-3", "-t"),
        ("sge", "-notify", "-notify"),
    ],
)
def test_what_jobkit_sets_itself_is_told(scheduler: str, line: str, option: str) -> None:
    assert f"jobkit sets {option} itself" in (own_option(scheduler, line) or "")


@pytest.mark.parametrize(
    ("scheduler", "line"),
    [("slurm", "--nice=100"), ("slurm", "-A staff"), ("slurm", ""), ("sge", "-p -10"), ("none", "--array=1")],
)
def test_other_options_are_the_users(scheduler: str, line: str) -> None:
    assert own_option(scheduler, line) is None
