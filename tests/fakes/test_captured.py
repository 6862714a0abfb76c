"""The fake answers, word for word, what was captured from the real daemons into tests/data."""

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
    "squeue-unreachable": "controller_away",
    "sacct-off": "accounting_off",
    "sacctmgr-off": "accounting_off",
}
STATIC = """sinfo config squeue-unknown refused-partition sacct-unknown submit-parsable test-only-gpus
    test-only-memory test-only-ok test-only-partition test-only-walltime
    lab-nodes lab-accounts lab-ping lab-version lab-partitions lab-config"""


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


def test_an_answer_is_the_one_that_was_captured(fake_slurm: FakeCluster, folder: Path) -> None:
    for name in (*STATIC.split(), *FAULTS):
        if name in FAULTS:
            fake_slurm.fix()
            fake_slurm.fault(FAULTS[name])
        fake_slurm.forget()
        real = captured(f"slurm/{name}")
        real = replace(real, argv=tuple(word for word in real.argv if word != "as_user"))
        assert told(run(real.argv), folder) == told(real, folder), name
        assert fake_slurm.calls()
