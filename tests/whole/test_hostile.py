"""Bad input of every kind: jobkit reports it or uses it unchanged; no shell or terminal obeys any of it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from benchmarks.hostile import run_case
from jobkit.cli import _exit_code
from jobkit.core.command_list import LISTED
from jobkit.core.errors import JobkitError
from jobkit.core.layout import Exit
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.launch.cancel import cancel
from jobkit.launch.resume import run_again
from jobkit.report.tables import collect
from jobkit.runs.reader import read_status
from tests.support.builders import (
    grid,
    record,
    write_answer,
    write_begin,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.commands import ran
from tests.support.corpora import plan, read_all
from tests.whole.specs import write_spec

pytestmark = pytest.mark.fault

EVIL = "ab $`\"'()&;|<>*?[]{}!#~\\é中 $(touch pwned)`touch pwned`; touch pwned;x"


def test_a_long_paragraph_and_names_that_a_shell_would_run(tmp_path: Path) -> None:
    """FAULT: spaces, quotes, `$( )`, stars, non-ASCII letters, `~` in paths and values; a paragraph of 5 MB.

    HOW: real: such names for the folder, the text and a variable, and such a text: a whole sweep by bash.
    REPORTED: nothing: they are names like any other, and no shell runs them; the text is one item with a
    large load.
    LOST: nothing.
    """
    home = tmp_path / EVIL
    home.mkdir()
    (home / "~").write_text("word " * 1_000_000 + "\n", encoding="utf-8")
    sizes = {"batch_size": [1]}
    write_spec(home, text="./~", sweep=sizes, environment={"variables": {"NOTE": EVIL}})
    ran("sweep", "spec.yaml", cwd=home)
    (path,) = home.glob("runs/*/results/*/try-1/record.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["outcome"] == "ok"
    assert (found["summary"]["items"], found["summary"]["load_max"]) == (1, 5_000_001)
    assert not [one for one in home.parent.rglob("*") if one.name == "pwned"]


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
    others = "job.sh sweep.yaml lengths.json find_max.json trials.jsonl .driver.lock .lock"
    for name in others.split():
        (run / name).touch()
    (run / "logs").mkdir()
    (run / "logs" / "7_2.out").touch()
    for path in [one for one in run.rglob("*") if one.is_file()]:
        kept = path.rename(tmp_path / "kept")
        os.mkfifo(path)
        for command in (
            lambda: collect([run]),
            lambda: read_status([run]),
            lambda: run_again(run, (), ()),
            lambda: cancel(run, [], []),
        ):
            with contextlib.suppress(JobkitError):
                command()
        if path.name == "record.json":
            assert f"{path}: cannot be read: not a regular file" in "\n".join(collect([run]).notes)
        path.unlink()
        kept.rename(path)


def test_no_hostile_file_spec_or_record_makes_a_command_crash_or_block(tmp_path: Path) -> None:
    """FAULT: a file, a key of a spec or a value of a run is a device, NaN, 100,000 brackets and the like.

    HOW: real: some cases of `benchmarks.hostile`, which makes any number by a seed.
    REPORTED: a sentence, and an exit code of `jobkit`; never a traceback.
    LOST: nothing.
    """
    for number in range(45):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert [(number, words, said) for words, said in run_case(0, number, folder) if said] == []


def test_a_name_that_is_not_utf_8_is_read_and_named(tmp_path: Path) -> None:
    """FAULT: the name of a folder and of a file of a corpus is not UTF-8.

    HOW: real: a byte 0xff in both.
    REPORTED: the name, with that byte escaped.
    LOST: nothing.
    """
    folder, run = tmp_path / os.fsdecode(b"in-\xff"), tmp_path / "run"
    folder.mkdir()
    run.mkdir()
    (folder / os.fsdecode(b"t\xff.txt")).write_text("one\n\ntwo\n", encoding="utf-8")
    found = read_all(run, plan(run, scan(find_sources([str(folder)])), 2))
    assert [(one.document, one.text.strip()) for one in found] == [
        ("in-\\xff/t\\xff.txt", text) for text in ("one", "two")
    ]


HOSTILE = (
    "=1+1 \x1b[2J\x1b]0;owned\x07\x1b[31m \x9b31m \u202eevil\u2066 \x7f\r\u2028"
    "[click](http://evil.example) http://evil.example www.evil.example <script>x</script> | `x` [/bold]"
)
RUN = "runs/run"
KEPT = (
    "run_id point_id path sha256 workload device order event role at outcome started_at ended_at "
    "scheduler kind stdout cluster job_id task_id fingerprint profile"
)
"""Keys whose values commands look things up by."""


def poisoned(data: Any, key: str = "") -> Any:
    """Return JSON with hostile text in every string that is free text."""
    if isinstance(data, dict):
        return {name: poisoned(value, name) for name, value in data.items()}
    if isinstance(data, list):
        return [poisoned(value, key) for value in data]
    return HOSTILE if isinstance(data, str) and key not in KEPT.split() else data


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a run of two points, one of which failed, and hostile text in all its files."""
    folder = tmp_path_factory.mktemp("home")
    write_spec(folder, content=f"One {HOSTILE}\n\nTwo.\n")
    (folder / "job.sh").write_text(f"#!/bin/bash\n#SBATCH --bogus={HOSTILE}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert _exit_code(["sweep", "spec.yaml"]) == 0
        (run,) = (folder / "runs").iterdir()
        for path in run.rglob("*.json*"):
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("".join(json.dumps(poisoned(json.loads(line))) + "\n" for line in lines))
        kept = run / "results" / "batch_size-1-r1" / "try-1" / "record.json"
        record = json.loads(kept.read_text(encoding="utf-8"))
        record["metrics"] = {name: {"value": 1.5, "unit": HOSTILE} for name in (HOSTILE, "f1")}
        kept.write_text(json.dumps(record), encoding="utf-8")
        failed = run / "results" / "batch_size-2-r1" / "try-1"
        (failed / "record.json").unlink()
        (failed / "exit").write_text(f"status=1\nstage=run\nmessage={HOSTILE}\nhost={HOSTILE}\n")
        for log in (run / "logs").iterdir():
            log.write_text(f"\x1b[32mgreen\x1b[0m {HOSTILE}\nTraceback\n", encoding="utf-8")
        run.rename(run.with_name("run"))
        yield folder


METRIC = f"objective={json.dumps({'metric': HOSTILE, 'direction': 'max'})}"
FIELDS = "name text site template model.name resources.queue resources.walltime environment.setup"
FIELD_VALUES = [
    f"{field}={json.dumps([HOSTILE] if field.endswith('setup') else HOSTILE)}" for field in FIELDS.split()
]
"""Changes of fields of a spec that take text."""
WORDS: dict[str, list[list[str]]] = {
    "init": [["new \x1b[31m"]],
    "doctor": [["spec.yaml"], ["spec.yaml", "--json"], [HOSTILE]],
    "sweep": [[HOSTILE], *(["spec.yaml", "--dry-run", "--set", value] for value in (HOSTILE, *FIELD_VALUES))],
    "preflight": [["spec.yaml"], ["spec.yaml", "--json"], [HOSTILE]],
    "workload": [["check", HOSTILE], ["check", "spec.yaml", "--text", "nowhere"]],
    "status": [[RUN], [RUN, "2"], [RUN, "--json"], [RUN, "--watch"], [HOSTILE]],
    "logs": [[RUN, "2"], [RUN, "2", "-f"], [RUN, HOSTILE]],
    "resume": [[RUN, "--only", HOSTILE], [RUN]],
    "cancel": [[RUN], [RUN, HOSTILE]],
    "collect": [[RUN], *([RUN, "--format", name] for name in ("csv", "md", "json")), [HOSTILE]],
    "recommend": [
        *([RUN, *words] for words in ((), ("--json",), ("--set", METRIC))),
        [RUN, "--set", "objective.metric=f1", "--set", "objective.direction=max"],
        [RUN, "--set", f"constraints={json.dumps({HOSTILE: {'min': 2}})}"],
        [HOSTILE],
    ],
    "report": [[RUN], [RUN, "--output", f"{HOSTILE}/x"], [HOSTILE]],
    "compare": [[RUN, RUN], [RUN, RUN, "--json"], [HOSTILE, HOSTILE]],
    "waste": [[RUN], [RUN, "--json"], [HOSTILE]],
    "apply": [
        [RUN, "--corpus", HOSTILE, "--out", "tagged"],
        [RUN, "--corpus", "spec.yaml", "--out", HOSTILE, "--dry-run"],
        ["spec.yaml", "--corpus", "spec.yaml", "--out", "tagged", "--set", HOSTILE],
    ],
    "merge": [[RUN], [RUN, "--output", HOSTILE], [HOSTILE]],
    "verify": [[RUN], [RUN, "--gpu-memory", HOSTILE]],
    "tune": [[RUN], [RUN, "--json"], ["spec.yaml", "--set", f"tune.budget={HOSTILE}"]],
    "profile": [[RUN], [RUN, "1"], [RUN, HOSTILE]],
    "emit": [[HOSTILE], ["metric=f1", f"value={HOSTILE}"], [f"metric={HOSTILE}", "value=1"]],
    "models": [[], [HOSTILE]],
    "lint": [["job.sh"], ["job.sh", "--json"], [HOSTILE]],
    "practice": [["status", "--dir", HOSTILE], ["break", "node", "--dir", HOSTILE], ["up", HOSTILE]],
    "schema": [[]],
    "help": [[], [HOSTILE]],
}


def obeyed(text: str) -> set[str]:
    """Return the characters of a text by which a terminal is steered."""
    return {
        char
        for char in text
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and char not in "\n\t"
    }


@pytest.mark.parametrize("command", LISTED)
def test_no_command_lets_text_steer_the_terminal(
    home: Path, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """FAULT: names, messages, logs and arguments hold escape sequences, C1 controls and right-to-left marks.

    HOW: real: every command, on a run folder in which every file has them, and with such arguments.
    REPORTED: the text, with these characters escaped; `jobkit logs` keeps colours.
    LOST: nothing.
    """
    monkeypatch.chdir(home)
    for words in WORDS[command]:
        code = _exit_code([command, *words])
        said = "".join(capfd.readouterr())
        if command == "logs":
            said = said.replace("\x1b[32m", "").replace("\x1b[0m", "").replace("\x1b[31m", "")
        assert said
        assert code != 1, said
        assert obeyed(said) == set(), words


def test_no_cell_of_a_table_is_a_formula(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """FAULT: a message begins with `=`, as a formula in a spreadsheet does, or holds Markdown or HTML.

    HOW: real: `jobkit collect --format csv` and `--format md` on such records.
    REPORTED: CSV has a quote before it, and numbers stay numbers; in Markdown it is plain text: no link, \
    no HTML, no extra cell.
    LOST: nothing.
    """
    monkeypatch.chdir(home)
    _exit_code(["collect", "runs/run", "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    cells = [cell for row in rows for pair in row.items() for cell in pair]
    assert any(cell.startswith("'=1+1") for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert float(rows[0]["items_per_s"]) > 0
    _exit_code(["collect", "runs/run", "--format", "md"])
    markdown = capfd.readouterr().out
    assert "evil.example" in markdown
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    kinds = {one.type for token in tokens for one in (token, *(token.children or ()))}
    assert not kinds & {"link_open", "html_inline", "html_block", "image"}
    assert "http://evil.example" not in "".join(
        one.content for token in tokens for one in token.children or () if one.type == "text"
    )
