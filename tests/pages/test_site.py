"""The pages as a site: each has one place, no build warns, the search finds, and nothing is loaded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

import jobkit
from tests.pages.test_docs import DOCS, ROOT
from tests.support.browser import A4, BROWSER, visit

GROUPS = ["Tutorial", "How-to", "Reference", "Explanation"]
ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w./-]+\.md)\)", re.MULTILINE)
ANOTHER_ADDRESS = re.compile(r"^(https?:)?//")
FIRST = 3
"""How many results a reader looks at."""
WIDEST = ["next-to-others", "spec", "commands"]
"""The pages with the widest tables."""
ASK_WIDTHS = """
const boxes = document.querySelectorAll(".table-wrapper, .highlight");
document.title = Math.max(...Array.from(boxes, box => box.scrollWidth - box.clientWidth));
"""
LOADED_BY_CSS = re.compile(r"""url\(\s*['"]?(?:https?:)?//|@import""")


def listed() -> list[tuple[str, Path]]:
    """Return the name and the page of each row of the tables of docs/README.md and of the README.md below."""
    return [
        (name, (path.parent / page).resolve())
        for path in DOCS.rglob("README.md")
        for name, page in ROW.findall(path.read_text(encoding="utf-8"))
    ]


def test_every_page_has_one_place_in_one_of_the_four_groups_and_a_name_in_words() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == GROUPS
    assert [name for name, _ in listed() if name.endswith(".md")] == [], "the sidebar shows the name"
    places = Counter(page for _, page in listed())
    pages = {*DOCS.rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"} - {DOCS / "README.md"}
    wrong = [os.path.relpath(page, DOCS) for page in sorted(pages) if places[page] != 1]
    rows = [f"| [{Path(page).stem}]({page}) | for whom |" for page in wrong]
    assert not wrong, "docs/README.md needs one row, in one of its four tables:\n" + "\n".join(rows)


def loaded(page: str) -> list[str]:
    """Return the addresses that a browser loads by itself to show a page; a link is not one."""
    tags = re.findall(r"<(?!a\s)\w[^>]*>", page)
    return [address for tag in tags for address in re.findall(r'\s(?:src|href|srcset|data)="([^"]+)"', tag)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-b", "html", "-c", "docs"]
    done = subprocess.run([*sphinx, ".", out], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.rare
@pytest.mark.slow
def test_the_first_page_leads_to_every_page(site: Path) -> None:
    assert 'url=docs/README.html"' in (site / "index.html").read_text(encoding="utf-8")
    first = (site / "docs" / "README.html").read_text(encoding="utf-8")
    sidebar, _, _ = first.partition('<div class="main">')
    assert re.findall(r'class="caption-text">([^<]+)', sidebar) == GROUPS
    for name, _ in listed():
        assert f">{name}</a>" in sidebar, name


@pytest.mark.rare
@pytest.mark.slow
def test_no_page_loads_anything_from_another_address(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(listed())
    for page in pages:
        addresses = loaded(page.read_text(encoding="utf-8"))
        assert addresses or page.name == "index.html", page
        assert [address for address in addresses if ANOTHER_ADDRESS.match(address)] == [], page
    for style in site.rglob("*.css"):
        assert not LOADED_BY_CSS.search(style.read_text(encoding="utf-8")), style


@pytest.mark.rare
@pytest.mark.slow
def test_every_public_name_has_its_docstring(site: Path) -> None:
    page = (site / "docs" / "python-names.html").read_text(encoding="utf-8")
    shown = {*re.findall(r'<dt class="[^>]*id="jobkit\.(\w+)"', page)}
    assert shown == {*jobkit.__all__} - {"Loaded", "SweepSpec"}
    assert "Ctrl-C ends the waiting, not the run." in page


@pytest.fixture(scope="module")
def address(site: Path, serve: Callable[[Path], str]) -> str:
    """Serve the site on this machine."""
    return serve(site)


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.program(BROWSER)
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("out of memory", "symptoms.html#out-of-memory"),
        ("how long will it take", "tag-my-corpus.html#how-long-will-it-take"),
        ("which GPU", "recommend.html#which-gpu"),
    ],
)
def test_the_search_of_the_site_answers_among_its_first_results(
    address: str, tmp_path: Path, question: str, answer: str
) -> None:
    dom = visit(tmp_path, f"{address}/search.html?q={quote(question)}", "--dump-dom").stdout
    results = dom.partition('<div id="search-results">')[2]
    found = re.findall(r'<a href="([^"]+)"', results)[:FIRST]
    assert any(link.endswith(answer) for link in found), found


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.program(BROWSER)
@pytest.mark.parametrize("page", WIDEST)
def test_no_table_is_cut_on_paper(site: Path, address: str, tmp_path: Path, page: str) -> None:
    css = (site / "_static" / "site.css").read_text(encoding="utf-8")
    css = css.replace("@media screen", "@media not all").replace("@media print", "@media all")
    text = (site / "docs" / f"{page}.html").read_text(encoding="utf-8").replace("site.css", "not.css")
    text = text.replace("<head>", f'<head><base href="{address}/docs/">')
    printed = tmp_path / "printed.html"
    printed.write_text(text.replace("</body>", f"<style>{css}</style><script>{ASK_WIDTHS}</script></body>"))
    dom = visit(tmp_path, printed.as_uri(), "--dump-dom", A4).stdout
    assert re.findall("<title>(.*)</title>", dom)[0] == "0"
