"""The formats of merged rows: JSON lines, CSV, TSV, CoNLL, npy, and Parquet, which needs pyarrow."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any, BinaryIO

from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.terminal import DELIMITERS
from jobkit.extensions.corpus.rows import Array, arrow_batch, npy_header

FORMATS = ("jsonl", "csv", "tsv", "conll", "parquet", "npy")
DEFAULT_FORMAT = FORMATS[0]
VECTOR_FORMATS = ("parquet", "npy")
GROUP_ROWS = 50_000
FILE = "file"  # column of merged rows, if files have several documents
TOKEN_COLUMNS = ("sentence", "token", "tag")
"""Columns for CoNLL: the number of the sentence in the paragraph, the token, its tag."""


Key = tuple[str, int, str]
"""The document of a vector, the number of its paragraph, and the file."""


def check_format(name: str, columns: Sequence[str], *, vectors: bool | None = None) -> None:
    """Refuse a format of `FORMATS` that cannot be written with these columns of the workload.

    ``vectors``: whether the only column is vectors; ``None`` if that is not known yet.
    """
    if name not in FORMATS:
        raise JobkitError(f"--format {name}: no such format", hint=f"one of {', '.join(FORMATS)}")
    if name == "conll" and (missing := [column for column in TOKEN_COLUMNS if column not in columns]):
        raise JobkitError(
            f"--format conll: the rows have no {', '.join(missing)} (they have {', '.join(columns)})",
            hint="CoNLL has one token a line: it needs a workload that yields tokens; use --format tsv",
        )
    if vectors is not None and vectors != (name in VECTOR_FORMATS) and (vectors or name == "npy"):
        have, use = ("vectors", "parquet or npy") if vectors else ("no vectors", "jsonl, csv, tsv or parquet")
        raise JobkitError(f"--format {name}: the results are {have}", hint=f"use --format {use}")
    if name == "parquet" and (lack := missing_extra("--format parquet", "parquet")):
        lack.hint += "; or --format npy" if vectors else ""
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
        _write_parquet_rows(file, lines, columns, types)


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


def write_parquet(
    file: BinaryIO, groups: Iterable[Sequence[Array]], keys: Iterator[Key], columns: Sequence[str]
) -> None:
    """Write each group of vectors as a row group; ``columns``: that of the vectors, and perhaps the file."""
    import pyarrow as pa
    from pyarrow import parquet

    with ExitStack() as stack:
        writer: Any = None
        for group in groups:
            batches = []
            for vectors in group:
                documents, numbers, files = zip(*islice(keys, len(vectors)), strict=True)
                named = {"document": documents, "paragraph": numbers, columns[0]: vectors}
                batches.append(arrow_batch(named | ({FILE: files} if FILE in columns[1:] else {})))
            table = pa.Table.from_batches(batches)
            if writer is None:  # numbers of vectors are hardly ever equal: no dictionary, no compression
                texts = [name for name in ("document", FILE) if name in table.schema.names]
                options = {"compression": "none", "use_dictionary": texts, "write_statistics": texts}
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema, **options))
            writer.write_table(table, row_group_size=len(table))


def write_npy(file: BinaryIO, groups: Iterable[Sequence[Array]], rows: int, vectors: str) -> None:
    file.write(npy_header(rows, vectors))
    file.writelines(view.data for group in groups for view in group)


def write_places(file: BinaryIO, keys: Iterator[Key], *, named: bool) -> None:
    """Write document, paragraph and, if ``named``, file of each row of an npy file, under a header line."""
    stream = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
    width = 3 if named else 2
    writer.writerow(("document", "paragraph", FILE)[:width])
    writer.writerows(key[:width] for key in keys)
    stream.detach()


def _write_parquet_rows(
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
        while group := [_row(line, texts) for line in islice(rows, GROUP_ROWS)]:
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
