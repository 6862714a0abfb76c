"""``entities.tsv``: the entities of a text, in text order. Standard library only."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from jobkit.run.workloads.base import Entity


def as_tsv(entities: Iterable[Entity]) -> str:
    """Return the entities, sorted by paragraph and offset, under a header line.

    The text is tab-separated; an entity with a newline or a tab is in double quotes, as Python's
    csv module writes and reads it. Paragraphs count from 0, offsets are into the paragraph as read.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, dialect="excel-tab", lineterminator="\n")
    writer.writerow(Entity._fields)
    rows = sorted(entities, key=lambda row: (row.paragraph, row.start, row.end))
    writer.writerows(rows)
    return stream.getvalue()


def write_entities(path: Path, entities: Iterable[Entity]) -> None:
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
