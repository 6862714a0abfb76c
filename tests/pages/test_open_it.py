"""The lines with which programs open merged.parquet, as a person pastes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobkit.extensions.corpus.formats import GROUP_ROWS, ROW_FORMATS, VECTOR_FORMATS
from tests.pages.test_docs import page, section

LINES = dict(
    re.findall(r"^\| (\w+) \| `(import .+)` \|$", section(page("tag-my-corpus.md"), "Open it"), re.MULTILINE)
)
NUMBER = GROUP_ROWS + 10  # rows in two groups
KEYS = {"document": {"str"}, "paragraph": {"int"}}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tagged").mkdir()
    return tmp_path / "tagged" / "merged.parquet"


def opened(program: str) -> Any:
    """Return the frame of pandas that a line of the page makes, by way of its own program."""
    pytest.importorskip(program.lower())
    names = dict[str, Any]()
    exec(LINES[program], names)  # noqa: S102 - a line of our own page
    rows = names["rows"]
    return rows if program == "pandas" else rows.to_pandas() if program == "polars" else rows.df()


@pytest.mark.parametrize("program", ["pandas", "polars", "DuckDB"])
def test_a_program_opens_rows_with_nulls_and_the_scores_are_float64(program: str, path: Path) -> None:
    values = [{"label": None if n % 3 else "é", "score": None if n % 10 == 0 else 0.1} for n in range(NUMBER)]
    lines = [json.dumps({"document": "d", "paragraph": n, **row}).encode() for n, row in enumerate(values)]
    columns = {**KEYS, "label": {"str", "null"}, "score": {"float", "null"}}
    with path.open("wb") as file:
        ROW_FORMATS["parquet"](file, lines, columns)
    rows = opened(program)
    assert (str(rows["score"].dtype), str(rows["paragraph"].dtype), len(rows)) == ("float64", "int64", NUMBER)
    empty = [int(rows[name].isna().sum()) for name in ("label", "score")]
    assert empty == [sum(row[name] is None for row in values) for name in ("label", "score")]
    assert rows["score"].sum() == pytest.approx(0.1 * (NUMBER - empty[1]), rel=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("program", ["pandas", "polars", "DuckDB"])
def test_a_program_opens_vectors(program: str, dtype: str, path: Path) -> None:
    vectors = (np.arange(60).reshape(20, 3) / 7).astype(dtype)
    keys = iter([("d", number) for number in range(len(vectors))])
    with path.open("wb") as file:
        VECTOR_FORMATS["parquet"]([file], lambda: [[vectors]], keys, [*KEYS, "embedding"])
    rows = opened(program)
    assert np.array_equal(np.stack([np.asarray(row, np.float32) for row in rows["embedding"]]), vectors)
