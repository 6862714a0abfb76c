"""The README's table is what `jobkit collect` prints of the run folder that it came from."""

from __future__ import annotations

from pathlib import Path

from jobkit.report.output import render
from jobkit.report.tables import collect

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_its_records() -> None:
    (run,) = (ROOT / "docs" / "benchmarks" / "demo").iterdir()
    printed = render(collect([run]), width=100)
    assert f"```text\n{printed}```" in README
