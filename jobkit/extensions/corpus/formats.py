"""The formats of merged rows: JSON lines, CSV, TSV, CoNLL, and Parquet, which needs pyarrow."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import BinaryIO

from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.terminal import DELIMITERS

FORMATS = ("jsonl", "csv", "tsv", "conll", "parquet")
DEFAULT_FORMAT = FORMATS[0]
_GROUP_ROWS = 50_000
TOKEN_COLUMNS = ("sentence", "token", "tag")
"""Columns for CoNLL: the number of the sentence in the paragraph, the token, its tag."""


def check_format(name: str, columns: Sequence[str]) -> None:
    """Refuse a format of `FORMATS` that cannot be written with these columns of the workload."""
    if name not in FORMATS:
        raise JobkitError(f"--format {name}: no such format", hint=f"one of {', '.join(FORMATS)}")
    if name == "conll" and (missing := [column for column in TOKEN_COLUMNS if column not in columns]):
        raise JobkitError(
            f"--format conll: the rows have no {', '.join(missing)} (they have {', '.join(columns)})",
            hint="CoNLL has one token a line: it needs a workload that yields tokens; use --format tsv",
        )
    if name == "parquet" and (lack := missing_extra("--format parquet", "parquet")):
        raise lack


def write_rows(
    name: str,
    file: BinaryIO,
    lines: Iterable[bytes],
    columns: Sequence[str],
    types: Sequence[Collection[str]],
) -> None:
    """Write rows, as `jobkit.extensions.corpus.rows.RowsWriter` writes them, in a format of `FORMATS`.

    ``columns`` and ``types``: the names after document and paragraph, and the types of the values in each.
    """
    if name == "jsonl":
        file.writelines(lines)
    elif name in DELIMITERS:
        _write_text(file, _table(lines, columns, DELIMITERS[name]))
    elif name == "conll":
        _write_text(file, _conll(lines))
    else:
        _write_parquet(file, lines, columns, types)


def _write_text(file: BinaryIO, parts: Iterable[str]) -> None:
    file.writelines(part.encode() for part in parts)


def _table(lines: Iterable[bytes], columns: Sequence[str], delimiter: str) -> Iterator[str]:
    """Yield a header line and a line for each row, as Python's csv module writes and reads them."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\r\n")  # what ends a line is quoted
    names = ("document", "paragraph", *columns)
    for values in chain([names], ([_cell(row[name]) for name in names] for row in map(json.loads, lines))):
        writer.writerow(values)
        yield stream.getvalue().removesuffix("\r\n") + "\n"
        stream.seek(0)
        stream.truncate()


def _cell(value: object) -> object:
    """Return a value as a cell: lists and objects as JSON, a missing value as nothing."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value


def _conll(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield a line for each token, a blank line after each sentence, and comments that name the place."""
    before: tuple[str, int, int] | None = None
    for line in lines:
        row = json.loads(line)
        here = (row["document"], row["paragraph"], row["sentence"])
        if here != before:
            yield "\n" * (before is not None)
            if before is None or here[0] != before[0]:
                yield f"# newdoc id = {_word(here[0])}\n"
            if before is None or here[:2] != before[:2]:
                yield f"# newpar id = {here[1]}\n"
        before = here
        yield f"{_word(row['token'])}\t{_word(row['tag'])}\n"
    yield "\n" * (before is not None)


def _word(value: object) -> str:
    """Return a value without tabs and line ends, which CoNLL cannot hold."""
    return " ".join(str(value).split()) or "_"


def _write_parquet(
    file: BinaryIO, lines: Iterable[bytes], columns: Sequence[str], types: Sequence[Collection[str]]
) -> None:
    """Write rows in groups, so that no more than one is in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = [_kind(words) for words in types]
    named = [("document", "str"), ("paragraph", "int"), *zip(columns, kinds, strict=True)]
    of = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema([(name, of[kind]) for name, kind in named])
    texts = [name for name, kind in named if kind == "str"]
    with parquet.ParquetWriter(file, schema) as writer:
        rows = iter(lines)
        while group := [_row(line, texts) for line in islice(rows, _GROUP_ROWS)]:
            try:
                writer.write_batch(pa.RecordBatch.from_pylist(group, schema=schema))
            except (pa.ArrowInvalid, OverflowError) as error:
                raise JobkitError(f"--format parquet: {error}", hint="use --format jsonl") from error


def _kind(words: Collection[str]) -> str:
    """Return the one type that holds all values of a column; text holds any."""
    kinds = set(words) - {"null"}
    if kinds == {"int", "float"}:
        return "float"
    return kinds.pop() if len(kinds) == 1 and kinds <= {"int", "float", "bool"} else "str"


def _row(line: bytes, texts: Iterable[str]) -> dict[str, object]:
    row: dict[str, object] = json.loads(line)
    for name in texts:
        value = row[name]
        if value is not None and not isinstance(value, str):
            row[name] = json.dumps(value, ensure_ascii=False)
    return row
