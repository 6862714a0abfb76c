"""The fakes answer, word for word, what was captured from the real daemons into tests/data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.shell import Completed, run
from tests.fakes.cluster import FakeCluster
from tests.fakes.contract import shape
from tests.support.surveys import captured

FAULTS = {
    "slurm/squeue-unreachable": "controller_away",
    "slurm/sacct-off": "accounting_off",
    "slurm/sacctmgr-off": "accounting_off",
    "slurm/sacct-unreachable": "accounting_down",
    "sge/qstat-unreachable": "controller_away",
}
STATIC = {
    "slurm": """sinfo config squeue-unknown refused-partition sacct-unknown submit-parsable test-only-gpus
        test-only-memory test-only-ok test-only-partition test-only-walltime
        lab-nodes lab-accounts lab-ping lab-version lab-partitions lab-config""",
    "sge": """complexes config qacct-unknown qdel-unknown qstat-empty submit-terse verify-ok
        lab-complexes lab-config lab-instances lab-pe-smp lab-qacct lab-queues lab-version""",
}
NAMES = [f"{scheduler}/{name}" for scheduler, names in STATIC.items() for name in names.split()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    (work / "logs").mkdir(parents=True)
    for name in ("ok.sh", "life.sh", "long.sh"):
        (work / name).write_text("#!/bin/bash\nexit 0\n", encoding="utf-8")
    monkeypatch.chdir(work)
    monkeypatch.delenv("SLURM_BITSTR_LEN", raising=False)
    return work


def told(answer: Completed, folder: Path) -> dict[str, object]:
    """Return an answer without what is another cluster's own: the time, a port, whose it was."""
    text = shape(answer, folder)
    for key in ("stdout", "stderr"):
        lines = [re.sub(r"\broot\b", "USER", line) for line in text[key]]
        lines = [re.sub(r"(port=?|localhost:)\s*\d+", r"\1 PORT", line) for line in lines]
        text[key] = [
            line for line in lines if not re.match(r"(BOOT_TIME|NEXT_JOB_ID|Configuration data)", line)
        ]
    return text


@pytest.mark.parametrize("name", [*NAMES, *FAULTS])
def test_an_answer_is_the_one_that_was_captured(
    name: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    cluster: FakeCluster = request.getfixturevalue(f"fake_{name.partition('/')[0]}")
    if name in FAULTS:
        cluster.fault(FAULTS[name])
    real = captured(name)
    real = replace(real, argv=tuple(word for word in real.argv if word != "as_user"))
    if "-u" in real.argv:
        real = Completed(("qstat", "-u", "nobody", "-xml"), real.status, real.stdout, real.stderr)
    assert told(run(real.argv), folder) == told(real, folder)
    assert cluster.calls()
