"""`jobkit workload check`: what it answers about functions that are right, and about ones that are not."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.records import TextRef
from jobkit.planning.workload_traits import Traits
from jobkit.setup import workload_probe
from jobkit.setup.check_workload import WORDS, Subject, answers, line_of
from jobkit.setup.findings import Finding, exit_code
from jobkit.setup.workload_probe import ALLOCATED, KnobTrial, OutputDifference, Probe, distance
from tests.support.commands import jobkit, ran

MIB = 2**20
SAME = OutputDifference()
PROBE = Probe(
    network=workload_probe.NAMESPACE,
    load_s=0.5,
    sizes=[1, 4, 16],
    loads=[10, 40, 160],
    peaks=[100 * MIB, 130 * MIB, 250 * MIB],
    memory=ALLOCATED,
    rows=True,
    counts=False,
    by_size=[SAME, SAME, SAME],
    again=SAME,
    size_reported=[1, 4, 16],
    knobs=[],
)
SUBJECT = Subject(
    workload="./tagger.py:tag",
    folder="/f",
    text=TextRef(path="/t", sha256="", size_bytes=0, name="sample:100"),
    traits=Traits(needs_model=False, reports_lengths=True, knobs=(), columns=("label",)),
    model=None,
    device="cuda",
    threads=1,
    nan="quarantine",
    queries=None,
)
BARE = replace(SUBJECT, device="cpu", traits=SUBJECT.traits._replace(reports_lengths=False))
INFINITE = float("inf")
UNLIKE = OutputDifference(paragraphs=3, distance=INFINITE)
APART = OutputDifference(paragraphs=2, distance=0.5)
NEARLY = [10 * MIB, 59 * MIB, 110 * MIB]  # R² is 0.8999
SPREAD = [9 * MIB, 90 * MIB, 10 * MIB]


def found(
    subject: Subject = SUBJECT, predicted: list[int] | None = None, **changes: Any
) -> dict[str, Finding]:
    probe = replace(PROBE, **changes)
    return {answer.name: answer for answer in answers(probe, subject, predicted or probe.loads)}


def test_a_workload_with_nothing_wrong() -> None:
    every = found()
    assert {answer.status for answer in every.values()} == {"ok"}
    assert exit_code(list(every.values())) == 0


@pytest.mark.parametrize(
    ("change", "check", "word", "part"),
    [
        ({"size_reported": [1, 4, 8]}, "knob batch_size", "no", "effective() reports 8 at 16"),
        ({"size_reported": [None] * 3}, "knob batch_size", "unknown", "does not report"),
        ({"failed": "batch size 64: boom"}, "knob batch_size", "no", "boom"),
        ({"peaks": SPREAD}, "load and memory", "no", "worst residual"),
        ({"peaks": SPREAD, "memory": "resident"}, "load and memory", "unknown", "CPU"),
        ({"peaks": NEARLY, "memory": "resident"}, "load and memory", "ok", "R² 0.900"),
        ({"peaks": [9 * MIB, 9 * MIB, 10 * MIB]}, "load and memory", "unknown", "1.0 MiB, too little"),
        ({"by_size": [SAME, UNLIKE]}, "equal output", "no", "1 and 4"),
        ({"by_size": [replace(UNLIKE, distance=1e-5)]}, "equal output", "ok", "1e-05"),
        ({"again": APART}, "deterministic", "no", "2 paragraphs, by up to 5"),
        ({"rows": False, "counts": True}, "equal output", "ok", "the count is equal"),
        ({"rows": False}, "apply", "no", "no row"),
        ({"not_json": "a set"}, "apply", "no", "a set"),
        ({"nan": "label"}, "apply", "no", "column label has NaN"),
        ({"nan": "label", "subject": replace(SUBJECT, nan=None)}, "apply", "ok", "label"),
        ({"predicted": [10, 40, 161]}, "preflight", "no", "load of 161, and it was 160"),
        ({"subject": BARE}, "preflight", "no", "lengths"),
    ],
)
def test_what_is_wrong_with_it(change: dict[str, Any], check: str, word: str, part: str) -> None:
    every = found(**change)
    assert WORDS[every[check].status] == word
    assert part in f"{every[check].said}: {every[check].hint}"
    assert every[check].hint or word == "ok" or part == "differ already"
    assert exit_code(list(every.values())) == (
        4 if "missing" in {one.status for one in every.values()} else 0
    )


def test_a_knob() -> None:
    trial = KnobTrial(name="beam", values=[4, 16], reported=[4, 16])
    for one, word in (
        (trial, "ok"),
        (replace(trial, reported=[4, 4], changes=True), "no"),
        (replace(trial, reported=[None, None], changes=True), "ok"),
        (replace(trial, reported=[None, None]), "unknown"),
        (replace(trial, reported=[], error="4: boom"), "no"),
    ):
        assert WORDS[found(knobs=[one])["knob beam"].status] == word


def test_how_far_two_rows_are_apart_and_memory_from_its_line() -> None:
    """By hand: through the second four goes 5 + 10 x, the residuals are -5, 15, -15 and 5."""
    for one, other, apart in (
        *((1, 1, 0.0), (1, 2, INFINITE), (1.0, 1.5, 0.5), (float("nan"), float("nan"), 0.0)),
        *(([1.0, "a"], [1.25, "a"], 0.25), ([1.0], [1.0, 2.0], INFINITE), ([], [], 0.0)),
        *(({"a": 1.0}, {"a": 3.0}, 2.0), ({"a": 1.0}, {"b": 1.0}, INFINITE)),
    ):
        assert distance(one, other) == apart
    assert line_of([1, 2, 3], [10, 20, 30]) == pytest.approx((1, 0), abs=1e-9)
    assert line_of([0, 1, 2, 3], [0, 30, 10, 40]) == pytest.approx((0.5, 15))


SOURCE = """
import random
import urllib.request
import numpy


def right(paragraphs, letter=3):
    return [{"n": text.count("e"), "letter": letter} for text in paragraphs]


def wrong(paragraphs, ignored=3):
    if len(paragraphs) > 50:
        raise ValueError("too many")
    return [random.random() for _ in paragraphs], 7


def online(paragraphs):
    urllib.request.urlopen("http://127.0.0.1:9")


def of_one(paragraph):
    return paragraph.upper()


def some(paragraphs, seen=[]):
    seen.append(1)
    return numpy.ones((len(paragraphs), 2)) if len(seen) < 4 else None


def vectors(paragraphs):
    return numpy.ones((len(paragraphs), 2))


def arrays(paragraphs):
    return [numpy.ones((len(text), 2)) for text in paragraphs]


def lists(paragraphs):
    return [[1.0, 2.0] for _ in paragraphs]


def infinite(paragraphs):
    return [[1.0, {"score": float("-inf")}] for _ in paragraphs]
"""


@pytest.mark.slow
def test_functions_are_tried_from_the_outside(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SOURCE, encoding="utf-8")
    right = ran("workload", "check", "own.py:right", "--json", "--device", "cpu", cwd=tmp_path)
    words = {one["check"]: one["found"] for one in json.loads(right.stdout)["answers"]}
    assert words.pop("load and memory") in {"ok", "unknown"}
    assert words.pop("find_max, verify") == "unknown"
    assert words.keys() >= {"loads", "knob batch_size", "knob letter", "preflight", "tune"}
    assert {*words.values()} == {"ok"}

    wrong = jobkit("workload", "check", "own.py:wrong", "--device", "cpu", cwd=tmp_path)
    assert wrong.returncode == 4
    assert "own.py:13: ValueError: too many" in " ".join(wrong.stdout.split())
    assert wrong.stdout.splitlines()[-1].startswith("It needs a change: no knob batch_size,")
    for check in ("deterministic", "preflight", "tune"):
        assert any(line.split()[:2] == [check, "no"] for line in wrong.stdout.splitlines()), check


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "code", "writes"),
    [
        ("vectors", 0, "vectors fp32[2], one a paragraph, columns result"),
        ("arrays", 0, "arrays fp32[*,2], one a paragraph, columns result"),
        ("lists", 0, "2 rows a paragraph on average, columns result; for one vector a paragraph"),
        ("infinite", 4, "column result has NaN or infinity"),
    ],
)
def test_what_apply_would_write(function: str, code: int, writes: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"{SOURCE}\n\ndef lengths(texts):\n    return [*map(len, texts)]\n")
    words = ("--json", "--device", "cpu", "--text", "sample:20")
    done = jobkit("workload", "check", f"own.py:{function}", *words, cwd=tmp_path)
    (apply,) = (one for one in json.loads(done.stdout)["answers"] if one["check"] == "apply")
    assert apply["what"].startswith(writes)
    assert done.returncode == code


@pytest.mark.slow
def test_what_cannot_be_loaded_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SOURCE, encoding="utf-8")
    spec = tmp_path / "own.yaml"
    spec.write_text("name: own\nworkload: ./own.py:online\nresources: {gpus: 0}\n", encoding="utf-8")
    online = jobkit("workload", "check", spec, "--device", "cpu", cwd=tmp_path)
    assert online.returncode == 2
    assert "own.py:18: URLError" in online.stderr
    assert "with no network" in online.stderr
    of_one = jobkit("workload", "check", "./own.py:of_one", "--device", "cpu", cwd=tmp_path)
    assert of_one.returncode == 2
    assert "own.py:22: AttributeError" in of_one.stderr
    assert "jobkit help workloads" in of_one.stderr
    assert "network" not in of_one.stderr
    some = jobkit("workload", "check", "./own.py:some", "--device", "cpu", cwd=tmp_path)
    assert "fails: paragraph 4: the workload returned no vectors here" in some.stderr
    assert jobkit("workload", "check", "own.py:absent", cwd=tmp_path).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("refused", [0, 1])
def test_the_network_is_gone(refused: int) -> None:
    """Whether or not the kernel gives a process a network namespace."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""
import socket, ctypes
from jobkit.setup import workload_probe
class Refuses:
    def unshare(self, flags): return -1
if {refused}: ctypes.CDLL = lambda *_, **__: Refuses()
print(workload_probe.cut_network())
try: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), timeout=5)
except OSError as error: print("refused")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    how, what = done.stdout.splitlines()
    assert (how == workload_probe.SOCKETS) or not refused
    assert what == "refused"
