"""Commands that print the same figure print the same number: each on every run in benchmarks/records."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.archives import RECORDS, runs
from jobkit.answers.search import foreseen
from jobkit.core.layout import SETTING_FILE, SPEC_FILE, TUNE_GOAL_FILE
from jobkit.core.student import half_width
from jobkit.core.units import format_bytes_gib, format_count, format_setting, format_walltime
from jobkit.launch.sweep import search_goal
from jobkit.report.plot.data import group_plots
from jobkit.report.plot.memory_data import PREDICTED
from jobkit.report.recommend.advice import memory_of_setting
from jobkit.report.recommend.run_data import read_material
from jobkit.report.tables import collect
from jobkit.runs.trials import trials
from jobkit.spec.sweep_spec import load_spec
from tests.support.commands import jobkit

ROOT = Path(__file__).parents[2]
RUNS = runs()
SEARCHES = [run for run in RUNS if (run / TUNE_GOAL_FILE).is_file()]


@dataclass(frozen=True)
class Answers:
    """What the commands say of a run."""

    run: Path

    def _json(self, *words: str | Path) -> Any:
        said = jobkit(*words, "--json", cwd=ROOT)
        assert said.returncode in {0, 4}, said.stderr
        return json.loads(said.stdout)

    @cached_property
    def collect(self) -> Any:
        return self._json("collect", self.run)

    @cached_property
    def recommend(self) -> Any:
        return self._json("recommend", self.run)

    @cached_property
    def waste(self) -> Any:
        return self._json("waste", self.run)

    @cached_property
    def compare(self) -> Any:
        return self._json("compare", self.run, RECORDS / "demo" / "demo-20261123-022857-7888")

    @cached_property
    def status(self) -> Any:
        return self._json("status", self.run)

    @property
    def search(self) -> Any:
        return self.recommend["search"]

    @property
    def chosen(self) -> Any:
        """The recommended setting."""
        return self.recommend["batch"]["recommended"]

    def size(self, params: Mapping[str, Any]) -> Any:
        """Return the row of a setting in the table; of a search that of its finals."""
        wanted = {**params} | ({"mps": "on"} if params.get("mps") == "auto" and self.search else {})
        knobs = {knob for size in self.collect["points"] for knob in params} & self.collect["sizes"][0].keys()
        rows = [
            size
            for size in self.collect["sizes"]
            if {knob: _shared(size[knob], wanted) for knob in knobs} == {knob: wanted[knob] for knob in knobs}
            and (not self.search or size["phase"] == "final")
        ]
        assert len(rows) == 1, (params, len(rows))
        return rows[0]


answers_of = cache(Answers)
"""Those of a run are asked for once, also if two tests compare them."""


def by_group(found: list[Path]) -> list[Any]:
    """Return runs as parameters; those of one group go to one worker, for they share texts and lengths."""
    return [
        pytest.param(run, marks=pytest.mark.xdist_group(f"records-{run.parent.name}"), id=run.name)
        for run in found
    ]


def _shared(value: Any, wanted: Mapping[str, Any]) -> Any:
    """Return the value of a knob, ``auto`` of MPS as it ran."""
    return "on" if value == "auto" and wanted.get("mps") == "on" else value


def largest_batches(answers: Answers) -> Iterator[tuple[str, object, object]]:
    """Yield the largest batch of the table next to that of the recommendation, by the other knobs."""
    batch = answers.recommend["batch"]
    lines = [{"others": batch["others"], "largest": batch["largest"]}, *batch["lines"]]
    advised = {line["others"]: line["largest"] for line in lines}
    for estimate in answers.collect["estimates"]:
        assert estimate["by_knob"]["largest"] is None, "a run of jobkit has no guess without a bound"
        yield estimate["others"], estimate["prediction"], advised.get(estimate["others"])


def same(first: object, other: object) -> bool:
    """Return whether two figures are the same, as far as sums in another order allow."""
    if isinstance(first, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(first, other, rel_tol=1e-9)
    return first == other


def figures(answers: Answers) -> Iterator[tuple[str, object, object]]:
    """Yield figures that two commands print: a name, and what each prints."""
    chosen, size = answers.chosen, answers.size(answers.chosen["params"])
    yield "repeats: recommend, collect", len(chosen["starts_s"]), size["n"]
    yield "speed: recommend, collect", chosen["items_per_s"], size["items_per_s"]
    yield "its standard deviation", chosen["items_per_s_sd"], size["items_per_s_sd"]
    if size["items_per_s"] and size["items_per_s_low"] is not None:
        half = half_width(chosen["items_per_s_sd"], len(chosen["starts_s"]))
        assert half is not None
        yield "its interval", chosen["items_per_s"] - half, size["items_per_s_low"]
    energy = answers.recommend["energy"]
    own = energy["recommended"] if energy else None
    yield "energy: recommend, collect", own and own["per_1000_j"], size["energy_per_1000_j"]
    yield "paragraphs of the text", answers.recommend["corpus"]["paragraphs"], _paragraphs(answers)
    (status,) = answers.status["runs"]
    points = status["points"]
    yield "points: status, collect", len(points), len(answers.collect["points"])
    outcomes = [point["outcome"] for point in points]
    yield "outcomes: status, collect", outcomes, [row["outcome"] for row in answers.collect["points"]]


def _paragraphs(answers: Answers) -> int:
    """Return how many paragraphs the text has, by the lengths of the run, else by the table."""
    most = max(size["items_total"] or 0 for size in answers.collect["sizes"])
    return int(most)


def of_search(answers: Answers) -> Iterator[tuple[str, object, object]]:
    """Yield what commands print of the answer of a search."""
    search, setting = answers.search, answers.search["setting"]
    written = yaml.safe_load((answers.run / SETTING_FILE).read_text())
    cpus = written.pop("resources")["cpus"]
    knobs = {name: value[0] for name, value in written.pop("sweep").items()}
    written.pop("work_unit", None)
    written = {name: {True: "on", False: "off"}.get(value, value) for name, value in written.items()}
    yield "setting.yaml, recommend", {**written, **knobs}, setting
    yield "recommend: the setting, the search", answers.chosen["params"], setting
    said = json.loads(jobkit("tune", answers.run, "--json", cwd=ROOT).stdout)
    yield "tune, recommend", said, search
    yield "waste, recommend", answers.waste["search"], search
    yield "points of the waste", answers.waste["points"], len(answers.chosen["starts_s"])
    size, times = answers.size(setting), search["times_the_plain_loop"]
    yield "times the loop: collect, tune", size["speedup"], times["mean"]
    yield "low end: collect, tune", size["speedup_low"], times["low"]
    yield "high end: collect, tune", size["speedup_high"], times["high"]
    yield "speed: tune, collect", search["items_per_s"], size["items_per_s"]
    yield "energy: tune, collect", search["joules_per_1000"], size["energy_per_1000_j"]
    [side] = [side for side in answers.compare["runs"] if Path(side["run"]) == answers.run]
    yield "compare, recommend", side["answer"], format_setting(setting)
    yield "speed: compare, collect", side["items_per_s"], size["items_per_s"]
    memory = next(waste for waste in answers.waste["wastes"] if waste["name"] == "memory")
    if memory["fix"]:
        asked = f"{answers.recommend['request']['memory_bytes'] // 2**30}GiB"
        yield "memory request: waste, recommend", memory["fix"]["keys"]["resources.memory"], asked
    yield "cpus", answers.recommend["request"]["cpus"], cpus * setting["workers"]


@pytest.mark.parametrize("run", by_group(RUNS))
def test_two_commands_print_one_figure(run: Path) -> None:
    answers = answers_of(run)
    compared = [*largest_batches(answers), *figures(answers)]
    compared += of_search(answers) if run in SEARCHES else ()
    different = [(name, one, other) for name, one, other in compared if not same(one, other)]
    assert not different


def other_largest_batches(run: Path, answers: Answers) -> Iterator[tuple[str, object, object]]:
    """Yield the largest batch of `verify`, `apply` and the picture next to that of the recommendation."""
    largest = answers.recommend["batch"]["largest"]
    size = f"{largest['safe_batch']:,}"
    material, chosen = read_material(run), answers.chosen["params"]
    record = next(record for record in material.records if record.params == chosen)
    memory = memory_of_setting(material, record)
    applied = json.loads(json.dumps(asdict(memory.largest))) if memory else None
    yield "apply, recommend", applied, None if largest["reason"] else largest
    goal = replace(search_goal(load_spec(run / SPEC_FILE)), memory_bytes=None)
    trial, _ = foreseen(run, goal)
    if not trial.message.startswith("find_max needs a sweep"):
        most = _paragraphs(answers) if largest["knob"] == "batch_size" else largest["safe_batch"]
        testable = f"{largest['knob']} {min(largest['safe_batch'], most):,}"
        tested = trial.setting if trial.index else trial.message.partition(" was measured")[0]
        yield "verify, recommend", tested, largest["reason"] or testable
    marks = [mark for plot in group_plots(collect([run])) for mark in plot.memory.marks]
    drawn = [mark.name.split()[2] for mark in marks if mark.kind == PREDICTED and mark.name != PREDICTED]
    if drawn or not (largest["reason"] or trials(run) or record.point.device == "cpu"):
        yield "picture, recommend", drawn, [size]


@pytest.mark.parametrize("run", by_group([run for run in RUNS if run not in SEARCHES]))
def test_all_commands_have_one_largest_batch(run: Path) -> None:
    compared = [*largest_batches(answers_of(run)), *other_largest_batches(run, answers_of(run))]
    different = [(name, one, other) for name, one, other in compared if not same(one, other)]
    assert not different


@pytest.mark.parametrize("run", by_group(SEARCHES))
def test_every_report_of_a_search_begins_with_its_answer(run: Path, tmp_path: Path) -> None:
    answers = answers_of(run)
    setting, times = format_setting(answers.search["setting"]), answers.search["times_the_plain_loop"]
    interval = f"{times['mean']:.2f} times ({times['low']:.2f} to {times['high']:.2f}"
    request, time = answers.recommend["request"], answers.recommend["time"]
    assert jobkit("report", run, "--output", tmp_path / "report.html", cwd=ROOT).returncode == 0
    page = " ".join(re.sub(r"<[^>]*>", " ", (tmp_path / "report.html").read_text()).split())
    paragraphs = format_count(answers.recommend["corpus"]["paragraphs"], "paragraph")
    said = [
        f"Take {setting}",
        interval,
        paragraphs,
        f"{time['expected_s']:.1f} s",
        f"{format_bytes_gib(request['memory_bytes'], 0)} and {format_walltime(request['walltime_s'])}",
    ]
    for text in (page, jobkit("recommend", run, cwd=ROOT).stdout):
        flat = " ".join(text.split())
        assert [words for words in said if words not in flat] == []
        assert "jobkit tune SPEC" not in flat, "a search does not advise a search"
        assert flat.count("not known, because") <= 1
    waste = jobkit("waste", run, cwd=ROOT).stdout
    assert setting in " ".join(waste.split())
    assert "jobkit tune SPEC" not in waste
    assert setting in " ".join(jobkit("collect", run, cwd=ROOT).stdout.split()[:60])


def test_there_are_runs_and_searches() -> None:
    assert len(RUNS) > 40
    assert len(SEARCHES) > 4
