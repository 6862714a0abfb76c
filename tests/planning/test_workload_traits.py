"""Work in a separate process, which ends before the next step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
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
