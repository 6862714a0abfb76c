"""Parts of a shard: whatever kills its tries, the next goes on, and each paragraph is there once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.core.layout import PLAN_FILE, POINTS_FILE, read_points, try_folder
from jobkit.core.records import Outcome
from jobkit.extensions.corpus import rows
from jobkit.extensions.corpus.merge import merge
from jobkit.extensions.corpus.plan import MANIFEST_FILE, QUARANTINE_FILE, Winner, read_planned
from jobkit.extensions.corpus.standing import finish
from jobkit.extensions.corpus.winners import claim, has_rows, lacks_rows, retire
from jobkit.extensions.corpus.work import WORK
from jobkit.worker import steps
from jobkit.worker.failure import TryFailed
from jobkit.worker.paragraphs import Call
from jobkit.worker.record import TryState, WorkerState
from jobkit.worker.workloads.base import Ragged, Result
from tests.support.builders import batch, by_hand, point
from tests.support.shards import write_shards

BAD = tuple((name, n) for name, numbers in (("a", (0, 1, 2, 7)), ("b", (16,))) for n in numbers)
KINDS: dict[str, tuple[str, str, tuple[tuple[str, int], ...]]] = {
    "rows": ("words", "jsonl", ()),
    "vectors": ("embedding", "npy", ()),
    "arrays": ("indices values", "npz", ()),
    "rows, some in quarantine": ("words", "jsonl", BAD),
    "vectors, some in quarantine": ("embedding", "npy", BAD),
    "arrays, some in quarantine": ("indices values", "npz", BAD),
}
"""The columns of each kind of result, the format of comparisons, and the paragraphs in quarantine."""
TEXTS = {name: "\n\n".join(f"{name} {n} {'word ' * (n % 5)}" for n in range(17)) for name in ("a", "b")}
PARAGRAPHS = 34


class KilledError(BaseException):
    """Ends a process that has no time for anything."""


class Attempt:
    """One try of the only shard of a run; it ends a part with each window, of three paragraphs."""

    def __init__(self, run: Path, number: int, kind: str = "rows") -> None:
        [self.point], _ = read_points(run)
        self.run, self.number, self.kind, self.did = run, number, kind, 0
        self.columns, self.bad = tuple(KINDS[kind][0].split()), KINDS[kind][2]
        self.home, self.out = Path(try_folder(run, self.point.point_id, number)), run / f"out-{number}"
        for folder in (self.home, self.out):
            folder.mkdir(parents=True)
        self.state = TryState(by_hand(self.point, run, self.out, run_dir=run, try_number=number), "")
        self.output = self.state.output = WORK.output(self.out)
        self.todo = self.state.todo = WORK.read(self.state)

    def work(
        self,
        calls: int = PARAGRAPHS,
        *,
        failed: bool = False,
        kill_at: int = -1,
        worker: WorkerState | None = None,
    ) -> None:
        """Do some calls, and end; die at a step that changes files, if ``kill_at`` is its number."""
        self.state.workers = [worker or WorkerState(columns=self.columns, items_per_call=3)]
        try:
            with pytest.MonkeyPatch.context() as patch:
                _die_at(kill_at, patch)
                steps.cut_calls(self.state, self.todo)
                with steps.open_batches(self.state) as stream:
                    self.todo.read_ahead()
                    for call in self.narrowed(islice(iter(self.todo.next_call, None), calls)):
                        found: Any = [[len(text), len(text.split())] for text in call.paragraphs]
                        listed = tuple((n, one[1]) for n, one in enumerate(found))
                        vectors: Any = (
                            np.array(found, np.float32) if self.kind.startswith("vectors") else None
                        )
                        if self.kind.startswith("arrays"):
                            sparse = [
                                (np.arange(words - 2), np.ones(words - 2) / size) for size, words in found
                            ]
                            vectors = Ragged.of(sparse)
                        result = Result(rows=listed, vectors=vectors, load=0)
                        done = batch(0, items=len(call.items)), WORK.rows(result, self.columns, call.items)
                        self.did += len(call.items)
                        steps.keep_batch(self.state, stream, call, done)
                self.output.close((), failed=failed)
        finally:
            self.todo.close()

    def narrowed(self, calls: Iterable[Call]) -> Iterator[Call]:
        """Yield the calls without the paragraphs that fail, which go to quarantine."""
        for call in calls:
            bad = [text for text in call.paragraphs if (text.split()[0], int(text.split()[1])) in self.bad]
            if not bad:
                yield call
            elif len(call.items) > 1:
                yield from self.narrowed(self.todo.halve(call))
            else:
                steps.quarantine(self.state, call, TryFailed(Outcome.BUG, f"cannot take {bad[0]}"))

    def come_home(self, *left_out: str) -> None:
        """Copy the files home as the job script does, perhaps not all."""
        ignored = shutil.ignore_patterns("*.part", *left_out)
        shutil.copytree(self.out, self.home, dirs_exist_ok=True, ignore=ignored)

    def won(self) -> Winner | None:
        return claim(self.run, self.point, self.number)

    def finish(self) -> Winner:
        """Work to the end, come home and win."""
        self.work()
        self.come_home()
        winner = self.won()
        assert winner
        return winner


def _die_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Die before a file is synced or gets its name, or when half of a line of the index is written."""
    done = count()

    def mortal(real: Callable[..., object]) -> Callable[..., object]:
        def act(first: object, *rest: bytes) -> object:
            if next(done) == step:
                if rest and real.__name__ == "write":
                    real(first, rest[0][: len(rest[0]) // 2])
                raise KilledError
            return real(first, *rest)

        return act

    for owner, name in ((Path, "replace"), (os, "fsync"), (os, "write")):
        patch.setattr(owner, name, mortal(getattr(owner, name)))


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "PART_S", 0.0)
        patch.setattr(rows, "SHARE", 0.0)
        yield


def planned(folder: Path) -> Path:
    run = folder / "run"
    run.mkdir(parents=True)
    write_shards(run, TEXTS, point(device="cpu"))
    return run


def merged(run: Path, kind: str) -> bytes:
    _, form, bad = KINDS[kind]
    done = merge(run, run / f"merged.{form}", form, allow_quarantine=bool(bad))
    assert done.paragraphs == PARAGRAPHS - len(bad)
    assert finish(run)["rows"] == done.rows
    lines = done.quarantine.read_text(encoding="utf-8").splitlines() if done.quarantine else []
    assert [(line["document"][0], line["paragraph"]) for line in map(json.loads, lines)] == [*bad]
    return (run / f"merged.{form}").read_bytes()


def undisturbed(folder: Path, kind: str) -> tuple[bytes, Winner]:
    """Return the merged result of one try that nothing disturbs, in one part, and the winner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "PART_S", 10.0)
        alone = Attempt(planned(folder / "undisturbed"), 1, kind)
        winner = alone.finish()
    assert len(winner.parts) == 1
    return merged(alone.run, kind), winner


@pytest.mark.parametrize("kind", KINDS)
def test_a_try_that_is_killed_at_any_write_is_gone_on_with(tmp_path: Path, kind: str) -> None:
    """Try N dies at step N: each adopts the parts of all before, and no paragraph is done twice for long."""
    expected, whole = undisturbed(tmp_path, kind)
    run, did = planned(tmp_path), 0
    for number in count(1):
        tried = Attempt(run, number, kind)
        try:
            tried.work(kill_at=number)
        except KilledError:
            tried.come_home()
            assert not has_rows(str(tried.home.parent), str(tried.home))
            assert tried.won() is None
        did += tried.did
        if (tried.out / MANIFEST_FILE).is_file():
            break
    tried.come_home()
    winner = tried.won()
    assert winner
    assert merged(run, kind) == expected
    for name in ("rows", "paragraphs", "pieces", "types", "columns"):
        assert getattr(winner, name) == getattr(whole, name)
    assert [part.number for part in winner.parts] == [*range(1, len(winner.parts) + 1)]
    assert len({part.file.rpartition("/")[0] for part in winner.parts}) > 2, "parts of several tries"
    assert did <= PARAGRAPHS + 3 * 3 * number, "a window that was not home, and those that were read ahead"


LOST = st.sampled_from(["", rows.PARTS_FILE, "part-00001.*", "part-00002.*"])
KILLS = st.lists(st.tuples(st.integers(0, 40), LOST, st.integers(0, 9)), max_size=4)
"""For each try the step at which it dies, a file that does not come home, and a part that is damaged."""


@settings(max_examples=20, deadline=None)
@given(KILLS, st.sampled_from(sorted(KINDS)))
def test_no_loss_and_no_damage_changes_the_result(kills: list[tuple[int, str, int]], kind: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        expected, _ = undisturbed(Path(name), kind)
        run, number, winner = planned(Path(name)), 0, None
        for number, (step, lost, damaged) in enumerate(kills, 1):
            tried = Attempt(run, number, kind)
            with suppress(KilledError):
                tried.work(kill_at=step)
            tried.come_home(*filter(None, [lost]))
            parts = sorted(run.glob("results/*/*/part-*"))
            if damaged < len(parts):
                parts[damaged].write_bytes(parts[damaged].read_bytes()[:-1] + b"?")
            winner = tried.won()
            if winner:
                break
        while not winner:  # what was adopted may be damaged before the claim: then the shard runs again
            number += 1
            winner = Attempt(run, number, kind).finish()  # nothing is damaged meanwhile
        assert merged(run, kind) == expected


def left_by_one(folder: Path, kind: str = "rows") -> tuple[Path, list[str]]:
    """Return a run with a try that was killed after some parts, and the names of these."""
    first = Attempt(planned(folder), 1, kind)
    first.work(calls=7, failed=True)
    first.come_home()
    return first.run, sorted(path.name for path in first.home.glob("part-*"))


@pytest.mark.parametrize("damage", [Path.unlink, lambda part: part.write_bytes(part.read_bytes() + b"\n")])
def test_a_damaged_part_is_named_and_not_adopted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any
) -> None:
    run, parts = left_by_one(tmp_path)
    second, third = parts[1:3]
    damage(run / "results" / "shard-00001" / "try-1" / second)
    again = Attempt(run, 2)
    said = capsys.readouterr().err
    assert f"try-1/{second}: " in said
    assert "goes on after 1 parts" in said
    winner = again.finish()
    assert [part.file for part in winner.parts[:2]] == [f"../try-1/{parts[0]}", second]
    assert third not in {Path(part.file).name for part in winner.parts if "try-1" in part.file}


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [(POINTS_FILE, '"batch_size": 50', '"batch_size": 51'), (PLAN_FILE, '"load": 1', '"load": 2')],
)
def test_a_part_of_another_plan_or_setting_is_not_adopted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, old: str, new: str
) -> None:
    run, parts = left_by_one(tmp_path)
    text = (run / what).read_text()
    assert old in text
    (run / what).write_text(text.replace(old, new))
    again = Attempt(run, 2)
    assert f"{parts[0]}, " in (said := capsys.readouterr().err)
    assert "of another plan or setting" in said
    again.work()
    assert again.did == PARAGRAPHS


@pytest.mark.parametrize("kind", ["rows", "vectors"])
def test_no_number_of_a_line_of_parts_can_be_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    run, parts = left_by_one(tmp_path, kind)
    index = run / "results" / "shard-00001" / "try-1" / rows.PARTS_FILE
    lines = index.read_text().splitlines(keepends=True)
    for number in re.finditer(r"(?<=: )\d+(?=[,}])", lines[1]):
        changed = f"{lines[1][: number.start()]}{int(number[0]) + 1}{lines[1][number.end() :]}"
        index.write_text("".join([lines[0], changed, *lines[2:]]))
        point, shard = read_points(run)[0][0], read_planned(run, 1)
        adopted, _ = rows.adopt(run, point, 2, shard, rows.identity(run, 1))
        assert [Path(one.part.file).name for one in adopted] == parts[:1], changed
        assert f"{rows.PARTS_FILE}:2: does not match its SHA-256" in capsys.readouterr().err


def test_parts_of_an_earlier_version_are_adopted_whose_lines_have_no_digest(tmp_path: Path) -> None:
    run, parts = left_by_one(tmp_path, "vectors")
    index = run / "results" / "shard-00001" / "try-1" / rows.PARTS_FILE
    old, found = re.subn(r', "sha256": "\w+"}$', "}", index.read_text(), flags=re.MULTILINE)
    index.write_text(old)
    again = Attempt(run, 2, "vectors")
    again.finish()
    done = sum(json.loads(line)["part"]["paragraphs"] for line in old.splitlines())
    assert (found, again.did) == (len(parts), PARAGRAPHS - done)
    assert merged(run, "vectors") == undisturbed(tmp_path, "vectors")[0]


def test_a_try_does_not_go_on_with_another_kind_of_result(tmp_path: Path) -> None:
    run, _ = left_by_one(tmp_path / "rows")
    with pytest.raises(TryFailed, match="has the columns words, and the workload has embedding"):
        Attempt(run, 2, "vectors").work()
    run, _ = left_by_one(tmp_path, "vectors")
    again = Attempt(run, 2)
    again.columns = ("embedding",)
    worker = WorkerState(columns=again.columns, items_per_call=3, vectors="")
    with pytest.raises(
        TryFailed, match=r"document b, paragraph \d: .* no vectors here, vectors of fp32\[2\] bef"
    ):
        again.work(worker=worker)


def test_parts_outlive_an_upgrade_that_adds_a_field(tmp_path: Path) -> None:
    run = planned(tmp_path)
    points = (run / POINTS_FILE).read_text(encoding="utf-8").replace('"hang_s": 60, ', "")
    (run / POINTS_FILE).write_text(points, encoding="utf-8")
    lines = f"{points}{(run / PLAN_FILE).read_text(encoding='utf-8')}".rstrip("\n")
    tried = Attempt(run, 1)
    tried.work(calls=4, failed=True)
    parts = (tried.out / rows.PARTS_FILE).read_text(encoding="utf-8")
    assert hashlib.sha256(lines.encode()).hexdigest() in parts, "as the version that has no such field"


def test_what_was_in_quarantine_when_a_person_orders_a_try_is_tried_again(tmp_path: Path) -> None:
    kind = "rows, some in quarantine"
    first = Attempt(planned(tmp_path), 1, kind)
    winner = first.finish()
    assert winner.quarantined == len(BAD)
    (first.home / QUARANTINE_FILE).rename(tmp_path / "purged")
    assert lacks_rows(first.run, winner)
    (tmp_path / "purged").rename(first.home / QUARANTINE_FILE)
    assert not lacks_rows(first.run, winner)
    left = Attempt(first.run, 2, kind)
    assert left.state.quarantined == len(BAD) - 1, "the last part is of the manifest alone"
    retire(first.run, winner)
    again = Attempt(first.run, 3, "rows")
    assert again.state.quarantined == 0
    again.finish()
    assert merged(first.run, "rows") == undisturbed(tmp_path, "rows")[0]


def test_tries_that_left_nothing_make_the_parts_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PART_S", 10.0)
    monkeypatch.setattr(rows, "FIRST_SPEED", 40)
    run, sizes = planned(tmp_path), list[int]()
    for number in (1, 2, 3):
        tried = Attempt(run, number)
        sizes.append(len(tried.todo.texts))
        with pytest.raises(KilledError):
            tried.work(calls=2, kill_at=0)
        tried.come_home(rows.PARTS_FILE)
    assert sizes == sorted(sizes, reverse=True)
