"""No command changes a figure that another one prints: each of them is run on one finished run."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.cli import app
from jobkit.commands.listing import LISTED
from jobkit.core.errors import JobkitError
from jobkit.report.output import render
from jobkit.report.plot.data import group_plots
from jobkit.report.recommend.advice import recommend
from jobkit.report.recommend.output import as_json
from jobkit.report.recommend.run_data import read_material
from jobkit.report.recommend.types import RecommendOptions
from jobkit.report.tables import collect
from jobkit.runs.journal import read_journal
from jobkit.runs.trials import trials
from jobkit.schedulers.registry import unused_schedulers
from tests.whole.test_job_script import WORKLOADS

pytestmark = pytest.mark.xdist_group("all-commands")

SPEC = """\
name: hungry
workload: hungry:Hungry
text: text.txt
sweep: {batch_size: [5, 10, 15, 20]}
repeats: 1
scheduler: local
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:02:00"}
"""
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
    "throttle": [["throttle", RUN, "2"]],
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
    "shell": [["shell", "spec.yaml"], ["shell", RUN, "--point", "1"]],
    "profile": [["profile", RUN, "1"], ["profile", RUN, "1"], ["profile", RUN]],
    "emit": [["emit", "items=32", "seconds=0.41"]],
    "models": [["models", "list"]],
    "lint": [["lint", f"{RUN}/job.sh"]],
    "practice": [["practice", *words, "--dir", "nowhere"] for words in (["status"], ["break", "node"])],
    "schema": [["schema"]],
    "help": [["help"], ["help", "terms"]],
}
"""What of each command is run: a new command needs a line here."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a user's folder, with a run that has ended on this machine."""
    here = tmp_path_factory.mktemp("all-commands")
    (here / "text.txt").write_text("\n\n".join(["w" * 99 + "."] * 120) + "\n", encoding="utf-8")
    (here / "spec.yaml").write_text(SPEC, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(WORKLOADS))
        patch.syspath_prepend(WORKLOADS)
        patch.setenv("JOBKIT_LEDGER", str(here / "ledger.jsonl"))
        patch.setenv("JOBKIT_CONFIG", str(here / "config"))
        patch.chdir(here)
        assert jobkit("sweep", "spec.yaml") == 0
        yield here


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    (found,) = (folder / "runs").iterdir()
    return found


@pytest.fixture(scope="module")
def before(run: Path) -> dict[str, object]:
    return figures(run)


def jobkit(*words: str) -> object:
    return app.main(args=list(words), standalone_mode=False)


def figures(run: Path) -> dict[str, object]:
    """Return what is printed of a sweep, less what the documentation says of trials and tries by hand."""
    collected = collect([run])
    tables = json.loads(render(collected, "json"))
    tables["points"] = [row for row in tables["points"] if not row["trial"]]
    del tables["notes"]
    answer = json.loads(as_json(recommend(read_material(run), RecommendOptions())))
    del answer["trials"]
    (plot,) = group_plots(collected)
    line = plot.memory.line
    return {
        "collect": tables,
        "recommend": answer,
        "speed": plot.speed,
        "line": [line.at(load) for load in (0, 1000, 10_000)] if line else None,
    }


def test_every_command_is_run_here() -> None:
    assert CASES.keys() == LISTED.keys()


@pytest.mark.parametrize("name", LISTED)
def test_a_command_changes_no_figure(name: str, run: Path, before: dict[str, object]) -> None:
    assert before["line"], "there is a line to change"
    for words in CASES[name]:
        with contextlib.suppress(JobkitError):  # a refusal, as of throttle on this machine
            jobkit(*(word.replace(RUN, str(run)) for word in words))
        assert figures(run) == before, words


def test_a_run_on_this_machine_records_which_schedulers_it_left_out(run: Path) -> None:
    assert {sent.on_path for sent in read_journal(run).submissions} == {unused_schedulers()}


def test_a_trial_really_ran_once(run: Path, folder: Path, before: dict[str, object]) -> None:
    """Else the test above proves nothing of ``verify``."""
    for _ in range(2):
        assert jobkit("verify", str(run), "--gpu-memory", "150MiB") == 0
    assert [trial.held for trial in trials(run)] == [True]
    assert (folder / "ledger.jsonl").is_file()
    assert figures(run) == before


def test_a_point_by_hand_changes_no_figure(run: Path, before: dict[str, object]) -> None:
    done = subprocess.run(["bash", run / "job.sh", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert figures(run) == before
    assert any(
        "also run by hand, which no figure includes: batch_size-5-r1 (try " in note
        for note in collect([run]).notes
    )
