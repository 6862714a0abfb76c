"""Try a workload in a process of its own that has no network: what it reports, needs and returns.

Standard library only, apart from what the workload imports.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, NoReturn

from jobkit.core.errors import JobkitError
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import BATCH_SIZE, CUDA, DEFAULT_WORK_UNIT, SIZES, Knob, Value
from jobkit.core.measurements import total
from jobkit.core.terminal import Say
from jobkit.worker.failure import describe_error
from jobkit.worker.measure.memory import Device, open_device, uses_torch
from jobkit.worker.paragraphs import Call
from jobkit.worker.steps import run_call
from jobkit.worker.workloads import own
from jobkit.worker.workloads.base import (
    SHIPPED,
    Ragged,
    columns_of,
    cuts_itself,
    knobs_of,
    noun,
    same_type,
    vectors_of,
)

ALLOCATED, RESIDENT = "allocated", "resident"
"""The memory that is measured: that of torch's tensors on the GPU, or of the process."""
NAMESPACE, SOCKETS = "own network namespace", "Python's sockets are shut"
"""How the network was taken away."""

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
"""unshare(2)."""
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
"""netdevice(7)."""

Rows = list[list[Any]]


@keyed
class OutputDifference:
    paragraphs: int = 0  # the number of paragraphs that differ
    distance: float = 0.0  # the largest difference of two numbers; infinite if anything else differs


@keyed
class KnobTrial:
    """The effect of a knob at two values or more."""

    name: str
    values: list[Value]
    reported: list[Value | None] = field(default_factory=list)  # what ``effective`` returned for each value
    changes: bool = False  # whether output or load differed between two values
    error: str = ""  # why the knob could not be tried; else empty


@keyed
class Probe:
    network: str  # `NAMESPACE` or `SOCKETS`
    load_s: float
    # for each batch size its largest load, and the memory of that call in bytes; 0 if it is not known
    sizes: list[int]
    loads: list[int]
    peaks: list[int]
    memory: str  # `ALLOCATED` or `RESIDENT`
    rows: bool  # whether the workload returns rows, and counts of tokens
    counts: bool
    by_size: list[OutputDifference]  # by batch size, how the output differs from that at the first
    again: OutputDifference  # how a second run at the same batch size differs
    size_reported: list[Value | None]  # by batch size, what ``effective`` returned
    knobs: list[KnobTrial]
    writes: str = ""  # what ``jobkit apply`` would write
    nan: str = ""  # the column with NaN or infinity; else empty
    not_json: str = ""  # why ``jobkit apply`` could not write a row; else empty
    failed: str = ""  # the batch size that failed, and why


def probe(named: Mapping[str, Any], paragraphs: Sequence[str], *, say: Say) -> dict[str, Any]:
    """Return the fields of a `Probe`; ``named`` are the fields of the subject."""
    network = cut_network()
    # With these, Hugging Face's libraries use what is on disk at once, as a job on a node should
    os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
    subject = _Subject(**named)
    # The batch sizes that are tried, as far as the text has so many paragraphs, besides the whole text
    sizes = [*(size for size in (1, 4, 16, 64) if size < len(paragraphs)), len(paragraphs)]
    passes: list[_Pass] = []
    failed = ""
    for size in sizes:
        say(f"batch size {size}")
        try:
            passes.append(subject.work(paragraphs, {BATCH_SIZE: size}))
        except Exception as error:  # noqa: BLE001 - the code is the user's
            if not passes:
                subject.refuse(error)
            failed = f"batch size {size}: {subject.described(error)}"
            break
    first = passes[0]
    again = subject.work(paragraphs, {BATCH_SIZE: sizes[0]})
    each = f"{sum(map(len, first.rows)) / len(paragraphs):.3g} rows a paragraph on average"
    found = Probe(
        network=network,
        load_s=first.load_s,
        sizes=sizes[: len(passes)],
        loads=[one.load for one in passes],
        peaks=[one.peak_bytes for one in passes],
        memory=ALLOCATED if subject.device == CUDA and uses_torch() else RESIDENT,
        rows=first.has_rows,
        counts=any(count is not None for count in first.tokens),
        by_size=[difference(first, one) for one in passes],
        again=difference(first, again),
        size_reported=[one.effective.get(BATCH_SIZE) for one in passes],
        # The number of paragraphs with which each value of a knob is tried
        knobs=[subject.tried(knob, paragraphs[:24], say) for knob in subject.knobs()],
        writes=f"{noun(first.vectors)}s {first.vectors}, one a paragraph" if first.vectors else each,
        **_not_written(first, columns_of(own.checked_class(subject.name, subject.folder))),
        failed=failed,
    )
    return asdict(found)


@frozen
class _Pass:
    """One load of the workload, and the whole text by it."""

    load_s: float
    load: int
    peak_bytes: int
    rows: Rows
    tokens: list[int | None]
    effective: Mapping[str, Value | None]
    has_rows: bool
    vectors: str | None  # their type


def _not_written(one: _Pass, columns: Sequence[str]) -> dict[str, str]:
    """Return the fields of a `Probe` that say which column is no JSON, and why."""
    found: dict[str, str] = {}
    for row in (row for rows in one.rows for row in rows):
        for column, value in zip(columns, row, strict=False):
            try:
                json.dumps(value, allow_nan=False)
            except TypeError as error:
                return {"not_json": f"column {column}: {error}"}
            except ValueError:
                found["nan"] = column
    return found


@frozen
class _Subject:
    name: str
    folder: str
    model: str | None
    options: Mapping[str, Value]
    device: str
    threads: int
    queries: str | None

    def work(self, paragraphs: Sequence[str], params: Mapping[str, Value]) -> _Pass:
        """Load a new workload and have it do the text."""
        workload = own.open_workload(self.name, self.folder, queries=self.queries)
        opens = workload.NEEDS_MODEL or uses_torch()
        device = open_device(self.device) if opens else Device(self.device)
        began_s = time.perf_counter()
        model = Path(self.model) if self.model else None
        workload.load(model, self.device, {**self.options, **params}, self.threads)
        device.synchronise()
        load_s = time.perf_counter() - began_s
        rows: Rows = [[] for _ in paragraphs]
        tokens: list[int | None] = []
        heaviest, columns, per_call = (-1, 0), len(columns_of(workload)), workload.items_per_call()
        has_rows, vectors = False, None
        for start in range(0, len(paragraphs), per_call):
            items = tuple(range(start, min(start + per_call, len(paragraphs))))
            call = Call(items, tuple(paragraphs[start : start + per_call]), f"paragraph {start + 1:,}")
            with _peak_of(device) as peak:
                batch, result = run_call(call, workload, device)
            vectors = same_type(vectors_of(result, len(items)), vectors, call.place)
            allocated = batch.allocated_peak_bytes
            heaviest = max(heaviest, (batch.load, allocated if allocated is not None else peak[0]))
            found = result.entities if result.rows is None else result.rows
            if isinstance(result.vectors, Ragged):
                arrays = enumerate(result.vectors.split())
                found = [(number, *(one.tolist() for one in some or ())) for number, some in arrays]
            elif result.vectors is not None:
                vector = [
                    one.tolist() if hasattr(one, "tolist") else [*map(float, one)] for one in result.vectors
                ]
                found = [*enumerate(vector)]
            if (wrong := next((row for row in found if len(row) != 1 + columns), None)) is not None:
                raise JobkitError(f"process() returned the row {wrong!r}, and its columns are {columns}")
            for number, *values in found:
                rows[items[number]].append(values)
            tokens.append(result.tokens)
            has_rows |= bool(result.rows is not None or result.vectors is not None or result.entities)
        effective = dict(workload.effective())
        del workload
        gc.collect()
        device.empty_cache()
        return _Pass(load_s, *heaviest, rows, tokens, effective, has_rows, vectors)

    def knobs(self) -> Iterator[Knob]:
        workload = own.checked_class(self.name, self.folder)
        others = {BATCH_SIZE} if cuts_itself(workload) else {*SIZES}
        for knob in knobs_of(workload):
            if knob.name not in others and self.device in knob.devices:
                yield knob

    def tried(self, knob: Knob, paragraphs: Sequence[str], say: Say) -> KnobTrial:
        words = [word for word in knob.words if self.device in knob.devices_of(word)]
        values: list[Value] = [*(words or ((4_000, 16_000) if knob.name in SIZES else (4, 16)))]
        say(f"knob {knob.name}")
        passes: list[_Pass] = []
        for value in values:
            params: dict[str, Value] = {knob.name: value}
            if knob.name in SIZES:
                params["paragraphs_per_call"] = DEFAULT_WORK_UNIT
            try:
                passes.append(self.work(paragraphs, params))
            except Exception as error:  # noqa: BLE001 - the code is the user's
                return KnobTrial(name=knob.name, values=values, error=f"{value}: {self.described(error)}")
        first = passes[0]
        changes = any(difference(first, one).paragraphs or one.load != first.load for one in passes)
        reported = [one.effective.get(knob.name) for one in passes]
        return KnobTrial(name=knob.name, values=values, reported=reported, changes=changes)

    def described(self, error: BaseException) -> str:
        return describe_error(error, own.code_folder(self.name, self.folder))

    def refuse(self, error: BaseException) -> NoReturn:
        if isinstance(error, JobkitError) and self.name in error.message:
            raise error
        message = f"workload {self.name!r} fails: {self.described(error)}"
        offline = isinstance(error, OSError) or self.name in SHIPPED
        no_network = "it ran with no network, as a job on a node may: load everything from files"
        hint = no_network if offline else own.help_for(self.name)
        raise JobkitError(message, hint=hint) from error


def difference(one: _Pass, other: _Pass) -> OutputDifference:
    """Return how two passes over the same text differ."""
    distances = [distance(*pair) for pair in zip(one.rows, other.rows, strict=True)]
    paragraphs = sum(map(bool, distances))
    counts = total(one.tokens), total(other.tokens)
    if None not in counts and counts[0] != counts[1]:
        distances.append(float("inf"))
    return OutputDifference(paragraphs=paragraphs, distance=max(distances, default=0.0))


def distance(one: object, other: object) -> float:
    """Return the largest difference of two numbers in two values; infinite if anything else differs."""
    if isinstance(one, float) and isinstance(other, float):
        return 0.0 if one == other or (one != one and other != other) else abs(one - other)  # noqa: PLR0124 - NaN
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        return max((distance(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max((distance(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else float("inf")


@contextlib.contextmanager
def _peak_of(device: Device) -> Iterator[list[int]]:
    """Yield a list that, on a CPU, holds the peak of the resident memory once the block has ended."""
    peak = [0]
    if device.name == CUDA:
        yield peak
        return
    with contextlib.suppress(OSError):  # proc(5): 5 resets the peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    yield peak
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                peak[0] = int(line.split()[1]) * 1024


def cut_network() -> str:
    """Take the network away from this process; return how.

    A new namespace holds only a loopback device, for every program and library. A kernel may refuse it to
    users; then Python's own sockets refuse to connect, and a library in C could still do so.
    """
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        socket.socket.connect = _refused  # type: ignore[method-assign]
        socket.socket.connect_ex = _refused  # type: ignore[method-assign]
        socket.getaddrinfo = _refused
        return SOCKETS
    with contextlib.suppress(OSError):  # user_namespaces(7): in a user namespace of its own, keep the ids
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return NAMESPACE


def _refused(*_: object, **__: object) -> NoReturn:
    raise ConnectionRefusedError("jobkit workload check: no network")
