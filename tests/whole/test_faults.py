"""Every test marked ``fault`` says what it breaks, how, what jobkit reports, and what is lost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "pytest.mark.fault"
FORM = re.compile(r"FAULT: .+ HOW: .+ REPORTED: .+ LOST: .+")


def faults() -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each fault test."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if MARK not in (code := path.read_text(encoding="utf-8")):
            continue
        tree = ast.parse(code)
        marks = (ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign))
        everything = any("pytestmark" in mark and MARK in mark for mark in marks)
        for test in tree.body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            if everything or any(MARK in ast.unparse(one) for one in test.decorator_list):
                yield f"{path.relative_to(ROOT)}:{test.name}", ast.get_docstring(test) or ""


def test_a_fault_test_says_what_it_breaks_and_what_is_lost() -> None:
    said = dict(faults())
    assert len(said) > 20
    wrong = [name for name, text in said.items() if not FORM.fullmatch(re.sub(r"[\s|]+", " ", text))]
    assert wrong == []
