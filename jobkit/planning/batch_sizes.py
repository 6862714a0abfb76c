"""Choose the values of ``batch_size: auto``, and describe the choice and its reason in a line. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from jobkit.answers.loads import NONE, PUNCTUATION, TOKENIZER, Cut, Lengths, Loads
from jobkit.answers.memory_line import MIN_DISTINCT_LOADS, FittedLine
from jobkit.core import knobs
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.records import ModelRef
from jobkit.core.units import GIB, format_bytes_gib, format_memory
from jobkit.spec.axes import settings
from jobkit.spec.fields import Auto
from jobkit.spec.sweep_spec import Axes, SweepSpec

MIN_LOAD = 4_000
"""Padded characters below which fixed costs bend the line of memory over load (measured with Stanza)."""
TOP_LOAD_SHARE = 0.25
"""The largest size worth measuring uses this part of the GPU, or else of the text."""


TYPICAL = {("stanza-ner", "en", "full"): FittedLine(intercept_bytes=970_000_000, slope_bytes=12_750)}
"""Memory of the process on one H200, by workload, model and size, measured with the stand-in of these
dimensions (docs/measurements.md): a guess for another GPU, good enough to choose what is measured there."""

ASSUMED_BYTES = 24 * GIB
"""The memory of a GPU that is not named: a quarter of it fits every GPU of 8 GiB and more."""


def share(limit_bytes: float) -> float:
    """Return the share of a GPU that the largest size worth measuring takes: more of a small GPU."""
    # the largest size takes at most this share of a GPU, whose line is known roughly
    # From this size on a batch is large next to the blocks of 20 MiB that PyTorch's allocator takes. Below,
    # the blocks bend the line: on an H200, with PyTorch's default allocator under a cap of 4 GiB, the bound
    # from batches of up to 1 GiB was 91 % of the largest load that fits, and that from batches of up to 2
    # GiB 97 %.
    return min(0.5, max(TOP_LOAD_SHARE, (2 * GIB) / limit_bytes))


@keyed
class Chosen:
    sizes: Sizes  # the batch sizes, and the reason if they are fewer than wanted
    loads: Loads
    largest_load: float | None  # the largest load that the GPU holds by `TYPICAL`; ``None`` if unknown
    gpu: str  # the GPU in words; empty if unknown
    share: float = TOP_LOAD_SHARE  # the part of the GPU, or else of the text, that the largest size uses

    @property
    def line(self) -> str:
        """The sizes and the reason, without a full stop."""
        sizes = self.sizes.batch_sizes
        if not sizes:
            return f"no batch size is worth measuring: {self.sizes.why}"
        unit = self.loads.lengths.unit
        first, last = (self.loads.load(size) for size in (sizes[0], sizes[-1]))
        words = f"{knobs.BATCH_SIZE} {', '.join(map(str, sizes))}: loads of {first:,} to {last:,} {unit}"
        said = {
            TOKENIZER: "lengths as the workload finds them",
            PUNCTUATION: "lengths ESTIMATED from punctuation",
            NONE: "the workload reports no lengths",
        }
        words += f", {self._reason(last)}; {said[self.loads.lengths.source]}"
        return f"{words}; {self.sizes.why}" if self.sizes.why else words

    def _reason(self, last: int) -> str:
        most = self.loads.load(self.loads.limit)
        whole = f"of the {most:,} of the whole text in one call"
        if self.largest_load is not None and self.largest_load < most:
            most, whole = int(self.largest_load), f"of the {self.largest_load:,.0f} that {self.gpu} may take"
        part = "a quarter" if self.share == TOP_LOAD_SHARE else f"{self.share:.0%}"
        if last > self.share * most:
            return f"evenly spread and more than {part} {whole}: less has too few distinct loads"
        return f"evenly spread up to {part} {whole}"


def choose(spec: SweepSpec, model: ModelRef | None, loads: Loads, limit_bytes: int | None = None) -> Chosen:
    """Return the batch sizes worth measuring; ``limit_bytes`` is ``None`` if the GPU's memory is not known.

    On a CPU there is no GPU to fill, unless ``spec`` names one. Earlier runs may have a line for ``model``.
    """
    line = None if spec.device == "cpu" and limit_bytes is None else typical(spec.workload_name, model)
    if line is None:
        return Chosen(sizes=sizes(loads), loads=loads, largest_load=None, gpu="")
    held = limit_bytes or ASSUMED_BYTES
    gpu = f"a GPU of {format_bytes_gib(held, 0) if held >= GIB else format_memory(held)}"
    workers = most_workers(spec)
    gpu += f" for {workers} workers" if workers > 1 else ""
    limit, part = line.largest(held / workers), share(held / workers)
    return Chosen(
        sizes=sizes(loads, limit, share=part),
        loads=loads,
        largest_load=limit,
        gpu=gpu if limit_bytes else f"{gpu}, as none is named,",
        share=part,
    )


def most_workers(spec: SweepSpec) -> int:
    axes = spec.sweep
    swept = [*axes.product.get(knobs.WORKERS, ()), *axes.zip.get(knobs.WORKERS, ())]
    swept += [row[knobs.WORKERS] for row in axes.include if knobs.WORKERS in row]
    return max((value for value in swept if isinstance(value, int)), default=spec.workers)


def typical(workload: str, model: ModelRef | None) -> FittedLine | None:
    return TYPICAL.get((workload, model.name, model.size)) if model else None


def is_auto(spec: SweepSpec) -> bool:
    return isinstance(spec.sweep.product.get(knobs.BATCH_SIZE), Auto)


def named_gpu_bytes(spec: SweepSpec) -> int | None:
    """Return the GPU memory that ``find_max`` names; ``None`` on a CPU, where it is the process's."""
    return None if spec.device == "cpu" else spec.asked_bytes


def decided(spec: SweepSpec, sizes: Sequence[int]) -> SweepSpec:
    if not sizes:
        hint = "give batch sizes in numbers, or name a longer text, or more memory"
        raise JobkitError(
            f"spec {spec.name}: sweep.{knobs.BATCH_SIZE}: no batch size is worth measuring", hint=hint
        )
    axes = Axes.model_validate({**spec.sweep.model_dump(), knobs.BATCH_SIZE: list(sizes)})
    return spec.model_copy(update={"sweep": axes})


def loads_of(spec: SweepSpec, lengths: Lengths) -> Loads:
    """Return the loads by batch size; other knobs that cut the text have their largest value."""
    values = {**spec.sweep.zip, **spec.sweep.product}
    by_length = set(values.get(knobs.ORDER, [spec.order])) == {knobs.SORTED}
    parts = [value for value in values.get(knobs.EVERY, [spec.every]) if isinstance(value, int)]
    lengths = lengths.every(min(parts))
    if knobs.BATCH_SIZE not in values:
        return Loads(lengths, by_length=by_length, window=spec.sort_window)
    fixed = [
        {name: value} for name in knobs.CUT_BY for value in values.get(name, ()) if isinstance(value, int)
    ]
    return Loads(lengths, Cut.largest(fixed), by_length, spec.sort_window)


def settings_of(spec: SweepSpec) -> tuple[dict[str, knobs.Value], ...]:
    """Return the settings that a spec sweeps, without the knobs that do not change the load, each once."""
    axes = spec.sweep
    without = {*knobs.OFFERED, *(knob.name for knob in knobs.RUN_KNOBS)} - {
        knobs.ORDER,
        knobs.WORK_UNIT,
        knobs.EVERY,
    }
    rows = settings(axes.product, axes.zip, axes.include, axes.exclude)
    bare = [{name: value for name, value in row.items() if name not in without} for row in rows]
    return tuple({tuple(sorted(row.items())): row for row in bare}.values())


class Sizes(NamedTuple):
    """The batch sizes worth measuring, ascending; and why they are fewer than wanted, else empty."""

    batch_sizes: tuple[int, ...]
    why: str = ""


def sizes(
    loads: Loads,
    largest_load: float | None = None,
    points: int = 5,
    *,
    floor: int = MIN_LOAD,
    share: float = TOP_LOAD_SHARE,
) -> Sizes:
    """Return the batch sizes whose memory makes a line to rely on, at little cost.

    Their loads are spread evenly from ``floor`` up to a ``share`` of the largest load that matters: the
    GPU's, or that of the whole text in one call if that is less or the GPU is unknown. A size is used only if
    its load is larger than that of all smaller sizes, so that no two measure the same load. If the share
    leaves too few sizes above the floor, it is doubled until there are enough; if the whole text has too few,
    sizes below the floor are used too.

    No size goes beyond ``largest_load``, which the GPU holds; below ``floor`` the line bends.
    """
    floor = 0 if loads.lengths.source == NONE else floor
    most = min(math.inf if largest_load is None else largest_load, loads.load(loads.limit))
    top = share * most
    usable = _between(loads, floor, top)
    while len(usable) < points and top < most:
        top = min(2 * top, most)
        usable = _between(loads, floor, top)
    if len(usable) < MIN_DISTINCT_LOADS:
        usable = _between(loads, 0, top)
    chosen = _spread(usable, points)
    return Sizes(
        chosen, _why_few(loads, chosen, largest_load) if len(chosen) < min(points, MIN_DISTINCT_LOADS) else ""
    )


def _between(loads: Loads, floor: float, top: float) -> dict[int, int]:
    return {size: load for size in loads.steps if floor <= (load := loads.load(size)) <= top}


def _spread(usable: Mapping[int, int], points: int) -> tuple[int, ...]:
    left, gap = dict(usable), max(usable.values(), default=0) / points
    sizes: list[int] = []

    def unfit(size: int, wanted: float) -> tuple[int, float]:
        """Return a key that is least for the best size: near the wanted load, then round, then nearest."""
        gaps = abs(left[size] - wanted) / gap
        roundness = next(step for step in (100, 50, 25, 10, 5, 1) if size % step == 0)
        # A rounder batch size is used if its load is this near the wanted one, in gaps between loads
        return (-roundness, gaps) if gaps <= 0.1 else (0, gaps)

    for share in range(points, 0, -1):
        if left:
            sizes.append(min(left, key=partial(unfit, wanted=gap * share)))
            del left[sizes[-1]]
    return tuple(sorted(sizes))


def _why_few(loads: Loads, chosen: tuple[int, ...], largest_load: float | None) -> str:
    """Return why there are fewer sizes than a line needs, without a full stop."""
    smallest = loads.load(1)
    if largest_load is not None and largest_load < loads.load(loads.limit):
        if largest_load <= 0:
            return "the model alone takes more memory than there is"
        if not chosen:
            return f"not even a batch size of 1, a load of {smallest:,}, fits into {largest_load:,.0f}"
        many = "batch sizes with loads of their own fit" if len(chosen) > 1 else "batch size fits"
        return f"only {len(chosen)} {many} into {largest_load:,.0f}"
    return f"the text makes too few distinct loads ({len(loads.steps)}) for a line: a longer text has more"
