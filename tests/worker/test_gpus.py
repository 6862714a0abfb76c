"""Which GPUs of a node a try uses, with the NVML of tests/workloads/nvml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.worker import gpus
from jobkit.worker.failure import TryFailed
from jobkit.worker.measure import nvml
from jobkit.worker.process import CHOOSE, GPUS_BY_VARIABLE
from tests.workloads.nvml import pynvml

VISIBLE = nvml.VISIBLE_VARIABLE


@pytest.fixture(autouse=True)
def two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have two GPUs, and no variable that names one."""
    monkeypatch.setattr(nvml, "pynvml", pynvml)
    monkeypatch.setattr(gpus, "LOCKS", tmp_path)
    monkeypatch.setattr(gpus, "DEADLINE_S", 0.0)
    monkeypatch.setattr(gpus, "_held", {})
    monkeypatch.setenv(VISIBLE, "")
    monkeypatch.delenv(VISIBLE)
    for name, value in {"FAKE_CARD": "T4", "FAKE_CARDS": "2", "FAKE_HELD": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "visible", "note"),
    [
        ({VISIBLE: "", GPUS_BY_VARIABLE: CHOOSE, "SGE_HGR_gpu": "1"}, "", ""),
        ({"SGE_HGR_gpu": "1"}, None, ""),
        ({GPUS_BY_VARIABLE: CHOOSE, "SGE_HGR_gpu_card": "1"}, "1", ""),
        ({GPUS_BY_VARIABLE: CHOOSE, "SGE_HGR_cuda": "GPU2"}, None, "SGE_HGR_cuda=GPU2 names no device"),
        ({GPUS_BY_VARIABLE: ""}, None, "CUDA_VISIBLE_DEVICES is not set: of 2 GPUs the try used the first"),
        ({GPUS_BY_VARIABLE: "", "FAKE_CARDS": "1"}, None, ""),
        ({GPUS_BY_VARIABLE: CHOOSE}, "GPU-0", ""),
    ],
)
def test_only_where_nothing_names_a_gpu_the_worker_chooses(
    variables: dict[str, str], visible: str | None, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert note in (told := gpus.name_gpus(1))
    assert bool(note) is bool(told)
    assert os.environ.get(VISIBLE) == visible


def test_a_gpu_that_is_locked_or_has_a_process_is_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GPUS_BY_VARIABLE, CHOOSE)
    gpus.name_gpus(1)
    monkeypatch.delenv(VISIBLE)
    gpus.name_gpus(1)
    assert os.environ[VISIBLE] == "GPU-0", "the process of several tries keeps its GPU"
    monkeypatch.delenv(VISIBLE)
    monkeypatch.setattr(gpus, "_held", {})  # another process
    gpus.name_gpus(1)
    assert os.environ[VISIBLE] == "GPU-1"
    monkeypatch.delenv(VISIBLE)
    os.close(gpus._held.popitem()[1])
    (tmp_path / f"GPU-1.{os.getpid()}").write_text("1", encoding="ascii")
    with pytest.raises(TryFailed, match="GPU-0: another try holds it, GPU-1: a process uses it") as failed:
        gpus.name_gpus(1)
    assert failed.value.outcome is Outcome.GPU_BUSY
    assert VISIBLE not in os.environ


def test_a_gpu_in_mig_mode_is_not_chosen_and_forbids_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPUS_BY_VARIABLE, CHOOSE)
    monkeypatch.setenv("FAKE_MIG", "GPU-0")
    assert [gpu.forbids_mps for gpu in nvml.list_gpus()] == ["GPU-0 is in MIG mode", ""]
    gpus.name_gpus(1)
    assert os.environ[VISIBLE] == "GPU-1"


def test_a_lock_that_is_no_file_of_its_own_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPUS_BY_VARIABLE, CHOOSE)
    locks = tmp_path / "locks"
    monkeypatch.setattr(gpus, "LOCKS", locks)
    with pytest.raises(TryFailed, match=f"GPU-0: {locks}/jobkit-GPU-0.lock: No such file"):
        gpus.name_gpus(1)
    locks.mkdir()
    (tmp_path / "mine").touch()
    (locks / "jobkit-GPU-0.lock").symlink_to(tmp_path / "mine")
    gpus.name_gpus(1)
    assert os.environ[VISIBLE] == "GPU-1", "a link may name a file that others lock"
