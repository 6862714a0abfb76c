"""How Sphinx makes a site of these pages (``make docs``); docs/README.md says where each page stands.

Links on the pages lead to files of the checkout. On the site a link to a page leads to that page, a link to
another file downloads it, and a link to a folder is its text with the path of the folder.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.addnodes import pending_xref

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "jobkit"
html_title = f"jobkit {metadata.version('jobkit')}"
extensions = ["myst_parser", "sphinx_design", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints_format = "short"
autodoc_default_options = {"show-inheritance": True, "special-members": "__await__"}
nitpick_ignore_regex = [("py:.*", ".*")]  # types that have no page
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6

# The folder of the sources is the checkout, so that a link to CONTRIBUTING.md or to a module resolves.
root_doc = "docs/README"
include_patterns = ["docs/**.md", "docs/python-names.rst", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
exclude_patterns = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "docs"]

# Nothing is loaded from another address: no web font, no inventory of another project.
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("search-scorer.js"))
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "text"
smartquotes = False  # "--set" in a sentence stays as it is typed

ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w./-]+)\.md\)", re.MULTILINE)


def table_of_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the pages that the tables of a README.md list into the sidebar, under the headings there."""
    here = Path(docname)
    if here.name != "README":
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE):
        caption = section.partition("\n")[0].lstrip("# ")
        pages = [(name, _docname(app, here, page)) for name, page in ROW.findall(section)]
        if pages:
            entries = "\n".join(f"{name} </{page}>" for name, page in pages)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def _docname(app: Sphinx, here: Path, page: str) -> str:
    path, _ = app.env.relfn2path(f"{page}.md", str(here))
    return path.removesuffix(".md")


def links_out_of_the_site(app: Sphinx, doctree: nodes.document) -> None:
    """Replace a link to a folder, or to a page that the site does not have, by its text and the path."""
    for link in list(doctree.findall(pending_xref)):
        target = link["reftarget"]
        if link.get("refdomain") == "doc":
            path = f"{target}.md" if target not in app.env.found_docs else ""
        else:
            path, absolute = app.env.relfn2path(target, app.env.docname)
            path = path if Path(absolute).is_dir() else ""
        if path:
            text = link.children[0] if link.children else nodes.Text("")
            link.replace_self([text, nodes.Text(" ("), nodes.literal(path, path), nodes.Text(")")])


def front_page(app: Sphinx, error: Exception | None) -> None:
    """Write index.html, which browsers and servers open first; it leads to the first page."""
    if error is None and app.builder.name == "html":
        first = f"{app.config.root_doc}.html"
        text = f'<meta http-equiv="refresh" content="0; url={first}"><a href="{first}">{project}</a>\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", table_of_contents)
    app.connect("doctree-read", links_out_of_the_site)
    app.connect("build-finished", front_page)
