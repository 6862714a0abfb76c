"""The process that compares shortcuts with the ordinary way, and what becomes of the try after it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobkit.core import files, json_codec
from jobkit.core.layout import BATCHES_FILE, ENTITIES_FILE
from jobkit.core.records import Outcome
from jobkit.worker.pool import ITEMS, part
from jobkit.worker.record import PointWork, Recording, Task
from tests.extensions.corpus import test_work as shards
from tests.worker.test_supervisor import COUNTED, PLAIN, apart, restored, tried
from tests.workloads.cut import BYTES

__all__ = ["restored"]  # for all tests here

CUT = replace(
    PLAIN, workload="tests.workloads.cut:Cut", workload_folder=None, shortcuts="exact", workers=1, fork=True
)
# -- the part of the text


def test_the_longest_paragraph_comes_first_and_others_from_all_over_the_text_up_to_the_limit() -> None:
    paragraphs = [f"Number {n:03d}. It rained." for n in range(1000)]
    paragraphs[700] += " Ada went."
    chosen = part(paragraphs)
    assert chosen[0] == paragraphs[700]
    assert len(chosen) == 1 + (ITEMS - 3) // 2, "of two sentences each, and of three"
    places = sorted(map(paragraphs.index, chosen))
    gaps = [after - before for before, after in pairwise([0, *places, len(paragraphs)])]
    assert max(gaps) <= 2 * -(-len(paragraphs) // len(chosen))
    assert 0 not in gaps[1:], "each once"
    long = "It rained. " * (ITEMS + 1)
    assert part(["Ada.", long, "Bob."]) == [long]


# -- in a try


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "fork"), [(1, True), (2, False)])
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
    assert found.effective["shortcuts"] == found.ran("shortcuts") == "exact"
    assert (found.inert, found.params) == ((), found.point.params)
    assert found.check
    assert found.check.seconds > 0
    assert found.check.gpu_peak_bytes is None
    assert found.check.rss_peak_bytes
    assert found.memory.rss_peak_bytes
    assert found.memory.rss_peak_bytes < BYTES < found.check.rss_peak_bytes, "Python alone is smaller"
    assert len(found.workers) == (workers if workers > 1 else 0)
    checked = (tmp_path / "checked").read_text().split("\n\n")
    assert sorted(map(str.strip, checked)) == sorted(COUNTED.split("\n\n"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "inert"),
    [
        ({"workers": 2}, ()),
        ({"params": {"batch_size": 1, "shortcuts": "exact"}}, ("shortcuts",)),
        (
            {"workload": "tests.workloads.cut:Silent", "params": {"batch_size": 1, "shortcuts": "exact"}},
            ("shortcuts",),
        ),
    ],
    ids=["two workers", "a knob", "a knob that is not reported"],
)
def test_shortcuts_that_do_not_are_off_and_the_reason_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], inert: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUT_CHECK", "the words differ")
    found = tried(tmp_path, replace(CUT, **changes))
    assert found.outcome is Outcome.OK
    assert found.effective["shortcuts"] == found.ran("shortcuts") == "off: the words differ"
    assert (found.params, found.inert) == ({"batch_size": 1, "shortcuts": "refused"}, inert)
    assert found.check
    assert len((tmp_path / ENTITIES_FILE).read_text().splitlines()) == 21


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "shortcuts"),
    [
        ({"workload": "tests.workloads.cut:Unable"}, "exact"),
        ({"shortcuts": "off", "params": {"batch_size": 1, "shortcuts": "off"}}, "off"),
        ({"workload": "count", "shortcuts": None}, None),
    ],
    ids=["no check", "off", "no shortcuts"],
)
def test_without_shortcuts_or_a_check_of_them_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], shortcuts: str | None
) -> None:
    monkeypatch.setenv("CUT_CHECK", "Bug.")
    found = tried(tmp_path, replace(CUT, **changes))
    assert (found.outcome, found.ran("shortcuts"), found.inert) == (Outcome.OK, shortcuts, ())
    assert bool(found.check) == (shortcuts == "exact")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "workers", "outcome", "message"),
    [
        ("Kill.", 1, Outcome.LOST, "worker 0 was killed by SIGKILL"),
        ("Bug.", 2, Outcome.BUG, r"worker 0: \S+told.py:\d+: ValueError: on purpose"),
    ],
)
def test_a_check_that_fails_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    workers: int,
    outcome: Outcome,
    message: str,
) -> None:
    monkeypatch.setenv("CUT_CHECK", word)
    found = tried(tmp_path, replace(CUT, workers=workers))
    assert found.outcome is outcome
    assert re.match(f"the check of shortcuts: {message}", found.message), found.message
    assert (found.check, found.load_s) == (None, None)
    assert not (tmp_path / BATCHES_FILE).exists()


@pytest.mark.slow
def test_a_signal_ends_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUT_CHECK", "Term. Wait.")
    found = tried(tmp_path, CUT)
    assert (found.outcome, found.signal, found.provisional) == (Outcome.CANCELLED, "TERM", True)


@pytest.mark.slow
def test_the_check_is_not_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would profile a worker fails at once."""
    monkeypatch.setenv("CUT_CHECK", "Kill.")
    monkeypatch.setattr("jobkit.extensions.profile.work.ProfiledWork.recording", _failing)
    found = tried(tmp_path, replace(CUT, profile="python"))
    assert found.message == "the check of shortcuts: worker 0 was killed by SIGKILL"


def _failing(_: PointWork, task: Task) -> Recording:
    assert not task.observed
    return Recording()


# -- in a shard


@pytest.mark.slow
def test_a_shard_ends_before_its_first_call_if_they_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [shard] = shards.planned(tmp_path, replace(CUT, sort_window=7))
    monkeypatch.setenv("CUT_CHECK", "the words differ")
    found = shards.tried(tmp_path, shard)
    assert found.outcome is Outcome.ENVIRONMENT
    assert found.message == "shortcuts: exact cannot be used here: the words differ"
    assert found.load_s is None
    assert not (tmp_path / "out-1" / BATCHES_FILE).exists()
    monkeypatch.delenv("CUT_CHECK")
    again = shards.tried(tmp_path, replace(shard, workers=2))
    assert (again.outcome, again.ran("shortcuts")) == (Outcome.OK, "exact")
    assert again.check


# -- with Stanza
