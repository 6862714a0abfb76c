"""Exactly one result of every shard: claims, what stands, and what is planned again."""

from __future__ import annotations

import errno
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.layout import (
    BAD_ROWS,
    CORPUS_FILE,
    JOURNAL_FILE,
    PLAN_FILE,
    POINTS_FILE,
    Exit,
    point_folder,
    read_points,
)
from jobkit.core.records import Outcome, Point
from jobkit.extensions.corpus import winners
from jobkit.extensions.corpus.apply import apply
from jobkit.extensions.corpus.merge import merge
from jobkit.extensions.corpus.plan import ROWS_FILE, Winner, read_corpus, read_plan, write_plan
from jobkit.extensions.corpus.replan import replan
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.extensions.corpus.shards import ShardOptions
from jobkit.extensions.corpus.standing import CorpusState, progress
from jobkit.extensions.corpus.winners import claim, claim_all, read_winners, withdraw
from jobkit.launch import resume
from jobkit.launch.resume import Asked, Resumption, spec_of_run
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.results import read_run
from jobkit.runs.status import PointStanding, point_named
from tests.support.applied import (
    measured_record,
    measured_run,
    merged,
    request,
    win,
    write_corpus,
    write_planned,
)
from tests.support.builders import batch, write_event, write_exit, write_record
from tests.support.commands import jobkit
from tests.support.corpora import plan, points_of, work
from tests.support.meanwhile import meanwhile


@pytest.fixture
def points(tmp_path: Path) -> list[Point]:
    """Write a plan of three shards into the folder, and return its points."""
    (tmp_path / "a.txt").write_text("\n\n".join(f"Word number {n}" for n in range(30)), encoding="utf-8")
    return points_of(tmp_path, plan(tmp_path, scan(find_sources([str(tmp_path / "a.txt")])), 3))


@pytest.mark.parametrize("damage", ["no manifest", "torn manifest", "short", "another paragraph", "no rows"])
def test_rows_that_are_not_complete_never_win(tmp_path: Path, points: list[Point], damage: str) -> None:
    folder = work(tmp_path, 1)
    manifest, rows = folder / "rows.json", folder / "rows.jsonl"
    whole = manifest.read_text()
    if damage.startswith("no"):
        (manifest if damage == "no manifest" else rows).unlink()
    elif damage == "short":
        rows.write_bytes(rows.read_bytes()[:-1])
    else:
        another = json.dumps(json.loads(whole) | {"paragraphs": 9})
        manifest.write_text(whole[:20] if damage == "torn manifest" else another)
    assert claim(tmp_path, points[0], 1) is None
    assert read_winners(tmp_path) == {}


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


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let no file be linked; return a list with the error."""
    code = [errno.EPERM]

    def refuse(*_: object) -> None:
        raise OSError(code[0], os.strerror(code[0]))

    monkeypatch.setattr(os, "link", refuse)
    return code


@pytest.mark.parametrize("linked", [True, False])
def test_one_of_500_claims_at_the_same_time_wins_and_another_error_is_an_error(
    tmp_path: Path, points: list[Point], no_links: list[int], monkeypatch: pytest.MonkeyPatch, *, linked: bool
) -> None:
    for number in range(1, 6):
        work(tmp_path, 1, number)
    no_links[0] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        claim(tmp_path, points[0], 1)
    assert list((tmp_path / "winners").iterdir()) == []
    no_links[0] = errno.EOPNOTSUPP
    if linked:
        monkeypatch.undo()
    with ThreadPoolExecutor(100) as threads:
        found = set(threads.map(lambda n: claim(tmp_path, points[0], n % 5 + 1), range(500)))
    assert found == {*read_winners(tmp_path).values()} == {withdraw(tmp_path, points[0])}
    assert len(list((tmp_path / "winners").iterdir())) == (1 if linked else 2), "the folder that decided"


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("content", ["", "[" * 100_000])
def test_a_claim_without_its_content_is_decided_once_by_the_next(
    tmp_path: Path, points: list[Point], content: str
) -> None:
    """Also a claim that was killed before it had copied what its folder holds."""
    for number in (1, 2):
        work(tmp_path, 1, number)
    path = winners.winner_path(tmp_path, points[0].point_id)
    path.parent.mkdir()
    path.write_text(content)
    assert read_winners(tmp_path) == {}
    first = claim(tmp_path, points[0], 1)
    path.unlink()
    assert [claim(tmp_path, points[0], 2), withdraw(tmp_path, points[0])] == [first, first]


def end_well(run: Path, index: int, *, rows: bool = True, took_s: float = 1.1) -> Path:
    point = read_points(run)[0][index - 1]
    write_record(run, measured_record(point, took_s - 0.1))
    write_exit(run, point, Exit(status=0, stage="done", host="node1"))
    if rows:
        work(run, index)
    return Path(point_folder(run, point.point_id), "try-1")


def test_rows_decide_whether_a_shard_is_done(tagged: Path) -> None:
    end_well(tagged, 1, rows=False)
    folder = end_well(tagged, 2)
    text = (folder / ROWS_FILE).read_text()
    (folder / ROWS_FILE).write_text(text.replace("word", "wort"))
    won = end_well(tagged, 3)
    assert list(CorpusState(tagged).settle()) == [3]
    assert (folder / BAD_ROWS).is_file()
    (won / "record.json").unlink()
    found = [result.outcome for result in read_run(tagged).points]
    assert not {Outcome.OK, None} & {*found[:2]}
    assert found[2] is Outcome.OK


@pytest.mark.parametrize("claimed", [False, True])
def test_rows_that_come_home_while_winners_are_claimed_are_not_bad(
    tagged: Path, monkeypatch: pytest.MonkeyPatch, *, claimed: bool
) -> None:
    def claim_late(run_dir: Path, points: list[Point]) -> dict[int, Winner]:
        winners = claim_all(run_dir, points)
        end_well(run_dir, 1)
        if claimed:  # by its own script
            assert claim(run_dir, points[0], 1)
        return winners

    monkeypatch.setattr("jobkit.extensions.corpus.standing.claim_all", claim_late)
    assert list(CorpusState(tagged).settle()) == [1]
    assert not list(tagged.rglob(BAD_ROWS))


def plan_again(run: Path) -> None:
    """Let shard 4 do the work of shard 1, as `jobkit resume --replan`: the points, and then the journal."""
    first, *_ = (run / "points.jsonl").read_text().splitlines()
    later = json.loads(first) | {"index": 4, "point_id": "shard-00004", "repeat": 2}
    append_line(run / "points.jsonl", json.dumps(later))
    write_event(run, "superseded", points=[1], by=[4], given=[])


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize(
    "read", [lambda run: CorpusState(run).points, lambda run: [one.point for one in read_run(run).points]]
)
def test_a_reader_sees_the_plan_before_or_the_plan_after(
    tagged: Path, monkeypatch: pytest.MonkeyPatch, before: int, read: Callable[[Path], list[Point]]
) -> None:
    meanwhile(monkeypatch, before, lambda: plan_again(tagged))
    assert [point.index for point in read(tagged)] in ([1, 2, 3], [2, 3, 4])


@pytest.fixture
def promised(tagged: Path) -> Path:
    """Let each shard be promised to take 90 to 110 s."""
    interval = {"expected_s": 100.0, "low_s": 90.0, "high_s": 110.0, "slow_s": 115.0}
    plan = [json.loads(line) | interval for line in (tagged / PLAN_FILE).read_text().splitlines()]
    (tagged / PLAN_FILE).write_text("".join(f"{json.dumps(shard)}\n" for shard in plan))
    return tagged


def status(run: Path) -> tuple[str, Any]:
    """Return what the status of a corpus is to a person and to a program."""
    shown, data = jobkit("status", run), json.loads(jobkit("status", run, "--json").stdout)
    return shown.stdout + shown.stderr, data["runs"][0].get("corpus")


def test_done_are_whole_shards_and_the_batches_of_those_that_run(promised: Path) -> None:
    end_well(promised, 1, took_s=100.0)
    (run,) = read_status([promised])
    first, second, third = run.points
    batches = [replace(batch(n, items=2), characters=20) for n in range(2)]
    second = replace(second, standing=PointStanding.RUNNING, all_tries=first.all_tries, batches=batches)
    found = progress(replace(run, points=(first, second, third)))
    assert found
    done, *_ = shards = list(read_plan(promised))
    assert (found.shards, found.done) == (3, 1)
    assert (found.paragraphs_done, found.paragraphs) == (done.paragraphs + 4, 60)
    assert found.characters_done == done.characters + 40
    assert found.share == found.characters_done / sum(shard.characters for shard in shards)
    assert found.speed == pytest.approx(1.0)


@pytest.mark.parametrize(("took_s", "broken"), [(109.0, False), (112.0, True), (85.0, True)])
def test_a_promise_that_is_off_by_more_than_its_interval_is_said(
    promised: Path, took_s: float, *, broken: bool
) -> None:
    end_well(promised, 1, took_s=took_s)
    assert "jobkit merge" not in status(promised)[0]
    for index in (2, 3):
        end_well(promised, index, took_s=took_s)
    text, data = status(promised)
    assert "100.0 % of the characters, 60 of 60 paragraphs, 3 of 3 shards" in text
    assert ("outside of the interval of the promise" in text, data["broken"]) == (broken, broken)
    assert f"next: jobkit merge {promised}" in text


def test_a_slow_shard_and_one_that_failed_are_named_and_a_time_says_of_how_many(promised: Path) -> None:
    first, *rest = read_plan(promised)
    unknown = replace(first, expected_s=None, low_s=None, high_s=None)
    write_plan(promised, read_corpus(promised), [unknown, *rest])
    end_well(promised, 1)
    end_well(promised, 2, took_s=116.0)
    failed = measured_record(read_points(promised)[0][2], 1.0)
    write_record(promised, replace(failed, outcome=Outcome.RAM_OOM))
    text, data = status(promised)
    assert "99 in 100 shards: shard-00002" in text
    assert (data["done"], data["slow"], data["timed"]) == (2, ["shard-00002"], 1)
    assert "(1 of 2 shards took " in text
    assert "shard-00003 failed; its longest paragraph, 49 characters: letters.txt, paragraph 45\n" in text
    assert "jobkit merge tagged --allow-missing\n" in text


def test_a_plan_that_cannot_be_read_is_no_error(tagged: Path) -> None:
    (tagged / PLAN_FILE).write_text("{")
    text, data = status(tagged)
    assert ("shard" in text, "of the corpus" in text, data) == (True, False, None)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a corpus of four shards, of which the second is done; nothing runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(resume, "run_again", lambda *_, **__: 0)
    write_corpus(tmp_path / "letters.txt")
    write_planned(request(measured_run(tmp_path / "run"), ["letters.txt"], shards=4))
    win(tmp_path / "tagged", 2)
    return tmp_path / "tagged"


def planned_again(out: Path, number: int = 6, *given: str) -> None:
    assert replan(out, ShardOptions(number=number), given, wait=False) == 0


def grown(out: Path, shards: int = 2) -> None:
    """Let the corpus grow by a file whose name sorts first."""
    write_corpus(out.parent / "even-more.txt", 9)
    assert apply(out, request(out.parent / "run", ["even-more.txt", "letters.txt"], shards=shards)) == 0


def once(out: Path, paragraphs: int = 60) -> bool:
    """Return whether each paragraph of the corpus is in one shard that counts, and in no other."""
    live = {point.index for point in CorpusState(out).points}
    found = Counter(
        (piece.source, piece.start, number)
        for shard in read_plan(out)
        if shard.index in live
        for piece in shard.pieces
        for number in range(piece.paragraphs)
    )
    return len(found) == paragraphs and set(found.values()) == {1}


def test_the_rest_is_cut_again_and_what_is_done_stays(out: Path) -> None:
    before = [(out / name).read_text() for name in (PLAN_FILE, POINTS_FILE)]
    planned_again(out, 4, "resources.walltime=00:09:00", "max_parallel=3")
    assert [point.index for point in CorpusState(out).points] == [2, *range(5, 9)]
    assert {shard.index for shard in read_plan(out)} - CorpusState(out).indices == {1, 3, 4}
    assert once(out)
    for name, text in zip((PLAN_FILE, POINTS_FILE), before, strict=True):
        assert (out / name).read_text().startswith(text), "no line is changed"
    spec = spec_of_run(out)
    assert (spec.resources.walltime, spec.max_parallel) == (540, 3)
    assert [result.point.index for result in read_run(out).points] == [2, *range(5, 9)]
    assert not read_run(out).notes
    win(out, *range(5, 9))
    [first, *_], done = ([shard for shard in read_plan(out) if shard.index == index] for index in (6, 2))
    gap = done[0].pieces[0].start
    assert first.pieces[0].start < gap < first.pieces[-1].start, "one shard lies on both sides of another"
    told = merge(out, out / "merged.jsonl")
    assert (told.shards, told.paragraphs) == (5, 60)
    texts = Path("letters.txt").read_text(encoding="utf-8").split("\n\n")
    words = [(number, word) for number, text in enumerate(texts) for word in re.findall(r"\w+", text)]
    assert [(row["paragraph"], row["label"]) for row in merged(out / "merged.jsonl")] == words


def test_a_shard_that_ends_after_it_was_replaced_counts_for_nothing(out: Path) -> None:
    old = {point.index: point for point in CorpusState(out).points}
    planned_again(out)
    work(out, 3)
    assert claim(out, old[3], 1) is None, "a node that was cut off brings its rows, and they are closed"
    win(out, *range(5, 11))
    assert 3 not in CorpusState(out).settle()
    assert merge(out, out / "merged.jsonl").shards == 7


@pytest.mark.parametrize(("again", "shards", "paragraphs"), [(planned_again, 7, 60), (grown, 6, 69)])
def test_a_plan_that_was_cut_off_at_any_line_is_made_again(
    out: Path, again: Callable[[Path], None], shards: int, paragraphs: int
) -> None:
    names = (CORPUS_FILE, PLAN_FILE, POINTS_FILE, JOURNAL_FILE)
    before, corpus = {name: (out / name).read_text() for name in names}, read_corpus(out)
    again(out)
    after = {name: (out / name).read_text() for name in names}
    for place, name in enumerate(names[1:], 1):
        lines = after[name].removeprefix(before[name]).splitlines(keepends=True)
        cuts = [
            "".join(lines[:number]) + half
            for number in range(len(lines))
            for half in ("", lines[number][:40])
        ]
        for cut in cuts:
            for other in names[:place]:
                (out / other).write_text(after[other])
            for other in names[place + 1 :]:
                (out / other).write_text(before[other])
            (out / name).write_text(before[name] + cut)
            assert [point.index for point in CorpusState(out).points] == [1, 2, 3, 4], (name, cut)
            assert (once(out), CorpusState(out).corpus) == (True, corpus)
            again(out)
            assert once(out, paragraphs), (name, cut)
            live = CorpusState(out).points
            assert len(live) == shards
            for number, line in enumerate((out / POINTS_FILE).read_text().splitlines(), 1):
                for one in live:
                    assert one.index != number or f'"index": {number},' in line


@pytest.mark.slow
def test_plans_follow_each_other(out: Path) -> None:
    planned_again(out, 3, "resources.memory=2GiB")
    win(out, 6)
    planned_again(out, 2, "scheduler=slurm")
    assert [point.index for point in CorpusState(out).points] == [2, 6, 8, 9]
    assert once(out)
    assert {point.repeat for point in read_points(out)[0]} == {1, 2, 3}
    spec = spec_of_run(out)
    assert (spec.scheduler, spec.resources.memory, spec.site) == ("slurm", 2 * 2**30, "slurm-default")
    assert read_journal(out).replaced == {1, 3, 4, 5, 7}
    assert (out / "follow.sh").read_text().count("#SBATCH")


def test_a_shard_that_was_planned_again_is_named_as_such(out: Path) -> None:
    planned_again(out, 3)
    live = CorpusState(out).points
    assert [point_named(live, word) for word in ("2", "shard-2", "shard-00002")] == live[:1] * 3
    for word in ("1", "shard-00004"):
        with pytest.raises(JobkitError, match="was planned again"):
            point_named(live, word)
    with pytest.raises(JobkitError, match="no shard"):
        point_named(live, str(live[-1].index + 1))


def test_what_the_setting_consists_of_and_another_run_are_refused_and_what_is_done_stays(out: Path) -> None:
    with pytest.raises(JobkitError, match="belongs to the setting"):
        replan(out, ShardOptions(), ("workers=3",), wait=False)
    with pytest.raises(JobkitError, match="is for the folder of jobkit apply"):
        Resumption().resume(out.parent / "run", Asked(replan=True))
    win(out, 1, 3, 4)
    replan(out, ShardOptions(), (), wait=False)
    assert len(CorpusState(out).points) == 4


@pytest.mark.parametrize("again", [planned_again, grown])
def test_a_later_plan_without_its_journal_is_no_smaller_corpus(
    out: Path, again: Callable[[Path], None]
) -> None:
    again(out)
    win(out, *(point.index for point in CorpusState(out).points))
    (out / JOURNAL_FILE).unlink()
    with pytest.raises(JobkitError, match=r"journal\.jsonl: gone"):
        merge(out, out / "merged.jsonl")
