"""An account and a QOS that a partition needs, on real Slurm with accounting."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from jobkit.core.paths import user_name
from tests.cluster.daemons import Wait
from tests.cluster.lab import COUNT, ClusterLab

ON_SLURM = pytest.mark.parametrize("scheduler", [pytest.param("slurm", marks=pytest.mark.slurm)])
NLP, GPUQ = "jobkit-nlp", "jobkit-gpuq"
SPELT = "account: '--account={account}', qos: '--qos={qos}', "


def ask(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout


@pytest.fixture
def barred(lab: ClusterLab) -> Iterator[ClusterLab]:
    """Make a partition that starts only jobs of one account and one QOS, which this user may have."""
    user = user_name()
    for words in (
        *(("add", "account", NLP), ("add", "qos", GPUQ), ("add", "user", user, f"account={NLP}")),
        ("modify", "user", user, "set", f"qos+={GPUQ}"),
    ):
        ask("sacctmgr", "-i", *words)
    ask("scontrol", "create", f"PartitionName={NLP}", "Nodes=n1", f"AllowAccounts={NLP}", f"AllowQos={GPUQ}")
    site = lab.home / "lab.yaml"
    site.write_text(site.read_text().replace("requests: {", f"requests: {{{SPELT}") + f"account: {NLP}\n")
    yield lab
    ask("scancel", "-p", NLP)
    ask("scontrol", "delete", f"PartitionName={NLP}")
    ask("sacctmgr", "-i", "delete", "user", user, f"account={NLP}")
    ask("sacctmgr", "-i", "delete", "account", NLP)
    ask("sacctmgr", "-i", "delete", "qos", GPUQ)


@ON_SLURM
def test_what_can_never_start_is_refused_and_runs_with_what_is_advised(
    barred: ClusterLab, wait_until: Wait
) -> None:
    """The account is from the site file; the QOS is missing."""
    spec, queue = barred.spec(COUNT), ("--set", f"resources.queue={NLP}")
    for words in (("--dry-run",), ()):
        refused = barred.sweep(spec, *queue, *words)
        assert refused.returncode == 3
        assert f"needs QOS {GPUQ}, and the job has normal: it never starts" in refused.stderr
        assert "account" not in refused.stderr.partition("nothing was submitted")[2].partition("hint")[0]
    assert not (barred.home / "runs").exists()

    while int(ask("sbatch", "--parsable", "--output=/dev/null", "--wrap=true") or 3) < 3:
        pass  # on a new cluster: `status 2` is point 2, and job 4 is no point

    forced = barred.sweep(spec, *queue, "--force")
    assert (forced.returncode, "submitted all the same (--force)" in forced.stderr) == (0, True)
    run, job = barred.run_dir(), barred.job()
    wait_until(lambda: "QOS" in ask("squeue", "-h", "-j", job, "-o", "%r"), 60)
    assert "partition does not allow the QOS; it needs another qos" in barred.jobkit("status", job).stdout
    advised = f"--set resources.qos={GPUQ}"
    assert f"{advised}   # cancels 3 points that can never begin" in barred.jobkit("status", run).stdout

    again = barred.jobkit("resume", run, *advised.split())
    assert again.returncode == 0, again.stderr
    wait_until(lambda: barred.jobkit("status", run).returncode == 0, 120)
    wait_until(lambda: not ask("squeue", "-h", "-p", NLP), 60)
