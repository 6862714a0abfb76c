"""Which GPUs a try uses where the scheduler only counts them, as Grid Engine does.

A value of CUDA_VISIBLE_DEVICES, whoever has set it, is never changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path

from jobkit.core.files import open_regular
from jobkit.core.records import Outcome
from jobkit.worker.failure import TryFailed
from jobkit.worker.measure import nvml
from jobkit.worker.process import CHOOSE, GPUS_BY_VARIABLE

LOCKS = Path("/tmp")  # noqa: S108 - of the node: TMPDIR is of the job
DEADLINE_S, POLL_S = 60.0, 0.5
_held: dict[str, int] = {}
"""The GPUs that this process has chosen, by UUID, with the locks that it holds until it ends."""


def named_by() -> tuple[str, str]:
    """Return the variable that names the GPUs of this job, and its value; both empty if none does."""
    # what a job got of a resource map: Univa, Altair and Open Cluster Scheduler (complex(5))
    granted = re.compile(r"SGE_HGR_\w*(gpu|cuda)\w*", re.IGNORECASE).fullmatch
    names = (nvml.VISIBLE_VARIABLE, *filter(granted, sorted(os.environ)))
    name = next((name for name in names if name in os.environ), "")
    return name, os.environ.get(name, "")


def name_gpus(number: int) -> str:
    """Set CUDA_VISIBLE_DEVICES if the job script permits it; return a note if nothing says what to set."""
    (name, value), by = named_by(), os.environ.get(GPUS_BY_VARIABLE)
    if by is None or name == nvml.VISIBLE_VARIABLE:
        return ""
    there, words = len(nvml.list_gpus()), value.replace(",", " ").split()
    if there > number == len(words) and all(re.fullmatch(r"\d+|(GPU|MIG)-[0-9a-f-]+", one) for one in words):
        os.environ[nvml.VISIBLE_VARIABLE] = ",".join(words)
    elif there >= number and by == CHOOSE and not name:
        os.environ[nvml.VISIBLE_VARIABLE] = ",".join(_held or _choose(number))
    elif there > number:
        why = f"{name}={value} names no device of CUDA" if name else f"{nvml.VISIBLE_VARIABLE} is not set"
        return f"{why}: of {there} GPUs the try used the first, as others may"
    return ""


def _choose(number: int) -> dict[str, int]:
    """Return GPUs that no process uses and no other try holds; wait for them, then give up."""
    end_s = time.monotonic() + DEADLINE_S
    while True:
        busy = []
        for gpu in nvml.list_handles():
            path = LOCKS / f"jobkit-{gpu.uuid}.lock"
            try:
                lock = _lock(path)
            except OSError as error:
                held = isinstance(error, BlockingIOError)
                busy.append(f"{gpu.uuid}: {'another try holds it' if held else f'{path}: {error.strerror}'}")
                continue
            if (running := gpu.processes()) == {} and not gpu.has_mig():
                _held[gpu.uuid] = lock
                if len(_held) == number:
                    return _held
            else:
                os.close(lock)
                busy.append(
                    f"{gpu.uuid}: {'a process uses it' if running else 'its processes are not known'}"
                )
        while _held:
            os.close(_held.popitem()[1])
        if time.monotonic() > end_s:
            raise TryFailed(Outcome.GPU_BUSY, f"{number} of the GPUs must be free; {', '.join(busy)}")
        time.sleep(POLL_S)


def _lock(path: Path) -> int:
    """Lock the file of a GPU, which tries of all users open and only its owner may write."""
    with contextlib.suppress(FileExistsError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        os.fchmod(made, 0o444)  # whatever the umask
        os.close(made)
    lock = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)  # a link may name a file that others lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
