"""The process that compares shortcuts with the ordinary way, and what becomes of the try after it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core import files, json_codec
from jobkit.core.layout import BATCHES_FILE, ENTITIES_FILE
from jobkit.core.records import ModelRef, Outcome
from jobkit.planning.sample import sample_text
from jobkit.worker.kinds import Launcher, PointWork
from jobkit.worker.paragraphs import split_sentences
from jobkit.worker.record import Task
from jobkit.worker.shortcuts import SENTENCES, part
from tests.extensions.corpus import test_work as shards
from tests.support.shards import write_shards
from tests.worker.test_supervisor import COUNTED, PLAIN, apart, restored, tried
from tests.workloads.cut import BYTES

__all__ = ["restored"]  # for all tests here

CUT = replace(
    PLAIN, workload="tests.workloads.cut:Cut", workload_folder=None, shortcuts="exact", workers=1, fork=True
)
EACH_WAY = pytest.mark.parametrize(("workers", "fork"), [(1, True), (1, False), (2, True), (2, False)])


# -- the part of the text


@st.composite
def texts(draw: st.DrawFn) -> list[str]:
    """Return paragraphs of so many sentences each, no two of them equal."""
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=300))
    return [" ".join(f"Number {n} of {k}." for k in range(count)) for n, count in enumerate(counts)]


def sentences(paragraphs: list[str]) -> int:
    return sum(len(split_sentences(paragraph)) for paragraph in paragraphs)


@given(texts())
def test_the_longest_paragraph_comes_first_and_others_once_up_to_the_limit(paragraphs: list[str]) -> None:
    chosen = part(paragraphs)
    assert len(chosen[0]) == max(map(len, paragraphs))
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(paragraphs)
    assert sentences(chosen) <= max(SENTENCES, sentences(chosen[:1]))
    if chosen != paragraphs and len(chosen) < len(paragraphs):
        largest = max(len(split_sentences(paragraph)) for paragraph in paragraphs)
        assert sentences(chosen) > SENTENCES - largest, "as much as the limit allows"


@given(st.integers(1, 5), st.integers(1, 3_000))
def test_they_are_from_all_over_the_text(each: int, count: int) -> None:
    paragraphs = [" ".join(f"Number {n:05d} of {k}." for k in range(each)) for n in range(count)]
    places = sorted(paragraphs.index(one) for one in part(paragraphs))
    chosen = min(count, SENTENCES // each)
    assert len(places) == chosen
    widest = max(after - before for before, after in zip(places, [*places[1:], count], strict=True))
    assert widest <= 2 * -(-count // chosen)


def test_a_paragraph_that_is_longer_than_the_limit_is_alone() -> None:
    long = "It rained. " * (SENTENCES + 1)
    assert part(["Ada.", long, "Bob."]) == [long]


# -- in a try


@EACH_WAY
def test_shortcuts_that_find_the_same_stay_and_the_check_has_figures_of_its_own(
    tmp_path: Path,
    workers: int,
    fork: bool,  # noqa: FBT001 - a parameter of pytest
) -> None:
    """A fresh Python runs it, for this one may be large. A child inherits the kernel's mark, even so."""
    of = replace(CUT, workers=workers, fork=fork, every=2)
    files.write_atomically(tmp_path / "point", json_codec.to_json(of))
    found = apart(tmp_path, COUNTED, CUT_CHECKED=str(tmp_path / "checked"))
    assert (found.outcome, found.message) == (Outcome.OK, "")
    assert found.effective["shortcuts"] == found.shortcuts == "exact"
    assert (found.inert, found.params) == ((), found.point.params)
    assert found.check
    assert found.check.seconds > 0
    assert found.check.gpu_peak_bytes is None
    assert found.check.rss_peak_bytes
    assert found.check.rss_peak_bytes > BYTES
    assert found.memory.rss_peak_bytes
    assert found.memory.rss_peak_bytes < BYTES, "of a process with Python alone"
    assert len(found.workers) == (workers if workers > 1 else 0)
    checked = (tmp_path / "checked").read_text().split("\n\n")
    assert sorted(map(str.strip, checked)) == sorted(COUNTED.split("\n\n")[::2])


@EACH_WAY
def test_shortcuts_that_do_not_are_off_and_the_reason_is_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    fork: bool,  # noqa: FBT001 - a parameter of pytest
) -> None:
    monkeypatch.setenv("CUT_CHECK", "the words differ")
    found = tried(tmp_path, replace(CUT, workers=workers, fork=fork))
    assert found.outcome is Outcome.OK
    assert found.effective["shortcuts"] == found.shortcuts == "off: the words differ"
    assert found.params == {**found.point.params, "shortcuts": "refused"}
    assert found.inert == ()
    assert found.check
    assert len((tmp_path / ENTITIES_FILE).read_text().splitlines()) == 21


@pytest.mark.parametrize("workload", ["Cut", "Silent"])
def test_a_knob_of_the_sweep_that_was_refused_is_inert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str
) -> None:
    monkeypatch.setenv("CUT_CHECK", "the words differ")
    swept = replace(
        CUT, workload=f"tests.workloads.cut:{workload}", params={"batch_size": 1, "shortcuts": "exact"}
    )
    found = tried(tmp_path, swept)
    assert (found.outcome, found.inert) == (Outcome.OK, ("shortcuts",))
    assert found.params == {"batch_size": 1, "shortcuts": "refused"}
    off = tried(tmp_path, replace(swept, shortcuts="off", params={"batch_size": 1, "shortcuts": "off"}))
    assert (off.inert, off.params["shortcuts"], off.check) == ((), "off", None)


def test_a_try_that_ends_before_its_first_batch_is_of_the_setting_with_which_it_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUT_CHECK", "the words differ")
    found = tried(tmp_path, CUT, "Memory.\n")
    assert (found.outcome, found.params["shortcuts"]) == (Outcome.RAM_OOM, "refused")


def test_a_workload_without_a_check_keeps_its_shortcuts(tmp_path: Path) -> None:
    found = tried(tmp_path, replace(CUT, workload="tests.workloads.cut:Unable"))
    assert (found.outcome, found.shortcuts) == (Outcome.OK, "exact")


@pytest.mark.parametrize("shortcuts", ["off", None])
def test_without_shortcuts_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortcuts: str | None
) -> None:
    monkeypatch.setenv("CUT_CHECK", "Bug.")
    workload = CUT.workload if shortcuts else "count"
    found = tried(tmp_path, replace(CUT, workload=workload, shortcuts=shortcuts))
    assert (found.outcome, found.check) == (Outcome.OK, None)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("word", "outcome", "message"),
    [
        ("Kill.", Outcome.LOST, "worker 0 was killed by SIGKILL"),
        ("Leave.", Outcome.BUG, "worker 0 ended with status 7"),
        ("Bug.", Outcome.BUG, r"worker 0: \S+told.py:\d+: ValueError: on purpose"),
        ("Card.", Outcome.GPU_OOM, r"worker 0: \S+ OutOfMemoryError: "),
    ],
)
def test_a_check_that_fails_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    word: str,
    outcome: Outcome,
    message: str,
) -> None:
    monkeypatch.setenv("CUT_CHECK", word)
    found = tried(tmp_path, replace(CUT, workers=workers))
    assert found.outcome is outcome
    assert re.match(f"the check of shortcuts: {message}", found.message), found.message
    assert (found.check, found.load_s) == (None, None)
    assert not (tmp_path / BATCHES_FILE).exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_ends_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setenv("CUT_CHECK", "Term. Wait.")
    found = tried(tmp_path, replace(CUT, workers=workers))
    assert (found.outcome, found.signal, found.provisional) == (Outcome.CANCELLED, "TERM", True)


@pytest.mark.parametrize("fork", [True, False])
def test_the_check_is_not_profiled(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fork: bool,  # noqa: FBT001 - a parameter of pytest
) -> None:
    """What would start a profiled worker fails at once."""
    monkeypatch.setenv("CUT_CHECK", "Kill.")
    monkeypatch.setattr("jobkit.extensions.profile.work.ProfiledWork.launcher", _failing)
    found = tried(tmp_path, replace(CUT, profile="python", fork=fork))
    assert found.message == "the check of shortcuts: worker 0 was killed by SIGKILL"


def _failing(_: PointWork, task: Task) -> Launcher:
    return Launcher(arguments=["-c", "raise SystemExit(9)"]) if task.observed else Launcher()


# -- in a shard


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_ends_before_its_first_call_if_they_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    setting = replace(CUT, workers=workers, sort_window=7)
    [shard] = shards.planned(tmp_path, setting)
    monkeypatch.setenv("CUT_CHECK", "the words differ")
    found = shards.tried(tmp_path, shard)
    assert found.outcome is Outcome.ENVIRONMENT
    assert found.message == "shortcuts: exact cannot be used here: the words differ"
    assert found.load_s is None
    assert not (tmp_path / "out-1" / BATCHES_FILE).exists()
    monkeypatch.delenv("CUT_CHECK")
    again = shards.tried(tmp_path, shard)
    assert (again.outcome, again.shortcuts) == (Outcome.OK, "exact")
    assert again.check


# -- with Stanza


def test_the_tagger_is_checked_and_finds_the_same(tmp_path: Path, tiny_model: ModelRef) -> None:
    text = sample_text(40)
    (tmp_path / "text").write_text(text, encoding="utf-8")
    (tmp_path / "model").symlink_to(tiny_model.path)
    setting = replace(
        CUT,
        workload="stanza-ner",
        model=tiny_model,
        params={"batch_size": 10},
        text=replace(CUT.text, sha256=hashlib.sha256(text.encode()).hexdigest()),
    )
    (tmp_path / "run").mkdir()
    write_shards(tmp_path / "run", {"a.txt": text}, setting)
    rows = []
    for index, workers, shortcuts in ((2, 1, "off"), (3, 1, "exact"), (4, 2, "exact")):
        swept = replace(setting, index=index, workers=workers, shortcuts=shortcuts)
        files.append_line(tmp_path / "run" / "points.jsonl", json_codec.to_json(swept))
        out = tmp_path / f"out-{index}"
        out.mkdir()
        found = shards.apart(tmp_path, index, out)
        assert (found.outcome, found.shortcuts) == (Outcome.OK, shortcuts), found.message
        assert bool(found.check) == (shortcuts == "exact")
        rows.append(sorted((out / ENTITIES_FILE).read_text(encoding="utf-8").splitlines()))
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) > 20
