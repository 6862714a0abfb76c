"""Knobs: what a sweep varies, with the type and the values of each. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Value = int | str
T = TypeVar("T")

BATCH_SIZE = "batch_size"
CUT_BY = ("paragraphs_per_call", "sentences_per_ner_batch")
"""The knobs that cut a text besides the batch size."""
PADDED = "padded"
"""The knob that caps the load of every batch, in place of a batch size."""
RENAMED = {"padded_chars": PADDED}
"""Knobs by their names in earlier versions, which specs, runs and workloads may still use."""
LOAD_KNOBS = (BATCH_SIZE, "sentences_per_ner_batch", PADDED)
"""The knobs with which the load of a batch grows, unless a workload declares others."""
CPU, CUDA = "cpu", "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    name: str
    words: tuple[str, ...] = ()  # its values, if they are words; empty if they are whole numbers above 0
    # whether the load of a batch grows with it: then it decides the order of points, and which are pruned
    grows_load: bool = False
    devices: tuple[str, ...] = (CPU, CUDA)  # the devices on which it means something
    cuda_words: tuple[str, ...] = ()  # the words that mean something on a GPU only

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}" if self.words else "a whole number above 0"

    def devices_of(self, value: object) -> tuple[str, ...]:
        """Return the devices on which a value means something."""
        return (CUDA,) if value in self.cuda_words else self.devices


WORKERS, THREADS, GPUS, ORDER, WORK_UNIT, MPS = "workers", "threads", "gpus", "order", "work_unit", "mps"
EVERY = "every"
"""The knob that takes a part of the text: one of every so many paragraphs."""
SORTED = "sorted"
ORDERS = ("load", "text", SORTED)
OFF, ON, AUTO = "off", "on", "auto"
SWITCH = _, TRUE = "false", "true"
"""The words of a knob that switches something; a spec may write them as bools."""
PRECISION = "precision"
"""The knob of a workload that can compute in several formats of numbers."""
FP32, TF32, FP16, BF16 = "fp32", "tf32", "fp16", "bf16"
PROMPT = "prompt"
"""What a workload that embeds puts before each text."""
SHORTCUTS = "shortcuts"
"""The knob of a workload that can leave out work which changes no result."""
EXACT = "exact"
REFUSED = "refused"
"""Stands for ``exact`` in the setting of a try whose shortcuts were refused."""
OFFERED = {PRECISION: (TF32, FP16, BF16), SHORTCUTS: (EXACT,)}
"""Keys of a spec that are knobs of some workloads, with the words that mean something to these only."""
DEFAULT_WORK_UNIT = 100
"""Paragraphs of one call if the load of a batch is capped."""
BUDGET = Knob(name=PADDED, grows_load=True)
"""The knob of every workload that finds the lengths of a text, in their unit."""
RUN_KNOBS = (
    Knob(name=WORKERS),
    Knob(name=THREADS),
    Knob(name=GPUS, devices=(CUDA,)),
    Knob(name=ORDER, words=ORDERS),
    Knob(name=WORK_UNIT),
    Knob(name=MPS, words=(OFF, ON, AUTO), devices=(CUDA,)),
    Knob(name=EVERY),
)
"""The knobs that every workload has, because jobkit itself obeys them."""


def declared(knobs: Iterable[Knob | str]) -> tuple[Knob, ...]:
    """Return the knobs that a workload declares; a name alone stands for whole numbers."""
    grow = {*LOAD_KNOBS, *RENAMED}
    return tuple(
        Knob(name=knob, grows_load=knob in grow) if isinstance(knob, str) else knob for knob in knobs
    )


def renamed(value: T) -> T:
    """Return a setting, a trial, or what a spec has at ``sweep``, with today's names of its knobs."""
    if isinstance(value, Mapping):
        return {RENAMED.get(name, name): renamed(one) for name, one in value.items()}  # type: ignore[return-value]
    return [*map(renamed, value)] if isinstance(value, list) else value  # type: ignore[return-value]


def from_fields(fields: Mapping[str, Any]) -> Knob:
    tuples = ("words", "devices", "cuda_words")
    return Knob(**{**fields, **{name: tuple(fields[name]) for name in tuples}})


def numbers(params: Mapping[str, Value]) -> dict[str, int]:
    return {name: value for name, value in params.items() if isinstance(value, int)}


def sort_key(value: Value | None) -> tuple[float, str]:
    """Return a key that sorts the values of a knob: numbers, words (fp32 and off first), then no value."""
    if isinstance(value, str):
        return math.inf, "" if value in {FP32, OFF} else value
    return (math.inf, "~") if value is None else (value, "")
