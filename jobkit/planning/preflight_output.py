"""The result of preflight, for a person or a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from jobkit.core import terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.knobs import BATCH_SIZE, PADDED_CHARS, numbers
from jobkit.core.terminal import NoWrap
from jobkit.core.units import GIB, format_count, format_setting
from jobkit.fit.lengths import NONE, PUNCTUATION
from jobkit.planning.preflight import Preflight, SettingLoad, Size

SPECS_OWN, WORTH_MEASURING = "*", ">"
WITHOUT_LENGTHS = (
    "This workload reports no lengths, so its load is taken to be the batch size. What that costs:",
    "  memory that follows the longest paragraph of a batch shows as scatter about the line;",
    "  the largest batch is right only for texts like this one.",
    "A static method `lengths` of its class fixes it.",
)


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
    if report.items is not None and _items(report) != "paragraphs":
        counts.insert(1, f"{report.items:,} {_items(report)}")
    yield ", ".join(counts)
    if report.source == PUNCTUATION:
        yield "Lengths are ESTIMATED from punctuation, with no tokenizer: loads may be off by some percent."
    if report.source == NONE:
        yield from WITHOUT_LENGTHS


def _items(report: Preflight) -> str:
    """Return what the items of this text are: sentences, unless no paragraph has two."""
    return "sentences" if report.items is None or report.items > report.paragraphs else "paragraphs"


def _unit_of_one(report: Preflight) -> str:
    """Return what an item's length counts: ``character`` or ``token``."""
    return report.unit.split()[-1].removesuffix("s")


def _longest(report: Preflight) -> Iterator[str]:
    if not report.longest:
        return
    first, *others = report.longest
    noun = _items(report).removesuffix("s")
    after = f"; the next longest has {others[0].length:,}" if others else ""
    length = f"{first.length:,}-{_unit_of_one(report)}"
    yield f"This one {length} {noun} sets the memory of the batches that it is in{after}:"
    for item in report.longest:
        place = f"paragraph {item.paragraph}" + (f", sentence {item.item}" if noun == "sentence" else "")
        yield f"  {item.length:>6,}  {place}: {item.beginning}"


def _columns(report: Preflight) -> Iterator[Column]:
    sizes, unit = report.sizes, report.unit
    load = f"load: the most {unit} of a batch, of this size or a smaller one"
    yield Column("batch size", [f"{size.batch_size:,}" for size in sizes])
    yield Column("load", [f"{size.load:,}" for size in sizes], notes=(load,))
    if report.source != NONE:
        padded = f"text of padded: share of the {unit} that are text"
        yield Column("text of padded %", [_percent(size.efficiency) for size in sizes], notes=(padded,))
        ordered = "sorted: the same share, if sentences were sorted by length"
        yield Column("if sorted %", [_percent(size.efficiency_sorted) for size in sizes], notes=(ordered,))
    if any(size.gpu_bytes is not None for size in sizes):
        rough = "GPU GiB: by a line measured on an H200 with the stand-in; yours may take half or twice that"
        gib = [f"{(size.gpu_bytes or 0) / GIB:.1f}" for size in sizes]
        yield Column("GPU GiB, roughly", gib, notes=(rough,))
    marks = f"{SPECS_OWN} in the spec, {WORTH_MEASURING} worth measuring"
    yield Column("", [_mark(size) for size in sizes], notes=(marks,))


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0):.1f}"


def _mark(size: Size) -> str:
    return (SPECS_OWN if size.in_spec else " ") + (WORTH_MEASURING if size.to_measure else " ")


def _settings(report: Preflight) -> Iterator[str]:
    """Yield the spec's own settings if the batch size alone does not name them."""
    if all(set(setting.params) == {BATCH_SIZE} for setting in report.settings):
        return
    yield "The spec's own settings:"
    for setting in report.settings:
        text = (
            "" if setting.efficiency is None else f", {100 * setting.efficiency:.1f} % of the padded is text"
        )
        words = f"{format_count(setting.batches, 'batch', 'batches')}, load {setting.load:,}{text}"
        yield f"  {format_setting(setting.params) or 'the workload as it comes'}: {words}"
        if setting.alone:
            yield f"    {_alone(report, setting)}"


def _alone(report: Preflight, setting: SettingLoad) -> str:
    """Return which items are longer than the budget of a setting, the longest by their place."""
    budget = numbers(setting.params)[PADDED_CHARS]
    noun = _items(report).removesuffix("s")
    longer = [item for item in report.longest if item.length > budget]
    places = [f"paragraph {item.paragraph}, {noun} {item.item} ({item.length:,})" for item in longer]
    rest = f" and {setting.alone - len(longer):,} more" if setting.alone > len(longer) else ""
    return f"longer than that, so a batch each: {'; '.join(places)}{rest}"


def _answer(report: Preflight) -> Iterator[str]:
    stays = f"the load stays {report.saturation_load:,}"
    yield f"Past a batch size of {report.saturation:,} nothing changes: {stays}."
    if report.saturation > report.limit:
        yield f"  A call holds the whole text from {report.limit:,} on: that is the largest size it can try."
    yield f"Worth measuring: {report.why}."
    if report.measure:
        yield "  let jobkit choose: sweep: {batch_size: auto}"
        sizes = ", ".join(map(str, report.measure))
        yield NoWrap(f"--set 'sweep.batch_size=[{sizes}]'", "  or choose now:     ")
    if report.gpu_memory_named and all(size.gpu_bytes is None for size in report.sizes):
        yield "  --gpu-memory changes nothing: what a load takes is unknown for this workload and model."
    elif report.device != "cpu" and not report.gpu_memory_named:
        yield "  The first point shows how much of your GPU they take."
