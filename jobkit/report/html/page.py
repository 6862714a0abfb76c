"""The page of ``jobkit report``: from run folders to one HTML file that needs nothing else.

Every value goes through the template's escaping; only the pictures, the style sheet and the script, which
jobkit writes, are inserted as they are.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.layout import JOB_SCRIPT, SPEC_FILE, is_run_folder
from jobkit.core.records import ModelRef
from jobkit.core.terminal import Column, NoWrap, for_terminal
from jobkit.core.units import format_setting
from jobkit.report import comparison, dcgm_figures
from jobkit.report.columns import without_repetition
from jobkit.report.dcgm_figures import JobFigures
from jobkit.report.estimates import estimates
from jobkit.report.html.pictures import Picture, pictures
from jobkit.report.output import Section, job_columns, legends, sections
from jobkit.report.plot.data import group_plots
from jobkit.report.recommend import output as recommendation
from jobkit.report.recommend import waste_output
from jobkit.report.recommend.recommend import recommend
from jobkit.report.recommend.run_data import read_material
from jobkit.report.recommend.types import RecommendOptions
from jobkit.report.recommend.use import read_use
from jobkit.report.recommend.waste import wastes
from jobkit.report.rows import Row
from jobkit.report.sentences import MOST_POINTS, count_lines, steps_of, without_figures
from jobkit.report.tables import Collected, collect

if TYPE_CHECKING:
    import jinja2

PARTS = resources.files("jobkit.report.html")
MOST_CHARACTERS = 40_000
"""Of a spec or script in the page; the rest is in the run folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Lines that stand together.

    Attributes
    ----------
    lines
        Of prose; of commands or header lines if it is ``code``.
    """

    lines: tuple[str, ...]
    code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A titled piece: passages, a table, and passages after it."""

    title: str
    before: Sequence[Passage] = ()
    columns: Sequence[Column] = ()
    after: Sequence[Passage] = ()

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The table by rows."""
        return [*zip(*(column.cells for column in self.columns), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A group of points: its scaling table, what the columns mean, its pictures and its sentences."""

    part: Part
    legends: Sequence[str]
    pictures: Sequence[Picture]
    details: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRun:
    """A run on the page.

    Attributes
    ----------
    name, folder
        Of the run.
    tables
        One for each group.
    jobs
        Reports of DCGM next to the figures of their points.
    answer
        The recommendation in pieces; the first is the batch size, the last what was requested and not used.
    missing
        The points without figures, if there are any.
    notes
        What a reader must know.
    caveats
        The stand-in models that it measured.
    facts, files
        Where the figures are from: names and values; names and contents of the spec and the script.
    """

    name: str
    folder: str
    tables: Sequence[Table]
    jobs: Sequence[Part]
    answer: Sequence[Part]
    missing: Part | None
    notes: Sequence[str]
    caveats: Sequence[str]
    facts: Sequence[tuple[str, str]]
    files: Sequence[tuple[str, str]]


def page(runs: Sequence[Path], dcgm: Sequence[Path] = ()) -> str:
    """Return the report of runs as HTML.

    Parameters
    ----------
    runs
        Run folders, or old logs; the first is what the others are compared with.
    dcgm
        Reports of DCGM on jobs of the first run.

    Raises
    ------
    JobkitError
        If a path does not exist, one holds no point, or a report of DCGM is none.
    """
    collected = [_collected(run, dcgm if run is runs[0] else ()) for run in runs]
    sides = comparison.sides(collected)
    compared = (
        [_block(block) for block in comparison.blocks(sides)] if len(runs) > 1 and len(sides) > 1 else []
    )
    of_runs = [of_run(run, found) for run, found in zip(runs, collected, strict=True)]
    style, script = _text("page.css"), _text("page.js")
    return _environment().get_template("page.html.j2").render(
        runs=of_runs,
        compared=compared,
        version=metadata.version("jobkit"),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )  # fmt: skip


def fragment(run: Path, collected: Collected) -> str:
    """Return the table, the pictures and the sentences of a run, for a notebook."""
    tables = list(_tables(collected))
    missing = _missing(collected)
    return (
        _environment().get_template("fragment.html.j2").render(name=run.name, tables=tables, missing=missing)
    )


def _collected(run: Path, dcgm: Sequence[Path]) -> Collected:
    collected = collect([run], dcgm)
    if not collected.rows:
        notes = "".join(f"\n  {note}" for note in collected.notes)
        raise JobkitError(f"{run}: nothing to report{notes}", hint="jobkit status shows what there is")
    return collected


def of_run(run: Path, collected: Collected) -> OfRun:
    """Return what the page shows of a run.

    Parameters
    ----------
    run
        The run folder, or an old log.
    collected
        What was read of it alone.
    """
    return OfRun(
        name=run.resolve().name,
        folder=str(run),
        tables=list(_tables(collected)),
        jobs=[_job(job) for job in collected.jobs],
        answer=[*_answer(run), *_waste(run)],
        missing=_missing(collected),
        notes=[note.removeprefix(f"{run}: ") for note in collected.notes],
        caveats=list(dict.fromkeys(model.warning for model in _models(collected) if model.stand_in)),
        facts=_facts(collected),
        files=[*_files(run)] if run.is_dir() else [],
    )


def _models(collected: Collected) -> Iterator[ModelRef]:
    records = (row.record for row in collected.rows)
    yield from (record.point.model for record in records if record and record.point.model)


def _tables(collected: Collected) -> Iterator[Table]:
    plots = group_plots(collected)
    for section in sections(collected, estimates(collected)):
        if section.group is not None:
            rows = [row for row in collected.rows if row.group == section.group]
            yield _table(section, pictures(plots[section.group], rows))


def _job(job: JobFigures) -> Part:
    lines = passages(dcgm_figures.lines(job))
    return Part(title=dcgm_figures.title(job), columns=job_columns(job), after=lines)


def _table(section: Section, drawn: Sequence[Picture]) -> Table:
    columns = without_repetition(section.columns)
    return Table(
        part=Part(title=section.title, columns=columns, after=passages(section.after)),
        legends=legends(columns, section.base),
        pictures=drawn,
        details=section.before,
    )


def passages(lines: Iterable[str]) -> list[Passage]:
    """Return lines in passages: commands and header lines (`NoWrap`) stand together as code."""
    found: list[Passage] = []
    for line in lines:
        if not line.strip():
            continue
        code, text = isinstance(line, NoWrap), line.strip()
        if code and found and found[-1].code:
            found[-1] = Passage(lines=(*found[-1].lines, text), code=True)
        elif found and not code and not found[-1].code and _goes_on(found[-1].lines[-1], text):
            found[-1] = Passage(lines=(*found[-1].lines, text))
        else:
            found.append(Passage(lines=(text,), code=code))
    return found


def _goes_on(before: str, text: str) -> bool:
    """Return whether a line is the rest of the sentence before it."""
    return text[0].islower() and not before.endswith((".", ":", ";"))


def _answer(run: Path) -> list[Part]:
    """Return the recommendation; the reason why there is none, as its only piece."""
    try:
        if not is_run_folder(run):
            return []
        advice = recommend(read_material(run), RecommendOptions())
    except JobkitError as error:
        return [Part(title=f"No recommendation: {error.message}", after=passages([error.hint or ""]))]
    return [_piece(part) for part in recommendation.parts(advice)[1:]]


def _waste(run: Path) -> list[Part]:
    """Return the seven wastes, or why they cannot be judged."""
    try:
        use = read_use(run)
        found = wastes(use)
    except JobkitError as error:
        return [Part(title=f"Requested and not used: {error.message}", after=passages([error.hint or ""]))]
    lines = [line for waste in found if waste.wasted for line in waste_output.explained(waste, use)]
    after = passages([*waste_output.summary(found), *lines])
    return [
        Part(
            title=f"Requested and not used by {run.resolve().name}",
            columns=waste_output.columns(found),
            after=after,
        )
    ]


def _piece(part: recommendation.Part) -> Part:
    title, *rest = part.lines
    columns = [replace(column, head=column.head or "note") for column in part.columns if any(column.cells)]
    return Part(title=title.strip(), before=passages(rest), columns=columns, after=passages(part.after))


def _block(block: comparison.Block) -> Part:
    return Part(
        title=block.title,
        before=passages(block.lines),
        columns=[column for column in block.columns if any(column.cells)],
    )


def _missing(collected: Collected) -> Part | None:
    """Return the points without figures: why, and what to type."""
    rows = without_figures(collected)
    if not rows:
        return None
    shown = rows[:MOST_POINTS]
    columns = [
        Column("point", [row.point for row in shown], left=True),
        Column("setting", [format_setting(row.params) for row in shown], left=True),
        Column("outcome", [str(row.outcome or "to come") for row in shown], left=True),
        Column("why", [row.evidence for row in shown], left=True),
        Column("what to type", ["\n".join(_remedies(row)) for row in shown], left=True),
    ]
    more = len(rows) - MOST_POINTS
    after = [f"... and {more} more (jobkit collect --format csv has them all)"] if more > 0 else []
    after += [NoWrap(line) for line in collected.questions[:MOST_POINTS]]
    return Part(title=count_lines(collected), columns=columns, after=passages(after))


def _remedies(row: Row) -> list[str]:
    return [f"{step.does}: {step.command}" for step in steps_of(row)]


def _facts(collected: Collected) -> list[tuple[str, str]]:
    """Return on what, and with what, the points ran: each value once."""
    found: dict[str, list[str]] = {}
    for row in collected.rows:
        for name, value in _facts_of(row):
            if value and value not in found.setdefault(name, []):
                found[name].append(value)
    return [(name, ", ".join(values)) for name, values in found.items() if values]


def _facts_of(row: Row) -> Iterator[tuple[str, str]]:
    record = row.record
    yield "run", row.run
    yield "workload", row.workload
    yield "text", row.text or ""
    yield "SHA-256 of the text", row.text_sha256 or ""
    yield "model", row.model or ""
    yield "fingerprint of the model", row.model_fingerprint or ""
    yield "GPU", row.gpu or ""
    yield "GPU, UUID", row.gpu_uuid or ""
    yield "versions", row.versions or ""
    yield "host", row.host or ""
    if record:
        yield "driver of the GPU", (record.gpu.driver or "") if record.gpu else ""
        yield "jobs", f"{record.job.scheduler} {record.job.job_id}"


def _files(run: Path) -> Iterator[tuple[str, str]]:
    for name in (SPEC_FILE, JOB_SCRIPT):
        try:
            text = files.mask(files.read_text(run / name))
        except OSError:
            continue
        cut = (
            f"\n... cut here: the whole file is {name} in the run folder"
            if len(text) > MOST_CHARACTERS
            else ""
        )
        yield name, text[:MOST_CHARACTERS] + cut


def _text(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the source expression by which a content security policy allows an inline element.

    https://www.w3.org/TR/CSP3/#grammardef-hash-source
    """
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _safe(value: Any) -> Any:  # noqa: ANN401 - whatever a template prints
    """Return text without control characters, which HTML does not allow; jobkit's own markup as it is."""
    return for_terminal(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
