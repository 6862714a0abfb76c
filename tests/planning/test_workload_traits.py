"""Work in a separate process, which ends before the next step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from jobkit.answers.loads import NONE
from jobkit.core.errors import JobkitError
from jobkit.planning.prepare import Options, prepare
from jobkit.planning.workload_traits import run_in_child, traits
from jobkit.worker.workloads.base import ENTITY_COLUMNS
from tests.support.builders import own_workload
from tests.whole.test_imports import imported

NAPS = "import os, time\nopen(os.environ['TOLD'], 'w').write(str(os.getpid()))\ntime.sleep(600)\n"


def code(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a function that a child can call, and return its name."""
    (folder / "task.py").write_text(f"import os, sys\ndef task(*given, say):\n    {body}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "task:task"


@pytest.mark.slow
def test_a_result_comes_from_another_process_that_sees_no_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    body = "say('on it'); print('noise'); return [os.getpid(), os.environ['CUDA_VISIBLE_DEVICES'], *given]"
    name, said = code(tmp_path, body, monkeypatch), list[str]()
    pid, cards, *given = run_in_child(name, "a", [1], say=said.append, what="trying")
    assert (cards, given, said) == ("", ["a", [1]], ["on it"])
    assert not Path(f"/proc/{pid}").exists()
    assert run_in_child(name, say=said.append, what="trying", gpus=True)[1] == "3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no\\nsuch thing')", "trying failed: ValueError: no such thing"),
        ("from jobkit.core.errors import JobkitError as E; raise E('mine', hint='h')", "^mine\n  hint: h"),
        ("os.kill(os.getpid(), 9)", "trying failed: its process was killed by signal 9"),
        ("sys.stderr.write('one\\nlast words'); os._exit(3)", "its process ended with 3: last words"),
    ],
)
def test_a_failure_is_reported_in_words(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = code(tmp_path, body.replace("\n", "\\n"), monkeypatch)
    with pytest.raises(JobkitError, match=said) as caught:
        run_in_child(name, say=print, what="trying")
    assert caught.value.hint


@pytest.mark.slow
def test_an_interrupted_training_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(NAPS)
    told, cache = tmp_path / "told", tmp_path / "cache"
    env = os.environ | {"PYTHONPATH": str(tmp_path), "TOLD": str(told), "JOBKIT_CACHE": str(cache)}
    argv = [sys.executable, "-m", "jobkit", "models", "build"]
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (told.exists() and told.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (130, "jobkit: interrupted")
    assert not Path(f"/proc/{told.read_text()}").exists()
    assert [path.name for path in (cache / "models").iterdir() if path.is_dir()] == []


@pytest.mark.long
@pytest.mark.fault
def test_a_sweep_with_a_model_imports_no_framework(
    tmp_path: Path, kept_cache: Path, tiny_model: object
) -> None:
    """FAULT: jobkit itself would use the GPU on which points are measured.

    HOW: real: a sweep with a model, which needs the lengths first; the test looks at the modules that jobkit
    has imported.
    REPORTED: nothing: training and tokenizing run in processes that end before a point starts.
    LOST: nothing.
    """
    assert tiny_model
    (tmp_path / "models").symlink_to(kept_cache / "models")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "name: t\ntext: sample:5\nmodel: {size: tiny, fallback: stand-in}\nscheduler: local\n"
        "sweep: {batch_size: 3}\nrepeats: 1\nfind_max: {verify: false}\n"
        "resources: {gpus: 0, walltime: 5m, memory: 2GiB}\nenvironment: {setup: ['exit 1']}\n"
    )
    arguments = ["sweep", str(spec), "--runs-dir", str(tmp_path / "runs")]
    inside = f"import os; os.environ['JOBKIT_CACHE'] = {str(tmp_path)!r}\nfrom jobkit import cli\n"
    found = imported(f"{inside}assert cli._exit_code({arguments}) == 4")
    assert "submitit" in found, "a point began here, and ended before it imported the framework itself"
    assert not {"torch", "stanza"} & found
    assert list((tmp_path / "lengths").iterdir()), "the tokenizer was asked"


@pytest.mark.slow
def test_the_columns_of_the_rows_are_known_before_anything_runs(tmp_path: Path) -> None:
    assert traits("count").columns == ("words",)
    assert traits("stanza-ner").columns == ENTITY_COLUMNS
    name = own_workload(tmp_path, "COLUMNS = ('letters', 'words')", name="own_columns")
    assert traits(name, str(tmp_path)).columns == ("letters", "words")


OWN = """
import onlyhere
from typing import Literal
import torch.nn as nn

COLUMNS = ["word", "start", "end"]
LOAD_UNIT, PADS = "words", onlyhere.PADS
LOAD_UNIT = "words"


@onlyhere.traced
def tag(paragraphs, model, weights: nn.Module = None, mode: Literal["fast", "exact"] = "fast", least=3):
    raise NotImplementedError


def lengths(paragraphs):
    return [onlyhere.SIZE for one in paragraphs]
"""


def environment(folder: Path, *, has: str) -> Path:
    """Make an environment whose Python is this one, with a module of its own; return its spec."""
    (folder / "env" / "bin").mkdir(parents=True)
    (folder / "only").mkdir()
    (folder / "only" / f"{has}.py").write_text("PADS, SIZE, traced = True, 7, lambda function: function\n")
    (folder / "env" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "env" / "bin" / "python").chmod(0o755)
    paths = f"PATH='{folder}/env/bin':$PATH PYTHONPATH='{folder}/only'"
    (folder / "env" / "bin" / "activate").write_text(f"echo ready\nexport {paths}\n")
    (folder / "mine.py").write_text(OWN.replace("import torch.nn as nn", "nn = onlyhere"))
    (folder / "spec.yaml").write_text(
        "name: mine\nworkload: ./mine.py:tag\ntext: sample:20\nmodel: {path: .}\n"
        "sweep: {batch_size: [4], mode: [fast, exact], least: [3]}\nresources: {gpus: 0}\n"
        f"scheduler: local\nenvironment: {{venv: {folder}/env, modules: []}}\n"
    )
    return folder / "spec.yaml"


@pytest.mark.slow
def test_a_file_is_looked_at_by_the_python_of_the_jobs_or_parsed(tmp_path: Path) -> None:
    spec = environment(tmp_path, has="onlyhere")
    (tmp_path / "mine.py").write_text(
        OWN.replace("import torch.nn as nn", "nn = onlyhere").replace("nn.Module", "'nn.Module'")
    )
    said: list[str] = []
    found = prepare(spec, build=True, say=said.append)
    assert (len({point.params["mode"] for point in found.points}), said) == (2, [])
    assert found.lengths is not None
    assert {length for row in found.lengths.paragraphs for length in row} == {7}
    # If its Python is not here it is parsed. No line of it runs: it would fail.
    absent = tmp_path / "absent"
    spec = environment(absent, has="onlyhere")
    (absent / "mine.py").write_text(OWN)
    (absent / "env" / "bin" / "activate").write_text("echo 'no such node' >&2; false\n")
    found = prepare(spec, build=True, say=said.append)
    assert {point.params["mode"] for point in found.points} == {"fast", "exact"}
    assert (found.lengths and found.lengths.source, "no such node" in said[0]) == (NONE, True)
    container = Options(overrides=("environment={container: mine.sif}",))
    prepare(spec, container, say=said.append)
    assert "it is in mine.sif" in said[2]


@pytest.mark.slow
def test_what_the_python_of_the_jobs_lacks_is_added_to_it_and_changes_no_framework(tmp_path: Path) -> None:
    spec = environment(tmp_path, has="another")
    with pytest.raises(JobkitError, match="No module named 'onlyhere'") as caught:
        prepare(spec)
    pip = f"{sys.executable} -m pip install onlyhere "
    assert pip in str(caught.value)
    assert f" stanza=={metadata.version('stanza')} " in str(caught.value)
