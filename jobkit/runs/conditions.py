"""The conditions under which a try was measured: the figures hold only with them.

jobkit's job script sets the conditions of its own tries; a user's script has PyTorch's defaults. On an H200,
with bert-base under a cap of 4 GiB, the batch that jobkit names holds with the run's allocator setting, and
two thirds of it already fail with PyTorch's default.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from jobkit.core.frozen import keyed
from jobkit.core.knobs import CUDA, EXACT, FP32, MPS, ON, PRECISION, SHORTCUTS, TF32
from jobkit.core.records import Outcome, Record
from jobkit.core.terminal import NoWrap
from jobkit.core.units import format_count
from jobkit.worker.process import ALLOCATOR_VARIABLES
from jobkit.worker.workloads.model import OVERRIDE

DEFAULT = "default"  # the allocator setting of a try for which none was set
DEFAULT_WORDS = "PyTorch's default allocator"
ORDERS = {
    "load": "largest batch first",
    "text": "batches as the text stands",
    "sorted": "sorted by length",
}  # in words


@keyed
class Conditions:
    # PyTorch's setting, or `DEFAULT`; ``None`` on a CPU, and if it was not recorded
    allocator: str | None
    order: str  # from here on as in the point
    threads: int
    workers: int
    gpus: int
    precision: str | None  # the format of numbers in which it computed; ``None`` if it is the framework's own
    # whether the workload left out work that changes no result, which a script of the user's does not
    shortcuts: bool
    mps: bool  # whether the workers shared a GPU through NVIDIA's MPS
    lines: tuple[str, ...]  # for a job script, below the header: they set these conditions
    unknown: tuple[str, ...]  # the conditions of a try on a GPU that its record does not have
    device: str  # ``cpu`` or ``cuda``

    @property
    def words(self) -> str:
        return "; ".join(_stated(self))


def conditions_of(record: Record) -> Conditions | None:
    """Return the conditions of a try; ``None`` for a command, whose program sets its own."""
    point = record.point
    if point.command:
        return None
    on_gpu = point.device == CUDA
    allocator = _allocator(record) if on_gpu else None
    return Conditions(
        allocator=allocator,
        order=point.order,
        threads=point.threads,
        workers=point.workers,
        gpus=point.gpus,
        precision=record.ran(PRECISION),
        shortcuts=record.ran(SHORTCUTS) == EXACT,
        mps=record.ran(MPS) == ON,
        lines=tuple(_lines(record, allocator)) if on_gpu else (),
        unknown=("PyTorch's allocator setting",) if on_gpu and allocator is None else (),
        device=point.device,
    )


def memory_condition(records: Iterable[Record]) -> str:
    """Return the condition of a largest batch in a few words after a comma; empty on a CPU."""
    record = next((one for one in records if one.outcome is Outcome.OK and one.point.device == CUDA), None)
    if record is None or record.point.command:
        return ""
    setting = _allocator(record)
    if setting is None:
        return ", with an allocator setting that was not recorded"
    return f", with {DEFAULT_WORDS if setting == DEFAULT else setting}"


def condition_lines(conditions: Conditions | None) -> Iterator[str]:
    """Yield the conditions for a person, first in a sentence; nothing for a command."""
    if conditions is None:
        return
    yield f"Conditions: {conditions.words}."
    if conditions.unknown:
        unknown = ", ".join(conditions.unknown)
        yield f"Not recorded: {unknown}. jobkit does not know these conditions for a script of your own."
    if not conditions.lines:
        return
    yield "A script of your own needs these lines below its header lines; the figures hold only with them:"
    yield ""
    yield from (NoWrap(line, "  ") for line in conditions.lines)


def _stated(conditions: Conditions) -> Iterator[str]:
    on_gpu = conditions.device == CUDA
    if conditions.allocator:
        yield DEFAULT_WORDS if conditions.allocator == DEFAULT else f"allocator {conditions.allocator}"
    yield ORDERS.get(conditions.order, conditions.order)
    if conditions.precision:
        plain = on_gpu and conditions.precision == FP32
        yield f"{conditions.precision} without TF32" if plain else conditions.precision
    elif on_gpu:
        yield "precision and TF32 as the framework sets them"
    if conditions.shortcuts:
        yield "shortcuts exact, which only jobkit has"
    workers = format_count(conditions.workers, "worker")
    if not on_gpu:
        yield f"{workers} with {format_count(conditions.threads, 'CPU thread')}"
        return
    each = "a GPU" if conditions.gpus == 1 else f"each of {conditions.gpus} GPUs"
    sharing = f", {'with' if conditions.mps else 'without'} MPS" if conditions.workers > 1 else ""
    yield f"{workers} on {each}{sharing}"


def _names(record: Record) -> tuple[str, ...]:
    """Return the variables from which the try's torch reads the setting; both if its version is unknown."""
    version = re.match(r"(\d+)\.(\d+)", record.versions.get("torch", ""))
    if version is None:
        return ALLOCATOR_VARIABLES
    short, long = ALLOCATOR_VARIABLES
    # The first torch that reads `PYTORCH_ALLOC_CONF`, for which the other name is an alias
    # (https://docs.pytorch.org/docs/stable/cuda_environment_variables.html)
    return (short,) if (int(version[1]), int(version[2])) >= (2, 9) else (long,)


def _allocator(record: Record) -> str | None:
    """Return what the environment of the try had; ``None`` if the record has no environment."""
    if not record.environment:
        return None
    found = (record.environment.get(name) for name in (*_names(record), *ALLOCATOR_VARIABLES))
    return next(filter(None, found), DEFAULT)


def _lines(record: Record, allocator: str | None) -> Iterator[str]:
    if allocator not in {None, DEFAULT}:
        yield from (f"export {name}={shlex.quote(str(allocator))}" for name in _names(record))
    override = record.environment.get(OVERRIDE)
    if (precision := record.ran(PRECISION)) == TF32:
        yield "# in Python: torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True"
    elif precision or override:
        # Read by cuBLAS and cuDNN themselves, whatever torch asks of them.
        yield f"export {OVERRIDE}={shlex.quote(override or '0')}"
    # Start a daemon of the user's own in a job, and end it with the job (https://docs.nvidia.com/deploy/mps/)
    with_mps = (
        'export CUDA_MPS_PIPE_DIRECTORY="$(mktemp -d)" CUDA_MPS_LOG_DIRECTORY="$(mktemp -d)"',
        "nvidia-cuda-mps-control -d && trap 'echo quit | nvidia-cuda-mps-control' EXIT",
    )
    if record.ran(MPS) == ON:
        yield from with_mps
