from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.records import Command, Outcome, Record
from jobkit.core.terminal import NoWrap
from jobkit.runs.conditions import condition_lines, conditions_of, memory_condition
from tests.support.builders import point, record

NEW, OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
OWN = "precision and TF32 as the framework sets them"
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


def lines(of: Record) -> tuple[str, ...]:
    found = conditions_of(of)
    assert found
    return found.lines


@pytest.mark.parametrize(
    ("torch", "names"),
    [
        ("2.11.0+cu130", (NEW,)),
        ("2.9.0", (NEW,)),
        ("2.8.1", (OLD,)),
        ("1.13.1+cu117", (OLD,)),
        ("", (NEW, OLD)),
        ("nightly", (NEW, OLD)),
    ],
)
def test_the_allocator_stands_under_the_name_that_its_torch_reads(torch: str, names: tuple[str, ...]) -> None:
    assert lines(tried(torch=torch, precision=None)) == tuple(f"export {name}={SEGMENTS}" for name in names)


def test_the_setting_is_the_recorded_one_of_the_name_that_counts() -> None:
    both = {NEW: "max_split_size_mb:64", OLD: SEGMENTS}
    assert lines(tried(both, precision=None)) == (f"export {NEW}=max_split_size_mb:64",)
    assert lines(tried(both, "2.8.0", precision=None)) == (f"export {OLD}={SEGMENTS}",)
    assert lines(tried({OLD: SEGMENTS}, precision=None)) == (f"export {NEW}={SEGMENTS}",), "an alias"


def test_the_default_allocator_a_cpu_and_a_command_need_no_line() -> None:
    default = tried({NEW: "", "HOSTNAME": "n1"}, precision=None)
    assert lines(default) == ()
    assert memory_condition([default]) == ", with PyTorch's default allocator"
    on_cpu = tried({}, device="cpu")
    assert lines(on_cpu) == ()
    assert memory_condition([on_cpu]) == ""
    words = list(condition_lines(conditions_of(on_cpu)))
    assert words == ["Conditions: largest batch first; fp32; 1 worker with 2 CPU threads."]
    own = conditions_of(tried({}, device="cpu", precision=None))
    assert own
    assert own.words == "largest batch first; 1 worker with 2 CPU threads"
    of_program = replace(on_cpu, point=replace(point(), command=Command(template="tag {input}")))
    assert conditions_of(of_program) is None
    assert list(condition_lines(None)) == []
    assert memory_condition([of_program]) == ""


def test_a_record_without_its_environment_shows_no_allocator() -> None:
    bare = tried({}, precision=None)
    found = conditions_of(bare)
    assert found
    assert (found.allocator, found.unknown, found.lines) == (None, ("PyTorch's allocator setting",), ())
    text = "\n".join(condition_lines(found))
    assert "Not recorded: PyTorch's allocator setting" in text
    assert "not measured" in text
    assert "not recorded" in memory_condition([bare])


def test_the_condition_of_memory_is_that_of_points_that_succeeded() -> None:
    failed = replace(tried({}), outcome=Outcome.BUG)
    assert memory_condition([failed, tried()]) == f", with {SEGMENTS}"
    assert memory_condition([failed]) == ""


@pytest.mark.parametrize(
    ("precision", "override", "line"),
    [
        ("fp32", None, "export NVIDIA_TF32_OVERRIDE=0"),
        ("bf16", None, "export NVIDIA_TF32_OVERRIDE=0"),
        (None, "0", "export NVIDIA_TF32_OVERRIDE=0"),
        (None, None, ""),
        ("tf32", None, "# in Python: torch.backends.cuda.matmul.allow_tf32 = "),
    ],
)
def test_tf32_is_as_jobkit_set_it(precision: str | None, override: str | None, line: str) -> None:
    environment = {"HOSTNAME": "n1"} | ({"NVIDIA_TF32_OVERRIDE": override} if override else {})
    assert "".join(lines(tried(environment, precision=precision)))[: len(line) or None] == line


@pytest.mark.parametrize(
    ("precision", "words"), [("fp32", "fp32 without TF32"), ("tf32", "tf32"), (None, OWN)]
)
def test_the_conditions_stand_in_words(precision: str | None, words: str) -> None:
    found = conditions_of(tried(precision=precision, workers=4, mps="off: no daemon"))
    assert found
    assert (
        found.words == f"allocator {SEGMENTS}; largest batch first; {words}; 4 workers on a GPU, without MPS"
    )
    several = replace(tried(workers=4, mps="on"), point=replace(tried().point, workers=4, gpus=2))
    assert "4 workers on each of 2 GPUs, with MPS" in (conditions_of(several) or found).words


def test_shortcuts_are_a_condition_that_no_line_can_set() -> None:
    exact = tried()
    exact = replace(exact, effective={**exact.effective, "shortcuts": "exact"})
    assert (found := conditions_of(exact))
    assert "shortcuts exact, which only jobkit has" in found.words
    refused = replace(exact, effective={**exact.effective, "shortcuts": "off: entities differ"})
    assert (found := conditions_of(refused))
    assert "shortcuts" not in found.words


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
