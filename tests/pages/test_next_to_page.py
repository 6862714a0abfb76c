"""docs/next-to-others.md shows the answers of rows.yaml, and the raw data confirms each of them."""

from __future__ import annotations

import json

from benchmarks.next_to.page import PAGE, RAW, ROWS, table_of
from tests.pages.test_docs import coded


def test_the_table_is_that_of_the_rows() -> None:
    assert table_of(ROWS) in PAGE.read_text(encoding="utf-8")


def test_the_raw_data_confirms_every_cell() -> None:
    raw = json.loads(RAW.read_text(encoding="utf-8"))
    cells = {(cell["row"], cell["program"]): cell for cell in raw["cells"]}
    assert cells.keys() == {(name, program) for name, row in ROWS.items() for program in row["cells"]}
    for (name, program), cell in cells.items():
        here = ROWS[name]["cells"][program]
        assert (cell["command"], cell["shows"], cell["answer"]) == (
            here["run"],
            here["shows"],
            here["answer"],
        )
        assert cell["confirmed"], f"{name}/{program}: {cell['output']}"


def test_each_row_names_the_word_that_runs_it() -> None:
    for name in ROWS:
        assert name in coded(table_of(ROWS))
