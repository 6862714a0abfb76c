"""What `jobkit init` writes on real schedulers, up to a real sweep; and on sites of another kind."""

from __future__ import annotations

import fcntl
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import load_spec
from tests.support.commands import jobkit

OTHER_SITE = Path(__file__).parents[1] / "data" / "other-site.sh"
LIGHT = ("--set", "workload=count", "--set", "resources.gpus=0")
BOTH = [
    pytest.param("slurm", marks=pytest.mark.slurm),
    pytest.param("sge", marks=pytest.mark.sge),
]


@pytest.fixture(params=BOTH)
def scheduler(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue(request.param)
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    return tmp_path


def test_from_init_to_a_table(scheduler: str, home: Path) -> None:
    written = jobkit("init", "--scheduler", scheduler)
    assert written.returncode == 0, written.stderr
    site, spec = load_site("auto", scheduler), load_spec("first.yaml")
    assert site.queue == spec.resources.queue == {"slurm": "cpu", "sge": "gpu.q"}[scheduler]
    assert spec.resources.gpus == 1

    well = jobkit("doctor", "first.yaml", *LIGHT)
    assert well.returncode == 0, well.stdout
    assert "missing" not in well.stdout
    dry = jobkit("sweep", "first.yaml", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert {"slurm": "--gres=gpu:v100:1", "sge": "-l ngpus=1"}[scheduler] in dry.stdout

    swept = jobkit("sweep", "first.yaml", *LIGHT, "--wait")
    assert swept.returncode == 0, swept.stdout + swept.stderr
    assert "Fastest: batch_size" in swept.stdout
    assert len(list(home.glob("runs/first-*/results/*/try-1/record.json"))) == 4

    again = jobkit("init", "--scheduler", scheduler)
    assert again.returncode == 2
    assert "nothing was written" in again.stderr


@contextmanager
def other_site(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have another site's controller running, one at a time on this machine."""
    with (
        tempfile.TemporaryDirectory(prefix="jobkit-other-site-") as made,
        (Path(tempfile.gettempdir()) / "jobkit-other-site.lock").open("w") as lock,
    ):
        folder = Path(made)
        folder.chmod(0o755)  # its daemons run as other users, who may not enter pytest's own folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
                argv = [str(OTHER_SITE), scheduler, str(folder / "site")]
                subprocess.run(argv, stdout=out, stderr=err, check=True, timeout=120)
            for name, value in re.findall(r"(\w+)=(\S+)", (folder / "out").read_text(encoding="utf-8")):
                monkeypatch.setenv(name, value)
            yield
        finally:
            subprocess.run([str(OTHER_SITE), "down", str(folder / "site")], check=True, timeout=120)


@pytest.mark.slurm
def test_a_slurm_with_partitions_of_every_kind(slurm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes never come, so nothing runs: but what it says of itself is what a site says."""
    del slurm
    with other_site("slurm", monkeypatch):
        assert jobkit("init", "--scheduler", "slurm").returncode == 0
        looked = jobkit("doctor", "first.yaml", *LIGHT)
        down = jobkit("doctor", "first.yaml", *LIGHT, "--set", "resources.queue=old")
    assert load_site("auto", "slurm").queue == "gpu"
    assert load_site("auto", "slurm").cpu_queue == "batch"
    assert "gpu: 5 nodes, at most 36:00:00 a job" in looked.stdout
    assert re.search(r"warning +accounting +off", looked.stdout)
    assert down.returncode == 4
    assert "it is down" in down.stdout


@pytest.mark.sge
def test_a_grid_engine_with_names_of_its_own(sge: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del sge
    with other_site("sge", monkeypatch):
        assert jobkit("init", "--scheduler", "sge").returncode == 0
        looked = jobkit("doctor", "first.yaml", *LIGHT)
        nobody = jobkit("doctor", "first.yaml", *LIGHT, "--set", "resources.account=nobody")
    site, spec = load_site("auto", "sge"), load_spec("first.yaml")
    assert (site.requests.gpus, site.requests.memory, site.memory_per) == (
        "-l gpu={gpus}",
        "-l h_vmem={memory}",
        "slot",
    )
    assert (site.requests.cpus, spec.resources.account) == ("-pe threads {cpus}", "nlp")
    assert looked.returncode == 0, looked.stdout
    assert nobody.returncode == 4
