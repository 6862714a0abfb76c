"""The rows of a try as files: ``entities.tsv`` of a text, ``rows.jsonl`` of a shard."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jobkit.core.layout import ENTITIES_FILE
from jobkit.corpus.plan import ROWS_FILE
from jobkit.corpus.reading import Paragraph
from jobkit.corpus.rows import RowsWriter
from jobkit.worker.workloads.base import ENTITY_COLUMNS, Entity, Row


def text_order(columns: Sequence[str]) -> Callable[[Row], Any]:
    """Return the key that sorts rows by paragraph, and by offset if they have one."""
    places = [1 + columns.index(name) for name in ("start", "end") if name in columns]
    return lambda row: tuple(row[place] for place in (0, *places))


def as_tsv(entities: Iterable[Row]) -> str:
    """Return the entities, sorted by paragraph and offset, under a header line.

    The text is tab-separated; an entity with a newline or a tab is in double quotes, as Python's
    csv module writes and reads it. Paragraphs count from 0, offsets are into the paragraph as read.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, dialect="excel-tab", lineterminator="\n")
    writer.writerow(Entity._fields)
    rows: list[Row] = sorted(entities, key=text_order(ENTITY_COLUMNS))
    writer.writerows(rows)
    return stream.getvalue()


def write_entities(path: Path, entities: Iterable[Row]) -> None:
    """Write the entities as `as_tsv` has them, in UTF-8.

    Raises
    ------
    OSError
        If the disk is full; then no part of the file is left.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(as_tsv(entities), encoding="utf-8", newline="")
    except OSError:
        part.unlink(missing_ok=True)  # on a full disk, free its space
        raise
    part.replace(path)


class EntitiesFile:
    """``entities.tsv`` of a text: written at the end, also of a try that failed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ENTITIES_FILE
        self._entities: list[Row] = []

    def write(self, rows: list[Row], first: int, places: Sequence[Paragraph]) -> None:
        """Keep the entities."""
        del first, places
        self._entities += rows

    def close(self, *, failed: bool) -> None:
        """Write the file."""
        del failed
        write_entities(self._path, self._entities)


class RowsFile:
    """``rows.jsonl`` of a shard, window by window in corpus order; whole, or not there.

    Until it is whole it has another name, which the job script does not copy home.
    """

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self._path = folder / ROWS_FILE
        self._part = folder / f"{ROWS_FILE}.part"
        self._order = text_order(columns)
        self._paragraphs = 0
        self._writer = RowsWriter(self._part, columns)

    def write(self, rows: list[Row], first: int, places: Sequence[Paragraph]) -> None:
        """Write the rows of a window."""
        for number, *values in sorted(rows, key=self._order):
            self._writer.write(places[number - first], values)
        self._paragraphs += len(places)

    def close(self, *, failed: bool) -> None:
        """Sync the file and write its manifest; of a try that failed, remove it.

        Raises
        ------
        OSError
            If the disk is full; then no part of the file is left.
        """
        try:
            if failed:
                self._writer.abandon()
            else:
                self._writer.close(self._paragraphs)
                self._part.replace(self._path)
        finally:
            self._part.unlink(missing_ok=True)
