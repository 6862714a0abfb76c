from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import jobkit
from jobkit.core.layout import JOB_SCRIPT, SPEC_FILE
from jobkit.core.measurements import Gpu
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap, printable
from jobkit.core.units import GIB
from jobkit.extensions.tune.answer import Answer
from jobkit.report.html.page import page, paragraphs
from jobkit.report.html.pictures import MOST_CHARACTERS
from tests.support.builders import TEXT, grid, record, write_points, write_record
from tests.support.commands import jobkit as typed
from tests.support.machines import Machine, search

ROOT = Path(__file__).parents[3]
GPU_RUN = ROOT / "benchmarks" / "records" / "gpu" / "stanza-20261121-034558-42cc"
CPU_RUN = ROOT / "benchmarks" / "records" / "demo" / "demo-20261123-022857-7888"
HOSTILE = (
    "<script>alert(1)</script>",
    "javascript:alert(1)",
    '"\' onmouseover="alert(1)',
    "\x1b[31mred\x07",
    "=HYPERLINK(1)",
    "</pre></code></style><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
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


def test_a_page_needs_nothing_else_and_is_small_for_30_points(tmp_path: Path) -> None:
    text = page([measured(tmp_path)]).html
    parsed = Parsed(text)
    assert parsed.open == []
    assert len(text.encode()) <= BYTES
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


def test_every_link_within_the_page_leads_somewhere() -> None:
    parsed = Parsed(page([GPU_RUN, CPU_RUN]).html)
    ids = [attributes["id"] for _, attributes in parsed.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(link["href"])[1:] for link in parsed.all("a")} <= set(ids)
    labelled = {one["aria-labelledby"] for _, one in parsed.found if "aria-labelledby" in one}
    assert labelled <= set(ids)


def test_a_page_reads_without_style_and_script() -> None:
    text = re.sub(r"<(style|script)>.*?</\1>", "", page([GPU_RUN]).html, flags=re.DOTALL)
    parsed = Parsed(text)
    for needed in (
        "Take batch_size 300",
        "#SBATCH --time=",
        "nothing larger was measured",
        "326 ± 7",
        "NVIDIA H200",
        "580.159.04",
    ):
        assert needed in parsed.words
    assert (GPU_RUN / SPEC_FILE).read_text(encoding="utf-8").strip() in parsed.words
    assert (GPU_RUN / JOB_SCRIPT).read_text(encoding="utf-8").strip() in parsed.words
    assert not any("style" in attributes for _, attributes in parsed.found)
    assert len(parsed.all("svg")) == len(parsed.all("figcaption"))
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in parsed.all("svg"))
    assert len(parsed.all("caption")) == len(parsed.all("table"))
    assert len(parsed.all("html")) == len([one for one in parsed.all("html") if one["lang"] == "en"]) == 1
    assert [len(parsed.all(name)) for name in ("main", "nav", "header", "footer", "h1")] == [1] * 5


def test_what_went_wrong_has_its_reason_and_a_command(tmp_path: Path) -> None:
    words = Parsed(page([measured(tmp_path)]).html).words
    assert "What went wrong" in words
    assert "how much memory it needs" in words


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_name_of_a_run_becomes_markup(tmp_path: Path, hostile: str) -> None:
    name = hostile.replace("/", "|")
    run = measured(tmp_path, name=name, text=hostile, gpu=hostile)
    (run / SPEC_FILE).write_text(f"name: {hostile}\n", encoding="utf-8")
    (run / JOB_SCRIPT).write_text(f"# {hostile}\n", encoding="utf-8")
    harmless = measured(tmp_path, name="harmless", text="harmless", gpu="harmless")
    for name in (SPEC_FILE, JOB_SCRIPT):
        (harmless / name).write_text("harmless\n", encoding="utf-8")
    text, other = page([run]).html, page([harmless]).html
    assert "\x1b" not in text
    assert "\x07" not in text
    found, expected = Parsed(text), Parsed(other)
    assert [tag for tag, _ in found.found] == [tag for tag, _ in expected.found]
    assert [set(one) for _, one in found.found] == [set(one) for _, one in expected.found]
    assert found.words.count(printable(hostile)) > 5


def test_code_to_copy_stands_without_the_words_before_it() -> None:
    pieces = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page([GPU_RUN]).html, flags=re.DOTALL)
    assert "--set resources.memory=2GiB" in pieces
    assert "#SBATCH --mem=2G" in pieces
    assert any(piece.startswith("#SBATCH --gres=gpu:1\n#SBATCH --cpus-per-task=2\n") for piece in pieces)
    assert list(
        paragraphs(["", "- a note", "  more", NoWrap("one", "  do: "), NoWrap("  two", "  do: ")])
    ) == [
        "a note",
        "more",
        "do:",
        "one\n  two",
    ]


def test_the_fragment_of_a_notebook_holds_no_hostile_markup_and_no_script(tmp_path: Path) -> None:
    run = measured(tmp_path, text=HOSTILE[0])
    fragment = jobkit.load(run)._repr_html_()
    parsed = Parsed(fragment)
    assert parsed.open == []
    assert not parsed.all("script")
    assert len(parsed.all("svg")) == 2
    assert HOSTILE[0] in parsed.words


def test_the_scripts_are_those_of_the_policy_and_small() -> None:
    text = page([GPU_RUN]).html
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert len(script) <= 10_000
    policy = next(one["content"] or "" for one in Parsed(text).all("meta") if "http-equiv" in one)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_long_script_is_cut(tmp_path: Path) -> None:
    run = measured(tmp_path)
    (run / JOB_SCRIPT).write_text("x" * 10 * MOST_CHARACTERS, encoding="utf-8")
    assert len(page([run]).html.encode()) <= BYTES


def test_runs_stand_side_by_side() -> None:
    words = Parsed(page([GPU_RUN, CPU_RUN]).html).words
    assert "Side by side" in words
    assert "the work is not the same (text, model)" in words
    assert "Side by side" not in Parsed(page([GPU_RUN]).html).words


def test_the_command_writes_all_or_nothing(tmp_path: Path) -> None:
    out = tmp_path / "it.html"
    done = typed("report", GPU_RUN, "--output", out, cwd=tmp_path)
    assert done.returncode == 0
    assert "it.html" in done.stdout
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    gone = typed("report", GPU_RUN, "--output", tmp_path / "no" / "it.html", cwd=tmp_path)
    assert gone.returncode == 2
    assert "--output" in gone.stderr


def test_what_was_not_used_is_under_the_recommendation() -> None:
    run = Path(__file__).parents[3] / "benchmarks/records/gpu/stanza-20261121-034558-42cc"
    text = page([run]).html
    assert "Requested and not used" in text
    assert "#SBATCH --mem=2G" in text


def test_the_answer_comes_before_the_pictures_and_these_before_the_table() -> None:
    text = page([GPU_RUN]).html
    places = [text.index(word) for word in ("Take batch_size", "Request ", "Time for", "Speed: ", "Memory: ")]
    assert places == sorted(places)
    assert text.index("<svg") < text.index("speed-")
    assert Parsed(text).words.count("95 % bound, one-sided") == 1, "the dashed line has its legend"


def test_a_search_shows_its_settings_by_speed_and_what_binds(tmp_path: Path) -> None:
    text = page([search(tmp_path, Machine(noise=0.02))]).html
    words = Parsed(text).words
    for needed in (
        "as fast as the plain loop.",
        "the answer",
        "95 % interval",
        "plain loop: ",
        "The limit is",
    ):
        assert needed in words
    assert text.index("<svg") < text.index("The limit is")


def test_a_search_of_which_no_setting_has_a_speed_has_no_picture_of_it(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(), most=1)
    assert Answer.read(run).panel.answer is None
    for file in run.glob("results/*/*/record.json"):
        file.unlink()
    assert Answer.read(run).panel.rows == ()
