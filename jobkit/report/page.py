"""The page of ``jobkit report``: from run folders to one HTML file that needs nothing else.

Every value goes through the template's escaping; only the pictures, the style sheet and the script, which
jobkit writes, are inserted as they are.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata, resources
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.core import extensions, files
from jobkit.core.blocks import Block, Column, notes_of
from jobkit.core.errors import JobkitError, hide_secrets
from jobkit.core.frozen import frozen, keyed
from jobkit.core.layout import JOB_SCRIPT, SPEC_FILE, is_run_folder
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap, for_terminal
from jobkit.core.units import format_count
from jobkit.report import output
from jobkit.report.plot.drawing import svg
from jobkit.report.plot.pictures import Picture, pictures
from jobkit.report.predictions import estimates
from jobkit.report.recommend import output as recommendation
from jobkit.report.recommend import waste
from jobkit.report.recommend.advice import Advice, advised, recommend
from jobkit.report.recommend.material import read_material, read_use
from jobkit.report.rows import MoreFigures
from jobkit.report.tables import Collected, collect
from jobkit.runs.results import Run, read_run
from jobkit.spec.sweep_spec import Environment
from jobkit.spec.yaml_files import as_yaml, read_document

if TYPE_CHECKING:
    import jinja2

MOST_CHARACTERS = 40_000
"""Of a spec or script in the page; the rest is in the run folder."""


@frozen
class Folded:
    """Blocks of which the page shows no more than a title until the reader asks for them."""

    title: str
    blocks: Sequence[Block]


@keyed
class PictureGroup:
    """A group of points: its pictures, its scaling table, and the pictures below the table."""

    block: Block
    pictures: Sequence[Picture]
    below: Sequence[Picture] = ()


@keyed
class OfRun:
    """A run on the page, in the order in which it shows it."""

    name: str  # of the run
    outcomes: frozenset[Outcome | None]  # of its points
    titles: Sequence[str]  # what was run
    caveats: Sequence[str] = ()  # the stand-in models that it measured
    tiles: Sequence[Block] = ()  # the answer
    groups: Sequence[PictureGroup] = ()  # its points, by what sets them apart
    missing: Sequence[Block] = ()  # the points without figures
    tables: Sequence[Block] = ()  # what else there is to look up
    folded: Sequence[Folded]  # the rest, of which the page shows the titles: a title, and the blocks below it


def folded(block: Block) -> Folded:
    """Return a block of which the page shows the title."""
    return Folded(block.title, [replace(block, title="")])


def source(run: Path, facts: Block) -> Folded:
    """Return where the figures are from: some facts, and the spec and the script of a run folder."""
    shown = [facts]
    for name in (SPEC_FILE, JOB_SCRIPT):
        try:
            text, data = files.read_text(run / name), read_document(run / SPEC_FILE).data
            environment = Environment.model_validate(data.get("environment", {}))
        except (OSError, ValueError, JobkitError):
            continue
        if environment.setup or environment.variables:
            changed = {**data, "environment": {**data["environment"], **environment.shown(SPEC_FILE)}}
            hidden = environment.hidden_in(text, SPEC_FILE, data.get("template"))
            text = as_yaml(changed) if name == SPEC_FILE else hidden
        text = hide_secrets(text)
        code = [NoWrap(line) for line in text[:MOST_CHARACTERS].split("\n")]
        cut = f"Cut here: the whole file is {name} in the run folder." if len(text) > MOST_CHARACTERS else ""
        shown.append(Block(title=name, after=(*code, cut), folded=True))
    return Folded("Where the figures are from", shown)


def render(name: str, /, **values: object) -> str:
    """Return a template with these values; each is escaped."""
    return _environment().get_template(name).render(values)


def text_of(name: str) -> str:
    """Return a file of this package."""
    return ((resources.files("jobkit.report") / "html") / name).read_text(encoding="utf-8")


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a block without indents and gaps; code that stands together in one piece."""
    for words, group in groupby(lines, lambda line: line.words.strip() if isinstance(line, NoWrap) else None):
        if words is None:  # prose
            yield from (line.strip().removeprefix("- ") for line in group if line)
            continue
        if words:
            yield words
        yield NoWrap("\n".join(line.code for line in group if isinstance(line, NoWrap)))


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    def safe(value: object) -> object:
        """Return text without control characters, which HTML does not allow; jobkit's own markup as it is."""
        return for_terminal(value) if isinstance(value, str) and not hasattr(value, "__html__") else value

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(text_of),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"paragraphs": paragraphs, "notes": notes_of}
    environment.globals["svg"] = svg
    environment.tests["code"] = lambda line: isinstance(line, NoWrap)
    return environment


@frozen
class Page:
    """The page of runs: its HTML, and the outcomes of all their points."""

    html: str
    outcomes: frozenset[Outcome | None]


def page(runs: Sequence[Path], more_figures: MoreFigures | None = None) -> Page:
    """Return the report of runs.

    ``runs``: run folders, or files that an extension reads; those with tables are compared with the first.
    ``more_figures``: as in `jobkit.report.rows.read_sources`, for the first run.
    """
    own = {run: of_own for run in runs if (of_own := extensions.of_run(run).page())}
    collected: dict[Path, Collected] = {}
    for run in runs:
        if run not in own:
            found = collected[run] = collect([run], more_figures if run is runs[0] else None)
            if not found.rows:
                notes = "".join(f"\n  {note}" for note in found.notes)
                hint = "jobkit status shows what there is"
                raise JobkitError(f"{run}: nothing to report{notes}", hint=hint)
    of_runs = [own[run](run) if run in own else _of_run(run, collected[run]) for run in runs]
    tables = [*collected.values()]
    several = sum(len(one.by_group) for one in tables) > 1
    style, script = text_of("page.css"), text_of("page.js")
    html = render(
        "page.html.j2",
        runs=of_runs,
        compared=[
            block
            for compare in extensions.each(lambda one: one.side_by_side)
            if several
            for block in compare(tables)
        ],
        version=metadata.version("jobkit"),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return Page(html, frozenset(outcome for run in of_runs for outcome in run.outcomes))


def fragment(run: Path, collected: Collected) -> str:
    """Return the table, the pictures and the sentences of a run, for a notebook."""
    missing = list(output.missing_blocks(collected))
    groups = _groups(collected, advised([str(run)]))
    return render("fragment.html.j2", name=run.name, groups=groups, missing=missing)


def _of_run(run: Path, collected: Collected) -> OfRun:
    """Return what the page shows of a run; what limits a search comes after its picture."""
    tiles, advice = list[Block](), None
    read = read_run(run) if is_run_folder(run) else None
    try:
        advice = recommend(read_material(run, run=read))
    except JobkitError as error:
        tiles = [_refused("No recommendation", error)] if read else []
    groups = _groups(collected, advice)
    titles = [group.block.title for group in groups]
    models = [row.point.model for row in collected.rows if row.record and row.point.model]
    about = [Block(title="What follows from the table", after=group.block.after) for group in groups]
    jobs = [job.block() for job in collected.sources.jobs]
    rest = [
        *map(folded, (*about, *jobs, *output.note_blocks(collected))),
        _waste(run, read),
        source(run, _facts(run, collected)),
    ]
    groups = [replace(group, block=replace(group.block, after=())) for group in groups]
    if advice:
        tiles = recommendation.answer(advice)
        limit, details = [*recommendation.limit(advice)], recommendation.details(advice)
        if advice.search is None:
            rest = [*map(folded, [Block.of(limit), *details] if limit else details), *rest]
        else:
            every = Folded("All figures of the search", [group.block for group in groups])
            rest = [*map(folded, details), every, *rest]
            tables = [replace(advice.search.table, before=tuple(limit))]
            tables += [Block(title=group.block.title) for group in groups[1:]]
            groups = [replace(group, block=table) for group, table in zip(groups, tables, strict=True)]
    return OfRun(
        name=run.resolve().name,
        outcomes=collected.outcomes,
        titles=titles,
        caveats=list(dict.fromkeys(model.warning for model in models if model.stand_in)),
        tiles=tiles,
        groups=groups,
        missing=list(output.missing_blocks(collected)),
        folded=rest,
    )


def _groups(collected: Collected, advice: Advice | None) -> list[PictureGroup]:
    groups = []
    per_group = estimates(collected)
    for number, drawn in enumerate(pictures(collected, advice=advice)):
        block = output.group_block(collected, number, per_group)
        first = 1 if collected.sources.searches else len(drawn)  # the settings of a search
        groups.append(PictureGroup(block=block, pictures=drawn[:first], below=drawn[first:]))
    return groups


def _waste(run: Path, read: Run | None) -> Folded:
    """Return the seven wastes, or why they cannot be judged."""
    try:
        use = read_use(run, read)
        wastes = waste.wastes(use)
    except JobkitError as error:
        return Folded("Requested and not used: not known", [_refused("Not known", error)])
    kinds = format_count(sum(judged.wasted is True for judged in wastes), "kind")
    return Folded(f"Requested and not used: {kinds} of waste", list(waste.blocks(use, wastes)))


def _refused(missing: str, error: JobkitError) -> Block:
    return Block(title=f"{missing}: {error.message}", after=(error.hint or "",))


def _facts(run: Path, collected: Collected) -> Block:
    """Return on what, and with what, the points ran: each value once."""
    columns = {
        "run": "run",
        "workload": "workload",
        "text": "text",
        "SHA-256 of the text": "text_sha256",
        "model": "model",
        "fingerprint of the model": "model_fingerprint",
        "GPU": "gpu",
        "GPU, UUID": "gpu_uuid",
        "versions": "versions",
        "host": "host",
    }
    known: dict[str, list[str]] = {}
    for row in collected.rows:
        record, facts = row.record, {name: row.value(column) for name, column in columns.items()}
        if record:
            facts["driver of the GPU"] = record.gpu.driver if record.gpu else ""
            facts["jobs"] = f"{record.job.scheduler} {record.job.job_id}"
        for name, value in facts.items():
            if value and value not in known.setdefault(name, []):
                known[name].append(value)
    shown = {name: ", ".join(values) for name, values in known.items() if values} | {"run folder": str(run)}
    table = (Column("what", [*shown], left=True), Column("value", [*shown.values()], left=True))
    return Block(title="GPU, driver, versions, text, model", columns=table, folded=True)


def _hash(text: str) -> str:
    """Return the source expression by which a content security policy allows an inline element.

    https://www.w3.org/TR/CSP3/#grammardef-hash-source
    """
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
