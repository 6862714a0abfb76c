from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.records import Command, Outcome, Record
from jobkit.core.terminal import NoWrap
from jobkit.runs.conditions import Conditions, condition_lines, conditions_of, memory_condition
from tests.support.builders import point, record

NEW, OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
SEGMENTS = "expandable_segments:True"


def tried(
    environment: dict[str, str] | None = None,
    torch: str = "2.11.0+cu130",
    *,
    device: str = "cuda",
    precision: str | None = "fp32",
    mps: str = "off",
    workers: int = 1,
) -> Record:
    environment = {NEW: SEGMENTS, OLD: SEGMENTS} if environment is None else environment
    found = record(replace(point(device=device), precision=precision, workers=workers))
    return replace(
        found,
        environment=environment,
        versions={"torch": torch} if torch else {},
        mps=mps,
        effective={**found.effective, "precision": precision},
    )


def known(of: Record) -> Conditions:
    found = conditions_of(of)
    assert found
    return found


def test_the_allocator_stands_under_the_name_that_its_torch_reads() -> None:
    for torch, environment, names in (
        ("2.11.0+cu130", {NEW: SEGMENTS, OLD: SEGMENTS}, [NEW]),
        ("2.9.0", {OLD: SEGMENTS}, [NEW]),  # an alias
        ("2.8.1", {NEW: "max_split_size_mb:64", OLD: SEGMENTS}, [OLD]),
        ("nightly", {NEW: SEGMENTS, OLD: SEGMENTS}, [NEW, OLD]),
    ):
        found = known(tried(environment, torch, precision=None))
        assert found.lines == tuple(f"export {name}={SEGMENTS}" for name in names)


def test_the_default_allocator_a_cpu_and_a_command_need_no_line() -> None:
    default = tried({NEW: "", "HOSTNAME": "n1"}, precision=None)
    on_cpu = tried({}, device="cpu")
    of_program = replace(on_cpu, point=replace(point(), command=Command(template="tag {input}")))
    assert known(default).lines == known(on_cpu).lines == ()
    assert memory_condition([default]) == ", with PyTorch's default allocator"
    assert memory_condition([on_cpu]) == memory_condition([of_program]) == ""
    assert conditions_of(of_program) is None


def test_a_record_without_its_environment_shows_no_allocator() -> None:
    bare = tried({}, precision=None)
    found = known(bare)
    assert (found.allocator, found.unknown, found.lines) == (None, ("PyTorch's allocator setting",), ())
    assert "Not recorded: PyTorch's allocator setting" in "\n".join(condition_lines(found))
    assert "not recorded" in memory_condition([bare])
    failed = replace(bare, outcome=Outcome.BUG)
    assert memory_condition([failed, tried()]) == f", with {SEGMENTS}", "of points that succeeded"
    assert memory_condition([failed]) == ""


OFF = "export NVIDIA_TF32_OVERRIDE=0"


@pytest.mark.parametrize(
    ("precision", "override", "line", "words"),
    [
        ("fp32", None, OFF, "fp32 without TF32"),
        ("tf32", None, "# in Python: torch.backends.cuda.matmul.allow_tf32 = ", "tf32"),
        (None, "0", OFF, "precision and TF32 as the framework sets them"),
        (None, None, "", "precision and TF32 as the framework sets them"),
    ],
)
def test_tf32_is_as_jobkit_set_it(precision: str | None, override: str | None, line: str, words: str) -> None:
    environment = {NEW: ""} | ({"NVIDIA_TF32_OVERRIDE": override} if override else {})
    found = known(tried(environment, precision=precision))
    assert "".join(found.lines)[: len(line) or None] == line
    assert f"; {words}; " in found.words


@pytest.mark.slow
def test_the_lines_are_shell_and_start_a_daemon_of_ones_own(tmp_path: Path) -> None:
    """A shell reads them as they are printed; the settings arrive, and the daemon ends with the job."""
    strange = "expandable_segments:True;$(touch hurt)"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(
        f'#!/bin/sh\n[ "$1" = -d ] || read -r word\n'
        f'echo "$1 $word $CUDA_MPS_PIPE_DIRECTORY" >> {tmp_path}/called\n',
        encoding="utf-8",
    )
    control.chmod(0o755)
    of = tried({NEW: strange}, mps="on", workers=2)
    printed = [line for line in condition_lines(conditions_of(of)) if isinstance(line, NoWrap)]
    script = "\n".join(["set -eu", *printed, "env -0"])
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        ["/bin/bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    variables = dict(pair.partition("=")[::2] for pair in ran.stdout.split("\0") if pair)
    assert (variables[NEW], variables["NVIDIA_TF32_OVERRIDE"]) == (strange, "0")
    assert not (tmp_path / "hurt").exists()
    folder = variables["CUDA_MPS_PIPE_DIRECTORY"]
    assert (tmp_path / "called").read_text().split("\n")[:2] == [f"-d  {folder}", f" quit {folder}"]
