from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.spec.site import load_site


def test_auto_prefers_the_users_own_site_of_the_same_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("name: ours\nscheduler: slurm\nmemory_per: job\n", encoding="utf-8")
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path))
    assert load_site("auto", "slurm").name == "ours"
    assert load_site("auto", "sge").name == "sge-default"
    assert load_site(str(path), "slurm").memory_per == "job", "a path is a site, too"


def test_refusals_name_what_would_work(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="no site 'lancaster'; did you mean 'lancaster-hec'"):
        load_site("lancaster", "sge")
    with pytest.raises(JobkitError, match="is for sge, not for slurm"):
        load_site("lancaster-hec", "slurm")
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nscheduler: pbs\nqueu: a\n", encoding="utf-8")
    with pytest.raises(JobkitError) as caught:
        load_site(str(path), "slurm")
    assert f"{path}:2:12: scheduler: 'pbs'" in caught.value.message
    assert f"{path}:3:1: queu: no such key; did you mean 'queue'?" in caught.value.message
    assert caught.value.message.startswith(f"{path} has errors\n")


def test_a_site_cannot_set_what_jobkit_sets_itself(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("scheduler: sge\nname: own\noptions: [-q x.q, -t 1-9]\n", encoding="utf-8")
    with pytest.raises(JobkitError, match=r"own.yaml:3:\d+: options.1: '-t 1-9': jobkit sets -t itself"):
        load_site(str(path), "sge")
    path.write_text("scheduler: slurm\nname: own\ngpus: choose\n", encoding="utf-8")
    with pytest.raises(JobkitError, match=r"own.yaml:3:\d+: gpus: Slurm names the GPUs of a job"):
        load_site(str(path), "slurm")
