"""Bad input of every kind: jobkit reports it or uses it unchanged, and no shell runs any of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core import json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.layout import Exit
from jobkit.core.records import Outcome
from jobkit.launch.cancel import cancel
from jobkit.launch.resume import run_again
from jobkit.report.tables import collect
from jobkit.runs.reader import read_standings
from jobkit.spec.sweep_spec import load_spec
from jobkit.spec.yaml_files import MOST_SHOWN
from tests.support.builders import (
    grid,
    record,
    try_folder,
    write_answer,
    write_begin,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.commands import jobkit

pytestmark = pytest.mark.fault

SPEC = """\
name: t
workload: count
text: %s
sweep: {batch_size: [1]}
repeats: 1
resources: {gpus: 0, cpus: 1}
scheduler: local
"""


def sweep(folder: Path, spec: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "spec.yaml").write_text(spec, encoding="utf-8")
    return jobkit("sweep", "spec.yaml", *arguments, cwd=folder)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("repeats=!!int abc", "the value is not YAML: 'abc' is no !!int"),
        ("repeats=!!bool abc", "the value is not YAML: 'abc' is no !!bool"),
        (f"repeats={'9' * 5000}", f"the value is not YAML: '{'9' * 40}' is no !!int"),
        ("name=!!timestamp 2020-13-45", "the value is not YAML: !!timestamp is not used here"),
        ("name=!mine x", "the value is not YAML: !mine is not used here"),
        ("sweep={batch_size: [1], batch_size: [2]}", "batch_size: given twice, first on line 1"),
        ("sweep=&a [*a]", "the value is not YAML: it cannot be read"),
        ("name=\udcff", "the value is not YAML: it cannot be read"),
        ('text="a\\0b"', "'a\\x00b': a NUL character, which no file name, variable or line of a script can"),
        ('environment.variables={A: "\\0"}', "'\\x00': a NUL character"),
        ('environment.variables={"\\0": a}', "'\\x00': a NUL character"),
        ("resources.walltime=-5m", "resources.walltime: '-5m': duration '-5m': not understood"),
        ("resources.walltime=0s", "duration '0s': must be more than 0"),
        ("resources.walltime=1000000000000s", "duration '1000000000000s': more than ten years"),
        (f"resources.walltime={'9' * 5000}s", "not understood"),
        ("repeats=1000000000", "repeats: 1 setting x 1,000,000,000 would be 1,000,000,000 points; a run has"),
        ("repeats=true", "repeats: True: should be a whole number above 0, auto, or a mapping"),
        ("repeats=1000000001", "should be at most 1,000,000,000"),
        ("sweep.batch_size=[100000000000000000000]", "should be at most 1,000,000,000"),
    ],
)
def test_a_value_that_cannot_be(tmp_path: Path, override: str, said: str) -> None:
    """FAULT: a value of `--set` has a wrong YAML tag, the same key twice, a NUL, a loop, or an absurd size.

    HOW: real: such overrides, for example a billion repeats and a walltime of 10^12 s.
    REPORTED: the override and its fault, at once; exit code 2, nothing is planned or written.
    LOST: nothing.
    """
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC % "sample", encoding="utf-8")
    with pytest.raises(JobkitError) as caught:
        load_spec(path, (override,))
    lines = [line.strip() for line in caught.value.message.splitlines()[1:]]
    shown = override if len(override) <= MOST_SHOWN else f"{override[:MOST_SHOWN]}..."
    assert all(line.startswith(f"--set {shown}: ") for line in lines)
    assert said in lines[0] + lines[-1]
    assert caught.value.exit_code == 2


def test_one_paragraph_of_five_megabytes(tmp_path: Path) -> None:
    """FAULT: the text is one paragraph of 5 MB.

    HOW: real: `jobkit sweep` on such a file.
    REPORTED: nothing: it is one item with a large load.
    LOST: nothing.
    """
    (tmp_path / "text").write_text("word " * 1_000_000 + "\n", encoding="utf-8")
    done = sweep(tmp_path, SPEC % "text")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("runs/*/results/*/try-1/record.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["summary"]["items"], found["summary"]["load_max"]) == (1, 5_000_001)


EVIL = "ab $`\"'()&;|<>*?[]{}!#~\\é中 $(touch pwned)`touch pwned`; touch pwned;x"


@pytest.mark.parametrize("name", ["~", EVIL], ids=["home", "evil"])
def test_nothing_in_a_path_or_a_value_is_run_by_a_shell(tmp_path: Path, name: str) -> None:
    """FAULT: spaces, quotes, `$( )`, stars and non-ASCII letters in paths and values.

    HOW: real: such names for the folder, the text and a variable, whole sweeps by bash.
    REPORTED: nothing: they are names like any other, and no shell runs them.
    LOST: nothing.
    """
    home = tmp_path / name
    home.mkdir()
    (home / name).write_text("One.\n\nTwo.\n", encoding="utf-8")
    note = json.dumps(name, ensure_ascii=False)
    spec = SPEC % json.dumps(f"./{name}", ensure_ascii=False)
    spec += f"environment:\n  variables: {{NOTE: {note}}}\n"
    done = sweep(home, spec)
    assert done.returncode == 0, done.stderr
    (path,) = home.glob("runs/*/results/*/try-1/record.json")
    assert json.loads(path.read_text(encoding="utf-8"))["outcome"] == "ok"
    assert not [one for one in home.parent.rglob("*") if one.name == "pwned"]


def test_records_that_are_spoilt(tmp_path: Path) -> None:
    """FAULT: records are half-written, of a newer schema, of another point, or not JSON.

    HOW: real: such files in a run folder, `jobkit collect`.
    REPORTED: each with its path and what is wrong; the point is `lost` unless another source has its
    outcome.
    LOST: the contents of the damaged record; every other point is read.
    """
    points = grid([50, 100, 200, 300, 400])
    run = write_points(tmp_path / "run", points)
    write_record(run, record(points[0]))
    text = json_codec.to_json(record(points[1]))
    for of, spoilt in zip(
        points[1:],
        (
            text[: len(text) // 2],
            re.sub(r"\"schema\": \d+", '"schema": 99', text, count=1),
            text,
            "\x00\xff noise",
        ),
        strict=True,
    ):
        (try_folder(run, of) / "record.json").write_text(spoilt, encoding="utf-8")
        write_exit(run, of, Exit(status=0, stage="done"))
    found = collect([run])
    assert found.points["outcome"].tolist()[0] == Outcome.OK
    # The half record, the newer one and the noise; the third file is point 2's own record.
    notes = "\n".join(found.notes)
    assert "not JSON" in notes
    assert "schema 99 is newer than this jobkit's" in notes
    assert "of another point" in notes
    assert found.exit_code == 4


def test_a_record_that_came_home_twice_counts_once(tmp_path: Path) -> None:
    """FAULT: one point has two successful tries.

    HOW: real: two records, as a scheduler leaves them after it requeued a finished task.
    REPORTED: the point once; both tries are kept.
    LOST: nothing.
    """
    points = grid([50])
    run = write_points(tmp_path / "run", points)
    write_record(run, record(points[0]))
    second = try_folder(run, points[0], 2)
    (second / "record.json").write_text(json_codec.to_json(record(points[0])), encoding="utf-8")
    found = collect([run])
    assert found.points["outcome"].tolist() == [Outcome.OK]
    assert found.points["tries"].tolist() == [2]


@pytest.fixture
def alarm() -> Iterator[None]:
    """Fail a test that blocks."""

    def ring(*_: object) -> None:
        pytest.fail("it blocks")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_a_fifo_in_place_of_a_file(tmp_path: Path) -> None:
    """FAULT: a FIFO has the name of a file of a run.

    HOW: real: each file of a run in turn; collect, status, resume and cancel.
    REPORTED: "not a regular file", with its path, if the command needs the file; no command blocks.
    LOST: the contents of such a file.
    """
    points = grid([50, 100])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "local", "7", first=1, last=2)
    write_answer(run, "local", "accounting", "{}", argv=[])
    write_record(run, record(points[0]))
    write_begin(run, points[1], scheduler="local", job=7, task=2)
    write_exit(run, points[1], Exit(status=0, stage="done"))
    for name in (
        "job.sh",
        "sweep.yaml",
        "lengths.json",
        "find_max.json",
        "trials.jsonl",
        ".driver.lock",
        ".lock",
    ):
        (run / name).touch()
    (run / "logs").mkdir()
    (run / "logs" / "7_2.out").touch()
    for path in [one for one in run.rglob("*") if one.is_file()]:
        kept = path.rename(tmp_path / "kept")
        os.mkfifo(path)
        for what in (collect, read_standings):
            with contextlib.suppress(JobkitError):
                what([run])
        with contextlib.suppress(JobkitError):
            run_again(run, (), ())
        with contextlib.suppress(JobkitError):
            cancel(run, [], [])
        if path.name == "record.json":
            assert f"{path}: cannot be read: not a regular file" in "\n".join(collect([run]).notes)
        path.unlink()
        kept.rename(path)
