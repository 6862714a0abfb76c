"""Faults of a spec that no type can see, each found in the raw data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jobkit.core.figures import by_key
from jobkit.core.knobs import AUTO, BATCH_SIZE, CUT_BY, OFFERED, PADDED_CHARS, Knob
from jobkit.core.terminal import suggest
from jobkit.core.units import format_count
from jobkit.run.workloads.base import class_name, knobs, offered
from jobkit.schedulers.registry import own_option
from jobkit.spec.axes import Loc, axis_faults, knob_values, offer_fault
from jobkit.spec.repeats import ENOUGH, Repeats
from jobkit.spec.yaml_files import Document

DEFAULTS = Repeats()
MOST_POINTS = 100_000
"""Of one run: each is a folder, and no scheduler that is known holds more."""


def check_points(document: Document) -> None:
    """Add a fault where there would be more points than a run can have; nothing is multiplied out."""
    axes, repeats = document.data.get("sweep"), document.data.get("repeats", 3)
    axes = axes if isinstance(axes, dict) else {}
    values = knob_values(axes)
    lists = [column for loc, column in values.items() if len(loc) == 1]
    lists += [column for loc, column in values.items() if len(loc) > 1][:1]
    count = math.prod(len(column) for column in lists if isinstance(column, list))
    count += len(axes["include"]) if isinstance(axes.get("include"), list) else 0
    repeats = _most_repeats(repeats)
    if count * repeats <= MOST_POINTS:
        return
    key = "repeats" if count <= MOST_POINTS else "sweep"
    what = f"{key}: {format_count(count, 'setting')} x {repeats:,} would be {count * repeats:,} points; "
    document.faults.append(document.fault((key,), f"{what}a run has at most {MOST_POINTS:,}"))


def _most_repeats(repeats: object) -> int:
    """Return the number of repeats that are planned; 0 for what is no number and no mapping with one."""
    given = repeats.get("most", DEFAULTS.most) if isinstance(repeats, dict) else repeats
    given = DEFAULTS.most if given == AUTO else given
    return given if isinstance(given, int) and not isinstance(given, bool) else 0


def check_repeats(document: Document) -> None:
    """Add a fault if fewer repeats are planned than must run, of a sweep or of the finalists of a search."""
    tune = document.data.get("tune")
    for place, holder in (((), document.data), (("tune",), tune if isinstance(tune, dict) else {})):
        repeats = holder.get("repeats")
        if not isinstance(repeats, dict):
            continue
        planned = _most_repeats(repeats)
        least = repeats.get("least", min(DEFAULTS.least, planned))
        if isinstance(least, int) and ENOUGH <= planned < least:
            name = ".".join((*place, "repeats"))
            key = "most" if "most" in repeats else "least"
            what = f"{name}.{key}: {planned} repeats at most, and {name}.least is {least}"
            document.faults.append(document.fault((*place, "repeats", key), what))


def check_objective(document: Document) -> None:
    """Add a fault for a figure of the workload of which it is not known whether more or less is better."""
    objective = document.data.get("objective")
    objective = objective if isinstance(objective, dict) else {}
    metric = objective.get("metric")
    if not isinstance(metric, str) or by_key(metric).direction or objective.get("direction") is not None:
        return
    what = f"objective.metric: {metric!r}: needs objective.direction, max if more is better, else min"
    document.faults.append(document.fault(("objective", "metric"), what))


def check_workload(document: Document) -> None:
    """Add a fault for a word that is neither a shipped workload nor an entry point."""
    name = document.data.get("workload")
    if isinstance(name, str) and ":" not in class_name(name):
        what = f"workload: {name!r}: no such workload{suggest(name, offered())}"
        document.faults.append(document.fault(("workload",), what))


def check_environment(document: Document) -> None:
    """Add a fault for each of ``venv`` and ``container`` that is given after another Python."""
    environment = document.data.get("environment")
    given = environment if isinstance(environment, dict) else {}
    first, *others = [key for key in ("conda", "venv", "container") if given.get(key)] or [""]
    for key in others:
        what = f"environment.{key}: given as well as {first}; keep one of the two"
        document.faults.append(document.fault(("environment", key), what, on_key=True))


def check_options(document: Document) -> None:
    """Add a fault for each header line that sets what jobkit sets itself."""
    resources = document.data.get("resources")
    options = resources.get("options") if isinstance(resources, dict) else None
    for scheduler, lines in (options if isinstance(options, dict) else {}).items():
        for number, line in enumerate(lines if isinstance(lines, list) else ()):
            if isinstance(line, str) and (what := own_option(str(scheduler), line)):
                loc = ("resources", "options", str(scheduler), number)
                document.faults.append(document.fault(loc, f"{'.'.join(map(str, loc))}: {what}"))


def check_axes(document: Document) -> None:
    """Add the faults of the sweep: unknown knobs, uneven ``zip``, a knob on two axes, no points."""
    axes = document.data.get("sweep", {})
    if not isinstance(axes, dict):
        return
    workload = document.data.get("workload", "stanza-ner")
    for loc, what in axis_faults(axes, workload if isinstance(workload, str) else ""):
        document.faults.append(document.fault(("sweep", *loc), what, on_key=True))


def check_offers(document: Document) -> None:
    """Add a fault for a precision, or shortcuts, that a shipped workload does not offer."""
    workload = document.data.get("workload", "stanza-ner")
    if isinstance(workload, str) and (known := knobs(workload)) is not None:
        add_offer_faults(document, known, workload)


def add_offer_faults(document: Document, known: Sequence[Knob], workload: str) -> None:
    """Add a fault for each key of `OFFERED` with a value that a workload with these knobs does not offer."""
    for key in OFFERED:
        if what := offer_fault(key, document.data.get(key), known, workload):
            document.faults.append(document.fault((key,), what))


def check_find_max(document: Document) -> None:
    """Add a fault if ``find_max`` is given with a sweep that varies anything but what it finds."""
    axes = document.data.get("sweep")
    if not isinstance(document.data.get("find_max"), dict) or not isinstance(axes, dict):
        return
    for loc, values in knob_values(axes).items():
        if loc[-1] not in {BATCH_SIZE, PADDED_CHARS} and isinstance(values, list) and len(values) > 1:
            key = ".".join(map(str, ("sweep", *loc)))
            what = f"{key}: find_max needs a sweep in which only {BATCH_SIZE} or {PADDED_CHARS} varies"
            document.faults.append(document.fault(("sweep", *loc), what, on_key=True))


def check_budget(document: Document) -> None:
    """Add a fault if ``padded_chars`` and a size cut the same batches."""
    axes = document.data.get("sweep")
    axes = axes if isinstance(axes, dict) else {}
    swept: dict[str, Loc] = {str(loc[-1]): loc for loc in knob_values(axes)}
    included = axes["include"] if isinstance(axes.get("include"), list) else []
    rows: list[dict[str, Loc]] = [
        {str(name): ("include", number, name) for name in row}
        for number, row in enumerate(included)
        if isinstance(row, dict)
    ]
    for row in (row for row in (swept, *rows) if PADDED_CHARS in row):
        for name in sorted({BATCH_SIZE, *CUT_BY} & row.keys()):
            loc: Loc = ("sweep", *row[PADDED_CHARS])
            what = f"{'.'.join(map(str, loc))}: {name} cuts the same batches; keep one of the two"
            document.faults.append(document.fault(loc, what, on_key=True))


CHECKS = (
    check_budget,
    check_axes,
    check_points,
    check_repeats,
    check_objective,
    check_workload,
    check_environment,
    check_options,
    check_offers,
    check_find_max,
)
"""All of them, in the order in which they are asked."""
