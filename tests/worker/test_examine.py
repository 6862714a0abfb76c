from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobkit.worker.examine import examine, find_program, interpreter


@pytest.mark.slow
def test_it_runs_as_a_job_calls_it(tmp_path: Path) -> None:
    file = tmp_path / "examined.json"
    words = ["-m", "jobkit.worker.examine", "--device", "cpu", "--workload", "count", str(file)]
    subprocess.run([sys.executable, *words], check=True, timeout=60)
    told = json.loads(file.read_text(encoding="utf-8"))

    assert told["executable"] == sys.executable
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["workload_error"] is None
    assert told["torch"] is None, "counting words needs none"
    assert told["cpus"] >= 1


@pytest.mark.slow
@pytest.mark.xdist_group("torch")
def test_torch_is_looked_at_where_the_work_needs_it() -> None:
    import torch

    on_cpu, on_cuda = examine("cpu", "stanza-ner"), examine("cuda", "count")

    assert on_cpu["torch"]["version"] == torch.__version__
    assert "works" not in on_cpu["torch"]
    assert on_cuda["torch"]["works"] is torch.cuda.is_available()
    if not torch.cuda.is_available():
        assert "the point requests CUDA" in on_cuda["torch"]["why"]


def test_torch_that_is_broken_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as Python has it where an import must fail
    told = examine("cuda", "count")["torch"]

    assert told["version"] is None
    assert "ModuleNotFoundError" in told["error"]


def test_a_workload_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    report = examine("cpu", "no_such_package:Workload", str(tmp_path))
    assert "'no_such_package' is neither installed nor in" in report["workload_error"]
    assert report["workload_hint"]


def test_the_interpreter_that_a_script_names(tmp_path: Path) -> None:
    script = tmp_path / "script"
    lines = {
        b"#!/bin/sh\n": "/bin/sh",
        b"#! /usr/bin/env -S FOO=1 lua -i\n": "lua",
        b"#!/bin/sh\r\n": "/bin/sh\r",
        b"#!\n": "",
        b"\x7fELF": "",
    }
    for line, needs in lines.items():
        script.write_bytes(line)
        assert interpreter(script) == needs


def test_a_program_is_looked_for_on_path_with_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "tag"
    script.write_text("#!/usr/bin/env no-such-interpreter\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (find_program("tag")["path"], find_program(str(script))["is_file"]) == (None, "yes")
    script.chmod(0o755)
    found = examine("cpu", "count", program="tag")["program"]
    assert found["path"] == str(script)
    assert (found["interpreter"], found["interpreter_path"]) == ("no-such-interpreter", None)
