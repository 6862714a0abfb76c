from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.schedulers.registry import SCHEDULERS, by_name, own_option, unused_schedulers


def test_an_unknown_scheduler_gets_the_nearest_name() -> None:
    with pytest.raises(JobkitError, match=r"none called 'slrum'; did you mean 'slurm'\?"):
        by_name("slrum")


def test_a_scheduler_is_unused_outside_of_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert unused_schedulers() == ()
    for name in ("sbatch", "qsub"):  # without qconf it may be the qsub of PBS
        (tmp_path / name).touch(0o755)
    assert unused_schedulers() == ("slurm",)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert unused_schedulers() == ()


@pytest.mark.parametrize(
    ("scheduler", "line", "option"),
    [
        ("slurm", "--array=1-3", "--array"),
        ("slurm", "--output /tmp/x", "--output"),
        ("slurm", "-a1-3", "-a"),
        ("slurm", "--nice=1 -J mine", "-J"),
        ("slurm", "--err=x.log", "--error"),
        ("slurm", '--comment "it\'s --mine" -e x', "-e"),
        ("slurm", "--comment='open -ox", "-o"),
        ("sge", "-t 1-3", "-t"),
        ("sge", "-p -10 -wd /tmp", "-wd"),
    ],
)
def test_what_jobkit_sets_itself_is_reported(scheduler: str, line: str, option: str) -> None:
    assert f"jobkit sets {option} itself" in (own_option(scheduler, line) or "")


@pytest.mark.parametrize(
    ("scheduler", "lines"),
    [
        (
            "slurm",
            ["--nice=100", "-A staff", "--comment='--array=1-3'", "--nice=1 # not --array", "-- --", ""],
        ),
        ("sge", ["-p -10", "-l tmpfs=1G -ac -ox=1"]),
        ("none", ["--array=1"]),
    ],
)
def test_other_options_are_the_users(scheduler: str, lines: list[str]) -> None:
    assert {own_option(scheduler, line) for line in lines} == {None}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_option_of_jobkits_own_says_what_to_do_instead(name: str) -> None:
    assert all(SCHEDULERS[name].RESERVED_OPTIONS.values())
    said = own_option(name, next(iter(SCHEDULERS[name].RESERVED_OPTIONS), ""))
    assert said is None or said.endswith("itself; change sweep or max_parallel")
