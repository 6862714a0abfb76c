"""Run folders that earlier versions made are still read: those of benchmarks/records, by every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.archives import runs
from jobkit import cli
from jobkit.core.files import read_lines
from jobkit.core.layout import POINTS_FILE
from jobkit.core.records import RESULTS
from jobkit.runs.results import read_run
from tests.whole.test_one_answer import by_group

RUNS = runs()


@pytest.mark.parametrize("run", by_group(RUNS))
def test_a_committed_run_is_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = read_run(run)
    assert [result.point.index for result in results.points] == [
        number for number, _ in read_lines(run / POINTS_FILE)
    ]
    assert all(result.verdict.outcome for result in results.points), "each has ended"
    assert not results.notes
    code = 0 if all(result.verdict.outcome in RESULTS for result in results.points) else 4
    for command in (["collect", str(run)], ["status", "--json", str(run)], ["recommend", str(run)]):
        assert cli._exit_code(command) in {0, code}, capsys.readouterr().err


def test_there_are_such_runs() -> None:
    assert len(RUNS) >= 8
