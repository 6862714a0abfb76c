"""Documents in the rows of a table: CSV, Parquet, Arrow, and a folder that ``datasets`` has saved.

CSV needs the standard library only, Parquet and Arrow need pyarrow.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.files import read_text
from jobkit.core.paragraphs import BOM, BadLineError, Document
from jobkit.core.units import format_list
from jobkit.extensions.corpus.plan import Columns, Source
from jobkit.extensions.corpus.streams import BrokenError

CSV, PARQUET, ARROW = "csv", "parquet", "arrow"
BY_ROWS = {PARQUET, ARROW}  # of these kinds the places of pieces are numbers of rows
TEXT_NAMES = (
    *("text", "content", "body", "document", "article", "abstract", "passage", "sentence"),
    *("chunk", "transcription"),
)
ID_NAMES = ("id", "doc_id", "document_id", "docid", "uid", "uuid")
FILE_ROW = "file-row"
"""As the name of the field of the ids: there is none, so an id is ``FILE:LINE`` or ``FILE:ROW``."""
_HEAD_ROWS = 1000  # by which columns are chosen, of at most ``_LONG_BYTES`` together
_ROWS = 256  # that are decoded at once


class Row(NamedTuple):
    """A document and where it is: a line of JSONL, a row of a table."""

    size: int  # how far it moves the place in its file: its bytes, or 1 row
    lines: int
    data: bytes  # of which its piece has the SHA-256
    document: Document | BadLineError | None  # ``None``: the line is blank, or the header


class Wanted(NamedTuple):
    """The names that a person gives, the first that is there counts; none for the usual names."""

    text: tuple[str, ...] = ()
    id: tuple[str, ...] = ()


USUAL = Wanted()


def choose(
    names: Sequence[str], wanted: Wanted, values: Callable[[int], Sequence[object]], delimiter: str = ""
) -> Columns:
    """Return the columns that a person names, else those whose names are usual.

    ``values`` returns the first values of a column: of several that may have the id one is taken whose values
    differ.
    """
    known, has = [name.strip().lower() for name in names], f"it has {format_list(list(names), 12)}"

    def differ(at: int) -> bool:
        found = values(at)
        return len({*map(str, found)} - {"", "None"}) == len(found) > 0

    def asked(some: Sequence[str]) -> int:
        at = next((names.index(name) for name in some if name in names), -1)
        if at < 0 or names.count(names[at]) > 1:
            what = "no column" if at < 0 else "two columns"
            raise BrokenError(f"{what} {' or '.join(map(repr, some))}: {has}")
        return at

    usual, ids = ([name for name in some if known.count(name) == 1] for some in (TEXT_NAMES, ID_NAMES))
    if not wanted.text and not usual:
        raise BrokenError(f"no column {format_list(list(TEXT_NAMES), 3)}: {has}")
    text = asked(wanted.text) if wanted.text else known.index(usual[0])
    if wanted.id:
        name = -1 if FILE_ROW in wanted.id else asked(wanted.id)
    else:
        more = [name for name in known if name.endswith("_id") and known.count(name) == 1]
        places = [at for at in map(known.index, [*ids, *more]) if at != text]
        name = next(
            (at for at in places if known[at] == "id" or differ(at)), known.index(ids[0]) if ids else -1
        )
    return Columns(names[text], names[name] if name >= 0 else "", text, name, len(names), delimiter)


def guessed(columns: Columns) -> bool:
    """Return whether the ids are those of a column that is no usual one; in JSONL only ``id`` is."""
    return columns.id.strip().lower() not in {"", "id", *(ID_NAMES if columns.width else ())}


def head_of(lines: Iterable[bytes]) -> list[bytes]:
    """Return the first lines, by which the fields of a file are chosen."""
    head, size = list[bytes](), 0
    for line in islice(lines, _HEAD_ROWS):
        head.append(line.removeprefix(BOM) if not head else line)
        size += len(line)
        if size > _LONG_BYTES:
            break
    return head


def json_columns(head: Iterable[bytes], wanted: Wanted) -> Columns:
    """Return the fields of JSONL; the first wanted or usual ones if no line of the head has others."""
    documents = list[dict[str, object]]()
    for line in head:
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(line), dict):
                flat = {name: value for name, value in found.items() if not isinstance(value, dict | list)}
                documents.append(flat)
                if not any(wanted) and {"text", "id"} <= flat.keys():
                    break  # as most are
    names = [*dict.fromkeys(name for document in documents for name in document)]

    def values(at: int) -> list[object]:
        found = [document.get(names[at]) for document in documents]
        return found if all(type(value) in {str, int} for value in found) else []

    try:
        columns = choose(names, wanted, values)
        return replace(columns, text_at=-1, id_at=-1, width=0)
    except BrokenError:  # each line is reported
        name = "" if FILE_ROW in wanted.id else next(iter(wanted.id), "id")
        return Columns(next(iter(wanted.text), "text"), name, -1, -1, 0)


# -- CSV


def csv_columns(lines: Iterable[bytes], wanted: Wanted, *, tabs: bool) -> Columns | None:
    """Return the columns by the header; ``None`` of an empty file.

    Of comma, semicolon, tab and bar the delimiter is the one that makes the most columns.
    """
    head = [line.decode(errors="replace") for line in head_of(lines)]
    if not head:
        return None
    csv.field_size_limit(2**31 - 1)  # the lines are limited
    try:
        headers = [(next(csv.reader(head, delimiter=one), []), one) for one in ("\t" if tabs else ",;\t|")]
        names, delimiter = max(headers, key=lambda one: len(one[0]))

        def values(at: int) -> list[str]:
            rows = (row for row in csv.reader(head, delimiter=delimiter) if len(row) == len(names))
            return [row[at] for row in rows][1:]

        return choose(names, wanted, values, delimiter)
    except csv.Error as error:
        raise BrokenError(f"not CSV: {error}") from error


_LONG_BYTES = 2**20  # of a row: a longer one may have a quote that is not closed
_LAST_QUOTE = re.compile(rb'(?<!")"(?:"")*(?!")(.?)', re.DOTALL)
"""Ends quotes, for two quotes are one of the text; and the byte behind them."""


def csv_rows(lines: Iterable[bytes], columns: Columns, *, header: bool, most: int) -> Iterator[Row]:
    """Yield the rows of CSV; ``header``: the first is the header; ``most``: bytes of a row.

    The reader takes no line beyond the row, so the lines that it took are its bytes. It holds four bytes for
    each character, so of a long row it gets the lines within quotes only once the quotes end.
    """
    held: list[bytes] = []
    ends, number = {b"", b"\r", b"\n", columns.delimiter.encode()}, 0

    def taken() -> Iterator[str]:
        nonlocal number
        given, waiting = 0, bytearray()
        for line in lines:
            number += 1
            given = given if held else 0
            if given < _LONG_BYTES:
                bare = line.removeprefix(BOM) if header and not held else line
                held.append(line)
                given += len(line)
                yield bare.decode(errors="surrogateescape")
                continue
            waiting += line
            if given + len(waiting) > most:
                raise BrokenError(f"a row of more than {most // 2**20} MiB")
            if found := _LAST_QUOTE.search(line):
                held.append(bytes(waiting))
                given += len(waiting)
                waiting.clear()
                part = held[-1] if found[1] in ends else line  # which is enough to refuse it
                yield part.decode(errors="surrogateescape")
        held.append(bytes(waiting))

    csv.field_size_limit(2**31 - 1)  # the lines are limited
    reader = csv.reader(taken(), delimiter=columns.delimiter, strict=True)
    while True:
        document: Document | BadLineError | None = None
        try:
            values = next(reader)
            document = None if header or not values else _of_values(values, columns, b"".join(held))
        except StopIteration:
            return
        except (csv.Error, BadLineError) as error:
            document = error if isinstance(error, BadLineError) else BadLineError(f"not CSV: {error}")
        data, header = b"".join(held), False
        yield Row(len(data), number, data, document)
        held.clear()
        number = 0


def _of_values(values: Sequence[str], columns: Columns, data: bytes) -> Document:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise BadLineError(f"not UTF-8 at byte {error.start} of the row") from error
    if len(values) != columns.width:
        raise BadLineError(f"{len(values)} columns, and {columns.width} in the header")
    return Document(values[columns.id_at] or None if columns.id else None, values[columns.text_at])


# -- Parquet and Arrow


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    """Open a table, and turn what pyarrow raises into `BrokenError`."""
    if lack := missing_extra(source.path, "parquet"):
        raise lack
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own reserves 1 GiB of address space
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if source.kind == PARQUET:
            with parquet.ParquetFile(source.path) as file:
                yield file
            return
        with pa.memory_map(source.path) as file:
            magic = file.read(6)
            file.seek(0)
            yield pa.ipc.open_file(file) if magic == b"ARROW1" else pa.ipc.open_stream(file)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise BrokenError(f"not {source.kind.title()}: {str(error).partition(chr(10))[0][:200]}") from error


def table_columns(source: Source, wanted: Wanted) -> Columns:
    with _opened(source) as table:
        import pyarrow as pa  # here: `_opened` names the extra without which it is missing
        import pyarrow.types as of

        schema = table.schema_arrow if source.kind == PARQUET else table.schema
        texts = [of.is_string, of.is_large_string, of.is_string_view, of.is_null]
        ids = [*texts, of.is_integer, of.is_fixed_size_binary, of.is_binary, of.is_large_binary]

        def is_id(at: int) -> bool:
            kept = schema.field(at).type
            kept = kept.value_type if of.is_dictionary(kept) else kept
            kept = kept.storage_type if isinstance(kept, pa.BaseExtensionType) else kept  # of UUID and JSON
            return any(is_of(kept) for is_of in ids)

        def values(at: int) -> list[object]:
            batches = _batches(table, source.kind, [schema.names[at]], 0) if is_id(at) else iter(())
            for _, batch in batches:
                column = batch.column(batch.schema.get_field_index(schema.names[at])).slice(0, _HEAD_ROWS)
                column.validate(full=True)
                return _values(column)
            return []

        columns = choose(schema.names, wanted, values)
        found = schema.field(columns.text_at).type
        if not any(is_of(found.value_type if of.is_dictionary(found) else found) for is_of in texts):
            raise BrokenError(f"the column {columns.text!r} is {found}, not text")
        if columns.id and not is_id(columns.id_at):
            found = schema.field(columns.id_at).type
            raise BrokenError(f"the column {columns.id!r} is {found}, neither text nor whole numbers")
        if source.kind == ARROW:
            return columns
        groups = (table.metadata.row_group(group) for group in range(table.num_row_groups))
        return replace(columns, group_bytes=max((group.total_byte_size for group in groups), default=0))


def first_row(source: Source, place: int) -> int:
    """Return the first row of the first row group after a place in Parquet, as if all had one size."""
    with _opened(source) as table:
        groups = range(-(-place * table.num_row_groups // source.size_bytes))
        return sum(table.metadata.row_group(group).num_rows for group in groups)


def table_rows(source: Source, start: int, end: int) -> Iterator[Row]:
    """Yield rows of a table, from ``start`` to before ``end``; in memory are a group and some texts."""
    if source.columns is None:
        raise BrokenError("no columns are planned")
    names = [name for name in (source.columns.text, source.columns.id) if name]
    with _opened(source) as table:
        for first, batch in _batches(table, source.kind, names, start):
            low, high = max(start - first, 0), min(end - first, batch.num_rows)
            checked = source.kind == ARROW and low < high  # a wrong offset would end the process
            for name in names if checked else ():
                batch.column(batch.schema.get_field_index(name)).validate(full=True)
            for at in range(low, high, _ROWS):
                some = batch.slice(at, min(_ROWS, high - at))
                texts, *ids = (_values(some.column(some.schema.get_field_index(name))) for name in names)
                yield from map(_row, texts, map(_id, ids[0]) if ids else repeat(None))
            if first + batch.num_rows >= end:
                return


def _batches(table: Any, kind: str, names: list[str], start: int) -> Iterator[tuple[int, Any]]:  # noqa: ANN401 - pyarrow
    """Yield batches with their first row; row groups of Parquet before ``start`` are left out."""
    first = 0
    if kind == ARROW:
        number = getattr(table, "num_record_batches", None)
        for batch in table if number is None else map(table.get_batch, range(number)):
            yield first, batch
            first += batch.num_rows
        return
    for group in range(table.num_row_groups):
        after = first + table.metadata.row_group(group).num_rows
        if after > start:
            for batch in table.iter_batches(_ROWS, row_groups=[group], columns=names):
                yield first, batch
                first += batch.num_rows
        first = after


def _values(column: Any) -> list[Any]:  # noqa: ANN401 - pyarrow
    def value(scalar: Any) -> object:  # noqa: ANN401
        try:
            return scalar.as_py()
        except UnicodeDecodeError as error:
            return BadLineError(f"not UTF-8 at byte {error.start} of the text")

    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        found = [value(scalar) for scalar in column]
    return found


def _id(value: object) -> object:
    """Return an id of bytes as text: as ASCII, or as hexadecimal digits."""
    if not isinstance(value, bytes):
        return value
    text = value.decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() else value.hex()


def _row(text: str | BadLineError | None, name: object) -> Row:
    bad = next((one for one in (text, name) if isinstance(one, BadLineError)), None)
    document = bad or Document(None if name in {None, ""} else str(name), str(text or ""))
    return Row(1, 1, f"{name}\n{text}\n".encode(), document)


# -- a folder that `datasets` has saved

STATE_FILES = ("dataset_info.json", "state.json")


def saved_files(folder: Path, names: Collection[str]) -> set[str] | None:
    """Return the data files of a saved data set, without its caches; ``None`` for any other folder."""
    if not {*STATE_FILES} <= {*names}:
        return None
    path = folder / STATE_FILES[1]
    try:
        state = json.loads(read_text(path))
        found = {str(one["filename"]) for one in state["_data_files"]}
    except (ValueError, KeyError, TypeError) as error:
        raise JobkitError(f"{path}: not that of a saved data set", hint="save the data set again") from error
    if lost := sorted(found - {*names}):
        raise JobkitError(f"{path}: lists {lost[0]}, which is not there", hint="save the data set again")
    if state.get("_indices_data_files"):
        hint = "save it again: dataset.flatten_indices().save_to_disk(...)"
        raise JobkitError(f"{folder}: a selection of the rows of a data set", hint=hint)
    return found
