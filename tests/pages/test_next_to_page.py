"""docs/next-to-others.md shows the answers of rows.yaml, and the raw data confirms each of them."""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.next_to.cells import confirms
from benchmarks.next_to.page import PAGE, RAW, ROWS, table_of
from tests.pages.test_docs import coded

CELLS: list[dict[str, Any]] = json.loads(RAW.read_text(encoding="utf-8"))["cells"]


def test_the_table_is_that_of_the_rows_which_name_the_words_that_run_them() -> None:
    assert table_of(ROWS) in PAGE.read_text(encoding="utf-8")
    assert set(coded(table_of(ROWS))) >= set(ROWS)


def test_the_raw_data_has_every_cell_as_it_is_now_and_no_path_of_a_machine() -> None:
    recorded = {(one["row"], one["program"], one["answer"], one["command"], one["shows"]) for one in CELLS}
    assert recorded == {
        (name, program, cell["answer"], cell["run"], cell["shows"])
        for name, row in ROWS.items()
        for program, cell in row["cells"].items()
    }
    raw = RAW.read_text(encoding="utf-8")
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|mnt|scratch)/\S*", raw)


def test_the_output_in_the_raw_data_confirms_every_cell() -> None:
    unproven = [
        f"{cell['row']}/{cell['program']}"
        for cell in CELLS
        if not (cell["confirmed"] and confirms(cell["shows"], cell["status"], cell["output"]))
    ]
    assert not unproven


def test_the_page_installs_the_versions_that_ran() -> None:
    page = PAGE.read_text(encoding="utf-8")
    ran = {pin for cell in CELLS for pin in cell["versions"].items()}
    assert len(dict(ran)) == len(ran)  # one version of each
    installed = set(re.findall(r"([\w-]+)(?:==| )(\d+\.\d+\.\d+)\b", page))
    assert installed == {pin for pin in ran if pin[0] != "jobkit"}
