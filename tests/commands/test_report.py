"""The reports of DCGM that the command takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.commands.report import report
from jobkit.core.errors import JobkitError
from tests.support.builders import grid, record, write_records

DCGM = Path(__file__).parents[1] / "data" / "predecessors" / "gpu-stanza-tagging.gpu-report"


def test_a_report_of_dcgm_is_of_one_run(tmp_path: Path) -> None:
    runs = [str(write_records(tmp_path / name, map(record, grid([50])))) for name in ("a", "b")]
    words = ["--dcgm", str(DCGM), "--output", str(tmp_path / "report.html")]
    with pytest.raises(JobkitError, match="2 runs are named"):
        report.main(args=[*runs, *words], standalone_mode=False)
    assert report.main(args=[runs[0], *words], standalone_mode=False) == 0
    assert "DCGM&#39;s report" in (tmp_path / "report.html").read_text()
