"""The formats of merged rows: JSON lines, CSV, TSV, CoNLL, npy, and Parquet, which needs pyarrow."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from zipfile import ZipFile

from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.paragraphs import GIVEN
from jobkit.core.terminal import DELIMITERS
from jobkit.extensions.corpus.vectors import Array, arrow_batch, by_column, npy_header, write_npy
from jobkit.worker.workloads.base import noun, type_of

GROUP_ROWS, GROUP_BYTES = 50_000, 2**28
FILE = "file"  # column of merged rows, if files have several documents
TEXT = "paragraph_text"  # column of merged rows, if it is wanted
CONTEXT = "context"  # likewise
BEGINNINGS = "offsets"  # array of an npz file

Columns = Mapping[str, Collection[str]]
"""The columns of merged rows, document and paragraph first, and the types of the values in each."""
Key = tuple[object, ...]
"""What stands next to a vector: its document, the number of its paragraph, and the other columns."""


def check_format(name: str, columns: Collection[str], *, vectors: str | None = None) -> None:
    """Refuse a format of `FORMATS` that cannot be written with these columns of the workload.

    ``vectors``: their type, empty of rows; ``None`` if that is not known yet.
    """
    if name not in FORMATS:
        raise JobkitError(f"--format {name}: no such format", hint=f"one of {', '.join(FORMATS)}")
    # Columns for CoNLL: the number of the sentence in the paragraph, the token, its tag
    token_columns = ("sentence", "token", "tag")
    if name == "conll" and (missing := [column for column in token_columns if column not in columns]):
        raise JobkitError(
            f"--format conll: the rows have no {', '.join(missing)} (they have {', '.join(columns)})",
            hint="CoNLL has one token a line: it needs a workload that yields tokens; use --format tsv",
        )
    array = "npz" if "*" in (vectors or "") else "npy"
    if vectors is not None and name not in (("parquet", array) if vectors else ROW_FORMATS):
        have, use = "no vectors", "jsonl, csv, tsv or parquet"
        if vectors:
            have, use = f"{noun(vectors)}s of {vectors}", f"parquet or {array}"
        raise JobkitError(f"--format {name}: the results are {have}", hint=f"use --format {use}")
    if name == "npz" and BEGINNINGS in columns:
        raise JobkitError(
            f"--format npz: COLUMNS has {BEGINNINGS}, its own array", hint="use --format parquet"
        )
    if name == "parquet" and (lack := missing_extra("--format parquet", "parquet")):
        lack.hint += f"; or --format {array}" if vectors else ""
        raise lack


def output_paths(output: Path, forms: Iterable[str]) -> dict[str, Path]:
    """Return the file of each format: that which a person names; of several formats with their endings."""
    if len(each := dict.fromkeys(forms)) == 1:
        return dict.fromkeys(each, output)
    stem = output.stem if output.suffix[1:] in FORMATS else output.name
    return {form: output.with_name(f"{stem}.{form}") for form in each}


def counts_path(output: Path) -> Path:
    """Return the file with the counts of each document: ``merged.documents.jsonl``."""
    return output.with_name(f"{output.stem}.documents.jsonl")


def quarantine_path(output: Path) -> Path:
    """Return the file with the paragraphs in quarantine: ``merged.quarantine.jsonl``."""
    return output.with_name(f"{output.stem}.quarantine.jsonl")


def places_path(output: Path) -> Path:
    """Return the file with document and paragraph of each row of arrays: ``merged.rows.tsv``."""
    return output.with_name(f"{output.stem}.rows.tsv")


# -- rows: lines of JSON, as `jobkit.extensions.corpus.rows.RowsWriter` writes them


def _write_table(delimiter: str, file: BinaryIO, lines: Iterable[bytes], columns: Columns) -> None:
    def cell(value: object) -> object:
        """Return a value as a cell: lists and objects as JSON, a missing value as nothing."""
        return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value

    rows = map(json.loads, lines)
    _write_cells(file, delimiter, columns, ([cell(row[name]) for name in columns] for row in rows))


def _write_cells(
    file: BinaryIO, delimiter: str, names: Iterable[str], rows: Iterable[Sequence[object]]
) -> None:
    """Write a header line and a line for each row, quoted as in RFC 4180; the lines end with a line feed."""

    def write(line: str) -> int:
        return file.write(line.removesuffix("\r\n").encode("utf-8", "backslashreplace") + b"\n")

    stream: Any = SimpleNamespace(write=write)
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\r\n")  # what ends a line is quoted
    writer.writerow([*names])
    writer.writerows(rows)


def _write_conll(file: BinaryIO, lines: Iterable[bytes], _: Columns) -> None:
    """Write a line for each token, a blank line after each sentence, and comments that name the place."""
    before: tuple[str, int, int] | None = None
    for row in map(json.loads, lines):
        here = (row["document"], row["paragraph"], row["sentence"])
        text = "\n" * (before is not None and here != before)
        if before is None or here[0] != before[0]:
            text += f"# newdoc id = {_word(here[0])}\n"
        if before is None or here[:2] != before[:2]:
            text += f"# newpar id = {here[1]}\n"
        before = here
        file.write(f"{text}{_word(row['token'])}\t{_word(row['tag'])}\n".encode())
    file.write(b"\n" * (before is not None))


def _word(value: object) -> str:
    """Return a value without tabs and line ends, which CoNLL cannot hold."""
    return " ".join(str(value).split()) or "_"


def _write_parquet(file: BinaryIO, lines: Iterable[bytes], columns: Columns) -> None:
    """Write rows in groups, so that no more than one is in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {name: _kind(words) for name, words in columns.items()}
    of = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema([(name, of[kind]) for name, kind in kinds.items()])
    texts = [name for name, kind in kinds.items() if kind == "str"]
    with parquet.ParquetWriter(file, schema) as writer:
        rows = map(json.loads, lines)
        while group := [*islice(rows, GROUP_ROWS)]:
            for row in group:
                others = [name for name in texts if not isinstance(row[name], str | None)]
                row |= {name: json.dumps(row[name], ensure_ascii=False) for name in others}
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


ROW_FORMATS: Mapping[str, Callable[[BinaryIO, Iterable[bytes], Columns], None]] = {
    "jsonl": lambda file, lines, _: file.writelines(lines),
    **{name: partial(_write_table, delimiter) for name, delimiter in DELIMITERS.items()},
    "conll": _write_conll,
    "parquet": _write_parquet,
}
DEFAULT_FORMAT = next(iter(ROW_FORMATS))


# -- vectors: groups of arrays, read again by each call, and their keys in the same order

Groups = Callable[[], Iterable[Sequence[Array]]]


def _write_parquet_vectors(
    files: Sequence[BinaryIO], groups: Groups, keys: Iterator[Key], names: Sequence[str]
) -> None:
    """Write each group of vectors as a row group."""
    import pyarrow as pa
    from pyarrow import parquet

    with ExitStack() as stack:
        writer: Any = None
        for group in groups():
            batches = []
            for vectors in group:
                columns = list(zip(*islice(keys, len(vectors)), strict=True))
                columns[len(GIVEN) : len(GIVEN)] = by_column(vectors)
                batches.append(arrow_batch(dict(zip(names, columns, strict=True))))
            table = pa.Table.from_batches(batches)
            if writer is None:  # numbers of vectors are hardly ever equal: no dictionary, no compression
                texts = [name for name in table.schema.names if table.schema.field(name).type == pa.string()]
                options = {"compression": "none", "use_dictionary": texts, "write_statistics": texts}
                writer = stack.enter_context(parquet.ParquetWriter(files[0], table.schema, **options))
            writer.write_table(table, row_group_size=len(table))


def _write_npy(files: Sequence[BinaryIO], groups: Groups, keys: Iterator[Key], names: Sequence[str]) -> None:
    """Write one array, and a table with the key of each of its rows, under a header line."""
    file, table = files
    rows, vectors = 0, ""
    file.write(npy_header(rows, vectors))
    for view in chain.from_iterable(groups()):
        rows, vectors = rows + len(view), type_of(view)
        file.write(view.data)
    file.seek(0)
    file.write(npy_header(rows, vectors))
    _write_cells(table, "\t", [*names[: len(GIVEN)], *names[len(GIVEN) + 1 :]], islice(keys, rows))


def _write_npz(files: Sequence[BinaryIO], groups: Groups, keys: Iterator[Key], names: Sequence[str]) -> None:
    """Write the arrays of each column end to end, where those of each row begin, and the keys of the rows."""
    import numpy as np

    file, table = files
    sizes, types = [np.zeros(1, np.int64)], list[str]()
    for some in chain.from_iterable(groups()):
        sizes.append(some.lengths)
        types = [type_of(column) for column in some.columns]
    ends = np.cumsum(np.concatenate(sizes))
    with ZipFile(file, "w") as archive:
        write_npy(archive, BEGINNINGS, len(ends), type_of(ends), [ends])
        for at, kind in enumerate(types):
            columns = (np.ascontiguousarray(some.columns[at]) for some in chain.from_iterable(groups()))
            write_npy(archive, names[len(GIVEN) + at], int(ends[-1]), kind, columns)
    others = [*names[: len(GIVEN)], *names[len(GIVEN) + len(types) :]]
    _write_cells(table, "\t", others, islice(keys, len(ends) - 1))


VECTOR_FORMATS = {"parquet": _write_parquet_vectors, "npy": _write_npy, "npz": _write_npz}
FORMATS = tuple(dict.fromkeys([*ROW_FORMATS, *VECTOR_FORMATS]))
