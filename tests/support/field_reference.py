"""The part of docs/what-is-measured.md that lists every field of a run's files, from the docstrings.

After a change to a field: ``python -m tests.support.field_reference``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from jobkit.core import measurements, records
from jobkit.spec.sweep_spec import SweepSpec

PAGE = Path(__file__).parents[2] / "docs" / "what-is-measured.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- to here -->\n"
BLOCK = re.compile(rf"{BEGIN}.*?{END}", re.DOTALL)
ENTRY = re.compile(r"^([\w, ]+)\n((?:^    .*\n?)+)", re.MULTILINE)
KINDS: tuple[type, ...] = (
    *(records.Batch, records.Record, records.Point, records.TextRef, records.ModelRef, records.FileRef),
    *(records.Command, records.JobFacts, measurements.Gpu, measurements.MemoryReadings, measurements.Need),
    *(measurements.Share, measurements.Sampler, measurements.Energy, measurements.Summary),
    *(measurements.ShortcutCheck, measurements.Metric),
)


def reference() -> str:
    """Return a section for each type, with a row for each field or group of fields."""
    return "\n".join([BEGIN, *(part for kind in KINDS for part in _section(kind)), END])


def _section(kind: type) -> Iterator[str]:
    text = inspect.getdoc(kind) or ""
    yield f"### {kind.__name__}\n"
    yield f"{text.splitlines()[0].replace('``', '`')}\n"
    keys = [
        field.name for field in fields(kind) if kind is records.Point and field.name in SweepSpec.model_fields
    ]
    found = ENTRY.findall(text.partition("Attributes")[2])
    known = {names: _first_clause(meaning) for names, meaning in found if names not in keys}
    rows = [f"| {_coded(names)} | {meaning} |" for names, meaning in known.items()]
    yield "\n".join(["| field | what it is |", "|---|---|", *rows, ""])
    told = {name for names in known for name in names.split(", ")}.union(keys)
    if others := [field.name for field in fields(kind) if field.name not in told]:
        yield f"Also {_coded(', '.join(others))}.\n"
    if keys:
        yield f"And as [in the spec](spec.md#every-key), decided: {_coded(', '.join(keys))}.\n"


def _first_clause(text: str) -> str:
    words = " ".join(text.split()).replace("``", "`").replace("|", r"\|")
    return re.split(r"(?<=[\w`)])[.;] |\.$", words)[0]


def _coded(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def page(text: str) -> str:
    """Return the page with all fields as they are now."""
    return BLOCK.sub(lambda _: reference(), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
