"""Text from records, logs, specs and names that could control a terminal or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from jobkit.cli import _exit_code
from jobkit.commands.listing import LISTED

pytestmark = pytest.mark.fault

HOSTILE = (
    "=1+1 \x1b[2J\x1b]0;owned\x07\x1b[31m \x9b31m \u202eevil\u2066 \x7f\r\u2028"
    "[click](http://evil.example) http://evil.example www.evil.example <script>x</script> | `x` [/bold]"
)
SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [1, 2]}
repeats: 1
resources: {gpus: 0, cpus: 1}
scheduler: local
"""
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
    (folder / "text.txt").write_text(f"One {HOSTILE}\n\nTwo.\n", encoding="utf-8")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
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


WORDS: dict[str, list[list[str]]] = {
    "init": [["new \x1b[31m"]],
    "doctor": [["spec.yaml"], ["spec.yaml", "--json"], [HOSTILE]],
    "sweep": [["spec.yaml", "--dry-run"], [HOSTILE], ["spec.yaml", "--set", HOSTILE]],
    "preflight": [["spec.yaml"], ["spec.yaml", "--json"], [HOSTILE]],
    "workload": [["check", HOSTILE], ["check", "spec.yaml", "--text", "nowhere"]],
    "status": [["runs/run"], ["runs/run", "2"], ["runs/run", "--json"], ["runs/run", "--watch"], [HOSTILE]],
    "logs": [["runs/run", "2"], ["runs/run", "2", "-f"], ["runs/run", HOSTILE]],
    "resume": [["runs/run", "--only", HOSTILE], ["runs/run"]],
    "cancel": [["runs/run"], ["runs/run", HOSTILE]],
    "throttle": [["runs/run", "2"], ["runs/run", HOSTILE]],
    "collect": [["runs/run"], *(["runs/run", "--format", name] for name in ("csv", "md", "json")), [HOSTILE]],
    "recommend": [
        ["runs/run"],
        ["runs/run", "--json"],
        ["runs/run", "--set", f"objective={json.dumps({'metric': HOSTILE, 'direction': 'max'})}"],
        ["runs/run", "--set", "objective.metric=f1", "--set", "objective.direction=max"],
        ["runs/run", "--set", f"constraints={json.dumps({HOSTILE: {'min': 2}})}"],
        [HOSTILE],
    ],
    "report": [["runs/run"], ["runs/run", "--output", f"{HOSTILE}/x"], [HOSTILE]],
    "compare": [["runs/run", "runs/run"], ["runs/run", "runs/run", "--json"], [HOSTILE, HOSTILE]],
    "waste": [["runs/run"], ["runs/run", "--json"], [HOSTILE]],
    "apply": [
        ["runs/run", "--corpus", HOSTILE, "--out", "tagged"],
        ["runs/run", "--corpus", "spec.yaml", "--out", HOSTILE, "--dry-run"],
        ["spec.yaml", "--corpus", "spec.yaml", "--out", "tagged", "--set", HOSTILE],
        [HOSTILE, "--corpus", "spec.yaml", "--out", "tagged"],
    ],
    "merge": [["runs/run"], ["runs/run", "--output", HOSTILE], [HOSTILE]],
    "verify": [["runs/run"], ["runs/run", "--gpu-memory", HOSTILE]],
    "shell": [["spec.yaml"], ["runs/run", "--point", HOSTILE], ["spec.yaml", "--set", HOSTILE], [HOSTILE]],
    "tune": [["runs/run"], ["runs/run", "--json"], ["spec.yaml", "--set", f"tune.budget={HOSTILE}"]],
    "profile": [["runs/run"], ["runs/run", "1"], ["runs/run", HOSTILE]],
    "emit": [[HOSTILE], ["metric=f1", f"value={HOSTILE}"], [f"metric={HOSTILE}", "value=1"]],
    "models": [["path", HOSTILE], ["list"]],
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


TEXTS = "name workload text scheduler site template device order model.name model.size"
RESOURCES = "queue gpu_type account qos constraint mail memory walltime exclude"
FIELDS = (
    *TEXTS.split(),
    *(f"environment.{name}" for name in ("conda", "venv", "container", "modules", "setup")),
    *(f"resources.{name}" for name in RESOURCES.split()),
    *("policy.gpu_oom", "find_max.memory", HOSTILE),
)


def test_no_field_of_a_spec_lets_text_steer_the_terminal(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """FAULT: a field of a spec holds escape sequences, C1 controls and right-to-left marks.

    HOW: real: `jobkit sweep --dry-run` with such a value in each field that takes text.
    REPORTED: the value, with these characters escaped.
    LOST: nothing.
    """
    monkeypatch.chdir(home)
    for field in FIELDS:
        lists = field.endswith(("modules", "setup", "exclude"))
        value = json.dumps([HOSTILE] if lists else HOSTILE)
        code = _exit_code(["sweep", "spec.yaml", "--dry-run", "--set", f"{field}={value}"])
        said = "".join(capfd.readouterr())
        assert said
        assert code != 1, said
        assert obeyed(said) == set(), field


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
