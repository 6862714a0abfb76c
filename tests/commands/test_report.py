"""The reports of DCGM that the command takes."""

from __future__ import annotations

from pathlib import Path

from tests.support.builders import grid, record, write_records
from tests.support.commands import jobkit

DCGM = Path(__file__).parents[1] / "data" / "predecessors" / "gpu-stanza-tagging.gpu-report"


def test_a_report_of_dcgm_is_of_one_run(tmp_path: Path) -> None:
    runs = [write_records(tmp_path / name, map(record, grid([50]))) for name in ("a", "b")]
    words = ("--dcgm", DCGM, "--output", tmp_path / "report.html")
    assert "2 runs are named" in jobkit("report", *runs, *words).stderr
    assert jobkit("report", runs[0], *words).returncode == 0
    assert "DCGM&#39;s report" in (tmp_path / "report.html").read_text()
