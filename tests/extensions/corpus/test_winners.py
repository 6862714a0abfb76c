from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import Point
from jobkit.extensions.corpus import winners
from jobkit.extensions.corpus.scan import scan
from jobkit.extensions.corpus.sources import find_sources
from jobkit.extensions.corpus.winners import claim, claim_all, read_winners, withdraw
from tests.support.corpora import plan, points_of, work


@pytest.fixture
def points(tmp_path: Path) -> list[Point]:
    """Write a plan of three shards into the folder, and return its points."""
    (tmp_path / "a.txt").write_text("\n\n".join(f"Word number {n}" for n in range(30)), encoding="utf-8")
    return points_of(tmp_path, plan(tmp_path, scan(find_sources([str(tmp_path / "a.txt")])), 3))


def test_the_first_complete_try_wins_and_stays(tmp_path: Path, points: list[Point]) -> None:
    for number in (1, 2):
        work(tmp_path, 2, number)
    first = claim(tmp_path, points[1], 2)
    assert first is not None
    assert (first.index, first.point_id, first.try_number, first.rows) == (2, "shard-00002", 2, 30)
    assert claim(tmp_path, points[1], 1) == first
    assert read_winners(tmp_path) == {2: first}
    assert [path.name for path in (tmp_path / "winners").iterdir()] == ["shard-00002.json"]


@pytest.mark.parametrize("damage", ["no manifest", "torn manifest", "short", "another paragraph", "no rows"])
def test_rows_that_are_not_complete_never_win(tmp_path: Path, points: list[Point], damage: str) -> None:
    folder = work(tmp_path, 1)
    manifest, rows = folder / "rows.json", folder / "rows.jsonl"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "torn manifest":
        manifest.write_text(manifest.read_text()[:20])
    elif damage == "short":
        rows.write_bytes(rows.read_bytes()[:-1])
    elif damage == "another paragraph":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"paragraphs": 9}))
    else:
        rows.unlink()
    assert claim(tmp_path, points[0], 1) is None
    assert read_winners(tmp_path) == {}


def run(*arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "jobkit.extensions.corpus.winners", *map(str, arguments)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def test_of_many_claims_at_the_same_time_one_wins(tmp_path: Path, points: list[Point]) -> None:
    for number in range(1, 9):
        work(tmp_path, 1, number)
    processes = [run(tmp_path, name, number) for number, name in enumerate([points[0].point_id, 1] * 4, 1)]
    errors = [process.communicate()[1] for process in processes]
    assert errors == [""] * 8
    assert [process.returncode for process in processes] == [0] * 8
    (winner,) = read_winners(tmp_path).values()
    assert winner == claim(tmp_path, points[0], 1)
    assert len(list((tmp_path / "winners").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("RUN", "shard-00001", "1"), 1, "are not complete"),
        (("RUN", "shard-9", "1"), 1, "no point shard-9"),
        (("RUN",), 2, "usage"),
        (("RUN", "1", "x"), 2, "usage"),
        (("/nowhere", "1", "1"), 1, "No such file"),
    ],
)
@pytest.mark.usefixtures("points")
def test_the_script_gets_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, reason: str
) -> None:
    assert winners.main([word.replace("RUN", str(tmp_path)) for word in arguments]) == status
    assert reason in capsys.readouterr().err


def test_claim_all_finds_the_tries_whose_script_was_killed(tmp_path: Path, points: list[Point]) -> None:
    work(tmp_path, 1, 1).joinpath("rows.json").unlink()
    for index, number in ((1, 2), (1, 3), (2, 1)):
        work(tmp_path, index, number)
    found = claim_all(tmp_path, points)
    assert {index: winner.try_number for index, winner in found.items()} == {1: 2, 2: 1}
    assert claim_all(tmp_path, points) == found == read_winners(tmp_path)


def test_a_shard_that_is_withdrawn_cannot_win(tmp_path: Path, points: list[Point]) -> None:
    for index in (1, 2):
        work(tmp_path, index)
    won = claim(tmp_path, points[0], 1)
    assert withdraw(tmp_path, points[0]) == won
    assert withdraw(tmp_path, points[1]) is None
    assert claim(tmp_path, points[1], 1) is None
    assert claim_all(tmp_path, points) == {1: won}


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_links_the_file_is_created_once(
    tmp_path: Path, points: list[Point], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    for number in (1, 2):
        work(tmp_path, 1, number)
    first = claim(tmp_path, points[0], 1)
    path = winners.winner_path(tmp_path, points[0].point_id)
    winners._publish(path, b"another\n")  # as one that came to the same decision a moment later
    assert read_winners(tmp_path) == {1: first}
    assert len(list(path.parent.iterdir())) == 1


def test_another_error_of_a_link_is_an_error(
    tmp_path: Path, points: list[Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    work(tmp_path, 1)
    with pytest.raises(OSError, match="No space"):
        claim(tmp_path, points[0], 1)
    assert list((tmp_path / "winners").iterdir()) == []


def test_a_torn_winner_is_named(tmp_path: Path, points: list[Point]) -> None:
    work(tmp_path, 1)
    (tmp_path / "winners").mkdir()
    path = winners.winner_path(tmp_path, points[0].point_id)
    path.write_text('{"index"')
    for call in (lambda: claim(tmp_path, points[0], 1), lambda: read_winners(tmp_path)):
        with pytest.raises(JobkitError, match=r"shard-00001\.json") as caught:
            call()
        assert "rm " in caught.value.hint


def test_a_point_of_another_plan_has_no_shard(tmp_path: Path, points: list[Point]) -> None:
    with pytest.raises(JobkitError, match="no shard 9"):
        claim(tmp_path, replace(points[0], index=9, point_id="shard-00009"), 1)
