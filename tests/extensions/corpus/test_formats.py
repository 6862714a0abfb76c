from __future__ import annotations

import io
import json
from importlib import util

import pytest
from pyarrow import parquet

from jobkit.core.errors import JobkitError
from jobkit.extensions.corpus.formats import FORMATS, check_format, write_rows


def lines(*values: object) -> list[bytes]:
    return [json.dumps({"document": "d", "paragraph": 0, "x": value}).encode() + b"\n" for value in values]


def written(name: str, *values: object, types: str = "str") -> bytes:
    file = io.BytesIO()
    write_rows(name, file, lines(*values), ("x",), [types.split()])
    return file.getvalue()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_that_can_be_written(name: str) -> None:
    check_format(name, ("sentence", "token", "tag"))


def test_a_format_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobkitError, match="no such format"):
        check_format("xml", ())
    with pytest.raises(JobkitError, match="no sentence, tag"):
        check_format("conll", ("token", "label"))
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    monkeypatch.setattr("jobkit.extensions.corpus.formats.find_spec", lambda _: None)
    with pytest.raises(JobkitError, match="needs pyarrow") as caught:
        check_format("parquet", ())
    assert caught.value.hint == "pip install 'jobkit[parquet]'"


def test_cells_of_tsv() -> None:
    values = ("a\tb\n", None, [1, "é"], True, 1.5)
    found = written("tsv", *values).decode().splitlines()
    assert found[0] == "document\tparagraph\tx"
    assert found[1:] == ['d\t0\t"a\tb', '"', "d\t0\t", 'd\t0\t"[1, ""é""]"', "d\t0\ttrue", "d\t0\t1.5"]


@pytest.mark.parametrize(
    ("types", "values", "kind"),
    [
        ("int", [1, 2], "int64"),
        ("int null", [1, None], "int64"),
        ("float int", [1, 2.5], "double"),
        ("bool", [True, False], "bool"),
        ("null", [None], "string"),
        ("int str", [1, "x"], "string"),
        ("other", [[1]], "string"),
    ],
)
def test_types_of_parquet(types: str, values: list[object], kind: str) -> None:
    table = parquet.read_table(io.BytesIO(written("parquet", *values, types=types)))
    assert str(table.schema.field("x").type) == kind
    found = table.column("x").to_pylist()
    texts = [
        json.dumps(value) if kind == "string" and not isinstance(value, str | None) else value
        for value in values
    ]
    assert found == texts


def test_a_number_too_large_for_parquet() -> None:
    with pytest.raises(JobkitError, match="--format parquet"):
        written("parquet", 2**70, types="int")


def test_no_row_at_all() -> None:
    assert [written(name) for name in ("jsonl", "conll")] == [b"", b""]
    assert written("tsv") == b"document\tparagraph\tx\n"
    assert parquet.read_table(io.BytesIO(written("parquet"))).num_rows == 0
