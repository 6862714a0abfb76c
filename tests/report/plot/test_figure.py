from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib import rc_context, style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

from benchmarks.archives import RECORDS, group
from jobkit.commands.collect import collect as command
from jobkit.core.errors import JobkitError
from jobkit.core.units import GIB
from jobkit.report.plot.figure import (
    COLUMN_IN,
    LOOKS,
    MARKS,
    MOST_GROUPS,
    PAGE_IN,
    PANEL_IN,
    SMALL,
    SUFFIXES,
    figure,
    plot,
)
from jobkit.report.plot.figure import style as style_of
from jobkit.report.tables import collect
from tests.report.plot.test_data import (
    CARD,
    JOULES,
    LOAD,
    OLD_LOG,
    ONE,
    SIZES,
    a_run,
    all_failed,
    measured,
    needed,
    several_series,
    with_energy,
)
from tests.support.builders import TEXT, grid, write_points, write_records
from tests.support.commands import called
from tests.whole.test_imports import asked_for, imported

if TYPE_CHECKING:
    from matplotlib.axes import Axes

pytestmark = pytest.mark.slow

COMMITTED = {
    "committed": RECORDS / "gpu" / "stanza-20261121-034922-0192",
    "slack": ONE,
    "capped": RECORDS / "find-max" / "default-allocator-4GiB-20261121-084250-7545",
    "workers": group("workers") / "table-20261122-125756-f497",
    "tune": group("tune") / "tune-20261122-213355-f020",
    "log": OLD_LOG,
}
MADE: dict[str, Callable[[Path], Path]] = {
    "sweep": lambda folder: a_run(folder, repeats=3),
    "series": lambda folder: several_series(folder, (5, 10, 100, 500)),
    "energy": lambda folder: with_energy(folder, idle_w=10),
    "failed": all_failed,
}
ON_SCREEN = ("sweep", "capped", "slack", "series", "energy", "workers")
"""The others are asked in the smaller size only."""
KINDS = [*((kind, "paper") for kind in (*COMMITTED, *MADE)), *((kind, "screen") for kind in ON_SCREEN)]
Picture = Callable[[str, str], Figure]


def drawn(*paths: Path, size: str) -> Figure:
    """Return the figure as `plot` draws it, laid out."""
    with style.context(["default", style_of(size)]):
        found = figure(collect(paths), size=size)
        FigureCanvasAgg(found).draw()  # type: ignore[no-untyped-call]  # matplotlib's stubs leave it out
    return found


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """Return a function that draws a kind of picture in a size, once."""

    @cache
    def draw(kind: str, size: str) -> Figure:
        made = MADE.get(kind)
        return drawn(made(tmp_path_factory.mktemp(kind) / "run") if made else COMMITTED[kind], size=size)

    return draw


def panels(found: Figure) -> list[Axes]:
    return [axes for row in found.subfigs for axes in row.axes]


Spots = list[tuple[Any, Any]]
"""What is drawn; Any, so that it can be held to `pytest.approx`."""


def spots(line: Line2D) -> Spots:
    across, up = (np.asarray(one, dtype=float).tolist() for one in line.get_data())
    return list(zip(across, up, strict=True))


def lines(axes: Axes) -> dict[str, Spots]:
    """Return what is drawn by its name in the legend."""
    return {str(line.get_label()): spots(line) for line in axes.get_lines()}


def words(axes: Axes) -> str:
    """Return all that is written in a panel and next to its axes."""
    shown = [axes.get_title(loc="left"), axes.get_xlabel(), *(text.get_text() for text in axes.texts)]
    return " | ".join(shown).replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")


def titles(found: Figure) -> list[str]:
    return [row.get_suptitle().replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ") for row in found.subfigs]


def error_bars(axes: Axes) -> list[ErrorbarContainer]:
    return [container for container in axes.containers if isinstance(container, ErrorbarContainer)]


def test_a_sweep_shows_memory_with_its_bound_and_speed_with_its_intervals_and_knee(picture: Picture) -> None:
    found = picture("sweep", "screen")
    memory, speed = panels(found)
    shown = lines(memory)
    assert shown["need"] == [
        (LOAD * size, pytest.approx(needed(size) / GIB)) for _ in "123" for size in SIZES
    ]
    assert shown["GPU less context, 15.25 GiB"][0][1] == 15.25
    assert all(gib == pytest.approx(0.25 + load / LOAD / 100, abs=1e-3) for load, gib in shown["fitted line"])
    bound = zip(shown["95 % bound, one-sided"], shown["fitted line"], strict=True)
    assert all(above[1] >= below[1] for above, below in bound)
    (name,) = (name for name in shown if name.startswith("predicted, batch 1,"))
    assert shown[name] == [(pytest.approx(1_500 * LOAD, rel=0.01), pytest.approx(15.25, rel=0.01))]
    (container,) = error_bars(speed)
    speeds = [[881 / (8 + 200 / size + 0.1 * repeat) for repeat in (1, 2, 3)] for size in SIZES]
    means = [fmean(values) for values in speeds]
    assert spots(container.lines[0]) == [(n, pytest.approx(x)) for n, x in zip(SIZES, means, strict=True)]
    (bars,) = container.lines[2]
    for path, values in zip(bars.get_paths(), speeds, strict=True):
        (_, low), (_, high) = np.asarray(path.vertices, dtype=float)
        assert high - low == pytest.approx(2 * 4.302653 * stdev(values) / 3**0.5), "t of two degrees"
    assert "mean ± 95 %, n = 3" in words(speed)
    assert lines(speed)["knee: 200"] == [(200, pytest.approx(means[3]))]
    assert lines(speed)["within 5 % of the fastest"][0][1] == pytest.approx(0.95 * means[-1])


def test_series_have_markers_lines_and_names_of_their_own_and_sizes_far_apart_are_logarithmic(
    picture: Picture,
) -> None:
    _, speed = panels(picture("series", "screen"))
    assert {"tokenizer_batch 32", "tokenizer_batch 64"} <= set(words(speed).split(" | "))
    drawn_as = [container.lines[0] for container in error_bars(speed)]
    assert len({(str(line.get_marker()), str(line.get_linestyle())) for line in drawn_as}) == 2
    assert speed.get_xscale() == "log"


def test_predictions_that_were_tried_are_marked_and_named(picture: Picture) -> None:
    memory, _ = panels(picture("capped", "screen"))
    (tried,) = (name for name in lines(memory) if name.startswith("verified, batch "))
    assert tried in words(memory).split(" | ")


def test_a_limit_far_beyond_is_named_and_not_drawn_and_grey_says_the_same(picture: Picture) -> None:
    memory, _ = panels(picture("slack", "screen"))
    assert "allocated line x 1.07 (slack)" in lines(memory)
    assert memory.get_xscale() == memory.get_yscale() == "linear"
    assert "beyond the axes: limit: GPU less context, 139.12 GiB predicted, batch 11,835" in words(memory)
    assert memory.get_ylim()[1] < 10, "the card is 40 times what was measured"
    assert len({(mark["marker"], mark.get("markerfacecolor")) for mark in MARKS.values()}) == len(MARKS)
    curves = [line for line in memory.get_lines() if line.get_linestyle() != "None"]
    looks = {(str(line.get_linestyle()), line.get_linewidth()) for line in curves}
    assert len(looks) == len(curves) == 2


def test_energy_is_drawn_against_speed_and_the_best_are_joined(picture: Picture) -> None:
    _, speed, energy = panels(picture("energy", "screen"))
    speeds = {size: 881 / (8 + 200 / size) for size in SIZES}
    shown = lines(energy)
    best, others = [200, 300], [50, 100, 150]
    joined = shown["none beats batch_size 200, batch_size 300"]
    assert joined == [(pytest.approx(speeds[n]), pytest.approx((JOULES[n] - 100) / 0.881)) for n in best]
    assert [x for x, _ in shown["other settings"]] == pytest.approx([speeds[n] for n in others])
    assert (energy.get_xlabel(), energy.get_ylabel()) == (
        "paragraphs per second",
        "net J per 1,000 paragraphs",
    )
    (container,) = error_bars(speed)
    assert not container.has_yerr, "of one repeat"
    assert "n = 1, no error bar" in words(speed)


def test_points_that_all_failed_are_an_empty_panel_with_the_reason(picture: Picture) -> None:
    memory, speed = panels(picture("failed", "paper"))
    assert "no point has succeeded yet" in words(memory)
    assert "Speed: not recorded" in words(speed)


def test_groups_are_never_mixed_but_drawn_in_rows_up_to_the_most_that_fit(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "0")]
    for n in range(1, MOST_GROUPS):
        card = replace(CARD, driver=str(n + 1), uuid=f"GPU-1{n}")
        runs.append(with_energy(tmp_path / str(n), run_id=f"run{n}", gpu=card))
    found = drawn(*runs, size="screen")
    assert [axes.get_title(loc="left")[:3] for axes in panels(found)] == [f"({one})" for one in "abcdefghijk"]
    assert [len(row.axes) for row in found.subfigs] == [2, 3, 3, 3], "energy only where it was measured"
    assert [len(lines(row.axes[0])["need"]) for row in found.subfigs] == [10, 5, 5, 5]
    assert ["driver 1" in title for title in titles(found)] == [True, False, False, False]
    assert outside(found) == []
    with_energy(tmp_path / "more", run_id="more", gpu=replace(CARD, driver="9"))
    with pytest.raises(JobkitError, match="5 tables are too many") as caught:
        plot(collect([tmp_path]), tmp_path / "x.svg")
    assert "--plot" in caught.value.hint
    assert not (tmp_path / "x.svg").exists()


def test_nothing_to_draw_is_reported(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    with pytest.raises(JobkitError, match="no point has figures yet"):
        plot(collect([run]), tmp_path / "x.svg")


def texts(found: Figure) -> list[Text]:
    """Return the texts that are seen: a label of a tick beyond the end of its axis is not."""
    hidden = {
        id(tick.label1)
        for axes in panels(found)
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not axis.get_view_interval()[0] <= tick.get_loc() <= axis.get_view_interval()[1]
    }
    every: list[Text] = found.findobj(Text)
    return [one for one in every if one.get_text() and one.get_visible() and id(one) not in hidden]


def outside(found: Figure) -> list[str]:
    """Return the texts that leave the figure by more than a pixel."""
    whole = found.bbox.padded(1)
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(found)]
    return [
        text for text, box in boxes if not (whole.contains(box.x0, box.y0) and whole.contains(box.x1, box.y1))
    ]


def covers(one: BboxBase, other: BboxBase) -> bool:
    """Return whether two boxes overlap by more than a pixel."""
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.width, shared.height) > 1


@pytest.mark.parametrize(("kind", "size"), KINDS)
def test_a_picture_has_its_size_and_can_be_read(picture: Picture, kind: str, size: str) -> None:
    found = picture(kind, size)
    widths = {"paper": {COLUMN_IN, PAGE_IN}, "screen": {2 * PANEL_IN, 3 * PANEL_IN}}
    assert found.get_figwidth() in widths[size]
    assert min(float(text.get_fontsize()) for text in texts(found)) >= LOOKS[size].font_pt >= SMALL == 7
    assert {text.get_fontname() for text in texts(found)} == {"DejaVu Sans"}
    assert outside(found) == []
    whole = [box for axes in panels(found) if (box := axes.get_tightbbox())]
    assert len(whole) == len(panels(found)) >= 2
    assert not [pair for pair in combinations(whole, 2) if covers(*pair)], "the panels do not overlap"
    for axes in panels(found):
        boxes = {text.get_text(): Text.get_window_extent(text) for text in axes.texts}
        assert not [pair for pair in combinations(boxes, 2) if covers(*(boxes[name] for name in pair))]
        assert all(axes.bbox.padded(1).containsx(x) for box in boxes.values() for x in (box.x0, box.x1))
        assert all(axes.bbox.padded(1).containsy(y) for box in boxes.values() for y in (box.y0, box.y1))
        for line in axes.get_lines():
            if line.get_marker() not in {"None", ""}:
                marks = line.get_transform().transform(line.get_xydata())
                assert not [name for name, box in boxes.items() if any(box.contains(*spot) for spot in marks)]


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
    assert int.from_bytes(png[16:20]) == math.floor(LOOKS["screen"].dpi * 2 * PANEL_IN)
    assert f'width="{72 * 2 * PANEL_IN:g}pt"'.encode() in svg
    assert b"<text" not in svg, "outlines need no font"
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf


def test_the_command_draws_next_to_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(command, OLD_LOG, "--plot", tmp_path / "x.svg", "--plot-size", "paper") == 0
    assert f'width="{72 * COLUMN_IN:g}pt"'.encode() in (tmp_path / "x.svg").read_bytes()
    assert "batch mean s" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]


@pytest.mark.parametrize("name", ["x.eps", "svg"])
def test_an_unknown_suffix_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match=r"\.png, \.svg or \.pdf") as caught:
        called(command, tmp_path / "nothing", "--plot", tmp_path / name)
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match=r"--plot .*nowhere.*x\.svg: No such file or directory"):
        called(command, OLD_LOG, "--plot", tmp_path / "nowhere" / "x.svg")


def test_a_table_imports_no_matplotlib() -> None:
    assert "matplotlib" not in imported(asked_for("collect", str(OLD_LOG)))
