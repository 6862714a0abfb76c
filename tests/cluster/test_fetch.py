"""Fetch a model as a job on real daemons, from a mirror on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.lab import SGE, ClusterLab
from tests.support.commands import jobkit


@SGE
def test_a_model_is_fetched_by_a_job_and_a_failure_is_seen(
    lab: ClusterLab, mirror: tuple[Path, str], tmp_path: Path
) -> None:
    folder, address = mirror

    def fetch() -> subprocess.CompletedProcess[str]:
        words = ("models", "fetch", "en", "--as-job", *lab.place, "--resources-url", address)
        return jobkit(*words, cwd=tmp_path, env={"JOBKIT_CACHE": str(tmp_path / "cache")})

    (folder / "en" / "ner" / "jobkit.pt").rename(tmp_path / "away")
    failed = fetch()
    assert failed.returncode == 4, failed.stdout + failed.stderr
    assert "could not be fetched" in failed.stdout
    (tmp_path / "away").rename(folder / "en" / "ner" / "jobkit.pt")
    done = fetch()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "cache" / "models" / "en" / "en" / "ner" / "jobkit.pt").is_file()
