"""The workload that docs/adding-a-scheduler.md shows: a knob of one's own with words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.planning.prepare import Options, prepare
from jobkit.run.workloads.own import open_workload
from tests.pages.test_docs import DOCS

PAGE = (DOCS / "adding-a-scheduler.md").read_text(encoding="utf-8").partition("### A knob of your own\n")[2]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Write the workload and the spec of the page, next to each other; return the spec."""
    for language, name in (("python", "mywork.py"), ("yaml", "pinned.yaml")):
        (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        (tmp_path / name).write_text(block, encoding="utf-8")
    return tmp_path / "pinned.yaml"


def planned(spec: Path, *overrides: str) -> list[object]:
    options = Options(overrides=overrides, scheduler="slurm", runs_dir=spec.parent / "runs")
    return [point.params["pinned"] for point in prepare(spec, options, build=False).points]


def test_its_words_are_swept_and_the_device_decides_which(spec: Path) -> None:
    assert set(planned(spec)) == {"on", "off"}
    assert set(planned(spec, "device=cpu", "sweep.pinned=off")) == {"off"}
    with pytest.raises(JobkitError, match=r"^sweep\.pinned: on means nothing with device: cpu"):
        planned(spec, "device=cpu")
    with pytest.raises(JobkitError, match="'maybe': should be one of off, on"):
        planned(spec, "sweep.pinned=[maybe]")
    with pytest.raises(JobkitError, match=r"sweep\.pinned: no such knob, of no shipped workload"):
        planned(spec, "workload=stanza-ner")


def test_it_works_and_reports_what_took_effect(spec: Path) -> None:
    workload = open_workload("mywork:Codes", str(spec.parent))
    workload.load(None, "cpu", {"batch_size": 2, "pinned": "off"}, 1)
    assert workload.effective()["pinned"] is None
    assert workload.process(["Good morning.", "Good night."]).tokens == 4
    assert workload.effective()["pinned"] == "off"
