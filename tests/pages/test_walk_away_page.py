"""docs/walk-away.md is held to the run that it quotes."""

from __future__ import annotations

from pathlib import Path

from jobkit.runs.results import read_run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walk-away.md").read_text(encoding="utf-8")
(RUN,) = (ROOT / "benchmarks" / "records" / "prune").iterdir()


def test_what_became_of_each_point_stands_on_the_page() -> None:
    for point in read_run(RUN).points:
        said = point.verdict.evidence.removeprefix("exit file: ") if point.outcome == "pruned" else ""
        line = f"{point.point.point_id:<20} {point.outcome!s:<8} {said}".rstrip()
        assert f"\n{line}\n" in PAGE
