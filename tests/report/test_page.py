from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

import jobkit
from jobkit.core.layout import JOB_SCRIPT, SPEC_FILE
from jobkit.core.measurements import Gpu
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap, printable
from jobkit.core.units import GIB
from jobkit.report.page import MOST_CHARACTERS, page, paragraphs
from tests.support.builders import TEXT, grid, record, write_points, write_record
from tests.support.commands import jobkit as typed
from tests.support.commands import ran

ROOT = Path(__file__).parents[2]
GPU_RUN = ROOT / "benchmarks" / "records" / "gpu" / "stanza-20261121-034558-42cc"
CPU_RUN = ROOT / "benchmarks" / "records" / "demo" / "demo-20261123-022857-7888"
HOSTILE = (
    'javascript:alert(1) <script>alert(1)</script> "\' onmouseover="alert(1) \x1b[31mred\x07 '
    "=HYPERLINK(1) </pre></code></style><img src=x onerror=alert(1)> {{ 7 * 7 }}"
)
VOID = {"meta", "br", "link", "img", "input"}
BYTES = 150_000


class Parsed(HTMLParser):
    """The elements of a page, each with its attributes; and whether every one is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def measured(folder: Path, *, name: str = "run", text: str = "sample", gpu: str = "a card") -> Path:
    """Write a run of 30 points on a GPU, all of which succeeded but the last, which ran out of RAM."""
    run = folder / name
    sizes = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    points = [replace(point, text=replace(TEXT, name=text)) for point in grid(sizes, 3)]
    write_points(run, points)
    card = Gpu(name=gpu, uuid="GPU-2", total_bytes=16 * GIB, driver="1", cuda="12")
    for point in points:
        made = replace(record(point, work_s=8.0 + 0.1 * point.repeat), gpu=card)
        peak = made.memory.activations_bytes
        peaks = replace(made.memory, allocated_peak_bytes=peak, reserved_peak_bytes=peak)
        made = replace(made, memory=peaks)
        failed = replace(made, outcome=Outcome.RAM_OOM, message=text)
        write_record(run, failed if point is points[-1] else made)
    return run


@pytest.fixture(scope="module")
def gpu_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a run as the command writes it."""
    folder = tmp_path_factory.mktemp("page")
    done = ran("report", GPU_RUN, "--output", folder / "it.html", cwd=folder)
    assert "it.html" in done.stdout
    return (folder / "it.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def both() -> str:
    return page([GPU_RUN, CPU_RUN]).html


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that returns the page of 30 points in which everything has a name, once."""

    @cache
    def write(name: str) -> str:
        run = measured(tmp_path_factory.mktemp("run"), name=name.replace("/", "|"), text=name, gpu=name)
        (run / SPEC_FILE).write_text(f"{name}\n", encoding="utf-8")
        (run / JOB_SCRIPT).write_text(f"# {name}\n" + "x" * 10 * MOST_CHARACTERS, encoding="utf-8")
        return page([run]).html

    return write


def test_a_page_needs_nothing_else_and_is_small_for_30_points(named: Callable[[str], str]) -> None:
    text = named(HOSTILE)
    parsed = Parsed(text)
    assert parsed.open == []
    assert len(text.encode()) <= BYTES, "a long script is cut"
    addresses = [
        value
        for _, attributes in parsed.found
        for name, value in attributes.items()
        if name in {"href", "src", "srcset", "action", "data", "poster", "xlink:href", "background"}
    ]
    assert addresses
    assert all(value and value.startswith("#") for value in addresses)
    assert "url(" not in text
    assert "@import" not in text
    assert {tag for tag, _ in parsed.found}.isdisjoint({"img", "iframe", "object", "embed", "link", "base"})


def test_no_name_of_a_run_becomes_markup(named: Callable[[str], str]) -> None:
    text = named(HOSTILE)
    assert "\x1b" not in text
    assert "\x07" not in text
    found, expected = Parsed(text), Parsed(named("harmless"))
    assert [tag for tag, _ in found.found] == [tag for tag, _ in expected.found]
    assert [set(one) for _, one in found.found] == [set(one) for _, one in expected.found]
    assert found.words.count(printable(HOSTILE)) > 5


def test_every_link_within_the_page_leads_somewhere(both: str) -> None:
    parsed = Parsed(both)
    ids = [attributes["id"] for _, attributes in parsed.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(link["href"])[1:] for link in parsed.all("a")} <= set(ids)
    labelled = {one["aria-labelledby"] for _, one in parsed.found if "aria-labelledby" in one}
    assert labelled <= set(ids)


def test_runs_stand_side_by_side(both: str, gpu_page: str) -> None:
    words = Parsed(both).words
    assert "Side by side" in words
    assert "the work differs (text, model)" in words
    assert "Side by side" not in Parsed(gpu_page).words


def test_a_page_reads_without_style_and_script(gpu_page: str) -> None:
    text = re.sub(r"<(style|script)>.*?</\1>", "", gpu_page, flags=re.DOTALL)
    parsed = Parsed(text)
    assert (GPU_RUN / SPEC_FILE).read_text(encoding="utf-8").strip() in parsed.words
    assert (GPU_RUN / JOB_SCRIPT).read_text(encoding="utf-8").strip() in parsed.words
    assert not any("style" in attributes for _, attributes in parsed.found)
    assert len(parsed.all("svg")) == len(parsed.all("figcaption"))
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in parsed.all("svg"))
    assert len(parsed.all("caption")) == len(parsed.all("table"))
    assert len(parsed.all("html")) == len([one for one in parsed.all("html") if one["lang"] == "en"]) == 1
    assert [len(parsed.all(name)) for name in ("main", "nav", "header", "footer", "h1")] == [1] * 5


def test_code_to_copy_stands_without_the_words_before_it(gpu_page: str) -> None:
    pieces = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", gpu_page, flags=re.DOTALL)
    assert "--set resources.memory=2GiB" in pieces
    assert "#SBATCH --mem=2G" in pieces
    assert any(piece.startswith("#SBATCH --gres=gpu:1\n#SBATCH --cpus-per-task=2\n") for piece in pieces)
    lines = ["", "- a note", "  more", NoWrap("one", "  do: "), NoWrap("  two", "  do: ")]
    assert list(paragraphs(lines)) == ["a note", "more", "do:", "one\n  two"]


def test_the_fragment_of_a_notebook_holds_no_hostile_markup_and_no_script(tmp_path: Path) -> None:
    parsed = Parsed(jobkit.load(measured(tmp_path, text=HOSTILE))._repr_html_())
    assert parsed.open == []
    assert not parsed.all("script")
    assert len(parsed.all("svg")) == 2
    assert printable(HOSTILE) in parsed.words


def test_the_scripts_are_those_of_the_policy_and_small(gpu_page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", gpu_page, flags=re.DOTALL)
    assert len(script) <= 10_000
    policy = next(one["content"] or "" for one in Parsed(gpu_page).all("meta") if "http-equiv" in one)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_command_writes_all_or_nothing(tmp_path: Path) -> None:
    gone = typed("report", GPU_RUN, "--output", tmp_path / "no" / "it.html", cwd=tmp_path)
    assert gone.returncode == 2
    assert "--output" in gone.stderr
