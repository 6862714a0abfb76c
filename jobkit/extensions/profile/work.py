"""The profile of a try: the profilers, the file for a viewer, and the largest costs as text.

Only calls are recorded: no loading, no warm-up, and of several workers only those of the first.

The trace of torch.profiler is in Chrome's format: complete events (``ph`` is X) with ``ts`` and ``dur``
in microseconds. Kernels and copies have the ``External id`` of the operation that launched them (torch
2.13, kineto).
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import inspect
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import JobkitError
from jobkit.core.frozen import frozen
from jobkit.core.knobs import CUDA
from jobkit.core.layout import EARLIER_PROFILERS, PROFILE_FILES, PROFILE_TEXT
from jobkit.core.records import Outcome, Point
from jobkit.worker.failure import Cause, TryFailed
from jobkit.worker.record import PointWork, Recording, Task

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import SweepSpec

FORWARD = "forward "
"""The name of the range of a module's ``forward`` begins so; its class and its place follow."""
Event = Mapping[str, Any]


@frozen
class ProfileCost:
    """The cost of a function or an operation itself, without what it calls."""

    what: str
    where: str  # ``file:line`` of the Python code; empty if unknown
    seconds: float
    calls: int


def costs_of_trace(events: Iterable[Event]) -> tuple[list[ProfileCost], bool]:
    """Return the costs of operations on the GPU if it was used, else on the CPU; and whether on the GPU."""
    complete = [event for event in events if event.get("ph") == "X"]
    on_gpu = [event for event in complete if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    threads: dict[object, list[Event]] = defaultdict(list)
    for event in complete:
        if event.get("cat") in frozenset({"cpu_op", "user_annotation"}):
            threads[event.get("tid")].append(event)
    placed = [found for thread in threads.values() for found in _placed(thread)]
    if not on_gpu:
        return [ProfileCost(*name, own_s, 1) for _, name, own_s in placed], False
    names = {external: name for external, name, _ in placed}
    found = ((names.get(_external(event), (event["name"], "")), event["dur"] / 1e6) for event in on_gpu)
    return [ProfileCost(*name, seconds, 1) for name, seconds in found], True


def _external(event: Event) -> object:
    return event.get("args", {}).get("External id")


def _placed(thread: Sequence[Event]) -> Iterator[tuple[object, tuple[str, str], float]]:
    """Yield for each operation of a thread its id, its name and place, and its own seconds."""
    open_: list[Event] = []
    inner_us: dict[int, float] = defaultdict(float)
    placed: list[tuple[Event, tuple[str, str]]] = []
    for event in sorted(thread, key=lambda event: (event["ts"], -event["dur"])):
        while open_ and event["ts"] >= open_[-1]["ts"] + open_[-1]["dur"]:
            open_.pop()
        if event["cat"] == "cpu_op":
            outer = next((other for other in reversed(open_) if other["cat"] == "cpu_op"), None)
            if outer is not None:
                inner_us[id(outer)] += event["dur"]
            placed.append((event, _name_and_place(event["name"], open_)))
        open_.append(event)
    for event, name in placed:
        yield _external(event), name, max(0.0, event["dur"] - inner_us[id(event)]) / 1e6


def _name_and_place(name: str, around: Sequence[Event]) -> tuple[str, str]:
    """Return an operation with the innermost module, and the innermost place that is not torch's."""
    ranges = [event["name"].removeprefix(FORWARD) for event in around if event["name"].startswith(FORWARD)]
    modules = [(kind, place) for kind, _, place in (words.partition(" ") for words in reversed(ranges))]
    if not modules:
        return name, ""
    users = [place for _, place in modules if not place.startswith("torch/")]
    return f"{name} in {modules[0][0]}", (users or [modules[0][1]])[0]


TORCH, PYTHON = PROFILE_FILES


def short_path(path: str) -> str:
    """Return the path of a module without the folder in which Python found it."""
    folders = (f"{folder.rstrip('/')}/" for folder in sys.path if folder)
    found = max((folder for folder in folders if path.startswith(folder)), key=len, default="")
    return path.removeprefix(found)


# -- Python's own

Function = tuple[str, int, str]
"""The file, the first line and the name of a function; the line is 0 if it is built in."""


class PythonProfiler:
    """cProfile: each Python function, and each built-in that Python calls."""

    LIMIT_S = float("inf")

    def __init__(self, _: Point) -> None:
        import cProfile

        self._profile = cProfile.Profile()

    def resume(self) -> None:
        self._profile.enable()

    def pause(self, *, last: bool) -> None:  # noqa: ARG002 - as of the other profilers
        self._profile.disable()

    def write(self, path: Path) -> tuple[list[ProfileCost], list[str]]:
        import pstats

        self._profile.dump_stats(path)
        entries: Mapping[Function, tuple[Any, ...]] = vars(pstats.Stats(self._profile))["stats"]
        costs = [cost for function, entry in entries.items() for cost in _costs_of(function, entry)]
        note = "share: of the time of all functions, each without the functions that it calls"
        return costs, [note, "of a GPU only the time that Python waits for it (synchronize, copies)"]


def _costs_of(function: Function, entry: tuple[Any, ...]) -> Iterator[ProfileCost]:
    """Yield the cost of a function; that of a built-in at the place of each function that calls it.

    An entry of pstats has the calls without recursion, all calls, the function's own seconds, those with what
    it calls, and by caller a similar entry (Lib/pstats.py, ``Stats.print_line``).
    """
    _, calls, own_s, _, callers = entry
    file, line, name = function
    if line or not callers:
        yield ProfileCost(name, f"{short_path(file)}:{line}" if line else "", own_s, calls)
        return
    found = re.fullmatch(r"<(?:built-in method|method) (.+?)(?: of type object)?(?: at 0x[0-9a-f]+)?>", name)
    for (caller_file, caller_line, caller), (_, its_calls, its_s, _) in callers.items():
        what = f"{found[1] if found else name} in {caller}"
        yield ProfileCost(what, f"{short_path(caller_file)}:{caller_line}", its_s, its_calls)


# -- torch


class TorchProfiler:
    """torch.profiler: each operation with its kernels, within the modules whose ``forward`` runs it.

    The Python stacks that torch can record (``with_stack``) are no alternative: of two seconds of Stanza
    they took more than 10 GiB and minutes to write.
    """

    LIMIT_S = 1.0
    """It ends within a call, too. A second on a CPU was 270,000 operations, 4 MB of trace, 20 s to write."""

    def __init__(self, point: Point) -> None:
        from torch.profiler import ProfilerActivity, profile

        devices = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if point.device == CUDA else [])]
        self._profile: Any = profile(activities=devices)
        self._ranges: list[Any] = []
        self._hooks: list[Any] = []
        self._began_s = self._recorded_s = 0.0

    def resume(self) -> None:
        from torch.nn.modules import module

        if not self._hooks:
            self._hooks = [
                module.register_module_forward_pre_hook(self._enter),
                module.register_module_forward_hook(self._leave, always_call=True),
            ]
            self._profile.start()
            self._began_s = time.perf_counter()

    def pause(self, *, last: bool) -> None:
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

    def write(self, path: Path) -> tuple[list[ProfileCost], list[str]]:
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


PROFILERS: Mapping[str, Any] = {TORCH: TorchProfiler, PYTHON: PythonProfiler}
"""Each records the calls between ``resume`` and ``pause``, which knows whether it was the ``last`` call; once
they have taken ``LIMIT_S``, no further call. ``write`` returns the costs, and sentences on them."""


class ProfileRecording(Recording):
    def __init__(self, point: Point) -> None:
        self._point = point
        self._name = EARLIER_PROFILERS.get(point.profile, point.profile)
        self._profiler = PROFILERS[self._name](point)
        self._calls = self._recorded = 0
        self._seconds = 0.0

    @contextlib.contextmanager
    def of_call(self) -> Iterator[None]:
        """Record a call, unless those before it took longer than the profiler's limit."""
        self._calls += 1
        if self._seconds >= self._profiler.LIMIT_S:
            yield
            return
        self._profiler.resume()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - start
            self._recorded += 1
            self._profiler.pause(last=self._seconds >= self._profiler.LIMIT_S)

    def write(self, out: Path, try_number: int) -> None:
        costs, notes = self._profiler.write(out / PROFILE_FILES[self._name])
        lines = [*self._heading(try_number), *notes, "", *table(costs)]
        (out / PROFILE_TEXT).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _heading(self, try_number: int) -> Iterator[str]:
        point, left = self._point, self._calls - self._recorded
        yield f"{point.point_id}, try {try_number}, profiled with {self._name}"
        which = f"the first {self._recorded:,} of {self._calls:,}" if left else f"all {self._calls:,}"
        after = f"; the other {left:,} ran without the profiler" if left else ""
        yield f"calls: {which}, {self._seconds:.3f} s{after}"
        if (processes := point.workers * point.gpus) > 1:
            yield f"worker: the first of {processes:,}; the calls are its own"


class ProfiledWork(PointWork):
    def recording(self, task: Task) -> Recording:
        if why := missing(task.point.profile):
            raise TryFailed(Outcome.ENVIRONMENT, f"{Cause.NO_PROFILER} {why}")
        return ProfileRecording(task.point) if task.observed else Recording()


WORK = ProfiledWork()


def refuse_missing_profiler(spec: SweepSpec) -> None:
    if why := missing(spec.profile):
        raise JobkitError(f"profile: {why}", hint="the profiler python needs no package")


def missing(profiler: str) -> str:
    """Return what this Python lacks for a profiler; empty if it lacks nothing."""
    if profiler != TORCH or importlib.util.find_spec(TORCH):
        return ""
    return f"{TORCH}, but {sys.executable} has no package {TORCH}"


# -- text


def table(costs: Iterable[ProfileCost]) -> Iterator[str]:
    """Yield a line for each of the largest costs, with its share of all costs."""
    ordered = sorted(_merged(costs), key=lambda cost: -cost.seconds)
    whole_s = sum(cost.seconds for cost in ordered)
    shown = [cost for cost in ordered[:20] if cost.seconds > 0]
    if not shown:
        yield "nothing was recorded"
        return
    width = max(len(cost.where) for cost in shown)
    yield f"{'share':>7}  {'seconds':>9}  {'calls':>9}  {'where':<{width}}  what"
    # Longer names of functions and lines of code are cut
    widest = 60
    for cost in shown:
        share = f"{100 * cost.seconds / whole_s:.1f} %"
        what = cost.what if len(cost.what) <= widest else f"{cost.what[: widest - 3]}..."
        yield f"{share:>7}  {cost.seconds:9.3f}  {cost.calls:>9,}  {cost.where:<{width}}  {what}"


def _merged(costs: Iterable[ProfileCost]) -> Iterator[ProfileCost]:
    """Yield the costs; costs of one name and place are added up."""
    same: dict[tuple[str, str], list[ProfileCost]] = defaultdict(list)
    for cost in costs:
        same[cost.what, cost.where].append(cost)
    for (what, where), parts in same.items():
        yield ProfileCost(what, where, sum(part.seconds for part in parts), sum(part.calls for part in parts))
