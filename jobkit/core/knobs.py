"""Knobs: what a sweep varies, with the type and the values of each. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

from jobkit.core.frozen import keyed

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


@keyed
class Knob:
    """A knob is declared once: values, devices, how it is shown and compared follow from here."""

    name: str
    words: tuple[str, ...] = ()  # its values, if they are words; empty if they are whole numbers above 0
    # whether the load of a batch grows with it: then it decides the order of points, and which are pruned
    grows_load: bool = False
    devices: tuple[str, ...] = (CPU, CUDA)  # the devices on which it means something
    cuda_words: tuple[str, ...] = ()  # the words that mean something on a GPU only
    plain: Value | None = None  # what a spec means without it, not shown to people; ``None`` if that depends
    title: str = ""  # what people read in a line of what all points share; empty if they read it elsewhere
    reported: bool = False  # whether the record says what ran, which may differ from what the point asks for

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
DEFAULT_WORK_UNIT = 100
"""Paragraphs of one call if the load of a batch is capped."""
BUDGET = Knob(name=PADDED, grows_load=True)
"""The knob of every workload that finds the lengths of a text, in their unit."""
SIZES = {BATCH_SIZE: "batch", PADDED: "budget"}
"""The knobs that size a batch, with what people call a value; a setting has one of them."""
SHARING = Knob(name=MPS, words=(OFF, ON, AUTO), devices=(CUDA,), plain=OFF, title="MPS", reported=True)
RUN_KNOBS = (
    Knob(name=WORKERS, plain=1, title="workers"),
    Knob(name=THREADS, title="CPU threads"),
    Knob(name=GPUS, devices=(CUDA,), plain=1, title="GPUs"),
    Knob(name=ORDER, words=("load", "text", SORTED), plain="load"),
    Knob(name=WORK_UNIT),
    SHARING,
    Knob(name=EVERY, plain=1),
)
"""The knobs that every workload has, because jobkit itself obeys them."""
PRECISIONS = Knob(
    name=PRECISION,
    words=(FP32, TF32, FP16, BF16),
    cuda_words=(TF32,),
    plain=FP32,
    title=PRECISION,
    reported=True,
)
LEFT_OUT = Knob(name=SHORTCUTS, words=(OFF, EXACT), plain=OFF, title=SHORTCUTS, reported=True)
SPEC_KNOBS = tuple(
    knob
    for name in (THREADS, WORKERS, GPUS, WORK_UNIT, ORDER, MPS, PRECISION, SHORTCUTS, EVERY)
    for knob in (*RUN_KNOBS, PRECISIONS, LEFT_OUT)
    if knob.name == name
)
"""The knobs that are keys of a spec and fields of a point too, as people read them."""
REPORTED = tuple(knob for knob in SPEC_KNOBS if knob.reported)
OFFERED = {
    knob.name: tuple(word for word in knob.words if word != knob.plain) for knob in (PRECISIONS, LEFT_OUT)
}
"""Keys of a spec that are knobs of some workloads, with the words that mean something to these only."""
AUTOMATIC = frozenset(knob.name for knob in SPEC_KNOBS if AUTO in knob.words)
"""The knobs that a try decides by itself if they are ``auto``."""
TIMING = ("device", ORDER, "sort_window", WORK_UNIT, THREADS, WORKERS, GPUS, MPS)
"""Keys of a spec that decide how long the work takes and not what it finds."""
CUTTING = (ORDER, "sort_window", WORK_UNIT, EVERY, MPS, PROMPT, *OFFERED, "trim")
"""Keys of a spec that mean something only if jobkit itself cuts the text and sees its batches."""


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


def size_knob(names: Container[str]) -> str:
    """Return which knob sizes the batches, of the knobs of a setting or of a workload."""
    return PADDED if PADDED in names else BATCH_SIZE


def budget_of(params: Mapping[str, Value]) -> int | None:
    """Return the most load of a batch; ``None`` if a batch size cuts the batches."""
    return numbers(params).get(PADDED)


def accepted(params: Mapping[str, Value]) -> dict[str, Value]:
    """Return a setting as a spec would ask for it: without what was refused."""
    return {name: OFF if value == REFUSED else value for name, value in params.items()}


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
