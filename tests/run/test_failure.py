from __future__ import annotations

import errno

import pytest

from jobkit.core.records import Outcome
from jobkit.run.failure import Stopped, TryFailed, outcome_of


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), Outcome.GPU_OOM),
        (RuntimeError("CUDA error: out of memory"), Outcome.GPU_OOM),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            Outcome.GPU_OOM,
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), Outcome.GPU_OOM),
        (MemoryError(), Outcome.RAM_OOM),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            Outcome.RAM_OOM,
        ),
        (RuntimeError("all CUDA-capable device(s) is/are busy or unavailable"), Outcome.GPU_BUSY),
        (RuntimeError("No CUDA GPUs are available"), Outcome.NO_GPU),
        (OSError(errno.ENOSPC, "No space left on device"), Outcome.SCRATCH_FULL),
        (ModuleNotFoundError("No module named 'stanza'"), Outcome.ENVIRONMENT),
        (ValueError("anything else"), Outcome.BUG),
        (TryFailed(Outcome.STAGE_IN, "not the text"), Outcome.STAGE_IN),
        (Stopped("USR1"), Outcome.TIMEOUT),
        (Stopped("TERM"), Outcome.CANCELLED),
        (Stopped("KILL"), Outcome.LOST),
    ],
)
def test_outcomes(error: BaseException, outcome: Outcome) -> None:
    found, message = outcome_of(error)
    assert found is outcome
    assert message
    assert "\n" not in message


def test_a_message_is_one_short_line() -> None:
    _, message = outcome_of(ValueError("a\nb" * 1000))
    assert len(message) <= 500
    assert "\n" not in message
