"""Turn an exception or a signal into an outcome."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import FrameType

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.units import format_memory
from jobkit.worker import process

_BY_TEXT = (
    (r"CUDA out of memory|out of memory.*CUDA|CUDA error: out of memory", Outcome.GPU_OOM),
    # cuDNN and cuBLAS report a lack of memory as failures of their own (pytorch#17774).
    (r"CU(BLAS|DNN|SOLVER)_STATUS_(ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)", Outcome.GPU_OOM),
    (r"(?i)cudnn error: CUDNN_STATUS_(EXECUTION_FAILED|NOT_SUPPORTED).*(memory|workspace)", Outcome.GPU_OOM),
    (r"DefaultCPUAllocator: (can't allocate|not enough) memory|Cannot allocate memory", Outcome.RAM_OOM),
    (r"(?m)^MemoryError\b|std::bad_alloc|java\.lang\.OutOfMemoryError", Outcome.RAM_OOM),
    (r"CUDA-capable device\(s\) is/are busy or unavailable", Outcome.GPU_BUSY),
    (r"No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver", Outcome.NO_GPU),
    (r"not compiled with CUDA", Outcome.NO_GPU),
    # texts of cudaGetErrorString(3) for the errors 805 to 810 (CUDA runtime API, cudaError)
    (r"CUDA error: .*\bMPS (client|server)\b", Outcome.ENVIRONMENT),
    (r"No space left on device|Disk quota exceeded", Outcome.SCRATCH_FULL),
    (r"(?m)^(ModuleNotFoundError|ImportError): |error while loading shared libraries", Outcome.ENVIRONMENT),
)
"""Messages of torch and CUDA, then of any program that fails: strerror(3), Python, ld.so(8)."""


class Cause(StrEnum):
    """Parts of messages of a try that failed; `jobkit.runs.hints.BY_MESSAGE` chooses the remedy by them."""

    NO_GPU_REQUESTED = "the job asks for no GPU"
    NO_DRIVER = "no NVIDIA driver answers"
    NO_GPU_ASSIGNED = "the job was given no GPU"
    OLD_DRIVER = "cannot use the driver"
    NO_SHORTCUTS = "shortcuts: exact cannot be used here:"
    NO_MPS = "mps: on, but"
    NO_PROFILER = "profile:"
    OF_SHELL = "PropagateResourceLimits"
    SMALL_LIMIT = "ulimit -"
    HANG = "has not finished a batch"


OUT_OF_MEMORY = frozenset({Outcome.GPU_OOM, Outcome.RAM_OOM})
_NO_ROOM = "MemoryError|bad_alloc|annot allocate memory"
_NO_PROCESS = "can't start new thread|(fork|pthread_create).*temporarily unavailable"
_LIMITS = {
    "address_space_bytes": (resource.RLIMIT_AS, "v", "processes of {}", _NO_ROOM),
    "cpu_s": (resource.RLIMIT_CPU, "t", "{} s of CPU", "SIGXCPU|CPU time limit exceeded"),
    "file_bytes": (
        resource.RLIMIT_FSIZE,
        "f",
        "files of {}",
        "SIGXFSZ|File (too large|size limit exceeded)",
    ),
    "open_files": (resource.RLIMIT_NOFILE, "n", "{} open files", "Too many open files"),
    "processes": (resource.RLIMIT_NPROC, "u", "{} processes", _NO_PROCESS),
}
"""The limits that a job may have from the shell that submits it, by their names in a record.

Each has ulimit's letter, what it allows, and how a program says that it was reached.
"""


class Stopped(BaseException):
    def __init__(self, signal: str) -> None:
        super().__init__(signal)
        self.signal = signal


class TryFailed(JobkitError):  # noqa: N818 - the name of what happened
    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class CallFailed(TryFailed):
    """A call failed as it may by its text; if its process is not ``sound``, another one goes on."""

    sound = False


class BatchHung(CallFailed):
    pass


def is_of_text(error: BaseException, outcome: Outcome, message: str) -> bool:
    """Return whether a workload may have failed by its text, and not by a disk, a device or its set-up."""
    if isinstance(error, OSError | TryFailed):
        return False
    # of the errors of CUDA only a lack of memory may be due to a text
    of_device = r"CUDA error|device-side assert|CU(DNN|BLAS)_STATUS|\b(NCCL|NVML|ECC|X[Ii][Dd])\b"
    return outcome in OUT_OF_MEMORY or (outcome is Outcome.BUG and not re.search(of_device, message))


def describe_error(error: BaseException, folder: str | None = None) -> str:
    """Describe an exception in one line, after the last line of code below ``folder`` that led to it.

    Packages installed below the folder do not count.
    """
    message = error.msg if isinstance(error, SyntaxError) else error
    text = error.message if isinstance(error, JobkitError) else f"{type(error).__name__}: {message}"
    place = f"{error.filename}:{error.lineno}: " if isinstance(error, SyntaxError) else ""
    for frame in traceback.extract_tb(error.__traceback__) if folder and not place else ():
        inside = frame.filename.removeprefix(f"{folder}/")
        if inside != frame.filename and "site-packages" not in inside:
            place = f"{frame.filename}:{frame.lineno}: "
    return " ".join(f"{place}{text}".split())[:500]


class SpareMemory:
    """Memory that a process takes at its start and frees when there is no more: a record needs some.

    Nothing is written to it, so it is address space, which Grid Engine limits, and not resident.
    """

    SIZE_BYTES = 8 * 2**20

    def __init__(self) -> None:
        self._room = bytes(self.SIZE_BYTES)

    def free_after(self, error: BaseException | None) -> None:
        """If the error is a lack of memory, free this memory and what the frames of the error hold."""
        if isinstance(error, MemoryError):
            self._room = b""
            traceback.clear_frames(error.__traceback__)
            gc.collect()


def print_error(error: BaseException, folder: str | None = None) -> None:
    """Print a jobkit error in a line, any other with its traceback from the code below ``folder`` on."""
    frame = error.__traceback__
    while folder and frame and not frame.tb_frame.f_code.co_filename.startswith(f"{folder}/"):
        frame = frame.tb_next
    with contextlib.suppress(OSError):  # the log may be on a full disk
        if isinstance(error, JobkitError):
            sys.stderr.write(f"jobkit: {error.message}\n")
        else:
            traceback.print_exception(type(error), error, frame or error.__traceback__)


def outcome_of(error: BaseException, folder: str | None = None) -> tuple[Outcome, str]:
    if isinstance(error, TryFailed):
        return within_limits(error.outcome, " ".join(error.message.split()))
    if isinstance(error, Stopped):
        killed = "the job script was killed" if error.signal == "KILL" else f"stopped by SIG{error.signal}"
        # the walltime warning, an unexplained kill -9
        outcomes = {"USR1": Outcome.TIMEOUT, "KILL": Outcome.LOST}
        return within_limits(outcomes.get(error.signal, Outcome.CANCELLED), killed)
    outcome = outcome_of_output(f"{type(error).__name__}: {error}")
    if outcome is Outcome.BUG:
        match error:
            case MemoryError():
                outcome = Outcome.RAM_OOM
            case ImportError():
                outcome = Outcome.ENVIRONMENT
            case _ if type(error).__name__ == "OutOfMemoryError":
                outcome = Outcome.GPU_OOM
    return within_limits(outcome, describe_error(error, folder))


def outcome_of_output(text: str) -> Outcome:
    return next((outcome for pattern, outcome in _BY_TEXT if re.search(pattern, text)), Outcome.BUG)


@cache
def limits() -> dict[str, int]:
    """Return the soft limits; Linux raises that of the CPU, so those count that were read first."""
    soft = {name: resource.getrlimit(kind)[0] for name, (kind, *_) in _LIMITS.items()}
    return {name: size for name, size in soft.items() if size != resource.RLIM_INFINITY}


def within_limits(outcome: Outcome, message: str) -> tuple[Outcome, str]:
    """Return outcome and message; `Outcome.ENVIRONMENT` if a limit was reached that is not the request.

    More memory does not raise such a limit. That of the address space may be the request, or follow from it
    (Grid Engine's ``h_vmem``, Slurm's ``VSizeFactor``), unless it is smaller.
    """
    requested = int(os.environ.get(process.MEMORY_VARIABLE) or 0)
    source = f"Slurm takes it from the shell that submits ({Cause.OF_SHELL})"
    source = source if "SLURM_JOB_ID" in os.environ else "it is of the queue, or of the shell"
    for name, size in limits().items():
        _, letter, allows, words = _LIMITS[name]
        of_memory = letter == "v"
        by_kernel = "memory limit was reached" in message or "for lack of memory" in message
        full = of_memory and outcome is Outcome.RAM_OOM and not by_kernel
        if (full or re.search(words, message)) and not (of_memory and size >= requested):
            allowed = allows.format(format_memory(size) if name.endswith("_bytes") else f"{size:,}")
            less = f", less than the {format_memory(requested)} requested" if of_memory else ""
            limit = f"{Cause.SMALL_LIMIT}{letter} allows {allowed}{less}: {source}"
            return Outcome.ENVIRONMENT, f"{message}; {limit}"
    return outcome, message


CAUGHT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU)


@contextlib.contextmanager
def may_stop(named: Path | None) -> Iterator[None]:
    """Let the first signal raise `Stopped` inside the block, and none after it.

    The job script catches the scheduler's signal, writes its name into the file ``named``, and sends TERM. So
    the worker needs no shield, and a signal that comes before Python has started is not lost.
    """

    def name() -> str:
        with contextlib.suppress(OSError):
            return named.read_text(encoding="ascii").strip() if named else ""
        return ""

    def ignore() -> None:
        for number in CAUGHT_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def stop(number: int, _frame: FrameType | None) -> None:
        ignore()
        raise Stopped(name() or signal.Signals(number).name.removeprefix("SIG"))

    for number in CAUGHT_SIGNALS:
        signal.signal(number, stop)
    try:
        if earlier := name():
            raise Stopped(earlier)
        yield
    finally:
        ignore()
