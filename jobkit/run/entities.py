"""``entities.tsv``: the entities of a text, in text order. Standard library only."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from jobkit.run.workloads.base import Entity


def write_entities(path: Path, entities: Iterable[Entity]) -> None:
    """Write the entities, sorted by paragraph and offset, under a header line.

    The file is UTF-8 and tab-separated; an entity with a newline or a tab is in double quotes, as
    Python's csv module writes and reads it. Paragraphs count from 0, offsets are into the
    paragraph as read.

    Raises
    ------
    OSError
        If the disk is full; then no part of the file is left.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, dialect="excel-tab", lineterminator="\n")
            writer.writerow(Entity._fields)
            rows = sorted(entities, key=lambda row: (row.paragraph, row.start, row.end))
            writer.writerows(rows)
    except OSError:
        part.unlink(missing_ok=True)  # on a full disk, free its space
        raise
    part.replace(path)


def read_entities(path: Path) -> list[Entity]:
    """Return the entities that `write_entities` wrote."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, dialect="excel-tab")
        next(rows)
        return [Entity(int(p), text, label, int(start), int(end)) for p, text, label, start, end in rows]
