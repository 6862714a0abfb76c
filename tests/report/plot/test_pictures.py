"""The pictures of the page and of ``collect --plot``, as strokes, marks and words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from benchmarks.archives import RECORDS, group
from jobkit.core.measurements import Energy, Gpu
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.report.page import page
from jobkit.report.plot.data import GroupPlot, group_plots
from jobkit.report.plot.drawing import BOTTOM, HEIGHT, WIDTH, Drawing, Mark, Stroke, Words, geometric
from jobkit.report.plot.pictures import LOOKS, SERIES, Picture, pictures
from jobkit.report.tables import collect
from tests.report.test_own_figures import reporting, without_items
from tests.support.builders import grid, need, record, write_records
from tests.support.recommendations import records, write_run

ONE = RECORDS / "gpu" / "stanza-20261121-034558-42cc"
OLD_LOG = Path(__file__).parents[2] / "data" / "predecessors" / "gpu-stanza-tagging.o2650"
SIZES = (50, 100, 150, 200, 300)
LOAD = 1_000
"""Padded characters of a paragraph in these tests."""
CARD = Gpu(name="a card", uuid="GPU-2", total_bytes=16 * GIB, driver="1", cuda="12")
CONTEXT = 3 * GIB // 4
"""As `tests.support.builders.memory` has it."""
JOULES = {50: 300.0, 100: 260.0, 150: 270.0, 200: 240.0, 300: 280.0}
"""By batch size, over 10 s."""


def needed(size: float) -> int:
    return int(0.25 * GIB + size * GIB / 100)


def measured(of: Point, *, work_s: float = 8.0, gpu: Gpu = CARD) -> Record:
    """Return a record whose need is 0.25 GiB and 0.01 GiB for each paragraph of the batch."""
    size = of.numbers["batch_size"]
    made = record(of, work_s=work_s)
    assert made.summary is not None
    loaded = replace(made.summary, load_max=LOAD * size)
    return replace(made, gpu=gpu, needs=(need(LOAD * size, needed(size)),), summary=loaded)


def seconds(of: Point) -> float:
    """Return the work of a point: less the larger the batch, by less and less, with a little scatter."""
    return 8 + 200 / of.numbers["batch_size"] + 0.1 * of.repeat


def a_run(folder: Path, *, repeats: int = 2, sizes: Sequence[int] = SIZES, gpu: Gpu = CARD) -> Path:
    return write_records(folder, [measured(of, work_s=seconds(of), gpu=gpu) for of in grid(sizes, repeats)])


def with_energy(folder: Path, *, idle_w: float | None = None, run_id: str = "demo", gpu: Gpu = CARD) -> Path:
    """Make a run of points that measured energy: the larger the batch, the faster."""
    points = [replace(one, run_id=run_id) for one in grid(SIZES)]
    made = [measured(one, work_s=8 + 200 / one.numbers["batch_size"], gpu=gpu) for one in points]
    energies = [Energy(span_s=10, counter_j=joules, idle_w=idle_w) for joules in JOULES.values()]
    return write_records(
        folder, [replace(one, energy=energy) for one, energy in zip(made, energies, strict=True)]
    )


def several_series(folder: Path, sizes: Sequence[int]) -> Path:
    """Make a run in which another knob varies by itself."""
    points = [
        replace(one, index=n, point_id=f"p{n}", params={**one.params, "tokenizer_batch": batch})
        for n, (one, batch) in enumerate(((one, b) for b in (32, 64) for one in grid(sizes, 2)), 1)
    ]
    return write_records(folder, map(measured, points))


def all_failed(folder: Path) -> Path:
    made = map(measured, grid([50, 100]))
    return write_records(
        folder, [replace(one, outcome=Outcome.GPU_OOM, needs=(), summary=None) for one in made]
    )


COMMITTED = {
    "slack": ONE,
    "capped": RECORDS / "find-max" / "default-allocator-4GiB-20261121-084250-7545",
    "workers": group("workers") / "table-20261122-125756-f497",
    "tune": group("tune") / "tune-20261122-213355-f020",
    "log": OLD_LOG,
}


def of_a_command(folder: Path, knob: str = "lr", values: Iterable[str] = ("0.1", "0.01", "1e-3")) -> Path:
    """Make a run of a program without items, which reports a figure of its own."""
    tries = [without_items(reporting(record(point), {"f1": 0.5})) for point in grid([1, 2, 3])]
    knobs = zip(tries, values, strict=True)
    return write_records(
        folder, [replace(one, point=replace(one.point, params={knob: value})) for one, value in knobs]
    )


MADE: dict[str, Callable[[Path], Path]] = {
    "sweep": lambda folder: a_run(folder, repeats=3),
    "series": lambda folder: several_series(folder, (5, 10, 100, 500)),
    "energy": lambda folder: with_energy(folder, idle_w=10),
    "command": of_a_command,
    "failed": all_failed,
}
KINDS = (*COMMITTED, *MADE)


def made(kind: str, folder: Path) -> Path:
    return COMMITTED[kind] if kind in COMMITTED else MADE[kind](folder / "run")


def drawn(path: Path) -> list[Picture]:
    return [picture for group in pictures(collect([path])) for picture in group]


def words(picture: Picture) -> list[str]:
    return [part.text for part in picture.canvas.parts if isinstance(part, Words)]


def marks(picture: Picture) -> list[Mark]:
    """Return the marks within the axes, not those of the legend."""
    found = [part for part in picture.canvas.parts if isinstance(part, Mark)]
    return [part for part in found if part.spot[1] <= HEIGHT - BOTTOM]


def cells(picture: Picture, column: str) -> list[str]:
    return next(list(one.cells) for one in picture.data.columns if one.name == column)


def test_a_value_stands_where_the_axes_have_it() -> None:
    drawing = Drawing(across="", up="", x_range=(0, 100), y_range=(0, 8))
    low, middle, high = (drawing.at(spot) for spot in ((0, 0), (50, 4), (100, 8)))
    assert middle == ((low[0] + high[0]) / 2, (low[1] + high[1]) / 2)
    assert [geometric(row) for row in ([16, 64, 256], [10, 20, 40, 80], [1, 30])] == [True] * 3
    assert [geometric(row) for row in ([50, 100, 150], [0, 1, 4], [40, 85, 130, 175])] == [False] * 3
    across = replace(drawing, x_range=(1, 100), logarithmic=True)
    assert across.x(10) == middle[0]


def test_a_sweep_shows_memory_with_its_bound_and_speed_with_its_intervals_and_knee(tmp_path: Path) -> None:
    speed, memory = drawn(made("sweep", tmp_path))
    assert cells(memory, "GiB")[-len(SIZES) - 2 : -2] == [f"{needed(size) / GIB:.3f}" for size in SIZES]
    assert {"fitted line", "95 % bound, one-sided", "need, batch 300"} <= set(words(memory))
    assert [cells(memory, name)[-1] for name in ("what", "GiB")] == ["limit", "15.250"]
    speeds = [[881 / (8 + 200 / size + 0.1 * repeat) for repeat in (1, 2, 3)] for size in SIZES]
    assert cells(speed, "paragraphs/s") == [f"{fmean(values):,.4g}" for values in speeds]
    halves = [4.302653 * stdev(values) / 3**0.5 for values in speeds]
    assert cells(speed, "± (95 %)") == [f"{half:,.3g}" for half in halves], "t of two degrees"
    strokes = [part for part in speed.canvas.parts if isinstance(part, Stroke) and part.css == ""]
    lengths = [abs(bar.spots[0][1] - bar.spots[1][1]) for bar in strokes[: len(SIZES)]]
    assert [length / lengths[0] for length in lengths] == pytest.approx([half / halves[0] for half in halves])
    assert {"knee: 200", "within 5 % of the fastest"} <= set(words(speed))
    assert "mean of 3 repeats" in speed.caption


def test_heading_and_legend_agree_on_the_knee() -> None:
    speed = drawn(ONE)[0]
    assert "no knee up to batch size 300" in speed.title
    assert "fastest: 300" in words(speed)
    assert "knee" not in " ".join((*words(speed), speed.caption))


def test_card_ring_and_title_name_the_setting_that_is_taken(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", records(repeats=1))
    spec = (run / "sweep.yaml").read_text()
    (run / "sweep.yaml").write_text(f"{spec}constraints: {{work_s: {{min: 3.3}}}}\n")
    card = page([run]).html
    assert "Take batch_size 85: 255 paragraphs/s (n=1), the smallest within 5 % of the fastest" in card
    title = "Speed: take batch size 85, 255 paragraphs/s, 1.3 times as fast as 40; one repeat: not tested"
    assert title in card
    assert "take: 85" in card
    assert "fastest: " not in card


@pytest.mark.parametrize("kind", KINDS)
def test_the_line_reaches_the_largest_point(kind: str, tmp_path: Path) -> None:
    for picture in drawn(made(kind, tmp_path)):
        lines = [part for part in picture.canvas.parts if isinstance(part, Stroke) and len(part.spots) > 9]
        ends = [max(x for x, _ in line.spots) for line in lines if not line.dash]
        assert all(end >= max(mark.spot[0] for mark in marks(picture)) for end in ends)


def test_series_have_marks_dashes_and_names_of_their_own_and_sizes_far_apart_are_logarithmic(
    tmp_path: Path,
) -> None:
    speed, *_ = drawn(made("series", tmp_path))
    assert {"tokenizer_batch 32", "tokenizer_batch 64"} <= set(words(speed))
    assert len({mark.shape for mark in marks(speed)}) == 3, "with the ring of the knee"
    assert len({dash for _, dash in SERIES}) == len({shape for shape, _ in SERIES}) == len(SERIES)
    assert len({shape for shape, _ in LOOKS.values()}) == len(LOOKS), "grey says the same"
    five, ten, hundred, _ = sorted({mark.spot[0] for mark in marks(speed)})
    assert (hundred - five) / (ten - five) == pytest.approx(4.32, abs=0.01)


def test_energy_is_drawn_against_speed_and_the_best_are_joined(tmp_path: Path) -> None:
    _, _, energy = drawn(made("energy", tmp_path))
    assert cells(energy, "J per 1,000 paragraphs") == [f"{(JOULES[n] - 100) / 0.881:,.4g}" for n in SIZES]
    assert cells(energy, "no other beats it") == ["no", "no", "no", "yes", "yes"]
    lines = [[*part.spots] for part in energy.canvas.parts if isinstance(part, Stroke)]
    assert [mark.spot for mark in marks(energy) if mark.shape == "dot"] in lines
    assert "net energy, J per 1,000 paragraphs" in words(energy)


def test_a_command_has_its_own_figures_time_and_ram(tmp_path: Path) -> None:
    for knob, values, shown in (
        ("lr", ("0.1", "0.01", "1e-3"), ["0.001", "0.01", "0.1"]),
        ("arm", ("a", "b", "c"), ["arm a", "arm b", "arm c"]),
    ):
        f1, *others = drawn(of_a_command(tmp_path / knob, knob, values))
        assert f1.title == "f1: 0.5"
        assert [one for one in words(f1) if one in shown] == shown
        titles = [one.title.partition(",")[0] for one in others]
        assert titles == ["Time of the work", "GPU memory", "RAM"]


def test_many_figures_of_a_workload_have_no_picture_but_a_word(tmp_path: Path) -> None:
    figures = {f"loss_{n}": 1.0 for n in range(9)}
    run = write_records(tmp_path / "run", [reporting(record(one), figures) for one in grid([50, 100])])
    assert drawn(run)[-1].caption.endswith("3 more figures without a picture: in the table.")


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_covers_a_mark_or_leaves_the_picture(kind: str, tmp_path: Path) -> None:
    """What covers another word is found in the file, in its font."""
    for picture in drawn(made(kind, tmp_path)):
        boxes = [part.box for part in picture.canvas.parts if isinstance(part, Words)]
        spots = [mark.spot for mark in marks(picture)]
        for left, top, right, bottom in boxes:
            assert not [x for x, y in spots if left < x < right and top < y < bottom]
        assert all(box[2] <= WIDTH and box[3] <= picture.canvas.height for box in boxes)


def group_of(path: Path, limit_bytes: int | None = None) -> GroupPlot:
    (found,) = group_plots(collect([path]), limit_bytes)
    return found


def test_an_old_log_has_a_straight_line_without_an_error_bar() -> None:
    found = group_of(OLD_LOG)
    panel = found.memory
    assert [size for size, _ in panel.spots("measured")] == [50, 300]
    assert panel.line
    assert (panel.line.name, panel.bound) == ("straight line", None)
    assert panel.notes[0] == "2 points, no error bar"
    assert {mean.n for mean in found.speed.means} == {1}


def test_a_card_that_is_unknown_has_no_limit_and_one_that_is_too_small_says_so(tmp_path: Path) -> None:
    unknown = group_of(a_run(tmp_path / "run", gpu=replace(CARD, total_bytes=None))).memory
    assert (unknown.limit, unknown.spots("predicted")) == (None, [])
    assert unknown.bound
    small = group_of(a_run(tmp_path / "small"), CONTEXT + GIB // 8).memory
    assert small.notes == ("not even a batch of 1 fits",)
