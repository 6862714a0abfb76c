"""What the text alone shows of a sweep, before any GPU is used: for a person or a program."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from jobkit.answers.loads import NONE, PUNCTUATION, Cut, Lengths, Loads
from jobkit.core import knobs, terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.frozen import keyed
from jobkit.core.units import GIB, format_count, format_setting
from jobkit.planning import batch_sizes
from jobkit.planning.prepare import NamedSpec, Options, build_model, lengths_of, read_named
from jobkit.planning.texts import paragraphs_of
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.worker.paragraphs import split_sentences
from jobkit.worker.workloads.base import DEFAULT_BATCH_SIZE


@keyed
class Item:
    length: int  # in the unit to which the framework pads
    # which paragraph of the text, and which item of the paragraph; both from 0
    paragraph: int
    item: int
    beginning: str  # the first words, judged by punctuation


@keyed
class PaddedSize:
    batch_size: int
    load: int  # the largest load of this batch size and of all smaller ones
    own_load: int  # the largest load at exactly this batch size
    # the first paragraph, from 0, of the call that makes ``load``, and its batch size
    first_paragraph: int
    from_batch_size: int
    # characters over padded characters, as the text stands and if it were sorted by length; ``None`` if no
    # lengths are known
    efficiency: float | None
    efficiency_sorted: float | None
    gpu_bytes: int | None  # what the process may take on the GPU, roughly; ``None`` if unknown
    in_spec: bool  # whether the spec sweeps it, and whether it is worth measuring
    to_measure: bool


@keyed
class SettingLoad:
    params: Mapping[str, knobs.Value]
    load: int  # the largest load, which the records of the run confirm
    batches: int  # the number of batches in one pass over the text
    efficiency: float | None  # characters over padded characters; ``None`` if no lengths are known
    alone: int = 0  # the number of items longer than ``padded``: each is a batch of its own
    every: int = 1  # of so many paragraphs it works on one


@keyed
class Preflight:
    # what the spec names; ``model`` is ``None`` if there is none
    text: str
    workload: str
    model: str | None
    stand_in: bool
    caveat: str  # what the model is if it is not the one that its name promises; else empty
    device: str
    source: str  # as in `jobkit.answers.loads.Lengths`
    unit: str
    # numbers; ``items`` is ``None`` if no lengths are known
    paragraphs: int
    items: int | None
    characters: int
    longest: tuple[Item, ...]
    saturation: int  # as in `jobkit.answers.loads.Loads`
    saturation_load: int
    limit: int
    measure: tuple[int, ...]  # the batch sizes worth measuring
    why: str  # the choice and its reason, in a line
    gpu_memory_bytes: int | None  # the GPU for which they are chosen; ``None`` if its memory is unknown
    gpu_memory_named: bool  # whether the user named that GPU
    sizes: tuple[PaddedSize, ...]
    settings: tuple[SettingLoad, ...]


def preflight(
    path: Path,
    overrides: tuple[str, ...] = (),
    *,
    fast: bool = False,
    gpu_memory_bytes: int | None = None,
    stand_in: bool = False,
    say: terminal.Say = lambda _: None,
) -> Preflight:
    """Return what can be known of a sweep before anything runs; ``fast`` judges lengths by punctuation."""
    options = Options(overrides=overrides, stand_in=stand_in)
    named = read_named(path, options, fetch=True, say=say)
    named = named if fast else build_model(named, say)
    named.spec.refuse_command("jobkit preflight")
    spec, gpu = named.spec, gpu_memory_bytes or batch_sizes.named_gpu_bytes(named.spec)
    lengths = lengths_of(named, say, fast=fast)  # of the whole text; those of loads are of a part
    chosen = batch_sizes.choose(spec, named.inputs.model, batch_sizes.loads_of(spec, lengths), gpu)
    if batch_sizes.is_auto(spec):
        spec = batch_sizes.decided(spec, chosen.sizes.batch_sizes)
    loads, paragraphs = chosen.loads, paragraphs_of(named.inputs.text)
    model = named.inputs.model
    return Preflight(
        text=named.inputs.text.name,
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
        gpu_memory_bytes=gpu or (None if chosen.largest_load is None else batch_sizes.ASSUMED_BYTES),
        gpu_memory_named=gpu is not None,
        sizes=tuple(_sizes(named, spec, chosen)),
        settings=tuple(_setting(spec, lengths, params) for params in batch_sizes.settings_of(spec)),
    )


def _setting(spec: SweepSpec, lengths: Lengths, params: Mapping[str, knobs.Value]) -> SettingLoad:
    by_length = params.get(knobs.ORDER, spec.order) == knobs.SORTED
    swept = knobs.numbers(params)
    every = swept.get(knobs.EVERY, spec.every)
    lengths = lengths.every(every)
    budget, size = knobs.budget_of(swept), swept.get(knobs.BATCH_SIZE, DEFAULT_BATCH_SIZE)
    cut = Cut(**{name: swept.get(name, size) for name in knobs.CUT_BY})
    loads = Loads(lengths, cut, by_length, spec.sort_window)
    if budget is None:
        chunks = loads.chunks(size)
    else:
        chunks = loads.under_budget(
            budget, swept.get(knobs.WORK_UNIT, spec.work_unit or knobs.DEFAULT_WORK_UNIT)
        )
    longer = (length for row in lengths.paragraphs for length in row if budget and length > budget)
    return SettingLoad(
        params=params,
        load=chunks.load,
        batches=chunks.batches,
        efficiency=None if lengths.source == NONE else chunks.efficiency,
        alone=sum(1 for _ in longer),
        every=every,
    )


def _sizes(named: NamedSpec, spec: SweepSpec, chosen: batch_sizes.Chosen) -> Iterator[PaddedSize]:
    loads, measure = chosen.loads, set(chosen.sizes.batch_sizes)
    swept = {
        size
        for row in batch_sizes.settings_of(spec)
        if (size := knobs.numbers(row).get(knobs.BATCH_SIZE)) is not None
    }
    known = chosen.largest_load is not None
    line = batch_sizes.typical(spec.workload_name, named.inputs.model) if known else None
    has_lengths = loads.lengths.source != NONE
    round_sizes = {step * 10**power for power in range(7) for step in (1, 2, 5)}
    looked_at = {size for size in round_sizes if size < loads.limit} | {loads.limit} | swept | measure
    for size in sorted(looked_at):
        first, source = loads.worst(size)
        yield PaddedSize(
            batch_size=size,
            load=loads.load(size),
            own_load=loads.own(size),
            first_paragraph=first,
            from_batch_size=source,
            efficiency=loads.chunks(size).efficiency if has_lengths else None,
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
        for length, at, item in heapq.nlargest(3, places)
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
    beginning_chars = 60
    return words if len(words) <= beginning_chars else words[:beginning_chars].rstrip() + " ..."


def as_json(report: Preflight) -> str:
    """Return the whole result, in bytes and characters, as JSON that ends with a newline."""
    return terminal.as_json({"schema": 1, **asdict(report)}, indent=2) + "\n"


def blocks(report: Preflight) -> Iterator[Block]:
    """Yield the result for a person, in GiB."""
    yield Block.of(_heading(report))
    yield Block.of(_longest(report))
    yield Block(columns=tuple(_columns(report)))
    yield Block.of(_settings(report))
    yield Block.of(_answer(report))


def _heading(report: Preflight) -> Iterator[str]:
    model = f", model {report.model}" if report.model else ""
    yield f"{report.workload}: {report.text}{model}{f' ({report.caveat})' if report.caveat else ''}"
    counts = [format_count(report.paragraphs, "paragraph"), format_count(report.characters, "character")]
    if report.items is not None and _item(report) != "paragraph":
        counts.insert(1, format_count(report.items, _item(report)))
    yield ", ".join(counts)
    if report.source == PUNCTUATION:
        yield "Lengths are ESTIMATED from punctuation, with no tokenizer: loads may be off by some percent."
    without_lengths = (
        "This workload reports no lengths, so jobkit takes its load to be the batch size. What that costs:",
        "  memory that follows the longest paragraph of a batch shows as scatter about the line;",
        "  the largest batch is right only for texts like this one.",
        "A static method `lengths` of its class fixes it.",
    )
    if report.source == NONE:
        yield from without_lengths


def _item(report: Preflight) -> str:
    """Return what an item is: a sentence, unless no paragraph has two."""
    return "sentence" if report.items is None or report.items > report.paragraphs else "paragraph"


def _longest(report: Preflight) -> Iterator[str]:
    if not report.longest:
        return
    first, *others = report.longest
    noun = _item(report)
    after = f"; the next longest has {others[0].length:,}" if others else ""
    unit = report.unit.split()[-1].removesuffix("s")  # ``character`` or ``token``
    yield f"This one {first.length:,}-{unit} {noun} sets the memory of the batches that it is in{after}:"
    for item in report.longest:
        place = f"paragraph {item.paragraph}" + (f", sentence {item.item}" if noun == "sentence" else "")
        yield f"  {item.length:>6,}  {place}: {item.beginning}"


def _columns(report: Preflight) -> Iterator[Column]:
    sizes, unit = report.sizes, report.unit
    load = f"load: the most {unit} of a batch, of this size or a smaller one"
    yield Column("batch size", [f"{size.batch_size:,}" for size in sizes])
    yield Column("load", [f"{size.load:,}" for size in sizes], notes=(load,))
    if report.source != NONE:
        text = f"text of padded: share of the {unit} that are text"
        yield Column("text of padded %", [_percent(size.efficiency) for size in sizes], notes=(text,))
        ordered = "sorted: the same share, if sentences were sorted by length"
        yield Column("if sorted %", [_percent(size.efficiency_sorted) for size in sizes], notes=(ordered,))
    if any(size.gpu_bytes is not None for size in sizes):
        rough = "GPU GiB: by a line measured on an H200 with the stand-in; yours may need half or twice that"
        gib = [f"{(size.gpu_bytes or 0) / GIB:.1f}" for size in sizes]
        yield Column("GPU GiB, roughly", gib, notes=(rough,))
    cells = [f"{'*' if size.in_spec else ' '}{'>' if size.to_measure else ' '}" for size in sizes]
    yield Column("", cells, notes=("* in the spec, > worth measuring",))


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0):.1f}"


def _settings(report: Preflight) -> Iterator[str]:
    """Yield the spec's own settings if the batch size alone does not name them."""
    if all(set(setting.params) == {knobs.BATCH_SIZE} for setting in report.settings):
        return
    yield "The spec's own settings:"
    noun = _item(report)
    for setting in report.settings:
        text = (
            "" if setting.efficiency is None else f", {100 * setting.efficiency:.1f} % of the padded is text"
        )
        words = f"{format_count(setting.batches, 'batch', 'batches')}, load {setting.load:,}{text}"
        yield f"  {format_setting(setting.params) or 'the workload as it comes'}: {words}"
        if setting.alone:
            budget = knobs.budget_of(setting.params) or 0
            part = [item for item in report.longest if item.paragraph % setting.every == 0]
            longer = [item for item in part if item.length > budget]
            places = [f"paragraph {item.paragraph}, {noun} {item.item} ({item.length:,})" for item in longer]
            named = ["; ".join(places)] if places else []
            if more := setting.alone - len(longer):
                named.append(f"{more:,} more" if places else format_count(more, noun))
            yield f"    longer than that, so a batch each: {' and '.join(named)}"


def _answer(report: Preflight) -> Iterator[str]:
    stays = f"the load stays {report.saturation_load:,}"
    yield f"Past a batch size of {report.saturation:,} nothing changes: {stays}."
    if report.saturation > report.limit:
        yield f"  A call holds the whole text from {report.limit:,} on: that is the largest size it can try."
    yield f"Worth measuring: {report.why}."
    if report.measure:
        yield "  let jobkit choose: sweep: {batch_size: auto}"
        sizes = ", ".join(map(str, report.measure))
        yield terminal.NoWrap(f"--set 'sweep.batch_size=[{sizes}]'", "  or choose now:     ")
    if report.gpu_memory_named and all(size.gpu_bytes is None for size in report.sizes):
        yield "  --gpu-memory changes nothing: what a load takes is unknown for this workload and model."
    elif report.device != "cpu" and not report.gpu_memory_named:
        yield "  The first point shows how much memory of your GPU the batches take."
