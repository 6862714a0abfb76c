from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.records import Outcome
from jobkit.worker.failure import TryFailed
from jobkit.worker.measure import nvml
from jobkit.worker.measure.memory import NVML_CHECK, Device, cuda_untouched, open_device, touched_cuda
from jobkit.worker.process import GPU_COUNT_VARIABLE
from tests.support.fake_torch import FakeTorch, OutOfMemoryError

GIB = 2**30


def test_what_is_asked_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap holds until it is lifted."""
    torch = FakeTorch(8 * GIB)
    monkeypatch.setattr(importlib, "import_module", lambda _: torch)
    device = open_device("cuda")
    device.synchronise()
    assert (device.name, device.torch, torch.waited) == ("cuda", torch, 1)
    torch.hold(GIB)
    assert device.counters() == (GIB, GIB * 11 // 10, 0)
    device.reset_peaks()
    device.empty_cache()
    assert (device.counters()[:2], torch.emptied, device.allocated_bytes()) == ((0, 0), 1, 1000)
    device.cap(GIB * 107 // 100)
    torch.hold(GIB)
    assert device.counters()[2] == 1
    with pytest.raises(OutOfMemoryError):
        torch.hold(2 * GIB)
    device.cap(None)
    torch.hold(2 * GIB)
    assert torch.cap_bytes == 8 * GIB
    assert device.cuda_uuid == "abc"
    torch.uuid = ""
    assert device.cuda_uuid is None


@given(st.integers(2**30, 2**38), st.floats(0, 2))
def test_a_cap_lets_all_of_it_be_reserved_and_next_to_nothing_more(total: int, share: float) -> None:
    torch = FakeTorch(total)
    cap = int(share * total)
    Device("cuda", torch).cap(cap)
    assert min(cap, total) <= torch.cap_bytes <= min(cap + 1024, total)


@pytest.mark.parametrize(
    ("built", "cards", "visible", "asked", "why"),
    [
        (None, 1, "0", "1", f"torch 2.5 in {sys.executable} is a CPU build"),
        ("12.4", 1, "0", "0", "the job asks for no GPU (resources.gpus: 0)"),
        ("12.4", None, "0", "1", "no NVIDIA driver answers on this node"),
        ("12.4", 0, None, "1", "the job was given no GPU (CUDA_VISIBLE_DEVICES=None)"),
        ("12.4", 1, "", "1", "the job was given no GPU (CUDA_VISIBLE_DEVICES='')"),
        ("12.4", 1, "0", "1", "torch 2.5 for CUDA 12.4 cannot use the driver 470.1"),
    ],
)
def test_without_a_device_a_try_never_falls_back(
    built: str | None,
    cards: int | None,
    visible: str | None,
    asked: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: False),
        version=SimpleNamespace(cuda=built),
        __version__="2.5",
    )
    monkeypatch.setattr(importlib, "import_module", lambda _: torch)
    monkeypatch.setattr(nvml, "nvml", lambda: contextlib.nullcontext(cards is not None))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: cards)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "470.1")
    monkeypatch.setenv(GPU_COUNT_VARIABLE, asked)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(TryFailed) as caught:
        open_device("cuda")
    assert caught.value.outcome is Outcome.NO_GPU
    assert caught.value.message == f"the point requests CUDA, but {why}"


def test_without_torch_it_is_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(TryFailed, match="device cuda needs torch") as caught:
        open_device("cuda")
    assert caught.value.outcome is Outcome.ENVIRONMENT


@pytest.mark.slow
def test_cuda_that_was_touched_cannot_be_used_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    here, bad = os.getpid(), True
    cuda = SimpleNamespace(_is_in_bad_fork=lambda: bad and os.getpid() != here)  # only a child knows
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert touched_cuda()
    bad = False
    assert not touched_cuda()
    monkeypatch.delitem(sys.modules, "torch")
    assert not touched_cuda()


@pytest.mark.slow
@pytest.mark.program("cc")
@pytest.mark.parametrize(("status", "touched"), [(0, True), (3, False)])
def test_cuda_that_a_library_other_than_torch_touched(tmp_path: Path, status: int, *, touched: bool) -> None:
    """A library with the name of CUDA's driver answers as that does after and before ``cuInit``."""
    source, driver = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text(f"int cuDeviceGetCount(int *count) {{ *count = 1; return {status}; }}\n")
    options = "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"
    subprocess.run(["cc", *options, "-o", driver, source], check=True)
    code = (
        "import ctypes, sys; from jobkit.worker.measure.memory import touched_cuda as touched;"
        "print(touched()); ctypes.CDLL(sys.argv[1]); print(touched())"
    )
    done = subprocess.run([sys.executable, "-c", code, driver], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", str(touched)]


@pytest.mark.parametrize("before", [None, "0"])
def test_modules_ask_nvml_for_cuda_while_they_are_imported(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(NVML_CHECK, raising=False)
    if before is not None:
        monkeypatch.setenv(NVML_CHECK, before)
    with cuda_untouched():
        assert os.environ[NVML_CHECK] == "1"
    assert os.environ.get(NVML_CHECK) == before
