"""The page in a real headless browser: Debian's chromium."""

from __future__ import annotations

import html
import json
import re
from importlib import resources
from pathlib import Path

import pytest

from jobkit.report.page import page
from tests.report.test_page import CPU_RUN, GPU_RUN, HOSTILE, Parsed, measured
from tests.support.applied import measured_run, request, win, write_corpus, write_planned
from tests.support.browser import A4, BROWSER, visit
from tests.support.machines import Machine, search

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.program(BROWSER)]
PNG_SIZE = slice(16, 24)
"""Where width and height stand in a PNG: https://www.w3.org/TR/png-3/#11IHDR"""
RUN_AXE = """
axe.run(document).then(function (found) {
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found.violations.map(function (one) {
    return [one.id, one.nodes.map(function (node) { return node.html.slice(0, 120); })];
  }));
  document.body.append(out);
});
"""
SORT = """
const head = Array.from(document.querySelectorAll("th button")).find(b => b.textContent.startsWith("speed"));
head.click(); head.click();
document.title = head.closest("table").tBodies[0].rows[0].cells[0].textContent;
"""
BLOCKED = "Blocked script execution in 'about:srcdoc'"
"""What chromium says of a sandbox without scripts."""
READ_FRAME = """
const frame = document.querySelector("iframe");
frame.addEventListener("load", function () {
  const inside = frame.contentDocument;
  document.title = JSON.stringify([inside.querySelectorAll("button").length, inside.body.innerText]);
});
"""
ON_A_SCREEN = """
const found = Array.from(document.querySelectorAll("iframe")).map(function (frame) {
  const all = name => Array.from(frame.contentDocument.querySelectorAll(name));
  const type = all("svg").map(svg => 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
  const boxes = all(".wide").filter(box => box.checkVisibility());
  const cut = boxes.filter(box => box.scrollWidth > box.clientWidth);
  return [Math.min(...type), cut.length, boxes.filter(box => !box.previousElementSibling.hidden).length];
});
document.title = JSON.stringify(found);
"""
ASK = """
const paper = getComputedStyle(document.body).backgroundColor;
document.title = JSON.stringify([document.documentElement.scrollWidth - window.innerWidth, paper]);
"""


def browse(tmp_path: Path, text: str, *options: str) -> str:
    """Open a page and return what the browser prints; it gets no network."""
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    done = visit(tmp_path, file.as_uri(), *options)
    lines = [line for line in done.stderr.split("\n") if "CONSOLE" in line and BLOCKED not in line]
    assert not lines
    return done.stdout


def drawn(tmp_path: Path, text: str, *options: str) -> bytes:
    """Return a screenshot."""
    shot = tmp_path / "shot.png"
    browse(tmp_path, text, f"--screenshot={shot}", "--hide-scrollbars", *options)
    return shot.read_bytes()


def framed(tmp_path: Path, text: str) -> tuple[int, str]:
    """Return the buttons and the words that a sandbox shows, such as that of a mail client or a CI server."""
    frame = f'<iframe sandbox="allow-same-origin" srcdoc="{html.escape(text)}"></iframe>'
    dom = browse(
        tmp_path, f"<!DOCTYPE html><title></title>{frame}<script>{READ_FRAME}</script>", "--dump-dom"
    )
    buttons, words = json.loads(title(dom))
    return buttons, " ".join(words.split())


def with_script(text: str, script: str) -> str:
    """Return a page without its policy, which forbids other scripts, and with a script more."""
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    return free.replace("</body>", f"<script>{script}</script></body>")


def tagged(folder: Path) -> Path:
    """Return the folder of a corpus of which a shard is not done."""
    write_corpus(folder / "a.txt")
    run = measured_run(folder / "runs" / "demo-20260102-101530-3f9a")
    write_planned(request(run, [str(folder / "a.txt")]), folder / "tagged")
    win(folder / "tagged", 1, 2)
    return folder / "tagged"


def title(dom: str) -> str:
    (found,) = re.findall(r"<title>(.*?)</title>", dom, flags=re.DOTALL)[:1]
    return html.unescape(found)


def measures(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    """Return how much wider than the window a page is, and its colour."""
    too_wide, colour = json.loads(title(browse(tmp_path, with_script(text, ASK), "--dump-dom", *options)))
    return too_wide, colour


def test_with_javascript_a_head_sorts_the_table_and_without_all_but_the_buttons_is_there(
    tmp_path: Path,
) -> None:
    text = page([GPU_RUN]).html
    dom = Parsed(browse(tmp_path, text, "--dump-dom"))
    assert len(dom.all("button")) > 5, "the policy lets the page's own style and script run"
    assert title(browse(tmp_path, with_script(text, SORT), "--dump-dom")) == "300"
    buttons, words = framed(tmp_path, text)
    assert buttons == 0
    for needed in ("Take batch_size 300", "#SBATCH --time=", "326 ± 7", "Speed: take batch size 300"):
        assert needed in words


def test_no_name_runs_as_a_script(tmp_path: Path) -> None:
    run = measured(tmp_path, name=HOSTILE.replace("/", "|"), text=HOSTILE, gpu=HOSTILE)
    watch = "document.title = 'watched'; window.alert = function () { document.title = 'owned'; };"
    text = with_script(page([run]).html, "").replace("<head>", f"<head><script>{watch}</script>")
    dom = browse(tmp_path, text, "--dump-dom")
    assert "owned" not in dom.partition("<body>")[0].replace(watch, "")


@pytest.mark.parametrize(("width", "scheme", "paper"), [(500, 1, "255, 255, 255"), (1280, 0, "20, 23, 27")])
def test_it_is_drawn_narrow_and_wide_and_dark(tmp_path: Path, width: int, scheme: int, paper: str) -> None:
    """0 is dark: PreferredColorScheme of Blink."""
    text = page([GPU_RUN, CPU_RUN]).html
    options = (f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme}")
    assert int.from_bytes(drawn(tmp_path, text, *options)[PNG_SIZE][:4], "big") == width
    too_wide, colour = measures(tmp_path, text, *options)
    assert too_wide <= 0, "the page is wider than the window"
    assert colour == f"rgb({paper})"


def test_type_can_be_read_on_a_telephone_and_a_cut_table_says_that_it_scrolls(tmp_path: Path) -> None:
    inside = html.escape(with_script(page([GPU_RUN, tagged(tmp_path)]).html, ""))
    frames = [f'<iframe srcdoc="{inside}" style="width: {width}px"></iframe>' for width in (390, 1280)]
    script = f"<script>setTimeout(function () {{ {ON_A_SCREEN} }}, 2000);</script>"
    dom = browse(tmp_path, f"<!DOCTYPE html><title></title>{''.join(frames)}{script}", "--dump-dom")
    (least_px, cut, said), on_a_desk = json.loads(title(dom))
    assert least_px >= 11
    assert cut == said > 0
    assert on_a_desk[1:] == [0, 0]


def test_the_widest_table_fits_on_paper(tmp_path: Path) -> None:
    text = page([GPU_RUN, search(tmp_path / "search", Machine())]).html.replace("@media print", "@media all")
    assert measures(tmp_path, text, A4)[0] <= 0


@pytest.mark.parametrize("scheme", [0, 1])
def test_axe_finds_nothing(tmp_path: Path, scheme: int) -> None:
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    engine = resources.files(axe).joinpath("axe.min.js").read_text(encoding="utf-8")
    pages = [GPU_RUN, CPU_RUN, measured(tmp_path), search(tmp_path / "search", Machine()), tagged(tmp_path)]
    text = with_script(page(pages).html.replace("<details>", "<details open>"), engine + RUN_AXE)
    dom = browse(tmp_path, text, "--dump-dom", f"--blink-settings=preferredColorScheme={scheme}")
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', dom, flags=re.DOTALL)
    assert json.loads(html.unescape(found)) == []
