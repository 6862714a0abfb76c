"""The rows of a try as a file: ``entities.tsv`` of a text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from jobkit.core.layout import ENTITIES_FILE
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
    """Write the entities as `as_tsv` has them, in UTF-8."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(as_tsv(entities), encoding="utf-8", newline="")
    except OSError:
        part.unlink(missing_ok=True)  # on a full disk, free its space
        raise
    part.replace(path)


class Output(Protocol):
    """The rows of a try as a file; what fails on a full disk raises an ``OSError``."""

    def open(self, columns: Sequence[str]) -> None:
        """Begin the file, once the workload has named its columns; a try that fails early does not."""
        ...

    def write(self, rows: list[Row], first: int, places: Sequence[Any]) -> None:
        """Write the rows of a `Window` that is done, with its fields ``first`` and ``places``."""
        ...

    def close(self, left: Sequence[Row], *, failed: bool) -> None:
        """End the file, also of a try that failed; ``left`` are the rows of windows that are not done."""
        ...


class EntitiesFile:
    """``entities.tsv`` of a text: written at the end, also of a try that failed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ENTITIES_FILE
        self._entities: list[Row] = []

    def open(self, columns: Sequence[str]) -> None:
        """Do nothing: its columns are those of entities."""

    def write(self, rows: list[Row], first: int, places: Sequence[Any]) -> None:
        """Keep the entities."""
        del first, places
        self._entities += rows

    def close(self, left: Sequence[Row], *, failed: bool) -> None:
        """Write the file."""
        del failed
        write_entities(self._path, [*self._entities, *left])
