"""What the text alone shows of a sweep, before any GPU is used."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.knobs import (
    BATCH_SIZE,
    CUT_BY,
    DEFAULT_WORK_UNIT,
    EVERY,
    ORDER,
    PADDED_CHARS,
    SORTED,
    WORK_UNIT,
    Value,
    numbers,
)
from jobkit.core.paths import cache_dir
from jobkit.core.terminal import Say
from jobkit.fit.lengths import NONE, Cut, Lengths
from jobkit.fit.loads import Loads
from jobkit.planning import batch_sizes
from jobkit.planning.resolve import Options, ResolvedSpec, resolve
from jobkit.planning.text_lengths import paragraphs_of, text_lengths
from jobkit.run.paragraphs import split_sentences
from jobkit.run.workloads.count import DEFAULT_BATCH_SIZE
from jobkit.spec.sweep_spec import SweepSpec

LONGEST = 3
BEGINNING_CHARS = 60
ROUND = tuple(step * 10**power for power in range(7) for step in (1, 2, 5))
"""Batch sizes that are shown in addition to those of the spec and those worth measuring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One of the longest items.

    Attributes
    ----------
    length
        In what the framework pads to.
    paragraph, item
        Its place: which paragraph of the text, which item of the paragraph; both from 0.
    beginning
        How it begins, judged by punctuation.
    """

    length: int
    paragraph: int
    item: int
    beginning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is known of one batch size.

    Attributes
    ----------
    load
        The largest of this batch size and of all smaller ones.
    own_load
        The largest at exactly this batch size.
    first_paragraph, from_batch_size
        The call that makes ``load``: its first paragraph, from 0, and its batch size.
    efficiency, efficiency_sorted
        Characters over padded characters, as the text stands and if it were sorted by length;
        ``None`` if no lengths are known.
    gpu_bytes
        What the process may take on the GPU, roughly; ``None`` if nothing is known of it.
    in_spec, to_measure
        Whether the spec sweeps it, and whether it is worth measuring.
    """

    batch_size: int
    load: int
    own_load: int
    first_paragraph: int
    from_batch_size: int
    efficiency: float | None
    efficiency_sorted: float | None
    gpu_bytes: int | None
    in_spec: bool
    to_measure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLoad:
    """A setting that the spec sweeps, and its batches.

    Attributes
    ----------
    load
        The largest, which the records of the run confirm.
    batches
        Their number in one pass over the text.
    efficiency
        Characters over padded characters; ``None`` if no lengths are known.
    alone
        How many items are longer than ``padded_chars``: each is a batch of its own.
    """

    params: Mapping[str, Value]
    load: int
    batches: int
    efficiency: float | None
    alone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What the text shows.

    Attributes
    ----------
    text, workload, model, stand_in, device
        What the spec names; ``model`` is ``None`` if there is none.
    caveat
        What the model is, if it is not the model that its name promises; else empty.
    source, unit
        As in `jobkit.fit.lengths.Lengths`.
    paragraphs, items, characters
        How many; ``items`` is ``None`` if no lengths are known.
    saturation, limit
        As in `jobkit.fit.loads.Loads`.
    measure
        The batch sizes worth measuring.
    why
        What was chosen and why, in a line.
    gpu_memory_bytes
        The GPU that was taken for it; ``None`` if nothing is known of it.
    gpu_memory_named
        Whether the user named that GPU.
    """

    text: str
    workload: str
    model: str | None
    stand_in: bool
    caveat: str
    device: str
    source: str
    unit: str
    paragraphs: int
    items: int | None
    characters: int
    longest: tuple[Item, ...]
    saturation: int
    saturation_load: int
    limit: int
    measure: tuple[int, ...]
    why: str
    gpu_memory_bytes: int | None
    gpu_memory_named: bool
    sizes: tuple[Size, ...]
    settings: tuple[SettingLoad, ...]


def preflight(
    path: Path,
    overrides: tuple[str, ...] = (),
    *,
    fast: bool = False,
    gpu_memory_bytes: int | None = None,
    stand_in: bool = False,
    say: Say = lambda _: None,
) -> Preflight:
    """Return what can be known of a sweep before anything runs.

    Parameters
    ----------
    path
        The spec.
    overrides
        ``key=value`` of each ``--set``.
    fast
        Whether to estimate lengths from punctuation if the workload needs a model for them.
    gpu_memory_bytes
        The memory of the GPU, if it is known.
    stand_in
        Whether a stand-in takes the place of a model that is missing.
    say
        Prints a line about work that takes time.

    Raises
    ------
    JobkitError
        As `jobkit.planning.prepare.prepare`.
    """
    options = Options(overrides=overrides, stand_in=stand_in)
    named = resolve(path, options, fetch=True, build=not fast, say=say)
    named.spec.refuse_command("jobkit preflight")
    spec, gpu = named.spec, gpu_memory_bytes or batch_sizes.named_gpu_bytes(named.spec)
    lengths = text_lengths(
        spec.workload_name,
        named.text,
        named.model,
        cache=cache_dir(),
        say=say,
        fast=fast,
        folder=named.workload_folder,
    )
    loads = batch_sizes.loads_of(spec, lengths)
    chosen = batch_sizes.choose(spec, named.model, loads, gpu)
    if batch_sizes.is_auto(spec):
        spec = batch_sizes.decided(spec, chosen.sizes.batch_sizes)
    return _gathered(named, spec, chosen, gpu)


def _gathered(named: ResolvedSpec, spec: SweepSpec, chosen: batch_sizes.Chosen, gpu: int | None) -> Preflight:
    loads, paragraphs = chosen.loads, paragraphs_of(named.text)
    lengths, model = loads.lengths, named.model
    known = chosen.largest_load is not None
    return Preflight(
        text=named.text.name,
        workload=spec.workload_name,
        model=model.title if model else None,
        stand_in=bool(model and model.stand_in),
        caveat=model.caveat if model else "",
        device=spec.device,
        source=lengths.source,
        unit=lengths.unit,
        paragraphs=len(paragraphs),
        items=None if lengths.source == NONE else sum(map(len, lengths.paragraphs)),
        characters=sum(map(len, paragraphs)),
        longest=tuple(longest(paragraphs, lengths.paragraphs)) if lengths.source != NONE else (),
        saturation=loads.saturation,
        saturation_load=loads.load(loads.saturation),
        limit=loads.limit,
        measure=chosen.sizes.batch_sizes,
        why=chosen.line,
        gpu_memory_bytes=gpu or (batch_sizes.ASSUMED_BYTES if known else None),
        gpu_memory_named=gpu is not None,
        sizes=tuple(_sizes(named, spec, chosen)),
        settings=tuple(_setting(spec, lengths, params) for params in batch_sizes.settings_of(spec)),
    )


def _setting(spec: SweepSpec, lengths: Lengths, params: Mapping[str, Value]) -> SettingLoad:
    """Return what the text shows of a setting."""
    by_length = params.get(ORDER, spec.order) == SORTED
    knobs = numbers(params)
    lengths = lengths.every(knobs.get(EVERY, spec.every))
    budget, size = knobs.get(PADDED_CHARS), knobs.get(BATCH_SIZE, DEFAULT_BATCH_SIZE)
    cut = Cut(**{name: knobs.get(name, size) for name in CUT_BY})
    loads = Loads(lengths, cut, by_length, spec.sort_window)
    if budget is None:
        chunks = loads.chunks(size)
    else:
        chunks = loads.under_budget(budget, knobs.get(WORK_UNIT, spec.work_unit or DEFAULT_WORK_UNIT))
    longer = (length for row in lengths.paragraphs for length in row if budget and length > budget)
    return SettingLoad(
        params=params,
        load=chunks.load,
        batches=chunks.batches,
        efficiency=None if lengths.source == NONE else chunks.efficiency,
        alone=sum(1 for _ in longer),
    )


def _sizes(named: ResolvedSpec, spec: SweepSpec, chosen: batch_sizes.Chosen) -> Iterator[Size]:
    loads, measure = chosen.loads, set(chosen.sizes.batch_sizes)
    swept = {
        size for row in batch_sizes.settings_of(spec) if (size := numbers(row).get(BATCH_SIZE)) is not None
    }
    line = batch_sizes.typical(spec.workload_name, named.model) if chosen.largest_load is not None else None
    has_lengths = loads.lengths.source != NONE
    looked_at = {size for size in ROUND if size < loads.limit} | {loads.limit} | swept | measure
    for size in sorted(looked_at):
        first, source = loads.worst(size)
        yield Size(
            batch_size=size,
            load=loads.load(size),
            own_load=loads.own(size),
            first_paragraph=first,
            from_batch_size=source,
            efficiency=loads.efficiency(size) if has_lengths else None,
            efficiency_sorted=loads.efficiency_sorted(size) if has_lengths else None,
            gpu_bytes=round(line.at(loads.load(size))) if line else None,
            in_spec=size in swept,
            to_measure=size in measure,
        )


def longest(paragraphs: Sequence[str], lengths: Sequence[Sequence[int]]) -> list[Item]:
    """Return the longest items of a text, the longest first."""
    places = ((length, -at, -item) for at, row in enumerate(lengths) for item, length in enumerate(row))
    return [
        Item(
            length=length,
            paragraph=-at,
            item=-item,
            beginning=_beginning(paragraphs[-at], lengths[-at], -item),
        )
        for length, at, item in heapq.nlargest(LONGEST, places)
    ]


def _beginning(paragraph: str, lengths: Sequence[int], item: int) -> str:
    """Return how an item begins: the sentence nearest to where its share of the paragraph begins."""
    sentences = split_sentences(paragraph)
    starts: list[int] = []
    end = 0
    for sentence in sentences:
        starts.append(paragraph.index(sentence, end))
        end = starts[-1] + len(sentence)
    share = sum(lengths[:item]) / max(sum(lengths), 1)
    if len(lengths) == 1:
        start = 0
    elif len(lengths) == len(sentences):
        start = starts[item]
    else:
        start = min(starts, key=lambda at: abs(at - share * len(paragraph)))
    words = " ".join(paragraph[start:].split())
    return words if len(words) <= BEGINNING_CHARS else words[:BEGINNING_CHARS].rstrip() + " ..."
