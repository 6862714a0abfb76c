"""``journal.jsonl``: what jobkit did to the scheduler, intent before act."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobkit.core.record_files import append_line, read_lines
from jobkit.core.records import JOURNAL_FILE


def note(run_dir: Path, event: str, **fields: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Append one event, on disk before this returns.

    Parameters
    ----------
    run_dir
        The run folder.
    event
        ``submitting``, ``submitted``, ``refused``, ``cancelled``, ``throttled``.
    fields
        What belongs to it: argv, job ids, first and last task, offset.
    """
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    append_line(run_dir / JOURNAL_FILE, json.dumps({"at": at, "event": event, **fields}, ensure_ascii=False))


def events(run_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a run in order; a half-written last line is left out."""
    path = run_dir / JOURNAL_FILE
    if not path.is_file():
        return
    for _, line in read_lines(path):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
