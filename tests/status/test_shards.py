"""How far a corpus is, its speed against the promise, and the shards that are slow."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobkit.core.json_codec import to_json
from jobkit.core.layout import PLAN_FILE
from jobkit.core.records import Outcome
from jobkit.corpus.plan import Piece, Shard
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles, Verdict
from jobkit.status.advice import advice
from jobkit.status.output import run_json
from jobkit.status.shards import CorpusStanding, corpus_lines, corpus_standing
from jobkit.status.standing import PointStanding, RunStanding, Standing
from jobkit.status.table import render
from tests.support.applied import counted, measured_record
from tests.support.builders import batch, point

NUMBER = 8


def planned(index: int) -> Shard:
    piece = Piece(
        source=0, start=index, end=index + 1, paragraphs=100, characters=10_000, longest=9, sha256=""
    )
    return Shard(
        index=index, pieces=(piece,), load=10_000, expected_s=100.0, low_s=90.0, high_s=110.0, slow_s=115.0
    )


def standing(index: int, state: Standing, took_s: float = 100.0) -> PointStanding:
    of = replace(counted(point(index, device="cpu")), shard=True, point_id=f"shard-{index:05d}")
    record = measured_record(of, took_s - 0.1) if state is Standing.DONE else None
    outcome = Outcome.OK if state is Standing.DONE else None
    files = TryFiles(number=1 if state is not Standing.WAITING else 0, record=record)
    batches = [replace(batch(n, items=25), characters=2500) for n in range(2)]
    return PointStanding(
        point=of,
        all_tries=(TryResult(files, Verdict(outcome=outcome, evidence="")),),
        batches=batches if state is Standing.RUNNING else (),
        standing=state,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / PLAN_FILE).write_text("".join(to_json(planned(n)) + "\n" for n in range(1, NUMBER + 1)))
    (tmp_path / "corpus.json").write_text("{}")
    return tmp_path


def run_of(folder: Path, *points: PointStanding) -> RunStanding:
    now = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
    return RunStanding(folder=folder, points=points, submissions=(), now=now)


def stood(folder: Path, *points: PointStanding) -> CorpusStanding:
    found = corpus_standing(run_of(folder, *points))
    assert found
    return found


def test_done_are_whole_shards_and_the_batches_of_those_that_run(folder: Path) -> None:
    states = [Standing.DONE, Standing.RUNNING, Standing.WAITING, Standing.WAITING]
    found = stood(folder, *(standing(n, state) for n, state in enumerate(states, 1)))
    assert (found.shards, found.done) == (4, 1)
    assert (found.paragraphs_done, found.paragraphs) == (150, 400)
    assert (found.characters_done, found.share) == (15_000, 0.375)
    assert found.speed == pytest.approx(1.0)
    assert not found.broken


@pytest.mark.parametrize(("took_s", "broken"), [(109.0, False), (112.0, True), (85.0, True)])
def test_a_promise_that_is_off_by_more_than_its_interval_is_said(
    folder: Path,
    took_s: float,
    broken: bool,  # noqa: FBT001 - a value of the table
) -> None:
    run = run_of(folder, *(standing(n, Standing.DONE, took_s) for n in (1, 2, 3)))
    said = list(corpus_lines(run))
    assert any("off by more than its interval" in line for line in said) is broken
    assert said[0].startswith("100.0 % of the corpus is done: 300 of 300 paragraphs, 3 of 3 shards")


def test_a_shard_slower_than_99_in_100_is_named(folder: Path) -> None:
    found = stood(folder, standing(1, Standing.DONE), standing(2, Standing.DONE, 116.0))
    assert found.slow == ("shard-00002",)


def test_json_has_the_same(folder: Path) -> None:
    run = run_of(folder, standing(1, Standing.DONE), standing(2, Standing.DONE, 116.0))
    data = json.loads(json.dumps(run_json(run, str(folder))))["corpus"]
    assert (data["share"], data["done"], data["slow"]) == (1.0, 2, ["shard-00002"])


def test_a_plan_that_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    assert corpus_standing(run_of(tmp_path, standing(1, Standing.DONE))) is None
    assert not list(corpus_lines(run_of(tmp_path, standing(1, Standing.DONE))))


def test_the_table_of_a_corpus_says_how_far_it_is_and_what_is_next(folder: Path) -> None:
    under_way = run_of(folder, standing(1, Standing.DONE), standing(2, Standing.FAILED))
    assert "50.0 % of the corpus is done" in render(under_way, str(folder), width=100, most=10)
    assert not [step for step in advice(under_way, "run").steps if "merge" in step.command]
    over = advice(run_of(folder, standing(1, Standing.DONE)), "run").steps
    assert [step.command for step in over] == ["jobkit merge run"]
