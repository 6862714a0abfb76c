from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.shell import Completed
from jobkit.status.queue import FOLDER, cached_answer

ARGV = ("squeue", "-j", "7")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / FOLDER


def asker(*texts: str, argv: tuple[str, ...] = ARGV) -> Callable[[], Completed]:
    """Return what answers once with each text."""
    left = list(texts)
    return lambda: Completed(argv, 1, left.pop(0), "a word of warning")


def test_a_young_answer_will_do_whoever_got_it(cache: Path) -> None:
    ask = asker("first", "second")
    first = cached_answer(ARGV, ask, 60)
    assert (first, cached_answer(ARGV, ask, 60)) == (Completed(ARGV, 1, "first", "a word of warning"), first)
    assert list(cache.glob("*.json"))
    assert cached_answer(ARGV, ask, 0).stdout == "second", "asked anew, always"


def test_another_question_has_an_answer_of_its_own(cache: Path) -> None:
    assert cached_answer(ARGV, asker("7"), 60).stdout == "7"
    assert cached_answer(("squeue", "-j", "8"), asker("8"), 60).stdout == "8"
    assert len(list(cache.glob("*.json"))) == 2


@pytest.mark.usefixtures("cache")
def test_another_cluster_has_answers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asker("one", "two", "three")
    assert cached_answer(ARGV, ask, 60).stdout == "one"
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    assert cached_answer(ARGV, ask, 60).stdout == "two"
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cached_answer(ARGV, ask, 60).stdout == "three"


@pytest.mark.parametrize("age_s", [61, -3600])
def test_an_answer_that_is_old_or_of_the_future_is_asked_for_anew(cache: Path, age_s: float) -> None:
    ask = asker("first", "second")
    cached_answer(ARGV, ask, 60)
    (path,) = cache.glob("*.json")
    then = time.time() - age_s
    os.utime(path, (then, then))
    assert cached_answer(ARGV, ask, 60).stdout == "second"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"status": 0}', '{"status": "x", "stdout": "", "stderr": ""}']
)
def test_a_spoilt_answer_is_asked_for_anew(cache: Path, text: str) -> None:
    ask = asker("first", "second")
    cached_answer(ARGV, ask, 60)
    (path,) = cache.glob("*.json")
    path.write_text(text, encoding="utf-8")
    assert cached_answer(ARGV, ask, 60).stdout == "second"
    assert cached_answer(ARGV, ask, 60).stdout == "second"


def test_without_a_place_to_keep_it_everybody_asks_for_himself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    ask = asker("first", "second")
    assert [cached_answer(ARGV, ask, 60).stdout for _ in range(2)] == ["first", "second"]


ASK = """\
from jobkit.status.queue import cached_answer
from jobkit.core.shell import run
print(cached_answer(("squeue",), lambda: run(("squeue",)), 60).stdout, end="")
"""


@pytest.mark.usefixtures("cache")
def test_processes_that_ask_at_once_cost_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\necho $$ | tee -a {tmp_path}/calls\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asking = [
        subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0] for process in asking}
    assert answers == {(tmp_path / "calls").read_text(encoding="utf-8")}
