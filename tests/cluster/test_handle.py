"""A run of Python on the real daemons: its jobs outlive Python, and cancel and resume reach them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import SGE, ClusterLab

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@SGE
@pytest.mark.slow
def test_the_notebook_goes_from_a_dict_to_rows(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.home)
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    here = json.dumps({"scheduler": lab.scheduler, "site": str(lab.home / "lab.yaml")}).strip("{}")
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace("spec = {", f"spec = {{{here},")
            exec(source, names)  # noqa: S102 - the project's own
    assert names["run"].wait(0).counts["done"] == 6
    assert names["shards"]["items"].sum() == len(names["rows"]) == 500
    assert lab.scheduler in {one.scheduler for one in names["tagged"].jobs}
