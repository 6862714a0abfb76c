"""The page on waste has the seven of the command."""

from __future__ import annotations

from jobkit.report.recommend.request import read_use
from jobkit.report.recommend.waste import wastes
from tests.pages.test_docs import ROOT, page, section

H200 = ROOT / "benchmarks/records/gpu/stanza-20261121-034558-42cc"


def test_every_waste_has_a_section_with_its_fix() -> None:
    for waste in wastes(read_use(H200)):
        assert "Fix" in section(page("waste.md"), waste.name[0].upper() + waste.name[1:])
