from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.worker.failure import Stopped, TryFailed, may_stop, outcome_of
from tests.support.fake_torch import OutOfMemoryError
from tests.worker.test_supervisor import restored

__all__ = ["restored"]  # for all tests here
MPS_FAILED = "the remote procedural call between the MPS server and the MPS client failed"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), Outcome.GPU_OOM),
        (RuntimeError("CUDA error: out of memory"), Outcome.GPU_OOM),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), Outcome.GPU_OOM),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), Outcome.GPU_OOM),
        (MemoryError(), Outcome.RAM_OOM),
        (RuntimeError("std::bad_alloc"), Outcome.RAM_OOM),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), Outcome.RAM_OOM),
        (RuntimeError("all CUDA-capable device(s) is/are busy or unavailable"), Outcome.GPU_BUSY),
        (RuntimeError("No CUDA GPUs are available"), Outcome.NO_GPU),
        (RuntimeError(f"CUDA error: {MPS_FAILED}"), Outcome.ENVIRONMENT),
        (OSError(errno.ENOSPC, "No space left on device"), Outcome.SCRATCH_FULL),
        (ModuleNotFoundError("No module named 'stanza'"), Outcome.ENVIRONMENT),
        (ValueError("a\nb" * 1000), Outcome.BUG),
        (TryFailed(Outcome.STAGE_IN, "not the text"), Outcome.STAGE_IN),
        (Stopped("USR1"), Outcome.TIMEOUT),
        (Stopped("TERM"), Outcome.CANCELLED),
        (Stopped("KILL"), Outcome.LOST),
    ],
)
def test_outcomes(error: BaseException, outcome: Outcome) -> None:
    found, message = outcome_of(error)
    assert found is outcome
    assert 0 < len(message) <= 500
    assert "\n" not in message


def _told(named: Path) -> None:
    named.write_text("USR1\n", encoding="ascii")
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_becomes_stopped_and_has_the_name_that_the_job_script_wrote(tmp_path: Path) -> None:
    with pytest.raises(Stopped) as caught, may_stop(None):
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.signal == "TERM"
    named = tmp_path / "signal"
    with pytest.raises(Stopped) as caught, may_stop(named):
        _told(named)
    assert caught.value.signal == "USR1"
    with pytest.raises(Stopped), may_stop(named):
        raise AssertionError("the signal came before Python had started: the block must not begin")
    os.kill(os.getpid(), signal.SIGTERM)  # it does not disturb the record
