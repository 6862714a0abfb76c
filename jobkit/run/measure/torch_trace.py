"""The costs in a trace of torch.profiler, by operation and module. Pure.

The trace is in Chrome's format: complete events (``ph`` is X) with ``ts`` and ``dur`` in microseconds.
Kernels and copies have the ``External id`` of the operation that launched them (torch 2.13, kineto).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FORWARD = "forward "
"""Begins the name of the range of a module's ``forward``; its class and its place follow."""
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
ON_CPU = frozenset({"cpu_op", "user_annotation"})
Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a function, a line or an operation took itself, without what it calls.

    Attributes
    ----------
    where
        ``file:line`` of the Python code; empty if it is not known.
    calls
        ``None`` if the time was sampled.
    """

    what: str
    where: str
    seconds: float
    calls: int | None = None


def costs_of_trace(events: Iterable[Event]) -> tuple[list[Cost], bool]:
    """Return the costs of operations on the GPU if it was used, else on the CPU, and which of the two."""
    complete = [event for event in events if event.get("ph") == "X"]
    on_gpu = [event for event in complete if event.get("cat") in ON_GPU]
    threads: dict[object, list[Event]] = defaultdict(list)
    for event in complete:
        if event.get("cat") in ON_CPU:
            threads[event.get("tid")].append(event)
    placed = [found for thread in threads.values() for found in _placed(thread)]
    if not on_gpu:
        return [Cost(*name, own_s, 1) for _, name, own_s in placed], False
    names = {external: name for external, name, _ in placed}
    found = ((names.get(_external(event), (event["name"], "")), event["dur"] / 1e6) for event in on_gpu)
    return [Cost(*name, seconds, 1) for name, seconds in found], True


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
    """Return an operation with the innermost module, and the place of the innermost that is not torch's."""
    ranges = [event["name"].removeprefix(FORWARD) for event in around if event["name"].startswith(FORWARD)]
    modules = [(kind, place) for kind, _, place in (words.partition(" ") for words in reversed(ranges))]
    if not modules:
        return name, ""
    users = [place for _, place in modules if not place.startswith("torch/")]
    return f"{name} in {modules[0][0]}", (users or [modules[0][1]])[0]
