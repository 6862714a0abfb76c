"""Fetch a model as a job on real daemons, from a mirror on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from jobkit.core.records import ModelRef
from tests.support.commands import jobkit


def test_a_model_is_fetched_by_a_job_and_a_failure_is_seen(
    scheduler: str, tmp_path: Path, tiny_model: ModelRef, serve: Callable[[Path], str]
) -> None:
    import stanza

    mirror = tmp_path / "mirror"
    shutil.copytree(tiny_model.path, mirror)
    address = serve(mirror)
    resources = json.loads((mirror / "resources.json").read_text(encoding="utf-8"))
    resources["url"] = f"{address}/{{lang}}/{{filename}}"
    text = json.dumps(resources)
    (mirror / f"resources_{stanza.__resources_version__}.json").write_text(text, encoding="utf-8")
    (tmp_path / "site.yaml").write_text(
        f"name: lab\nscheduler: {scheduler}\ncpu_queue: {'cpu' if scheduler == 'slurm' else 'serial.q'}\n"
        + ('requests: {queue: "-p {queue}", ' if scheduler == "slurm" else 'requests: {queue: "-q {queue}", ')
        + ('memory: "--mem={memory}", ' if scheduler == "slurm" else 'memory: "-l h_vmem={memory}", ')
        + (
            'walltime: "--time={walltime}"}\n'
            if scheduler == "slurm"
            else 'walltime: "-l h_rt={walltime}"}\n'
        ),
        encoding="utf-8",
    )

    def fetch() -> subprocess.CompletedProcess[str]:
        site = ("--scheduler", scheduler, "--site", tmp_path / "site.yaml")
        words = ("models", "fetch", "en", "--as-job", *site, "--resources-url", address)
        return jobkit(*words, cwd=tmp_path, env={"JOBKIT_CACHE": str(tmp_path / "cache")})

    (mirror / "en" / "ner" / "jobkit.pt").rename(tmp_path / "away")
    failed = fetch()
    assert failed.returncode == 4, failed.stderr
    assert "could not be fetched" in failed.stdout
    (tmp_path / "away").rename(mirror / "en" / "ner" / "jobkit.pt")
    done = fetch()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "cache" / "models" / "en" / "en" / "ner" / "jobkit.pt").is_file()
