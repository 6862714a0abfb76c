"""The class that the page of workloads shows, named in three ways."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.planning.prepare import Options, prepare
from jobkit.spec.sweep_spec import spec_schema
from jobkit.worker.workloads.own import checked_class, open_workload
from tests.pages.test_docs import DOCS


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the class of docs/workloads.md with its entry point; return the folder."""
    text = (DOCS / "workloads.md").read_text(encoding="utf-8").partition("## A class\n")[2]
    source, *_ = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (entry,) = re.findall(r"^```\n\[project.entry-points\.\"(.*?)\"\]\n(.*?)\n```$", text, re.MULTILINE)
    (tmp_path / "mywork.py").write_text(source, encoding="utf-8")
    info = tmp_path / "mywork-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mywork\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{entry[0]}]\n{entry[1]}\n".replace('"', ""), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mywork", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["./mywork.py:Sentences", "mywork:Sentences", "sentences"])
def test_the_class_of_the_page_works_by_each_name(package: Path, name: str) -> None:
    spec = package / "spec.yaml"
    text = f"name: s\nworkload: {name}\ntext: sample:30\nsweep: {{batch_size: [4]}}\nresources: {{gpus: 0}}\n"
    spec.write_text(text, encoding="utf-8")
    options = Options(scheduler="slurm", runs_dir=package / "runs")
    point = prepare(spec, options, build=False).points[0]
    assert [file.name for file in point.files] == ["mywork.py"] * name.startswith("./")
    workload = open_workload(point.workload, point.workload_folder)
    workload.load(None, "cpu", point.params, 1)
    result = workload.process(["One. Two!", "Three? Four. Five."])
    assert (result.rows, result.load) == (((0, 2), (1, 3)), 2 * 18)
    assert workload.effective() == {"batch_size": 2}
    assert checked_class(name, str(package)).lengths(["abc"], None) == [[3]]  # type: ignore[attr-defined]


def test_an_editor_is_offered_the_entry_point_and_another_word_is_refused(package: Path) -> None:
    assert "sentences" in spec_schema()["properties"]["workload"]["anyOf"][0]["enum"]
    spec = package / "spec.yaml"
    spec.write_text("name: s\nworkload: sentence\n", encoding="utf-8")
    with pytest.raises(JobkitError, match="no such workload; did you mean 'sentences'"):
        prepare(spec, Options(scheduler="slurm"), build=False)
