"""Plan again what has no winner; whatever is killed on the way, each paragraph is worked through once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import JOURNAL_FILE, PLAN_FILE, POINTS_FILE, read_points
from jobkit.extensions.corpus.merge import merge
from jobkit.extensions.corpus.plan import read_plan
from jobkit.extensions.corpus.replan import replan
from jobkit.extensions.corpus.shards import ShardOptions
from jobkit.extensions.corpus.standing import live_points, settle, void_shards
from jobkit.extensions.corpus.winners import claim
from jobkit.launch import resume
from jobkit.launch.resubmit import spec_of_run
from jobkit.launch.resume import Asked, Resumption
from jobkit.runs.journal import read_journal
from jobkit.runs.logs import point_named
from jobkit.runs.results import read_run
from tests.support.applied import measured_run, request, win, write_corpus, write_planned
from tests.support.corpora import work


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a corpus of four shards, of which the second is done; nothing runs."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "letters.txt")
    write_planned(request(measured_run(tmp_path / "run"), ["letters.txt"], tmp_path / "tagged", shards=4))
    win(tmp_path / "tagged", 2)
    return tmp_path / "tagged"


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "run_again", lambda *_, **__: 0)


def planned_again(out: Path, number: int = 6, *given: str) -> None:
    assert replan(out, ShardOptions(number=number), given, wait=False) == 0


def once(out: Path) -> bool:
    """Return whether each paragraph of the corpus is in one shard that counts, and in no other."""
    live = {point.index for point in live_points(out)}
    found = Counter(
        (piece.source, piece.start, number)
        for shard in read_plan(out)
        if shard.index in live
        for piece in shard.pieces
        for number in range(piece.paragraphs)
    )
    return len(found) == 60 and set(found.values()) == {1}


def test_the_rest_is_cut_again_and_what_is_done_stays(out: Path) -> None:
    before = [(out / name).read_text() for name in (PLAN_FILE, POINTS_FILE)]
    planned_again(out, 6, "resources.walltime=00:09:00", "max_parallel=3")
    assert [point.index for point in live_points(out)] == [2, *range(5, 11)]
    assert void_shards(out) == {1, 3, 4}
    assert once(out)
    for name, text in zip((PLAN_FILE, POINTS_FILE), before, strict=True):
        assert (out / name).read_text().startswith(text), "no line is changed"
    spec = spec_of_run(out)
    assert (spec.resources.walltime, spec.max_parallel) == (540, 3)
    assert [result.point.index for result in read_run(out).points] == [2, *range(5, 11)]
    assert not read_run(out).notes
    win(out, *range(5, 11))
    merged = merge(out, out / "merged.jsonl", void=void_shards(out))
    assert (merged.shards, merged.paragraphs) == (7, 60)


def test_a_shard_that_ends_after_it_was_replaced_counts_for_nothing(out: Path) -> None:
    old = {point.index: point for point in live_points(out)}
    planned_again(out)
    work(out, 3)
    assert claim(out, old[3], 1) is None, "a node that was cut off brings its rows, and they are closed"
    win(out, *range(5, 11))
    assert 3 not in settle(out)
    assert merge(out, out / "merged.jsonl", void=void_shards(out)).shards == 7


def test_a_plan_that_was_cut_off_at_any_line_is_made_again(out: Path) -> None:
    names = (PLAN_FILE, POINTS_FILE, JOURNAL_FILE)
    before = {name: (out / name).read_text() for name in names}
    planned_again(out)
    after = {name: (out / name).read_text() for name in names}
    for place, name in enumerate(names):
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
            assert [point.index for point in live_points(out)] == [1, 2, 3, 4], (name, cut)
            assert once(out)
            planned_again(out, 5)
            assert once(out), (name, cut)
            live = live_points(out)
            assert len(live) == 6
            for number, line in enumerate((out / POINTS_FILE).read_text().splitlines(), 1):
                for point in live:
                    assert point.index != number or f'"index": {number},' in line


def test_plans_follow_each_other(out: Path) -> None:
    planned_again(out, 3, "resources.memory=2GiB")
    win(out, 6)
    planned_again(out, 2, "scheduler=slurm")
    assert [point.index for point in live_points(out)] == [2, 6, 8, 9]
    assert once(out)
    assert {point.repeat for point in read_points(out)[0]} == {1, 2, 3}
    spec = spec_of_run(out)
    assert (spec.scheduler, spec.resources.memory, spec.site) == ("slurm", 2 * 2**30, "slurm-default")
    assert read_journal(out).replaced == {1, 3, 4, 5, 7}
    assert (out / "follow.sh").read_text().count("#SBATCH")


def test_a_shard_that_was_planned_again_is_named_as_such(out: Path) -> None:
    planned_again(out, 3)
    live = live_points(out)
    assert [point_named(live, word) for word in ("2", "shard-2", "shard-00002")] == live[:1] * 3
    for word in ("1", "shard-00004"):
        with pytest.raises(JobkitError, match="was planned again"):
            point_named(live, word)
    with pytest.raises(JobkitError, match="no shard"):
        point_named(live, str(live[-1].index + 1))


def test_what_the_setting_consists_of_and_another_run_are_refused(out: Path) -> None:
    with pytest.raises(JobkitError, match="belongs to the setting"):
        replan(out, ShardOptions(), ("workers=3",), wait=False)
    with pytest.raises(JobkitError, match="is for the folder of jobkit apply"):
        Resumption().resume(out.parent / "run", Asked(replan=True))
    assert len(live_points(out)) == 4


def test_nothing_is_planned_again_if_all_is_done(out: Path) -> None:
    win(out, 1, 3, 4)
    lines = (out / PLAN_FILE).read_text()
    replan(out, ShardOptions(), (), wait=False)
    assert (out / PLAN_FILE).read_text() == lines
