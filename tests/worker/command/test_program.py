"""What is kept of the batches of a command."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.paragraphs import split_paragraphs
from jobkit.worker import command
from jobkit.worker.command import _with_line_feeds, keep_batch
from jobkit.worker.measure.figures import GrowingFile, OwnFigures
from jobkit.worker.record import TryState
from tests.support.builders import batch, by_hand, point


def test_of_very_many_batches_only_the_totals_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "MOST_BATCHES", 2)
    state, stream = TryState(by_hand(point(), tmp_path), ""), io.StringIO()
    for number in range(5):
        keep_batch(state, stream, replace(batch(0, 10), load=number * 100, worker=number % 2))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["index"], line["first_item"], line["load"]) for line in lines] == [(0, 0, 0), (1, 10, 100)]
    summary = state.tally.summary(
        items_total=state.items_total, batches_total=state.batches_total, wall_s=9.0
    )
    assert (summary.items, summary.batches, summary.load_max, summary.work_s) == (50, 5, 400, 1.5)
    assert summary.items_per_s == pytest.approx(50 / 1.5)


@pytest.mark.parametrize(("wall_s", "work_s"), [(0.4, 0.4), (2.0, 0.5)])
def test_the_work_takes_no_longer_than_the_command(wall_s: float, work_s: float, tmp_path: Path) -> None:
    state = TryState(by_hand(point(), tmp_path), "")
    keep_batch(state, io.StringIO(), batch(0, 10))
    assert state.tally.summary(items_total=10, batches_total=1, wall_s=wall_s).work_s == work_s


@pytest.mark.parametrize(
    "text",
    [
        "One.\n\nTwo.\nthree\n",
        "One.\r\n\r\nTwo.\r\nthree\r\n",
        "\r\n One.\r \r\n\t\r\nTwo.\r\rThree.",
        "\ufeffOne.\n \nTwo.\n\u00a0\n\u3000\nThree.\n\n",
        " \n",
    ],
)
def test_a_program_gets_the_paragraphs_that_jobkit_counts(text: str, tmp_path: Path) -> None:
    """CRLF and CR become LF, as jobkit itself reads them; a text with LF is not copied."""
    given, copy = tmp_path / "given", tmp_path / "copy"
    given.write_bytes(text.encode())
    path, paragraphs = _with_line_feeds(given, copy)
    read = given.read_text(encoding="utf-8")
    assert path.read_bytes().decode() == read
    assert paragraphs == len(split_paragraphs(read))
    assert (path == given) == ("\r" not in text) != copy.exists()


def test_a_text_that_is_not_utf_8_stays_what_it_is(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_bytes(b"caf\xe9\r\n\r\n\xff\n")
    path, paragraphs = _with_line_feeds(given, tmp_path / "copy")
    assert (path.read_bytes(), paragraphs) == (b"caf\xe9\n\n\xff\n", 2)


@pytest.mark.parametrize("middle", [0, 1, 500])
def test_a_long_output_loses_its_middle(middle: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "HALF_BYTES", 60)
    log = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(log, encoding="utf-8"))
    lines = [b"a" * 60, b"m" * (middle - 1), b"y" * 59] if middle else [b"a" * 60, b"y" * 59]
    (tmp_path / "output.log").write_bytes(b"".join(line + b"\n" for line in lines))
    figures, found = OwnFigures(), list[bytes]()
    monkeypatch.setattr(OwnFigures, "take_output", lambda _, line, __: found.append(line))
    echo = command._Echo(figures, tmp_path / "output.log")
    GrowingFile(tmp_path / "output.log", echo.take).read(10)
    echo.end()
    sys.stdout.flush()
    note = b"\njobkit: %d bytes of the output are left out here\n" % middle if middle else b""
    assert log.getvalue() == b"a" * 60 + b"\n" + note + b"y" * 59 + b"\n"
    assert found == lines, "all of it is searched for metrics"
