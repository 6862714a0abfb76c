"""The figures that a program reports itself, and the batches of a try, counted as they end.

Figures come in the file that ``JOBKIT_METRICS`` names and in the program's output. Other programs write both,
so they are read as a stream, in pieces of bounded size and time. A line that is no figure is counted, never
fatal.

Of a batch only its seconds are kept, for the percentiles. The totals of a worker are replaced as one object,
so that a signal between two lines leaves no half of a batch in them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import reduce
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular
from jobkit.core.frozen import keyed
from jobkit.core.measurements import Metric, Summary, largest, total
from jobkit.core.records import Batch
from jobkit.worker import process

VARIABLE = "JOBKIT_METRICS"
"""The variable with the path of the file to which a program appends its figures."""
MOST_LINE_BYTES = 2**16
MOST_METRICS = 100
"""Figures for which a record has room."""
MOST_NAME, MOST_UNIT = 64, 16
REST, STOPPED = [0.2] * 200, [0.2] * 5
"""Times of the steps in which the rest of a file is read; after a signal there is less time."""
PIECE_BYTES = 2**18


# -- lines


def parse(line: str | bytes) -> Batch | tuple[str, Metric]:
    """Return a batch without its place in the work, or a metric with its name."""
    try:
        data = json.loads(line, object_pairs_hook=_once)
    except RecursionError:
        raise JobkitError("it is nested too deep") from None
    except ValueError as error:
        raise JobkitError(f"it is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise JobkitError("it is not a JSON object")
    if ("metric" in data) == ("items" in data):
        raise JobkitError("it has neither items nor metric" if "metric" not in data else "it has both kinds")
    if "metric" in data:
        name, unit = data["metric"], data.get("unit", "")
        if not _is_word(name, MOST_NAME) or not name:
            raise JobkitError(f"metric should be a name of at most {MOST_NAME} printable characters")
        if not _is_word(unit, MOST_UNIT):
            raise JobkitError(f"unit should be a text of at most {MOST_UNIT} printable characters")
        return name, Metric(value=_number(data, "value"), unit=unit)
    if "seconds" not in data:
        raise JobkitError("it has items but no seconds")
    items = _count(data, "items", 1)
    return Batch(
        index=0,
        first_item=0,
        items=items,
        seconds=_number(data, "seconds", least=0.0),
        characters=0,
        load=items if data.get("load") is None else _count(data, "load", 0),
        worker=_count(data, "worker", 0, 9999) if "worker" in data else 0,
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise JobkitError("it has a key twice")
    return data


def _is_word(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and value.isprintable() and value == value.strip()


def _count(data: Mapping[str, Any], key: str, least: int, most: int = 2**53) -> int:
    value = _number(data, key)
    if value != int(value) or not least <= value <= most:
        raise JobkitError(f"{key} should be a whole number from {least} to {most}")
    return int(value)


def _number(data: Mapping[str, Any], key: str, least: float = -math.inf) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JobkitError(f"{key} should be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < least:
        raise JobkitError(f"{key} should be finite{f' and at least {least:g}' if least > -math.inf else ''}")
    return number


# -- files that grow


class LinePart(Enum):
    WHOLE = auto()
    FIRST = auto()
    LATER = auto()


class GrowingFile:
    """Reads the lines of a file that others append to; ``take`` gets each line, a long one in parts."""

    def __init__(self, path: Path, take: Callable[[bytes, LinePart], None]) -> None:
        self._path, self._take = path, take
        self._place, self._rest, self._cut = 0, b"", False
        self._end: int | None = None
        self.error = ""

    def read(self, limit_s: float) -> bool:
        """Read what is there, for at most ``limit_s``; return whether something is left."""
        deadline_s = time.monotonic() + limit_s
        try:
            stream = os.fdopen(open_regular(self._path), "rb", buffering=0)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.error = str(error.strerror)
            return False
        with stream:
            size = stream.seek(0, os.SEEK_END)
            if size < self._place:  # the file was cut, or replaced
                self._place, self._rest, self._cut = 0, b"", False
            stream.seek(self._place)
            end = size if self._end is None else min(size, self._end)
            while self._place < end:
                if time.monotonic() > deadline_s:
                    return True
                piece = stream.read(min(PIECE_BYTES, end - self._place))
                if not piece:
                    break
                self._place += len(piece)
                *lines, self._rest = (self._rest + piece).split(b"\n")
                for line in lines:
                    self._give(line, ends=True)
                while len(self._rest) >= MOST_LINE_BYTES:
                    part, self._rest = self._rest[:MOST_LINE_BYTES], self._rest[MOST_LINE_BYTES:]
                    self._give(part, ends=False)
        return False

    def _give(self, line: bytes, *, ends: bool) -> None:
        cut, self._cut = self._cut, not ends
        too_long = not ends or len(line) > MOST_LINE_BYTES
        self._take(line, LinePart.LATER if cut else LinePart.FIRST if too_long else LinePart.WHOLE)

    def read_rest(self, limits_s: Iterable[float]) -> bool:
        """Read what is there now and nothing later, in steps of limited time; return whether that is all."""
        if self._end is None:
            self._end = 0
            with contextlib.suppress(OSError):
                self._end = self._path.stat().st_size
        for limit_s in limits_s:
            with process.signals_blocked():  # a signal between two lines must not lose one
                if not self.read(limit_s):
                    if self._rest:
                        rest, self._rest = self._rest, b""
                        self._give(rest, ends=True)
                    return True
        return False

    def unread_lines(self) -> int:
        """Count the lines that have not been read, without reading them as lines."""
        number = 0
        with contextlib.suppress(OSError), self._path.open("rb") as stream:
            stream.seek(self._place)
            while (left := (self._end or 0) - stream.tell()) > 0 and (
                piece := stream.read(min(left, PIECE_BYTES))
            ):
                number += piece.count(b"\n")
        return number


# -- figures


@dataclass(slots=True)
class OwnFigures:
    # gets each batch; ``None`` if jobkit times the batches of the workload itself
    keep: Callable[[Batch], None] | None = None
    flush: Callable[[], object] = lambda: None  # lets others read the batches so far
    # by name the pattern that finds a metric in a line of the output
    patterns: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)  # the last value of each metric
    bad_lines: int = 0  # the number of lines that are no figures, or were not read

    def take_line(self, line: bytes, part: LinePart) -> None:
        if part is LinePart.LATER or not line.strip():
            return
        if part is LinePart.FIRST:
            self.refuse(f"it is longer than {MOST_LINE_BYTES} bytes", line)
            return
        try:
            figure = parse(line)
        except JobkitError as error:
            self.refuse(error.message, line)
            return
        if isinstance(figure, Batch):
            if self.keep:
                self.keep(figure)
            else:
                self.refuse("jobkit itself times the batches of this workload", line)
        elif figure[0] not in self.metrics and len(self.metrics) >= MOST_METRICS:
            self.refuse(f"there are more than {MOST_METRICS} metrics", line)
        else:
            self.metrics.update([figure])

    def refuse(self, why: str, line: bytes) -> None:
        """Count a line that is no figure, and show the first of them in the log."""
        self.bad_lines += 1
        if self.bad_lines <= 3:
            shown = ascii(line[:80].decode("utf-8", "replace"))
            process.report(f"a line of {VARIABLE} is no figure: {why}: {shown}")

    def take_output(self, line: bytes, _part: LinePart) -> None:
        """Take a line of the program's output; the last match of a pattern counts."""
        text = line.decode("utf-8", "replace")
        for name, pattern in self.patterns.items():
            if match := pattern.search(text):
                try:
                    self.metrics[name] = Metric(value=_number({name: float(match[1])}, name))
                except (ValueError, TypeError, JobkitError):
                    self.refuse(f"{name} should be a finite number", line)


def finish(file: GrowingFile, figures: OwnFigures, limits_s: Iterable[float]) -> None:
    """Read the rest of a file of figures when its program has ended, in steps of limited time.

    Lines for which there is no time are counted.
    """
    if not file.read_rest(limits_s):
        number = file.unread_lines()
        figures.bad_lines += number
        process.report(f"{VARIABLE}: {number:,} lines were not read, for lack of time")


@keyed
class Totals:
    """The sums over batches; over none by default."""

    batches: int = 0
    items: int = 0
    characters: int = 0
    # sums; ``None`` if a batch does not report its number
    sentences: int | None = 0
    padded_chars: int | None = 0
    load_max: int | None = None
    retries: int | None = None  # the allocator's, in batches that report them; ``None`` if none does
    seconds: float = 0.0  # the sum over the batches
    # when the last batch ended, in seconds since the work began; ``None`` if that is not followed
    end_s: float | None = None

    def plus(self, other: Totals) -> Totals:
        return Totals(
            batches=self.batches + other.batches,
            items=self.items + other.items,
            characters=self.characters + other.characters,
            sentences=total((self.sentences, other.sentences)),
            padded_chars=total((self.padded_chars, other.padded_chars)),
            load_max=largest((self.load_max, other.load_max)),
            retries=self.retries if other.retries is None else (self.retries or 0) + other.retries,
            seconds=self.seconds + other.seconds,
            end_s=largest((self.end_s, other.end_s)),
        )


class Tally:
    def __init__(self) -> None:
        self._by_worker: dict[int, Totals] = {}
        self._seconds = array("d")

    def add(self, batch: Batch, end_s: float | None = None, *, listed: bool = True) -> None:
        """Count a batch; the percentiles are of listed batches.

        ``end_s``: when it ended, in seconds since the work began, if other things than batches count as work:
        several workers at a time, or reading.
        """
        totals = Totals(
            batches=1,
            items=batch.items,
            characters=batch.characters,
            sentences=batch.sentences,
            padded_chars=batch.padded_chars,
            load_max=batch.load,
            retries=batch.alloc_retries,
            seconds=batch.seconds,
            end_s=end_s,
        )
        self._by_worker[batch.worker] = self.of(batch.worker).plus(totals)
        if listed:
            self._seconds.append(batch.seconds)

    def of(self, worker: int) -> Totals:
        return self._by_worker.get(worker, Totals())

    @property
    def batches(self) -> int:
        return len(self._seconds)

    @property
    def total(self) -> Totals:
        return reduce(Totals.plus, self._by_worker.values(), Totals())

    def summary(self, *, items_total: int, batches_total: int, wall_s: float | None = None) -> Summary:
        """Summarise a try. A command worked no longer than ``wall_s``, nor than its busiest worker."""
        total, seconds = self.total, sorted(self._seconds)
        work_s = total.seconds if total.end_s is None else total.end_s
        load = total.padded_chars
        if wall_s is not None:
            own_s = [own.seconds for own in self._by_worker.values()]
            work_s = min(wall_s, max(own_s, default=wall_s))
        return Summary(
            items_total=items_total,
            batches_total=batches_total,
            items=total.items,
            sentences=total.sentences if total.batches else None,
            characters=total.characters,
            batches=total.batches,
            work_s=work_s,
            items_per_s=total.items / work_s if work_s > 0 and total.batches else None,
            batch_mean_s=total.seconds / total.batches if total.batches else None,
            batch_p50_s=percentile(seconds, 0.50),
            batch_p95_s=percentile(seconds, 0.95),
            padding_efficiency=min(1.0, total.characters / load) if load else None,
            load_max=total.load_max,
        )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of the sorted values lie, linearly interpolated."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
