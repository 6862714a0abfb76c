"""The README is short, and its table is what `jobkit collect` prints for the run in benchmarks/records."""

from __future__ import annotations

from pathlib import Path

from jobkit.report.output import render
from jobkit.report.tables import collect

ROOT = Path(__file__).parents[2]
MOST_WORDS = 700
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_newcomer_reads_it_in_minutes() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_table_is_that_of_its_records() -> None:
    (run,) = (ROOT / "benchmarks" / "records" / "demo").iterdir()
    printed = iter(render(collect([run]), width=100).splitlines())
    quoted = README.partition("```text\n")[2].partition("```")[0].splitlines()
    assert len(quoted) > 6
    assert all(line in printed for line in quoted), "in this order"
