"""docs/walk-away.md is held to the run that it quotes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from jobkit.core.layout import RECORD_FILE
from jobkit.runs.results import read_run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walk-away.md").read_text(encoding="utf-8")
(RUN,) = (ROOT / "benchmarks" / "records" / "prune").iterdir()


def test_what_became_of_each_point_stands_on_the_page() -> None:
    for point in read_run(RUN).points:
        said = point.verdict.evidence.removeprefix("exit file: ") if point.outcome == "pruned" else ""
        line = f"{point.point.point_id:<20} {point.outcome!s:<8} {said}".rstrip()
        assert f"\n{line}\n" in PAGE


def test_those_that_were_pruned_ended_at_once_and_loaded_nothing() -> None:
    pruned = [point for point in read_run(RUN).points if point.outcome == "pruned"]
    assert len(pruned) == 2
    for one in pruned:
        folder = RUN / "results" / one.point.point_id / "try-1"
        assert not (folder / RECORD_FILE).exists()
    began = [(RUN / "results" / one.point.point_id / "try-1" / "begin").read_text() for one in pruned]
    first, last = (datetime.fromisoformat(text.partition("\nat=")[2].split()[0]) for text in began)
    assert (last - first).total_seconds() <= 2
