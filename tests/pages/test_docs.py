"""The pages say what the code does: keys, fields, words, commands and links, held against the code."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from pydantic import BaseModel

from jobkit import cli
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.extras import EXTRAS
from jobkit.core.figures import in_table
from jobkit.core.layout import Exit
from jobkit.core.records import ModelRef, Outcome, TextRef
from jobkit.planning.job_script import job_values
from jobkit.planning.points import Inputs, plan
from jobkit.report import rows
from jobkit.report.output import render
from jobkit.report.recommend.material import read_use
from jobkit.report.recommend.waste import wastes
from jobkit.report.tables import collect
from jobkit.schedulers.protocol import Scheduler
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from jobkit.worker.workloads.base import SHIPPED, Workload, knobs
from tests.support import command_reference, field_reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LESSON = DOCS / "lesson"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *LESSON.glob("*.md"), ROOT / "tests" / "data" / "README.md"]
)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MOST_WORDS = 56_459
FENCE = re.compile(r"^```(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)
RESERVED = "reserved: nothing in this version sets it"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(text: str, info: str) -> list[str]:
    """Return the fenced blocks of a page whose first line is ``` and ``info``."""
    return [body for word, body in FENCE.findall(text) if word == info]


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, up to the next heading of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no heading {heading!r}"
    return found[1]


def table(text: str) -> list[list[str]]:
    """Return the cells of the table rows of a text, without heads and rules."""
    lines = [line.strip() for line in text.splitlines() if line.lstrip().startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for n, row in enumerate(cells) if not _is_head(cells, n)]


def _is_head(cells: list[list[str]], n: int) -> bool:
    return any(set("".join(row)) <= set("-: ") for row in cells[n : n + 2])


def coded(text: str) -> list[str]:
    """Return what stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def named(text: str) -> list[str]:
    """Return what the first column of a text's tables has in backticks."""
    return [name for row in table(text) for name in coded(row[0])]


def models(*annotations: object) -> list[type[BaseModel]]:
    return [one for one in annotations if isinstance(one, type) and issubclass(one, BaseModel)]


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kinds = models(field.annotation, *get_args(field.annotation))
        if not kinds or kinds[0] is not field.annotation:
            yield prefix + name
        for kind in kinds:
            yield from keys(kind, f"{prefix}{name}.")


def default(model: BaseModel, key: str) -> Any:
    """Return a default as YAML would have it; of a part that is left out, what it would be if given."""
    name, _, below = key.partition(".")
    if not below:
        return model.model_dump(mode="json")[name]
    kinds = models(*get_args(type(model).model_fields[name].annotation))
    return default(kinds[0].model_construct() if kinds else getattr(model, name), below)


@cache
def slugs(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_lead_somewhere() -> None:
    for path in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", path.read_text(encoding="utf-8"))):
            target, _, anchor = link.partition("#")
            if not target.startswith(("https:", "http:", "mailto:")):
                there = (path.parent / target).resolve() if target else path
                assert there.exists(), f"{path}: {link}: there is no {there}"
                assert not anchor or anchor in slugs(there), f"{path}: {link}: no such heading"


def test_pages_that_the_code_names_are_there() -> None:
    sources = (*_files("jobkit", "*.py"), *_files("sweeps", "*"), *_files("templates", "*"))
    for path in (ROOT / "pyproject.toml", *sources):
        for name in re.findall(r"\bdocs/[\w.-]+\.md\b", path.read_text(encoding="utf-8")):
            assert (ROOT / name).is_file(), f"{path}: {name}"


def _files(folder: str, pattern: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob(pattern) if path.is_file() and path.suffix != ".pyc"]


def test_the_pages_stay_short_enough_to_be_read() -> None:
    """All of Markdown but the changelog: who adds a page shortens another."""
    folders = ("docs", "tests", "benchmarks", "sweeps", "templates", "jobkit")
    pages = {*ROOT.glob("*.md"), *(path for name in folders for path in (ROOT / name).rglob("*.md"))}
    pages -= {ROOT / "CHANGELOG.md"}
    assert sum(len(path.read_text(encoding="utf-8").split()) for path in pages) <= MOST_WORDS


def test_the_table_of_the_spec_has_every_key() -> None:
    assert named(section(page("spec.md"), "Every key")) == list(keys(SweepSpec))


def test_a_key_of_the_spec_has_its_default_and_an_example_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: minimal\n", encoding="utf-8")
    for row in table(section(page("spec.md"), "Every key")):
        key, kind, shown, meaning, example = (cell.strip("`") for cell in row)
        assert kind, key
        assert meaning, key
        needed = ["workload.command=run"] if "workload." in key else []
        needed += ["on_end.webhook.env=HOOK"] if key == "on_end.webhook.format" else []
        load_spec(path, [*needed, f"{key}={example}"])
        if shown != "required":
            assert yaml.safe_load(shown) == default(SweepSpec(name="minimal"), key), key


def test_the_knobs_of_every_workload_are_documented() -> None:
    text = section(page("spec.md"), "The sweep")
    known = {knob.name for workload in SHIPPED for knob in knobs(workload) or ()}
    assert {name for row in table(text) for name in coded(row[1])} == known
    assert set(named(text)) == set(SHIPPED)


def test_there_is_something_to_try() -> None:
    """An empty list of parameters would pass in silence."""
    assert blocks(page("spec.md"), "yaml spec")
    assert blocks(page("templates-and-sites.md"), "yaml site")
    assert typed()


def test_every_spec_on_the_page_loads(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    for text in blocks(page("spec.md"), "yaml spec"):
        path.write_text(text, encoding="utf-8")
        load_spec(path)


def test_the_faults_on_the_page_are_those_that_are_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (faulty,) = blocks(page("spec.md"), "yaml faulty")
    Path("bad.yaml").write_text(faulty, encoding="utf-8")
    with pytest.raises(JobkitError) as raised:
        load_spec(Path("bad.yaml"), ["resources.gpus=-1"])
    assert blocks(page("spec.md"), "text") == [f"jobkit: {raised.value}\n"]


SITE_ROWS = table(section(page("templates-and-sites.md"), "Every key of a site file"))


def test_every_key_of_the_site_file_is_in_the_table_with_its_default() -> None:
    of_the_spec = "on_end."  # the page of the spec has its keys
    wanted = [key for key in keys(Site) if not key.startswith(of_the_spec)]
    assert [coded(row[0])[0] for row in SITE_ROWS] == wanted
    for key, shown, meaning in ([cell.strip("`") for cell in row] for row in SITE_ROWS):
        assert meaning, key
        if shown != "required":
            known = "" if shown == "empty" else yaml.safe_load(shown)
            assert known == default(Site(name="minimal", scheduler="local"), key), key


def test_every_site_on_the_page_loads(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    for text in blocks(page("templates-and-sites.md"), "yaml site"):
        path.write_text(text, encoding="utf-8")
        load_site(str(path), yaml.safe_load(text)["scheduler"])


def documented() -> Iterator[tuple[str, str, set[str]]]:
    """Yield page and heading of a table of names, and the names that the code has."""
    sites, body = ROOT / "templates" / "sites", ROOT / "templates" / "job.sh.j2"
    yield "templates-and-sites.md", "The shipped sites", {path.stem for path in sites.glob("*.yaml")}
    yield "templates-and-sites.md", "The values that a template may use", set(_template_values())
    of_body = re.findall(r"\{% block (\w+) %\}", body.read_text(encoding="utf-8"))
    yield "templates-and-sites.md", "Templates", set(of_body)
    yield "run-by-hand.md", "The exit file", {field.name for field in fields(Exit)}
    heads = {column.head.replace("\n", " ") for column in in_table()}
    heads |= {"batch_size", "n", "outcome", "no effect of", "front", "95 % interval"}
    yield "what-is-measured.md", "The table", heads
    columns = {*rows.fixed_columns(), "speedup", "group", "size"}
    yield "what-is-measured.md", "Columns of csv and json", columns
    for heading, protocol in {"A scheduler": Scheduler, "A workload": Workload}.items():
        members = {name for name in vars(protocol) if not name.startswith("_")}
        yield "adding-a-scheduler.md", heading, members | set(protocol.__annotations__)


def test_the_names_of_the_code_are_documented() -> None:
    for name, heading, known in documented():
        assert set(named(section(page(name), heading))) == known, f"{name}: {heading}"


def _template_values() -> dict[str, object]:
    text = TextRef(path="/t", sha256="0", size_bytes=1, name="sample")
    model = ModelRef(path="/m", name="en", size="tiny", stand_in=True, fingerprint="f", size_bytes=1)
    spec = SweepSpec(name="minimal")
    (point, *_) = plan(spec, Inputs(run_id="minimal-1", text=text, model=model, device="cpu"))
    return job_values(spec, load_site("slurm-default", "slurm"), Path("/runs/minimal-1"), point)


OUTCOME_ROWS = table(section(page("contracts.md"), "Outcomes"))


def test_every_outcome_is_documented_with_its_symptom_and_command() -> None:
    assert [coded(row[0])[0] for row in OUTCOME_ROWS] == [str(outcome) for outcome in Outcome]
    assert set(named(page("symptoms.md"))) >= set(map(str, Outcome)) - {"ok"}


def test_an_outcome_is_called_reserved_if_nothing_sets_it() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8") for path in _files("jobkit", "*.py") if path.name != "records.py"
    )
    unused = {str(outcome) for outcome in Outcome if f"Outcome.{outcome.name}" not in sources}
    assert {coded(row[0])[0] for row in OUTCOME_ROWS if row[1] == RESERVED} == unused


def test_every_exit_code_is_documented() -> None:
    codes = {str(code.value) for code in ExitCode}
    assert {row[0] for row in table(section(page("commands.md"), "Exit codes"))} == codes


def test_the_fields_of_records_are_those_of_the_code() -> None:
    text = page("what-is-measured.md")
    assert field_reference.page(text) == text, "python -m tests.support.field_reference"
    assert all(f"\n### {kind.__name__}\n" in text for kind in field_reference.KINDS)


def test_usage_and_options_of_every_command_are_those_of_the_code() -> None:
    text = page("commands.md")
    assert command_reference.page(text) == text, "python -m tests.support.command_reference"


def test_every_environment_variable_is_documented() -> None:
    used = {
        name
        for path in (*_files("jobkit", "*.py"), *_files("templates", "*"), *_files("tests", "conftest.py"))
        for name in re.findall(r"\bJOBKIT_[A-Z]+\b", path.read_text(encoding="utf-8"))
    }
    said = named(section(page("commands.md"), "Environment variables"))
    assert {name for name in said if name.startswith("JOBKIT_")} == used


def test_the_rooms_are_drawn_and_described() -> None:
    rooms = {path.name for path in (ROOT / "jobkit").iterdir() if (path / "__init__.py").exists()}
    whole = page("structure.md")
    modules = "".join(f"/{path.relative_to(ROOT)} " for path in _files("jobkit", "*.py"))
    assert [name for name in re.findall(r"`([\w/]+\.py)`", whole) if f"/{name} " not in modules] == []
    text = section(whole, "The rooms")
    assert set(re.findall(r"^\*\*`(\w+)/`\*\*", text, re.MULTILINE)) == rooms
    drawing = text.partition("```")[2].partition("```")[0]
    assert set(re.findall(r"(\w+)/", drawing)) >= rooms


def test_every_dependency_is_documented() -> None:
    project = PYPROJECT["project"]
    dev = project["optional-dependencies"]["dev"]
    for heading, requirements in {"At run time": project["dependencies"], "For development": dev}.items():
        said = [row[0] for row in table(section(page("dependencies.md"), heading))]
        assert said == [re.split(r"[<>=!~\[ ]", requirement)[0] for requirement in requirements]
    assert set(named(section(page("dependencies.md"), "Extras"))) == set(EXTRAS)
    assert set(EXTRAS) | {"dev", "bench", "docs"} == set(project["optional-dependencies"])


def test_the_modules_that_name_a_scheduler_are_documented() -> None:
    text = section(page("adding-a-scheduler.md"), "A scheduler")
    for path in _files("jobkit", "*.py"):
        if '"sge"' in path.read_text(encoding="utf-8") and path.stem not in {"sge", "sge_lint", "sge_survey"}:
            assert f"(../{path.relative_to(ROOT)})" in text


def test_the_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for row in table(section((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "Set-up")):
        (target,) = coded(row[0])
        assert re.search(rf"^{target.removeprefix('make ')}:", makefile, re.MULTILINE), target


@cache
def typed() -> list[tuple[str, str]]:
    """Return the jobkit commands in the shell blocks of all pages."""
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for block in (*blocks(text, "sh"), *blocks(text, "bash"), *blocks(text, "console")):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(path.name, line) for line in lines if re.match(r"(\$ )?(\S*/)?jobkit (?!\d)", line)]
    return found


@pytest.mark.parametrize("name", sorted({path.name for path in PAGES}))
def test_the_commands_on_the_pages_are_ones_that_jobkit_takes(name: str) -> None:
    for line in (line for page, line in typed() if page == name):
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        _, *words = takewhile(lambda word: not set(word) <= set("|;&<>()"), lexer)
        _parse(cli.app, "jobkit", words, None)


def _parse(command: click.Command, name: str, words: list[str], parent: click.Context | None) -> None:
    """Let click read the words of a command, and run nothing."""
    try:
        context = command.make_context(name, words, parent=parent)
    except click.exceptions.Exit:
        return  # --help or --version
    if isinstance(command, click.Group):
        found, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert below is not None
        _parse(below, found or "", rest, context)


def test_the_figures_of_dcgm_are_those_that_are_printed() -> None:
    log = ROOT / "tests" / "data" / "predecessors" / "gpu-stanza-tagging.o2650"
    [shown] = blocks(section(page("report.md"), "Next to DCGM's report"), "text")
    assert shown in render(collect([log]))


def test_every_waste_has_a_section_with_its_fix() -> None:
    for waste in wastes(read_use(ROOT / "benchmarks/records/gpu/stanza-20261121-034558-42cc")):
        assert "Fix" in section(page("waste.md"), waste.name[0].upper() + waste.name[1:])


def test_the_readme_is_short_and_its_table_is_that_of_the_records() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.split()) <= 700
    (run,) = (ROOT / "benchmarks" / "records" / "demo").iterdir()
    printed = iter(render(collect([run]), width=100).splitlines())
    quoted = readme.partition("```text\n")[2].partition("```")[0].splitlines()
    assert len(quoted) > 6
    assert all(line in printed for line in quoted), "in this order"
