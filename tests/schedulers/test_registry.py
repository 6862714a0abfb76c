from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.schedulers.registry import by_name, choose_scheduler, own_option, unused_schedulers


def test_an_unknown_scheduler_gets_the_nearest_name() -> None:
    with pytest.raises(JobkitError, match=r"none called 'slrum'; did you mean 'slurm'\?"):
        by_name("slrum")


@pytest.mark.slow
def test_auto_looks_for_sbatch_then_qsub_then_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("SLURM_JOB_ID", "JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    assert choose_scheduler("auto") == ("local", "neither sbatch nor qsub with qconf is on PATH")
    for name, chosen in (("qsub", "local"), ("qconf", "sge"), ("sbatch", "slurm")):  # PBS has a qsub, too
        assert unused_schedulers() == (("sge",) if chosen == "slurm" else ())
        (tmp_path / name).touch(0o755)
        assert choose_scheduler("auto")[0] == chosen
    none = "sbatch and qsub are on PATH, and none answers: --scheduler sge takes the other"
    assert choose_scheduler("auto") == ("slurm", none)
    (tmp_path / "qconf").write_text("#!/bin/sh\n", encoding="utf-8")
    assert choose_scheduler("auto") == ("sge", "qsub is on PATH and answers")
    assert unused_schedulers() == ("slurm", "sge")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert unused_schedulers() == ("sge",), "this is a job of Slurm"


@pytest.mark.parametrize(
    ("scheduler", "line", "option"),
    [
        ("slurm", "-a1-3", "-a"),
        ("slurm", "--err=x.log", "--error"),
        ("slurm", '--comment "it\'s --mine" -e x', "-e"),
        ("slurm", "--comment='open -ox", "-o"),
        ("sge", "-t 1-3", "-t"),
        ("sge", "-p -10 -wd /tmp", "-wd"),
    ],
)
def test_what_jobkit_sets_itself_is_reported(scheduler: str, line: str, option: str) -> None:
    assert f"jobkit sets {option} itself" in (own_option(scheduler, line) or "")


def test_other_options_are_the_users() -> None:
    for scheduler, lines in (
        ("slurm", ["--nice=100", "-- --", "", "--comment='--array=1-3'", "--nice=1 # not --array"]),
        ("sge", ["-p -10", "-l tmpfs=1G -ac -ox=1", "-hold_jid 7"]),
        ("none", ["--array=1"]),
    ):
        assert {own_option(scheduler, line) for line in lines} == {None}
