"""Processes that read the corpus: in order, and none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.extensions.corpus import scan as tasks
from jobkit.extensions.corpus.scan import in_order, scan
from jobkit.extensions.corpus.sources import find_sources
from tests.support.corpora import jsonl

pytestmark = pytest.mark.slow


def slow_square(number: int) -> int:
    time.sleep(0.02 * (number % 3 == 0))
    return number**2


def fall(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        raise JobkitError("five")
    return number


def test_answers_are_in_order() -> None:
    assert list(in_order(slow_square, range(40), 3)) == [number**2 for number in range(40)]


def test_an_error_and_a_killed_process_are_reported() -> None:
    with pytest.raises(JobkitError, match="five"):
        list(in_order(fall, [4, 5, 6], 2))
    with pytest.raises(JobkitError, match="was killed"):
        list(in_order(fall, [1, 2, 3, 4], 2))


def test_several_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RANGE_BYTES", 5000)
    (tmp_path / "a.txt").write_text("Ein Absatz é\r\n\r\n" * 3000, encoding="utf-8", newline="")
    (tmp_path / "b.jsonl").write_text(jsonl([{"id": n, "text": "x\n\ny"} for n in range(2000)]))
    for number in range(300):
        (tmp_path / f"c{number}.txt").write_text(f"{number}")
    found = find_sources([str(tmp_path)])
    seen: list[int] = []
    assert scan(found, processes=3, seen=seen.append) == scan(found, processes=1)
    assert sum(seen) == sum(one.size_bytes for one in found)


def test_no_process_is_left_if_the_first_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from jobkit.extensions.corpus.scan import in_order\n"
        "from tests.extensions.corpus.test_pool import where\n"
        "if __name__ == '__main__':\n"
        "    print(*in_order(where, [0, 0], 2), flush=True)\n"
        "    for _ in in_order(where, [0, 1, 1], 2): print('x', flush=True)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 2
        process.kill()
    for child in children:
        deadline = time.monotonic() + 60
        while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{child}").exists()


def where(seconds: int) -> int:
    time.sleep(seconds)
    return os.getpid()
