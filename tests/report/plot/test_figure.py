from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
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
from jobkit.core.json_codec import to_json
from jobkit.core.layout import TRIALS_FILE
from jobkit.core.measurements import Energy, Gpu
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.report.plot.data import group_plots
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
    repeats_in_words,
    short,
)
from jobkit.report.plot.figure import style as style_of
from jobkit.report.tables import Collected, collect
from jobkit.runs.trials import Trial
from tests.pages.test_docs import PYPROJECT
from tests.support.builders import TEXT, grid, need, record, write_points, write_record, write_records
from tests.whole.test_imports import asked_for, imported

if TYPE_CHECKING:
    from matplotlib.axes import Axes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMITTED = RECORDS / "gpu"
ONE = COMMITTED / "stanza-20261121-034558-42cc"
OLD_LOG = ROOT / "tests" / "data" / "predecessors" / "gpu-stanza-tagging.o2650"
SIZES = (50, 100, 150, 200, 300)
LOAD = 1_000
"""Padded characters of a paragraph in these tests."""
CARD = Gpu(name="a card", uuid="GPU-2", total_bytes=16 * GIB, driver="1", cuda="12")
CONTEXT = 3 * GIB // 4
"""As `tests.support.builders.memory` has it."""


def needed(size: float) -> int:
    return int(0.25 * GIB + size * GIB / 100)


def measured(of: Point, *, work_s: float = 8.0, gpu: Gpu = CARD) -> Record:
    """Return a record whose need is 0.25 GiB and 0.01 GiB for each paragraph of the batch."""
    size = of.numbers["batch_size"]
    made = record(of, work_s=work_s)
    assert made.summary is not None
    loaded = replace(made.summary, load_max=LOAD * size)
    return replace(made, gpu=gpu, needs=(need(LOAD * size, needed(size)),), summary=loaded)


def a_run(folder: Path, *, repeats: int = 2, sizes: Sequence[int] = SIZES, gpu: Gpu = CARD) -> Path:
    """Make a run that is faster the larger the batch, by less and less, and scatters a little."""
    works = [(p, 8 + 200 / p.numbers["batch_size"] + 0.1 * p.repeat) for p in grid(sizes, repeats)]
    return write_records(folder, [measured(point, work_s=work_s, gpu=gpu) for point, work_s in works])


def with_trials(folder: Path) -> Path:
    """Add two tries of a prediction under a cap of 8 GiB: the first ran out of memory."""
    first = grid([50])[0]
    tried = [
        replace(first, index=11 + n, point_id=f"batch_size-{size}-verify", params={"batch_size": size})
        for n, size in enumerate((780, 740))
    ]
    tried = [replace(one, cap_bytes=8 * GIB) for one in tried]
    with (folder / "points.jsonl").open("a") as stream:
        stream.writelines(to_json(one) + "\n" for one in tried)
    failed = replace(measured(tried[0]), outcome=Outcome.GPU_OOM, needs=(), summary=None)
    write_record(folder, replace(failed, failed_load=780 * LOAD))
    write_record(folder, measured(tried[1], work_s=1.0))
    trials = [
        Trial(
            index=one.index,
            batch_size=one.numbers["batch_size"],
            load=one.numbers["batch_size"] * LOAD,
            capacity_bytes=8 * GIB,
            expected_bytes=7.5 * GIB,
            bound_bytes=7.8 * GIB,
        )
        for one in tried
    ]
    (folder / TRIALS_FILE).write_text("".join(to_json(trial) + "\n" for trial in trials))
    return folder


def drawn(*paths: Path, gpu_memory_bytes: int | None = None, size: str = "screen") -> Figure:
    """Return the figure as `plot` draws it, laid out."""
    with style.context(["default", style_of(size)]):
        found = figure(collect(paths), gpu_memory_bytes=gpu_memory_bytes, size=size)
        FigureCanvasAgg(found).draw()  # type: ignore[no-untyped-call]  # matplotlib's stubs leave it out
    return found


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


def test_memory_shows_what_was_measured_the_line_the_bound_and_the_card(tmp_path: Path) -> None:
    memory, _ = panels(drawn(a_run(tmp_path / "run")))
    shown = lines(memory)
    assert shown["need"] == [(LOAD * size, pytest.approx(needed(size) / GIB)) for _ in "12" for size in SIZES]
    room = (16 * GIB - CONTEXT) / GIB
    assert shown["GPU less context, 15.25 GiB"][0][1] == room
    for load, gib in shown["fitted line"]:
        assert gib == pytest.approx(0.25 + load / LOAD / 100, abs=1e-3)
    assert all(
        above[1] >= below[1]
        for above, below in zip(shown["95 % bound, one-sided"], shown["fitted line"], strict=True)
    )
    (name,) = (name for name in shown if name.startswith("predicted, batch 1,"))
    ((load, gib),) = shown[name]
    assert load == pytest.approx(1_500 * LOAD, rel=0.01)
    assert room * 0.99 < gib <= room
    assert memory.get_ylabel() == "allocator memory (GiB)"
    assert memory.get_xlabel().startswith("load (padded characters)")
    assert "measured: need" in words(memory)
    assert "limit: GPU less context, 15.25 GiB" in words(memory)
    assert "the lengths of the text are unknown" in words(memory)


def test_predictions_that_were_tried_stand_next_to_what_came_of_them(tmp_path: Path) -> None:
    run = with_trials(a_run(tmp_path / "run"))
    memory, speed = panels(drawn(run))
    shown = lines(memory)
    assert shown["limit 8.00 GiB"][0][1] == 8
    assert shown["predicted"] == [(780 * LOAD, 7.5), (740 * LOAD, 7.5)]
    assert shown["verified, batch 740"] == [(740 * LOAD, pytest.approx(needed(740) / GIB))]
    assert shown["out of memory, batch 780"] == [(780 * LOAD, 8)]
    named = {
        "limit 8.00 GiB",
        "measured: need",
        "predicted",
        "verified, batch 740",
        "out of memory, batch 780",
    }
    assert named <= set(words(memory).split(" | "))
    assert "batch 740 fits in 8.0 GiB, predicted and verified" in words(memory)
    assert max(load for load, _ in shown["need"]) == LOAD * SIZES[-1], (
        "no try is taken for a point of the sweep"
    )
    assert [x for x, _ in error_bars(speed)[0]] == list(SIZES), "and its speed is none of the sweep's"
    fitted = group_plots(collect([run]))[0].memory.line
    assert fitted is not None
    assert fitted.at(0) == pytest.approx(0.25 * GIB, rel=0.01)


def error_bars(axes: Axes) -> list[Spots]:
    """Return of each series size and mean."""
    return [
        spots(container.lines[0]) for container in axes.containers if isinstance(container, ErrorbarContainer)
    ]


def test_speed_shows_the_mean_of_the_repeats_its_interval_and_the_knee(tmp_path: Path) -> None:
    _, speed = panels(drawn(a_run(tmp_path / "run", repeats=3)))
    (series,) = error_bars(speed)
    speeds = {size: [881 / (8 + 200 / size + 0.1 * repeat) for repeat in (1, 2, 3)] for size in SIZES}
    assert [size for size, _ in series] == list(speeds)
    assert [mean for _, mean in series] == pytest.approx([fmean(values) for values in speeds.values()])
    (container,) = speed.containers
    assert isinstance(container, ErrorbarContainer)
    (bars,) = container.lines[2]
    for path, values in zip(bars.get_paths(), speeds.values(), strict=True):
        (_, low), (_, high) = np.asarray(path.vertices, dtype=float)
        assert high - low == pytest.approx(2 * 4.302653 * stdev(values) / 3**0.5), "t of two degrees"
    assert "mean ± 95 %, n = 3" in words(speed)
    fastest = fmean(speeds[300])
    knee = next(size for size in SIZES if fmean(speeds[size]) >= 0.95 * fastest)
    assert lines(speed)[f"knee: {knee}"] == [(knee, pytest.approx(fmean(speeds[knee])))]
    assert lines(speed)["within 5 % of the fastest"][0][1] == pytest.approx(0.95 * fastest)
    assert knee == 200


def test_one_repeat_has_no_error_bar(tmp_path: Path) -> None:
    _, speed = panels(drawn(a_run(tmp_path / "run", repeats=1)))
    (container,) = speed.containers
    assert isinstance(container, ErrorbarContainer)
    assert not container.has_yerr
    assert "n = 1, no error bar" in words(speed)


def test_repeats_that_are_not_all_home_are_reported() -> None:
    assert repeats_in_words((3, 2)) == "mean ± 95 %, n = 2 to 3"


def test_another_knob_makes_series_with_markers_and_lines_of_their_own(tmp_path: Path) -> None:
    points = [
        replace(one, index=n, point_id=f"p{n}", params={**one.params, "tokenizer_batch": batch})
        for n, (one, batch) in enumerate(((one, b) for b in (32, 64) for one in grid(SIZES, 2)), 1)
    ]
    _, speed = panels(drawn(write_records(tmp_path / "run", map(measured, points))))
    assert {"tokenizer_batch 32", "tokenizer_batch 64"} <= set(words(speed).split(" | "))
    drawn_as = [
        container.lines[0] for container in speed.containers if isinstance(container, ErrorbarContainer)
    ]
    assert len({(str(line.get_marker()), str(line.get_linestyle())) for line in drawn_as}) == 2


def test_knobs_that_move_together_make_one_series(tmp_path: Path) -> None:
    sizes = [(point, point.numbers["batch_size"]) for point in grid(SIZES, 2)]
    points = [replace(point, params={"batch_size": n, "tokenizer_batch": n}) for point, n in sizes]
    run = write_records(tmp_path / "run", map(measured, points))
    assert len(error_bars(panels(drawn(run))[1])) == 1


def test_sizes_far_apart_are_drawn_logarithmic(tmp_path: Path) -> None:
    _, speed = panels(drawn(a_run(tmp_path / "run", sizes=(5, 10, 50, 100, 500))))
    assert speed.get_xscale() == "log"


def test_where_no_need_was_measured_the_allocated_line_and_its_slack_are_named() -> None:
    memory, _ = panels(drawn(COMMITTED / "stanza-20261121-034558-42cc"))
    shown = lines(memory)
    assert "allocated line x 1.07 (slack)" in shown
    assert len(shown["reserved peak"]) == 15
    assert memory.get_xscale() == memory.get_yscale() == "linear"
    assert "beyond the axes: limit: GPU less context, 139.12 GiB predicted, batch 11,835" in words(memory)
    assert memory.get_ylim()[1] < 10, "the card is 40 times what was measured"
    assert "39 times the largest load measured" in words(memory)


def test_few_loads_are_points_with_the_reason(tmp_path: Path) -> None:
    memory, _ = panels(drawn(a_run(tmp_path / "run", sizes=(50, 100, 150))))
    shown = lines(memory)
    assert len(shown["need"]) == 6
    assert "fitted line" not in shown
    assert "no line: 3 distinct loads measured, and a line with an error needs 4" in words(memory)


def test_on_a_cpu_it_is_ram_and_no_card(tmp_path: Path) -> None:
    found = drawn(write_records(tmp_path / "run", map(record, grid(SIZES, device="cpu"))))
    memory, _ = panels(found)
    assert memory.get_ylabel() == "RAM (GiB)"
    assert [load for load, _ in lines(memory)["RAM peak"]] == [900 * size for size in SIZES]
    assert [gib for _, gib in lines(memory)["RAM peak"]] == pytest.approx([size / 100 for size in SIZES])
    assert not any("card" in name or "predicted" in name for name in lines(memory))
    assert "on a CPU (node1)" in titles(found)[0]


def test_on_a_cpu_a_try_of_a_prediction_brings_the_limit(tmp_path: Path) -> None:
    points = grid(SIZES, device="cpu")
    tried = replace(points[0], index=6, point_id="batch_size-400-verify", params={"batch_size": 400})
    run = write_records(tmp_path / "run", map(record, [*points, tried]))
    trial = Trial(index=6, batch_size=400, load=360_000, capacity_bytes=5 * GIB, expected_bytes=4 * GIB)
    (run / TRIALS_FILE).write_text(to_json(trial) + "\n")
    shown = lines(panels(drawn(run))[0])
    assert shown["limit 5.00 GiB"][0][1] == 5
    assert shown["verified, batch 400"] == [(360_000, pytest.approx(4))]


def test_an_old_log_has_a_straight_line_without_an_error_bar() -> None:
    found = drawn(OLD_LOG)
    memory, speed = panels(found)
    shown = lines(memory)
    assert [size for size, _ in shown["peak in the log"]] == [50, 300]
    assert "straight line" in shown
    assert not any("bound" in name for name in shown)
    assert "2 points, no error bar" in words(memory)
    assert "memory grows faster than a line" in words(memory)
    assert memory.get_xlabel().startswith("batch size")
    assert "n = 1, no error bar" in words(speed)
    assert "a log of a tagger before jobkit" in titles(found)[0]


def test_an_old_log_of_a_cpu_or_of_one_size_has_what_it_has(tmp_path: Path) -> None:
    text = OLD_LOG.read_text()
    one = tmp_path / "one.o1"
    one.write_text("".join(re.findall(r".*Total time[\s\S]*?Peak RAM.*\n", text)[:1]))
    memory, _ = panels(drawn(one))
    assert "no line: 1 size measured" in words(memory)
    cpu = tmp_path / "cpu.o2"
    cpu.write_text("".join(line for line in text.splitlines(keepends=True) if "GPU" not in line))
    memory, _ = panels(drawn(cpu))
    assert memory.get_ylabel() == "RAM (GiB)"
    assert "no error bar" in words(memory)


def test_where_the_card_is_unknown_there_is_no_limit(tmp_path: Path) -> None:
    memory, _ = panels(drawn(a_run(tmp_path / "run", gpu=replace(CARD, total_bytes=None))))
    assert set(lines(memory)) == {"need", "fitted line", "95 % bound, one-sided"}


def test_a_card_smaller_than_a_batch_of_1_is_reported(tmp_path: Path) -> None:
    memory, _ = panels(drawn(a_run(tmp_path / "run"), gpu_memory_bytes=CONTEXT + GIB // 8))
    assert "not even a batch of 1 fits" in words(memory)


def test_points_that_all_ran_out_of_memory_are_an_empty_panel_with_the_reason(tmp_path: Path) -> None:
    made = map(measured, grid([50, 100]))
    failed = [replace(one, outcome=Outcome.GPU_OOM, needs=(), summary=None) for one in made]
    memory, speed = panels(drawn(write_records(tmp_path / "run", failed)))
    assert "no point has succeeded yet" in words(memory)
    assert "Speed: not recorded" in words(speed)


def test_a_stand_in_model_is_named_in_the_title(tmp_path: Path) -> None:
    (title,) = titles(drawn(a_run(tmp_path / "run")))
    assert "STAND-IN model, trained by jobkit on generated text" in title
    assert "on a card (16.0 GiB)" in title
    assert "torch" not in title, "the versions are in the table"


JOULES = {50: 300.0, 100: 260.0, 150: 270.0, 200: 240.0, 300: 280.0}
"""By batch size, over 10 s."""


def with_energy(folder: Path, *, idle_w: float | None = None, run_id: str = "demo", gpu: Gpu = CARD) -> Path:
    """Make a run of points that measured energy: the larger the batch, the faster."""
    points = [replace(one, run_id=run_id) for one in grid(SIZES)]
    made = [measured(one, work_s=8 + 200 / one.numbers["batch_size"], gpu=gpu) for one in points]
    energies = [Energy(span_s=10, counter_j=joules, idle_w=idle_w) for joules in JOULES.values()]
    return write_records(
        folder, [replace(one, energy=energy) for one, energy in zip(made, energies, strict=True)]
    )


def test_energy_is_drawn_against_speed_and_the_best_are_joined(tmp_path: Path) -> None:
    *_, energy = panels(drawn(with_energy(tmp_path / "run")))
    speeds = {size: 881 / (8 + 200 / size) for size in SIZES}
    shown = lines(energy)
    best, others = [200, 300], [50, 100, 150]
    name = "none beats batch_size 200, batch_size 300"
    assert shown[name] == [(pytest.approx(speeds[n]), pytest.approx(JOULES[n] / 0.881)) for n in best]
    assert [x for x, _ in shown["other settings"]] == pytest.approx([speeds[n] for n in others])
    assert energy.get_xlabel() == "paragraphs per second"
    assert energy.get_ylabel() == "J per 1,000 paragraphs"


def test_energy_less_idle_power_is_called_net_as_in_the_table(tmp_path: Path) -> None:
    *_, energy = panels(drawn(with_energy(tmp_path / "run", idle_w=10)))
    assert energy.get_ylabel() == "net J per 1,000 paragraphs"
    assert lines(energy)["none beats batch_size 200, batch_size 300"][0][1] == pytest.approx(140 / 0.881)


def test_energy_of_several_groups_is_below_each(tmp_path: Path) -> None:
    first = with_energy(tmp_path / "one")
    second = with_energy(tmp_path / "two", run_id="other", gpu=replace(CARD, driver="2", uuid="GPU-3"))
    third = a_run(tmp_path / "three", gpu=replace(CARD, driver="3", uuid="GPU-4"))
    found = drawn(first, second, third)
    letters = [axes.get_title(loc="left") for axes in panels(found)]
    assert [letter[:3] for letter in letters] == [f"({letter})" for letter in "abcdefgh"]
    assert [len(row.axes) for row in found.subfigs] == [3, 3, 2]
    assert outside(found) == []


def test_groups_are_never_mixed_but_drawn_in_rows(tmp_path: Path) -> None:
    first = a_run(tmp_path / "one")
    points = [replace(one, run_id="other") for one in grid(SIZES)]
    others = [measured(one, gpu=replace(CARD, driver="2")) for one in points]
    second = write_records(tmp_path / "two", others)
    found = drawn(first, second, size="paper")
    assert found.get_figwidth() == PAGE_IN
    assert [axes.get_title(loc="left")[:3] for axes in panels(found)] == ["(a)", "(b)", "(c)", "(d)"]
    assert [len(lines(axes)["need"]) for axes in panels(found)[::2]] == [10, 5]
    assert ["driver 1" in title for title in titles(found)] == [True, False], "the versions set them apart"


def many_groups(folder: Path, count: int) -> Collected:
    for number in range(count):
        points = [replace(one, run_id=f"run{number}", threads=number + 1) for one in grid(SIZES)]
        write_records(folder / f"run{number}", map(measured, points))
    return collect([folder])


def test_the_most_groups_fit_and_one_more_is_refused(tmp_path: Path) -> None:
    many_groups(tmp_path, MOST_GROUPS)
    found = drawn(tmp_path)
    assert len(panels(found)) == 2 * MOST_GROUPS
    assert outside(found) == []
    with pytest.raises(JobkitError, match="5 tables are too many") as caught:
        plot(many_groups(tmp_path / "more", MOST_GROUPS + 1), tmp_path / "x.svg")
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


KINDS = ("sweep", "trials", "committed", "capped", "workers", "tune", "log", "few", "energy")


@pytest.fixture(params=[(kind, size) for kind in KINDS for size in LOOKS], ids="-".join)
def picture(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Figure, str]:
    """Return a picture of every kind, and its size."""
    kind, size = request.param
    shown = {
        "committed": COMMITTED / "stanza-20261121-034922-0192",
        "capped": RECORDS / "find-max" / "default-allocator-4GiB-20261121-084250-7545",
        "workers": group("workers") / "table-20261122-125756-f497",
        "tune": group("tune") / "tune-20261122-213355-f020",
        "log": OLD_LOG,
    }
    if kind in shown:
        return drawn(shown[kind], size=size), size
    if kind == "energy":
        return drawn(with_energy(tmp_path / "run"), size=size), size
    run = a_run(tmp_path / "run", sizes=SIZES[:3] if kind == "few" else SIZES)
    return drawn(with_trials(run) if kind == "trials" else run, size=size), size


def test_a_picture_has_its_size_and_can_be_read(picture: tuple[Figure, str]) -> None:
    found, size = picture
    assert (
        found.get_figwidth() in {"paper": {COLUMN_IN, PAGE_IN}, "screen": {2 * PANEL_IN, 3 * PANEL_IN}}[size]
    )
    assert min(float(text.get_fontsize()) for text in texts(found)) >= LOOKS[size].font_pt >= SMALL == 7
    assert {text.get_fontname() for text in texts(found)} == {"DejaVu Sans"}
    assert outside(found) == []
    boxes = [box for axes in panels(found) if (box := axes.get_tightbbox())]
    assert len(boxes) == len(panels(found)) >= 2
    assert not [pair for pair in combinations(boxes, 2) if covers(*pair)], "the panels do not overlap"


def covers(one: BboxBase, other: BboxBase) -> bool:
    """Return whether two boxes overlap by more than a pixel."""
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.width, shared.height) > 1


def test_names_cover_neither_one_another_nor_a_mark_and_stay_within_the_axes(
    picture: tuple[Figure, str],
) -> None:
    for axes in panels(picture[0]):
        boxes = {text.get_text(): Text.get_window_extent(text) for text in axes.texts}
        assert not [pair for pair in combinations(boxes, 2) if covers(*(boxes[name] for name in pair))]
        assert all(axes.bbox.padded(1).containsx(x) for box in boxes.values() for x in (box.x0, box.x1))
        assert all(axes.bbox.padded(1).containsy(y) for box in boxes.values() for y in (box.y0, box.y1))
        marks = [line for line in axes.get_lines() if line.get_marker() not in {"None", ""}]
        for line in marks:
            for x, y in line.get_transform().transform(line.get_xydata()):
                assert not [name for name, box in boxes.items() if box.contains(x, y)]


def test_grey_says_the_same() -> None:
    assert len({(mark["marker"], mark.get("markerfacecolor")) for mark in MARKS.values()}) == len(MARKS)
    memory, _ = panels(drawn(COMMITTED / "stanza-20261121-034558-42cc"))
    curves = [line for line in memory.get_lines() if line.get_linestyle() != "None"]
    looks = {(str(line.get_linestyle()), line.get_linewidth()) for line in curves}
    assert len(looks) == len(curves) == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.5, "0.5"), (300, "300"), (2_000, "2000"), (47_000, "47k"), (2.5e6, "2.5M"), (3e9, "3G")],
)
def test_numbers_on_an_axis_are_short(value: float, words: str) -> None:
    assert short(value) == words


def test_the_same_records_give_the_same_bytes_fit_for_print(tmp_path: Path) -> None:
    collected = collect([ONE])
    for suffix in SUFFIXES:
        plot(collected, tmp_path / f"1{suffix}")
        with rc_context({"font.size": 30, "lines.linewidth": 9}):
            plot(collected, tmp_path / f"2{suffix.upper()}")
        first, second = (tmp_path / f"1{suffix}").read_bytes(), (tmp_path / f"2{suffix.upper()}").read_bytes()
        assert first == second, suffix
        assert b"CreationDate" not in first
        assert b"dc:date" not in first
    png, svg, pdf = ((tmp_path / f"1{suffix}").read_bytes() for suffix in SUFFIXES)
    assert int.from_bytes(png[16:20]) == math.floor(LOOKS["screen"].dpi * 2 * PANEL_IN)
    assert f'width="{72 * 2 * PANEL_IN:g}pt"'.encode() in svg
    assert b"<text" not in svg, "outlines need no font"
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf


@pytest.mark.parametrize("name", ["a$b$c_^.txt", "小説.txt"])
def test_a_text_may_be_called_anything(name: str, tmp_path: Path) -> None:
    points = [replace(one, text=replace(TEXT, name=name)) for one in grid(SIZES)]
    plot(collect([write_records(tmp_path / "run", map(measured, points))]), tmp_path / "x.svg")


def ask(*args: str | Path) -> int:
    status: int = command.main([str(arg) for arg in args], standalone_mode=False)
    return status


def test_the_command_draws_next_to_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(OLD_LOG, "--plot", tmp_path / "x.svg", "--plot-size", "paper") == 0
    assert f'width="{72 * COLUMN_IN:g}pt"'.encode() in (tmp_path / "x.svg").read_bytes()
    assert "batch mean s" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]


@pytest.mark.parametrize("name", ["x.eps", "x", "svg"])
def test_an_unknown_suffix_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match=r"\.png, \.svg or \.pdf") as caught:
        ask(tmp_path / "nothing", "--plot", tmp_path / name)
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match=r"--plot .*nowhere.*x\.svg: No such file or directory"):
        ask(OLD_LOG, "--plot", tmp_path / "nowhere" / "x.svg")
    (tmp_path / "x.svg").mkdir()
    with pytest.raises(JobkitError, match="--plot"):
        plot(collect([OLD_LOG]), tmp_path / "x.svg")


def test_without_the_extra_the_command_to_type_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(JobkitError, match="needs matplotlib") as caught:
        ask(OLD_LOG, "--plot", tmp_path / "x.svg")
    assert (caught.value.exit_code, caught.value.hint) == (2, "pip install 'jobkit[plot]'")
    assert capsys.readouterr().out == ""


def test_a_table_imports_no_matplotlib() -> None:
    assert "matplotlib" not in imported(asked_for("collect", str(OLD_LOG)))


def test_the_extra_holds_what_the_page_says() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert extras["plot"] == [extra for extra in extras["dev"] if extra.startswith("matplotlib")]
