"""The job script of shards, run by bash on this machine: three shards of a corpus, with a plan by hand."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from jobkit.core.layout import read_exit, read_points
from jobkit.core.records import Outcome, Point
from jobkit.extensions.corpus.plan import MANIFEST_FILE, ROWS_FILE, Winner
from jobkit.extensions.corpus.winners import claim_all, read_winners, retire
from jobkit.planning.job_script import render
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import point
from tests.support.shards import read_rows, write_shards
from tests.whole.test_job_script import DEADLINE_S, WORKLOADS, ScriptRun, left_on, wait_until

SETTING = replace(
    point(params={"batch_size": 4}, device="cpu"), workload="count", model=None, order="sorted", threads=1
)
TEXTS = [f"Paragraph {n} has {'very ' * (n % 7)}few words." for n in range(60)]


class Shards(ScriptRun):
    """A run folder with three shards and one script."""

    def __init__(self, folder: Path, setting: Point = SETTING, **site: object) -> None:
        self.dir = folder / "my run"
        self.scratch = folder / "scratch"
        self.corpus = folder / "corpus.txt"
        for name in ("logs", "results"):
            (self.dir / name).mkdir(parents=True)
        documents = {self.corpus.name: "\n\n".join(TEXTS)}
        self.points = write_shards(self.dir, documents, setting, 3)
        spec = SweepSpec.model_validate(
            {"name": "t", "workload": setting.workload, "repeats": 1, "sweep": {"batch_size": [4]}}
        )
        here = {"name": "x", "scheduler": "local", "scratch": str(self.scratch), "sync_interval_s": 1}
        script = render(spec, Site.model_validate(here | site), self.points[0], self.dir)
        (self.dir / "job.sh").write_text(script, encoding="utf-8")

    def home(self, point: int = 1, number: int = 1) -> Path:
        return self.dir / "results" / f"shard-{point:05d}" / f"try-{number}"

    def tries(self, index: int = 1) -> list[str]:
        return sorted(path.name for path in self.home(index).parent.iterdir())

    @property
    def winners(self) -> dict[int, Winner]:
        return read_winners(self.dir)


def test_each_shard_has_a_winner_and_runs_once(tmp_path: Path) -> None:
    run = Shards(tmp_path)
    assert "the text" not in (run.dir / "job.sh").read_text(encoding="utf-8"), "none is copied to the node"
    for index in (2, 1, 3):
        run.ok(index)
        assert read_exit(run.home(index) / "exit").stage == "done"
    assert {index: winner.try_number for index, winner in run.winners.items()} == {1: 1, 2: 1, 3: 1}
    assert sum(winner.paragraphs for winner in run.winners.values()) == len(TEXTS)
    rows = [row for index in (1, 2, 3) for row in read_rows(run.home(index))]
    assert [row["words"] for row in rows] == [len(text.split()) for text in TEXTS]
    names = {"batches.jsonl", "begin", "exit", "record.json", MANIFEST_FILE, ROWS_FILE}
    assert {path.name for path in run.home().iterdir()} == names
    assert left_on(run.scratch) == []
    for index in (1, 2, 3):
        assert run.run(index) == (0, "")
        assert run.tries(index) == ["try-1"]
    retire(run.dir, run.winners[1])
    run.ok(1)
    assert {index: winner.try_number for index, winner in run.winners.items()} == {1: 2, 2: 1, 3: 1}


def test_a_script_that_is_killed_before_the_claim_has_left_all_that_a_reader_claims(tmp_path: Path) -> None:
    run = Shards(tmp_path)
    path = run.dir / "job.sh"
    script = path.read_text(encoding="utf-8")
    path.write_text(
        script.replace('"$python" -m jobkit.extensions.corpus.winners', "kill -KILL $$\n"), encoding="utf-8"
    )
    status, _ = run.run(1)
    assert status == -signal.SIGKILL
    assert not run.winners
    points, _ = read_points(run.dir)
    assert list(claim_all(run.dir, points)) == [1]
    path.write_text(script, encoding="utf-8")
    assert run.run(1) == (0, "")
    assert run.tries() == ["try-1"]


def test_a_claim_that_fails_is_reported_and_does_not_fail_the_try(tmp_path: Path) -> None:
    run = Shards(tmp_path)
    (run.dir / "winners").write_text("no folder")
    status, said = run.run(1)
    assert status == 0
    assert "could not be claimed" in said
    assert (run.home() / MANIFEST_FILE).is_file()


def test_a_worker_that_is_killed_outright_leaves_no_winner_and_the_next_try_does(tmp_path: Path) -> None:
    said = tmp_path / "told"
    run = Shards(tmp_path, replace(SETTING, workload="odd:Slow", workload_folder=str(WORKLOADS)))
    process = run.start(1, ODD_TOLD=str(said))
    wait_until(said.exists)
    wait_until((run.home() / "batches.jsonl").exists)
    assert not list(run.home().glob("rows.json*")), "half of the rows are of no use at home"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in map(int, children):
        if "jobkit.worker" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(child, signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, run.winners) == (128 + signal.SIGKILL, {})
    assert not list(run.home().glob("rows.json*"))
    points = run.dir / "points.jsonl"
    points.write_text(points.read_text().replace("odd:Slow", "count"))
    assert run.run(1)[0] == 0
    assert run.winners[1].try_number == 2


def test_where_the_rows_cannot_be_copied_home_there_is_no_record(tmp_path: Path) -> None:
    """A try whose rows did not fit is no success: they are kept on the node, and the record with them."""
    run = Shards(tmp_path)
    path = run.dir / "job.sh"
    script = path.read_text(encoding="utf-8")
    fails = 'copy() { really_copy "$@"; rm "$home/rows.jsonl"; return 1; }'
    path.write_text(script.replace("\ncopy() {", f"\n{fails}\nreally_copy() {{"))
    status, said = run.run(1)
    assert (status, read_exit(run.home() / "exit").outcome) == (73, Outcome.STAGE_OUT), said
    assert {path.name for path in run.home().iterdir()} == {"batches.jsonl", "begin", "exit", MANIFEST_FILE}
    assert not run.winners
    kept = Path(read_exit(run.home() / "exit").scratch)
    assert {"record.json", ROWS_FILE} <= {path.name for path in (kept / "out").iterdir()}
    path.write_text(script, encoding="utf-8")
    run.ok(JOBKIT_TASK="1")
    assert (kept.exists(), read_exit(run.home() / "exit").scratch) == (False, "")
