"""The profilers: Python's own, torch's and scalene, each with its costs by place in the code."""

from __future__ import annotations

import gzip
import inspect
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from jobkit.core.knobs import CUDA
from jobkit.core.layout import PROFILE_FILES
from jobkit.core.records import Point
from jobkit.run.measure.torch_trace import FORWARD, Cost, costs_of_trace

TORCH, PYTHON, SCALENE = PROFILE_FILES
FOREVER_S = float("inf")


class Profiler(Protocol):
    """Records the calls of a workload in this process."""

    LIMIT_S: float
    """Once the calls have taken this time, no further call is recorded."""

    def resume(self) -> None:
        """Record from now on."""
        ...

    def pause(self, *, last: bool) -> None:
        """Stop until `resume`; ``last`` if no other call is recorded."""
        ...

    def write(self, path: Path, calls_s: float) -> tuple[list[Cost], list[str]]:
        """Write what was recorded; return the costs, and in sentences what they are of.

        Parameters
        ----------
        calls_s
            The time of the calls that were recorded.
        """
        ...


def short_path(path: str) -> str:
    """Return the path of a module without the folder in which Python found it."""
    folders = (f"{folder.rstrip('/')}/" for folder in sys.path if folder)
    found = max((folder for folder in folders if path.startswith(folder)), key=len, default="")
    return path.removeprefix(found)


# -- Python's own

Function = tuple[str, int, str]
"""The file, the first line and the name of a function; the line is 0 if it is built in."""
_BUILT_IN = re.compile(r"<(?:built-in method|method) (.+?)(?: of type object)?(?: at 0x[0-9a-f]+)?>")


class PythonProfiler:
    """cProfile: each Python function, and each built-in that Python calls."""

    LIMIT_S = FOREVER_S

    def __init__(self, _: Point) -> None:
        import cProfile

        self._profile = cProfile.Profile()

    def resume(self) -> None:
        """Record from now on."""
        self._profile.enable()

    def pause(self, *, last: bool) -> None:  # noqa: ARG002 - the Protocol's
        """Stop until `resume`."""
        self._profile.disable()

    def write(self, path: Path, calls_s: float) -> tuple[list[Cost], list[str]]:  # noqa: ARG002 - the Protocol's
        """Write the file that pstats and snakeviz read; return the costs."""
        import pstats

        self._profile.dump_stats(path)
        entries: Mapping[Function, tuple[Any, ...]] = vars(pstats.Stats(self._profile))["stats"]
        costs = [cost for function, entry in entries.items() for cost in _costs_of(function, entry)]
        note = "share: of the time of all functions, each without the functions that it calls"
        return costs, [note, "of a GPU only the time that Python waits for it (synchronize, copies)"]


def _costs_of(function: Function, entry: tuple[Any, ...]) -> Iterator[Cost]:
    """Yield what a function took; what is built in at the place of each function that calls it.

    An entry of pstats has the calls without recursion, all calls, the function's own seconds, those with
    what it calls, and by caller a similar entry (Lib/pstats.py, ``Stats.print_line``).
    """
    _, calls, own_s, _, callers = entry
    file, line, name = function
    if line or not callers:
        yield Cost(name, f"{short_path(file)}:{line}" if line else "", own_s, calls)
        return
    found = _BUILT_IN.fullmatch(name)
    for (caller_file, caller_line, caller), (_, its_calls, its_s, _) in callers.items():
        what = f"{found[1] if found else name} in {caller}"
        yield Cost(what, f"{short_path(caller_file)}:{caller_line}", its_s, its_calls)


# -- torch


class TorchProfiler:
    """torch.profiler: each operation with its kernels, within the modules whose ``forward`` runs it.

    The Python stacks that torch can record (``with_stack``) are no alternative: of two seconds of Stanza
    they took more than 10 GiB and minutes to write.
    """

    LIMIT_S = 1.0
    """Also within a call. A second on a CPU was 270,000 operations, 4 MB of trace and 20 s to write."""

    def __init__(self, point: Point) -> None:
        from torch.profiler import ProfilerActivity, profile

        devices = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if point.device == CUDA else [])]
        self._profile: Any = profile(activities=devices)
        self._ranges: list[Any] = []
        self._hooks: list[Any] = []
        self._began_s = self._recorded_s = 0.0

    def resume(self) -> None:
        """Record from now on: torch records one stretch."""
        from torch.nn.modules import module

        if not self._hooks:
            self._hooks = [
                module.register_module_forward_pre_hook(self._enter),
                module.register_module_forward_hook(self._leave, always_call=True),
            ]
            self._profile.start()
            self._began_s = time.perf_counter()

    def pause(self, *, last: bool) -> None:
        """Stop after the last call."""
        if last:
            self._end()

    def _end(self) -> None:
        if not self._hooks:
            return
        while self._ranges:
            self._leave()  # a range without an end is lost, and with it the place of its operations
        self._recorded_s = time.perf_counter() - self._began_s
        self._profile.stop()
        while self._hooks:
            self._hooks.pop().remove()

    def _enter(self, module: object, _: object) -> None:
        from torch.profiler import record_function

        if time.perf_counter() - self._began_s > self.LIMIT_S:
            self._end()
            return
        self._ranges.append(record_function(_name_of(type(module))))
        self._ranges[-1].__enter__()

    def _leave(self, *_: object) -> None:
        if self._ranges:
            self._ranges.pop().__exit__(None, None, None)

    def write(self, path: Path, calls_s: float) -> tuple[list[Cost], list[str]]:  # noqa: ARG002 - the Protocol's
        """Write the trace; return the costs on the GPU if it was used, else on the CPU."""
        self._end()
        self._profile.export_chrome_trace(str(path))  # compressed, because its name ends in .gz
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            costs, on_gpu = costs_of_trace(json.load(stream)["traceEvents"])
        busy_s = sum(cost.seconds for cost in costs)
        whose = "of the GPU" if on_gpu else "of operations of torch; the rest is Python and waiting"
        part = f"{busy_s:.3f} s, {busy_s / self._recorded_s:.0%} of what was recorded"
        return costs, [f"recorded: {self._recorded_s:.3f} s", f"share: of the time {whose}, {part}"]


def _name_of(kind: type) -> str:
    """Return the name of the range of a module: its class, and the place of its ``forward``."""
    try:
        code = inspect.unwrap(kind.forward).__code__  # type: ignore[attr-defined]
    except AttributeError:
        return f"{FORWARD}{kind.__name__} "
    return f"{FORWARD}{kind.__name__} {short_path(code.co_filename)}:{code.co_firstlineno}"


# -- scalene


class ScaleneProfiler:
    """scalene: samples each line; it can only record a process that it started itself."""

    LIMIT_S = FOREVER_S

    def __init__(self, _: Point) -> None:
        from scalene.scalene_profiler import Scalene

        self._scalene: Any = Scalene

    def resume(self) -> None:
        """Record from now on."""
        self._scalene.start()

    def pause(self, *, last: bool) -> None:  # noqa: ARG002 - the Protocol's
        """Stop until `resume`."""
        self._scalene.stop()

    def write(self, path: Path, calls_s: float) -> tuple[list[Cost], list[str]]:
        """Write the profile, which scalene writes once more when the process ends; return the costs."""
        self._scalene.output_profile()
        files = json.loads(path.read_text(encoding="utf-8")).get("files", {})
        costs = [
            Cost(line["line"].strip(), f"{short_path(file)}:{line['lineno']}", calls_s * _share(line))
            for file, found in files.items()
            for line in found["lines"]
        ]
        return costs, ["share: of the samples; of a GPU only the time that Python waits for it"]


def _share(line: Mapping[str, float]) -> float:
    """Return the share of a line: in Python, in native code, and waiting."""
    return sum(line[f"n_{part}_percent{end}"] for part, end in _PARTS) / 100


_PARTS = (("cpu", "_python"), ("cpu", "_c"), ("sys", ""))
SCALENE_OPTIONS: Sequence[str] = (
    *("--off", "--cpu-only", "--no-stacks", "--no-async"),
    # Also code outside the folder of the program, but not the waiting of scalene's own threads.
    *("--profile-all", "--profile-exclude", "threading.py"),
)
SCALENE_VARIABLES = {"SCALENE_ALLOCATION_SAMPLING_WINDOW": "1048576"}
"""The default of scalene's option. If it is set, scalene starts no second process, which would have
neither the connection nor the parent of the worker (scalene 2.4, ``ScalenePreload.setup_preload``)."""

PROFILERS: Mapping[str, Any] = {TORCH: TorchProfiler, PYTHON: PythonProfiler, SCALENE: ScaleneProfiler}
