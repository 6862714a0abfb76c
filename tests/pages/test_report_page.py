"""The page on the report shows DCGM's figures as they are printed."""

from __future__ import annotations

from jobkit.report.output import render
from jobkit.report.tables import collect
from tests.pages.test_docs import ROOT, blocks, page, section


def test_the_figures_of_dcgm_are_those_that_are_printed() -> None:
    log = ROOT / "tests" / "data" / "predecessors" / "gpu-stanza-tagging.o2650"
    [shown] = blocks(section(page("report.md"), "Next to DCGM's report"), "text")
    assert shown in render(collect([log]))
