"""Read JSON lines that may be cut short or spoilt: what stands is kept, what does not is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from jobkit.core.errors import JobkitError
from jobkit.core.record_files import read_lines
from jobkit.core.units import format_count

T = TypeVar("T")


_BEGINS = '{"at": '
"""So begins a line of a journal or of an accounting. Inside a string its quotes are escaped."""


def read_tolerantly(
    path: Path, parse: Callable[[str, str], T], *, growing: bool = True
) -> tuple[list[T], tuple[str, ...]]:
    """Return what the lines of a file hold, and at most one note on those that hold nothing.

    Parameters
    ----------
    path
        A missing file holds no lines, and that needs no note.
    parse
        Called with a line and ``file:line``; raises JobkitError for a line that does not stand.
        A line that was appended to one cut short, as jobkit 0.1 did, is read all the same.
    growing
        Whether a last line without a newline is still being written: it is left out without a note.
    """
    found: list[T] = []
    faults: list[str] = []
    try:
        for number, line in read_lines(path):
            try:
                found.append(parse(line, f"{path}:{number}"))
            except (JobkitError, RecursionError) as error:
                if line.endswith("\n") or not growing:
                    faults.append(getattr(error, "message", f"{path}:{number}: nested too deep"))
                if (begin := line.rfind(_BEGINS)) > 0:
                    with suppress(JobkitError, RecursionError):
                        found.append(parse(line[begin:], f"{path}:{number}"))
    except FileNotFoundError:
        return [], ()
    except OSError as error:
        return [], (f"{path}: cannot be read: {error.strerror}",)
    more = f" (and {format_count(len(faults) - 1, 'more line')} of this file)" if len(faults) > 1 else ""
    return found, ((f"{faults[0]}{more}: skipped",) if faults else ())


def parse_object(line: str, where: str) -> dict[str, Any]:
    """Return a line as a JSON object.

    Raises
    ------
    JobkitError
        Where it is none.
    """
    try:
        data = json.loads(line)
    except ValueError as error:
        raise JobkitError(f"{where}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise JobkitError(f"{where}: not a JSON object")
    return data
