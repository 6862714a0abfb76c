"""Which shards are done: a try with whole rows, claimed; never rows that do not match.

How far a corpus is, its speed against the promise, and the shards that are slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobkit.core.files import append_line
from jobkit.core.json_codec import to_json
from jobkit.core.layout import BAD_ROWS, PLAN_FILE, Exit, point_folder, read_points
from jobkit.core.records import Outcome, Point
from jobkit.extensions.corpus.plan import ROWS_FILE, Piece, Shard, Winner
from jobkit.extensions.corpus.standing import (
    corpus_lines,
    corpus_standing,
    live_points,
    settle,
)
from jobkit.extensions.corpus.winners import claim, claim_all
from jobkit.runs.hints import advice
from jobkit.runs.results import read_run
from jobkit.runs.standing import PointState, PointStatus, RunStanding
from jobkit.runs.status_text import render, run_json
from jobkit.runs.tries import Try, TryOutcome
from tests.support.applied import counted, measured_record
from tests.support.builders import batch, point, write_event, write_exit, write_record
from tests.support.corpora import work
from tests.support.meanwhile import meanwhile


def outcomes(run: Path) -> list[Outcome | None]:
    return [result.outcome for result in read_run(run).points]


def end_well(run: Path, index: int, *, rows: bool = True) -> Path:
    point = read_points(run)[0][index - 1]
    write_record(run, measured_record(point, 1.0))
    write_exit(run, point, Exit(status=0, stage="done", host="node1"))
    if rows:
        work(run, index)
    return Path(point_folder(run, point.point_id), "try-1")


def test_a_try_whose_script_did_not_live_to_claim_wins_when_someone_looks(tagged: Path) -> None:
    end_well(tagged, 1)
    assert outcomes(tagged)[0] is Outcome.OK
    assert [winner.index for winner in settle(tagged).values()] == [1]
    assert (tagged / "winners" / "shard-00001.json").is_file()


def test_a_record_without_its_rows_is_no_success(tagged: Path) -> None:
    end_well(tagged, 1, rows=False)
    assert outcomes(tagged)[0] not in {Outcome.OK, None}
    assert settle(tagged) == {}


def test_a_winner_is_done_also_without_its_record(tagged: Path) -> None:
    folder = end_well(tagged, 1)
    settle(tagged)
    (folder / "record.json").unlink()
    assert outcomes(tagged)[0] is Outcome.OK


def test_rows_that_do_not_match_run_again(tagged: Path) -> None:
    folder = end_well(tagged, 1)
    text = (folder / ROWS_FILE).read_text()
    (folder / ROWS_FILE).write_text(text.replace("word", "wort"))
    assert settle(tagged) == {}
    assert (folder / BAD_ROWS).is_file()
    assert outcomes(tagged)[0] is not Outcome.OK


@pytest.mark.parametrize("claimed", [False, True])
def test_rows_that_come_home_while_winners_are_claimed_are_not_bad(
    tagged: Path,
    monkeypatch: pytest.MonkeyPatch,
    claimed: bool,  # noqa: FBT001 - pytest passes by name
) -> None:
    def claim_late(run_dir: Path, points: list[Point]) -> dict[int, Winner]:
        winners = claim_all(run_dir, points)
        end_well(run_dir, 1)
        if claimed:  # by its own script
            assert claim(run_dir, points[0], 1)
        return winners

    monkeypatch.setattr("jobkit.extensions.corpus.standing.claim_all", claim_late)
    assert list(settle(tagged)) == [1]
    assert not list(tagged.rglob(BAD_ROWS))


def plan_again(run: Path) -> None:
    """Let shard 4 do the work of shard 1, as `jobkit resume --replan`: the points, and then the journal."""
    first, *_ = (run / "points.jsonl").read_text().splitlines()
    later = json.loads(first) | {"index": 4, "point_id": "shard-00004", "repeat": 2}
    append_line(run / "points.jsonl", json.dumps(later))
    write_event(run, "superseded", points=[1], by=[4], given=[])


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("read", [live_points, lambda run: [one.point for one in read_run(run).points]])
def test_a_reader_sees_the_plan_before_or_the_plan_after(
    tagged: Path, monkeypatch: pytest.MonkeyPatch, before: int, read: Callable[[Path], list[Point]]
) -> None:
    meanwhile(monkeypatch, before, lambda: plan_again(tagged))
    assert [point.index for point in read(tagged)] in ([1, 2, 3], [2, 3, 4])


NUMBER = 8


def planned(index: int) -> Shard:
    piece = Piece(
        source=0, start=index, end=index + 1, paragraphs=100, characters=10_000, longest=9, sha256=""
    )
    return Shard(
        index=index, pieces=(piece,), load=10_000, expected_s=100.0, low_s=90.0, high_s=110.0, slow_s=115.0
    )


def standing(index: int, state: PointState, took_s: float = 100.0) -> PointStatus:
    of = replace(counted(point(index, device="cpu")), shard=True, point_id=f"shard-{index:05d}")
    record = measured_record(of, took_s - 0.1) if state is PointState.DONE else None
    outcome = Outcome.OK if state is PointState.DONE else None
    number = 1 if state is not PointState.WAITING else 0
    verdict = TryOutcome(outcome=outcome, evidence="")
    batches = [replace(batch(n, items=25), characters=2500) for n in range(2)]
    return PointStatus(
        point=of,
        all_tries=(Try(number=number, record=record, verdict=verdict),),
        batches=batches if state is PointState.RUNNING else (),
        standing=state,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / PLAN_FILE).write_text("".join(to_json(planned(n)) + "\n" for n in range(1, NUMBER + 1)))
    (tmp_path / "corpus.json").write_text("{}")
    return tmp_path


def run_of(folder: Path, *points: PointStatus) -> RunStanding:
    now = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
    return RunStanding(folder=folder, points=points, submissions=(), now=now)


def test_done_are_whole_shards_and_the_batches_of_those_that_run(folder: Path) -> None:
    states = [PointState.DONE, PointState.RUNNING, PointState.WAITING, PointState.WAITING]
    found = corpus_standing(run_of(folder, *(standing(n, state) for n, state in enumerate(states, 1))))
    assert found
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
    run = run_of(folder, *(standing(n, PointState.DONE, took_s) for n in (1, 2, 3)))
    said = list(corpus_lines(run))
    assert any("off by more than its interval" in line for line in said) is broken
    assert said[0].startswith("100.0 % of the corpus is done: 300 of 300 paragraphs, 3 of 3 shards")


def test_a_shard_slower_than_99_in_100_is_named(folder: Path) -> None:
    run = run_of(folder, standing(1, PointState.DONE), standing(2, PointState.DONE, 116.0))
    data = json.loads(json.dumps(run_json(run, str(folder))))["corpus"]
    assert (data["share"], data["done"], data["slow"]) == (1.0, 2, ["shard-00002"])


def test_a_plan_that_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    run = run_of(tmp_path, standing(1, PointState.DONE))
    assert (corpus_standing(run), list(corpus_lines(run))) == (None, [])


def test_the_table_of_a_corpus_says_how_far_it_is_and_what_is_next(folder: Path) -> None:
    under_way = run_of(folder, standing(1, PointState.DONE), standing(2, PointState.FAILED))
    assert "50.0 % of the corpus is done" in render(under_way, str(folder), width=100, most=10)
    assert not [step for step in advice(under_way, "run").steps if "merge" in step.command]
    over = advice(run_of(folder, standing(1, PointState.DONE)), "run").steps
    assert [step.command for step in over] == ["jobkit merge run"]
