"""The pictures as files; what they show is in test_pictures.py."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest
from matplotlib import rc_context, style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from jobkit.commands.results import collect as command
from jobkit.core.errors import JobkitError
from jobkit.report.plot.pictures import (
    COLUMN_IN,
    DPI,
    MOST_GROUPS,
    PAGE_IN,
    PANEL_IN,
    STYLE,
    SUFFIXES,
    figure,
    plot,
)
from jobkit.report.tables import collect
from tests.report.plot.test_pictures import (
    CARD,
    KINDS,
    OLD_LOG,
    SIZES,
    a_run,
    all_failed,
    made,
    measured,
    with_energy,
)
from tests.support.builders import TEXT, grid, write_points, write_records
from tests.support.commands import called
from tests.whole.test_imports import asked_for, imported

pytestmark = pytest.mark.slow


def texts(paths: list[Path], size: str) -> tuple[Bbox, float, list[Text]]:
    """Return the box, the width in inches and the texts of a figure as `plot` draws it."""
    with style.context(["default", dict(STYLE)]):
        found = figure(collect(paths), size=size)
        FigureCanvasAgg(found).draw()  # type: ignore[no-untyped-call]  # matplotlib's stubs leave it out
    (axes,) = found.axes
    return found.bbox.padded(1), found.get_figwidth(), list(axes.texts)


def overlap(one: Bbox, other: Bbox) -> bool:
    """Return whether two boxes overlap by more than a pixel."""
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.width, shared.height) > 1


WIDTHS = {"screen": [PANEL_IN * columns for columns in (1, 2, 3)], "paper": [COLUMN_IN, PAGE_IN]}


@pytest.mark.parametrize(
    ("kind", "size"), [*product(KINDS, ["screen"]), ("log", "paper"), ("sweep", "paper")]
)
def test_a_picture_has_its_size_and_can_be_read(kind: str, size: str, tmp_path: Path) -> None:
    """Paper has the same parts, smaller."""
    whole, width_in, found = texts([made(kind, tmp_path)], size)
    assert width_in in WIDTHS[size]
    assert min(float(text.get_fontsize()) for text in found) >= 7
    boxes = {text: text.get_window_extent() for text in found}
    assert not [box for box in boxes.values() if not (whole.containsx(box.x0) and whole.containsx(box.x1))]
    assert not [box for box in boxes.values() if not (whole.containsy(box.y0) and whole.containsy(box.y1))]
    assert not [pair for pair in combinations(boxes, 2) if overlap(*(boxes[text] for text in pair))]


def test_groups_are_never_mixed_but_drawn_below_one_another_up_to_the_most_that_fit(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "0")]
    for n in range(1, MOST_GROUPS):
        card = replace(CARD, driver=str(n + 1), uuid=f"GPU-1{n}")
        runs.append(with_energy(tmp_path / str(n), run_id=f"run{n}", gpu=card))
    _, _, found = texts(runs, "screen")
    words = [text.get_text() for text in found]
    assert [text[:3] for text in words if text[0] == "("] == [f"({one})" for one in "abcdefghijk"]
    assert [sum(f"driver {n}" in text for text in words) for n in range(1, 5)] == [1, 1, 1, 1]
    with_energy(tmp_path / "more", run_id="more", gpu=replace(CARD, driver="9"))
    with pytest.raises(JobkitError, match="5 tables are too many") as caught:
        plot(collect([tmp_path]), tmp_path / "x.svg")
    assert "--plot" in caught.value.hint
    assert not (tmp_path / "x.svg").exists()


def test_what_has_nothing_to_draw_has_no_axes(tmp_path: Path) -> None:
    _, _, found = texts([all_failed(tmp_path / "failed")], "paper")
    assert "no point of this table has succeeded yet" in " ".join(text.get_text() for text in found)
    run = write_points(tmp_path / "run", grid([50]))
    with pytest.raises(JobkitError, match="no point has figures yet"):
        plot(collect([run]), tmp_path / "x.svg")


def test_the_same_records_give_the_same_bytes_fit_for_print(tmp_path: Path) -> None:
    """The text may be called anything, and a user's settings of matplotlib change nothing."""
    points = [replace(one, text=replace(TEXT, name="a$b$c_^ 小説.txt")) for one in grid(SIZES)]
    collected = collect([write_records(tmp_path / "run", map(measured, points))])
    for suffix in SUFFIXES:
        plot(collected, tmp_path / f"1{suffix}")
    with rc_context({"font.size": 30, "lines.linewidth": 9}):
        plot(collected, tmp_path / "2.SVG")
    png, svg, pdf = ((tmp_path / f"1{suffix}").read_bytes() for suffix in SUFFIXES)
    assert svg == (tmp_path / "2.SVG").read_bytes()
    assert not [
        one for one in (png, svg, pdf) for date in (b"CreationDate", b"dc:date", b"Software") if date in one
    ]
    assert int.from_bytes(png[16:20]) == math.floor(DPI["screen"] * 2 * PANEL_IN)
    assert f'width="{72 * 2 * PANEL_IN:g}pt"'.encode() in svg
    assert b"<text" not in svg, "outlines need no font"
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf


def test_the_command_draws_next_to_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(command, OLD_LOG, "--plot", tmp_path / "x.svg", "--plot-size", "paper") == 0
    assert f'width="{72 * COLUMN_IN:g}pt"'.encode() in (tmp_path / "x.svg").read_bytes()
    assert "batch mean s" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]


def test_a_file_that_cannot_be_drawn_or_written_is_refused(tmp_path: Path) -> None:
    """The suffix before anything is read."""
    for run, name, message in (
        (tmp_path / "nothing", "svg", r"\.png, \.svg or \.pdf"),
        (OLD_LOG, "nowhere/x.svg", "--plot .*nowhere.*x.svg: No such file or directory"),
    ):
        with pytest.raises(JobkitError, match=message) as caught:
            called(command, run, "--plot", tmp_path / name)
        assert caught.value.exit_code == 2


def test_a_table_imports_no_matplotlib() -> None:
    assert "matplotlib" not in imported(asked_for("collect", str(OLD_LOG)))
