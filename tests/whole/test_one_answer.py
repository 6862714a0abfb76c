"""Commands that print the same figure print the same number, on a run of each group in benchmarks/records.

Earlier versions made these runs: every one is still read. No command changes a figure of another.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.archives import runs
from jobkit.answers.search import foreseen
from jobkit.answers.speed import CorpusVolume
from jobkit.core.command_list import LISTED
from jobkit.core.files import read_lines
from jobkit.core.knobs import renamed
from jobkit.core.layout import POINTS_FILE, RECORD_FILE, SPEC_FILE, TUNE_GOAL_FILE
from jobkit.core.student import half_width
from jobkit.extensions.corpus.plan import Piece
from jobkit.extensions.corpus.setting import find_setting
from jobkit.extensions.corpus.shards import ShardOptions, plan_shards
from jobkit.launch.submission import search_goal
from jobkit.planning.prepare import Options
from jobkit.report.output import render
from jobkit.report.plot.data import PREDICTED, group_plots
from jobkit.report.recommend.advice import memory_of_setting, recommend
from jobkit.report.recommend.material import read_material
from jobkit.report.recommend.output import as_json
from jobkit.report.tables import collect
from jobkit.runs.journal import read_journal
from jobkit.runs.results import read_run
from jobkit.runs.trials import trials
from jobkit.schedulers.registry import unused_schedulers
from jobkit.spec.sweep_spec import load_spec
from tests.support.commands import jobkit, ran
from tests.whole.specs import write_spec
from tests.whole.test_job_script import WORKLOADS

ROOT = Path(__file__).parents[2]
RUNS = runs()
SOME = list({run.parent.name: run for run in RUNS}.values())
"""The latest run of each group."""


def said(*words: str | Path) -> Any:
    """Return what a command prints as data, without the earlier names of knobs."""
    done = jobkit(*words, "--json", cwd=ROOT)
    assert done.returncode in {0, 4}, done.stderr
    return renamed(json.loads(done.stdout))


class Answers:
    """What the commands say of a run."""

    def __init__(self, run: Path) -> None:
        self.run, self.collect, self.recommend = run, said("collect", run), said("recommend", run)
        self.search, self.chosen = self.recommend["search"], self.recommend["batch"]["recommended"]
        items = [(size["items_total"], size.get("every") or 1) for size in self.collect["sizes"]]
        self.paragraphs = int(min(count * every for count, every in items if count))

    def size(self, params: Mapping[str, Any]) -> Any:
        """Return the row of a setting in the table; of a search that of its finals, with MPS as it ran."""
        wanted = {**params} | ({"mps": "on"} if params.get("mps") == "auto" and self.search else {})
        as_it_ran = {"auto": "on"} if wanted.get("mps") == "on" else {}
        (row,) = (
            size
            for size in self.collect["sizes"]
            if all(
                as_it_ran.get(size[knob], size[knob]) == wanted[knob] for knob in params.keys() & size.keys()
            )
            and (not self.search or size["phase"] == "final")
        )
        return row


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
    yield "repeats: recommend, collect", len(chosen["works_s"]), size["n"]
    yield "speed: recommend, collect", chosen["items_per_s"], size["items_per_s"]
    yield "its standard deviation", chosen["items_per_s_sd"], size["items_per_s_sd"]
    if size["items_per_s"] and size["items_per_s_low"] is not None:
        half = half_width(chosen["items_per_s_sd"], len(chosen["works_s"]))
        assert half is not None
        yield "its interval", chosen["items_per_s"] - half, size["items_per_s_low"]
    energy = answers.recommend["energy"]
    own = energy["recommended"] if energy else None
    yield "energy: recommend, collect", own and own["per_1000_j"], size["energy_per_1000_j"]
    yield "paragraphs of the text", answers.recommend["corpus"]["paragraphs"], answers.paragraphs
    points = said("status", answers.run)["runs"][0]["points"]
    yield "points: status, collect", len(points), len(answers.collect["points"])
    outcomes = [point["outcome"] for point in points]
    yield "outcomes: status, collect", outcomes, [row["outcome"] for row in answers.collect["points"]]


def other_largest_batches(run: Path, answers: Answers) -> Iterator[tuple[str, object, object]]:
    """Yield the largest batch of `verify`, `apply` and the picture next to that of the recommendation."""
    largest = answers.recommend["batch"]["largest"]
    size = f"{largest['safe_batch']:,}"
    material, chosen = read_material(run), answers.chosen["params"]
    record = next(record for record in material.records if record.params == chosen)
    memory = memory_of_setting(material, record)
    applied = json.loads(json.dumps(asdict(memory.largest))) if memory else None
    yield "apply, recommend", applied, None if largest["reason"] else largest
    ram = int(largest["capacity_bytes"]) if record.point.device == "cpu" else None  # as recommend types it
    goal = replace(search_goal(load_spec(run / SPEC_FILE)), memory_bytes=ram)
    trial, _ = foreseen(run, goal)
    if not trial.message.startswith("find_max needs a sweep"):
        most = answers.paragraphs if largest["knob"] == "batch_size" else largest["safe_batch"]
        testable = f"{largest['knob']} {min(largest['safe_batch'], most):,}"
        tested = trial.setting if trial.index else trial.message.partition(" was measured")[0]
        yield "verify, recommend", tested, largest["reason"] or testable
    marks = [mark for plot in group_plots(collect([run])) for mark in plot.memory.marks]
    drawn = [mark.name.split()[2] for mark in marks if mark.kind == PREDICTED and mark.name != PREDICTED]
    if drawn or not (largest["reason"] or trials(run) or record.point.device == "cpu"):
        yield "picture, recommend", drawn, [size]


@pytest.mark.parametrize("run", SOME, ids=lambda run: run.parent.name)
def test_two_commands_print_one_figure(run: Path) -> None:
    answers = Answers(run)
    compared = [*largest_batches(answers), *figures(answers)]
    if not (run / TUNE_GOAL_FILE).is_file():
        compared += other_largest_batches(run, answers)
    different = [(name, one, other) for name, one, other in compared if not same(one, other)]
    assert not different


def by_apply(run: Path, text: CorpusVolume) -> tuple[int, int]:
    """Return the memory and the walltime that a shard with all of a text requests."""
    options = Options(scheduler="slurm", site="slurm-default")
    setting = find_setting(run, options, build=False, say=lambda _: None)
    size = {"paragraphs": text.paragraphs, "characters": text.characters or 0}
    piece = Piece(source=0, start=0, end=1, longest=1, sha256="", **size)
    found = plan_shards([piece], replace(setting, past=()), ShardOptions(number=1)).measured
    return found.memory, found.walltime


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=[] if run in SOME else pytest.mark.rare, id=run.name) for run in RUNS]
)
def test_recommend_and_apply_request_alike(run: Path, tmp_path: Path) -> None:
    """The model of the run is no longer there: a folder with its name is."""
    material, copy = read_material(run), tmp_path / run.name
    advice, model = recommend(material), material.records[0].point.model
    shutil.copytree(run, copy)
    for file in (copy / POINTS_FILE, *copy.rglob(RECORD_FILE)):
        file.write_text(file.read_text().replace(model.path if model else "\0", str(tmp_path)))
    memory, walltime = by_apply(copy, advice.corpus)
    assert advice.request
    assert memory == advice.request.memory_bytes
    assert walltime == advice.request.walltime_s or not advice.corpus.characters


def test_every_committed_run_is_read() -> None:
    assert len(RUNS) > 40
    assert len([run for run in SOME if (run / TUNE_GOAL_FILE).is_file()]) > 1
    for run in RUNS:
        results = read_run(run)
        numbers = [number for number, _ in read_lines(run / POINTS_FILE)]
        assert [result.point.index for result in results.points] == numbers, run
        assert all(result.outcome for result in results.points), "each has ended"
        assert not results.notes


RUN = "RUN"
CASES = {
    "init": [["init", "elsewhere", "--scheduler", "slurm"]],
    "doctor": [["doctor", "spec.yaml"]],
    "sweep": [["sweep", "spec.yaml", "--dry-run"], ["sweep", "spec.yaml"]],
    "tune": [["tune", "spec.yaml", "--dry-run"]],
    "preflight": [["preflight", "spec.yaml"]],
    "workload": [["workload", "check", "count"]],
    "status": [["status", RUN], ["status", RUN, "1"]],
    "logs": [["logs", RUN, "1"]],
    "resume": [["resume", RUN]],
    "cancel": [["cancel", RUN]],
    "collect": [["collect", RUN]],
    "recommend": [["recommend", RUN, "--corpus", "text.txt"]],
    "report": [["report", RUN]],
    "compare": [["compare", RUN, RUN], ["compare", RUN, RUN, "--json"]],
    "waste": [["waste", RUN]],
    "merge": [["merge", RUN]],
    "apply": [
        ["apply", RUN, "--corpus", "text.txt", "--out", "tagged", "--dry-run"],
        ["apply", RUN, "--corpus", "text.txt", "--out", "tagged", "--shards", "2"],
    ],
    "verify": [["verify", RUN, "--gpu-memory", "150MiB"], ["verify", RUN, "--gpu-memory", "150MiB"]],
    "profile": [["profile", RUN, "1"], ["profile", RUN, "1"]],
    "emit": [["emit", "items=32", "seconds=0.41"]],
    "models": [["models"]],
    "lint": [["lint", f"{RUN}/job.sh"]],
    "practice": [["practice", *words, "--dir", "nowhere"] for words in (["status"], ["break", "node"])],
    "schema": [["schema"]],
    "help": [["help"], ["help", "terms"]],
}
"""What of each command is run: a new command needs a line here."""


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run that has ended on this machine, in a user's folder."""
    text = "\n\n".join(["w" * 99 + "."] * 120) + "\n"
    write_spec(tmp_path, content=text, workload="hungry:Hungry", sweep={"batch_size": [5, 10, 15, 20]})
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    monkeypatch.syspath_prepend(WORKLOADS)
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    ran("sweep", "spec.yaml")
    (run,) = (tmp_path / "runs").iterdir()
    return run


def all_figures(run: Path) -> dict[str, object]:
    """Return what is printed of a sweep, less what the documentation says of trials and tries by hand."""
    collected = collect([run])
    tables = json.loads(render(collected, "json"))
    tables["points"] = [row for row in tables["points"] if not row["trial"]]
    del tables["notes"]
    answer = json.loads(as_json(recommend(read_material(run))))
    del answer["trials"], answer["cautions"], answer["batch"]["largest"]["measured_bytes"]
    (plot,) = group_plots(collected)
    line = plot.memory.line
    return {
        "collect": tables,
        "recommend": answer,
        "speed": plot.speed,
        "line": [line.at(load) for load in (0, 1000, 10_000)] if line else None,
    }


def written(run: Path) -> dict[Path, tuple[int, int]]:
    """Return the files of a run folder, each with its size and when it was written."""
    found = {path: path.stat() for path in run.rglob("*") if path.is_file()}
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found.items()}


@pytest.mark.long
def test_no_command_changes_a_figure(swept: Path) -> None:
    run = swept
    assert CASES.keys() == LISTED.keys()
    before, files = all_figures(run), written(run)
    assert before["line"], "there is a line to change"
    assert {sent.on_path for sent in read_journal(run).submissions} == {unused_schedulers()}
    for words in (words for name in LISTED for words in CASES[name]):
        done = jobkit(*(word.replace(RUN, str(run)) for word in words))
        assert done.returncode != 1, done.stderr  # it may be refused
        if files != (files := written(run)):
            assert all_figures(run) == before, words
    assert any(trial.held for trial in trials(run)), "else it proves nothing of verify"
    done = subprocess.run(["bash", run / "job.sh", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all_figures(run) == before, "a point by hand"
    said = "also run by hand, which no figure includes: batch_size-5-r1 (try "
    assert any(said in note for note in collect([run]).notes)
