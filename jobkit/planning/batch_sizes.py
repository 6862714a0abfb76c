"""Choose the values of ``batch_size: auto``, and say in a line what was chosen and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.core.records import BATCH_SIZE, ModelRef
from jobkit.core.units import GIB, format_bytes_gib, format_memory
from jobkit.fit.lengths import CUT_BY, NONE, PUNCTUATION, TOKENIZER, Cut, Lengths
from jobkit.fit.loads import TOP_LOAD_SHARE, Loads, Sizes, sizes
from jobkit.fit.stats import Line
from jobkit.spec.axes import settings
from jobkit.spec.fields import Auto
from jobkit.spec.sweep_spec import Axes, SweepSpec

UNITS = {TOKENIZER: "padded characters", PUNCTUATION: "padded characters", NONE: "paragraphs"}
"""What a load counts, by where the lengths are from."""
SAID = {
    TOKENIZER: "lengths as the workload finds them",
    PUNCTUATION: "lengths ESTIMATED from punctuation",
    NONE: "the workload tells no lengths",
}


TYPICAL = {("stanza-ner", "en", "full"): Line(intercept_bytes=970_000_000, slope_bytes=12_750)}
"""By workload, model and its size: the process's peak on one H200, with the stand-in of these dimensions,
as docs/benchmarks-gpu.md has it.
A rough guess of another card, good enough to choose what is measured there."""

ASSUMED_BYTES = 24 * GIB
"""The card where none is named: a quarter of it fits every card of 8 GiB and more."""


GRAIN_HIDES_BYTES = 2 * GIB
"""From here on a batch is large beside the blocks of 20 MiB that PyTorch's allocator takes. Below, they bend
the line: on an H200, with PyTorch's default allocator under a cap of 4 GiB, the bound from batches of up to
1 GiB was 91 % of the largest load that fits, and that from batches of up to 2 GiB 97 %."""
MOST = 0.5
"""The largest size worth measuring never takes more than this share of a card, which is known roughly."""


def share(card_bytes: float) -> float:
    """Return the share of a GPU that the largest size worth measuring takes: more of a small one."""
    return min(MOST, max(TOP_LOAD_SHARE, GRAIN_HIDES_BYTES / card_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The batch sizes worth measuring.

    Attributes
    ----------
    sizes
        Themselves, and why they are few where they are.
    loads
        Of the text.
    largest_load
        What the card would take by `TYPICAL`; ``None`` where nothing is known of it.
    card
        The card in words; empty where nothing is known.
    share
        What the largest size takes of the card, or else of the text.
    """

    sizes: Sizes
    loads: Loads
    largest_load: float | None
    card: str
    share: float = TOP_LOAD_SHARE

    @property
    def line(self) -> str:
        """What was chosen and why, without a full stop."""
        found = self.sizes.batch_sizes
        if not found:
            return f"no batch size is worth measuring: {self.sizes.why}"
        unit = UNITS[self.loads.lengths.source]
        first, last = (self.loads.load(size) for size in (found[0], found[-1]))
        said = f"{BATCH_SIZE} {', '.join(map(str, found))}: loads of {first:,} to {last:,} {unit}"
        said += f", {self._reason(last)}; {SAID[self.loads.lengths.source]}"
        return f"{said}; {self.sizes.why}" if self.sizes.why else said

    def _reason(self, last: int) -> str:
        most = self.loads.load(self.loads.limit)
        whole = f"of the {most:,} of the whole text in one call"
        if self.largest_load is not None and self.largest_load < most:
            most, whole = int(self.largest_load), f"of the {self.largest_load:,.0f} that {self.card} may take"
        part = "a quarter" if self.share == TOP_LOAD_SHARE else f"{self.share:.0%}"
        if last > self.share * most:
            return f"evenly spread and more than {part} {whole}: less has too few distinct loads"
        return f"evenly spread up to {part} {whole}"


def choose(spec: SweepSpec, model: ModelRef | None, loads: Loads, card_bytes: int | None = None) -> Chosen:
    """Return the batch sizes worth measuring.

    Parameters
    ----------
    spec
        Its workload, and its device: on a CPU there is no card to fill, unless one is named.
    model
        For which there may be a line of earlier runs.
    loads
        Of the text.
    card_bytes
        What the card holds, where it is known.
    """
    line = None if spec.device == "cpu" and card_bytes is None else typical(spec.workload, model)
    if line is None:
        return Chosen(sizes=sizes(loads), loads=loads, largest_load=None, card="")
    held = card_bytes or ASSUMED_BYTES
    card = f"a card of {format_bytes_gib(held, 0) if held >= GIB else format_memory(held)}"
    limit = line.largest(held)
    return Chosen(
        sizes=sizes(loads, limit, share=share(held)),
        loads=loads,
        largest_load=limit,
        card=card if card_bytes else f"{card}, as none is named,",
        share=share(held),
    )


def typical(workload: str, model: ModelRef | None) -> Line | None:
    """Return the line of earlier runs for a workload and its model, where there is one."""
    return TYPICAL.get((workload, model.name, model.size)) if model else None


def is_auto(spec: SweepSpec) -> bool:
    """Return whether jobkit is to choose the batch sizes."""
    return isinstance(spec.sweep.product.get(BATCH_SIZE), Auto)


def named_card_bytes(spec: SweepSpec) -> int | None:
    """Return the memory of a card that a spec's ``find_max`` names, in bytes; ``None`` where it names none.

    On a CPU what it names is the memory of the process, which no line of a card is about.
    """
    memory = spec.find_max.memory if spec.find_max and spec.device != "cpu" else None
    return memory if isinstance(memory, int) else None


def decided(spec: SweepSpec, found: Sequence[int]) -> SweepSpec:
    """Return the spec with its ``auto`` replaced.

    Raises
    ------
    JobkitError
        Where there is nothing to replace it by.
    """
    if not found:
        hint = "give batch sizes in numbers, or name a longer text, or more memory"
        raise JobkitError(
            f"spec {spec.name}: sweep.{BATCH_SIZE}: no batch size is worth measuring", hint=hint
        )
    axes = Axes.model_validate({**spec.sweep.model_dump(), BATCH_SIZE: list(found)})
    return spec.model_copy(update={"sweep": axes})


def loads_of(spec: SweepSpec, lengths: Lengths) -> Loads:
    """Return the loads by batch size, other knobs that cut the text as the spec fixes them.

    Where such a knob has several values the largest counts: its batches are the largest.
    """
    values = {**spec.sweep.zip, **spec.sweep.product}
    if BATCH_SIZE not in values:
        return Loads(lengths)
    return Loads(lengths, Cut.largest([{name: max(values[name]) for name in CUT_BY if values.get(name)}]))


def settings_of(spec: SweepSpec) -> tuple[dict[str, int], ...]:
    """Return the settings that a spec whose ``auto`` is decided sweeps."""
    axes = spec.sweep
    return settings(axes.product, axes.zip, axes.include, axes.exclude)
