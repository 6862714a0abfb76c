"""The examples of docs/plot-of-my-own.md draw, in order, and print what stands under them."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tests.pages.test_docs import DOCS, ROOT

PAGE = DOCS / "plot-of-my-own.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_examples_draw_and_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {}
    for example, shown in EXAMPLE.findall(PAGE.read_text(encoding="utf-8")):
        with redirect_stdout(StringIO()) as printed:
            exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102 - the page's own examples
        assert printed.getvalue() == shown
    assert {path.name for path in tmp_path.iterdir()} == {"benchmarks", "calls.pdf", "speed.svg"}
