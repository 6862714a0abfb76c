"""Every test marked ``fault`` says what it breaks, how, what jobkit reports, and what is lost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARK = "pytest.mark.fault"
FORM = re.compile(r"FAULT: .+ HOW: .+ REPORTED: .+ LOST: .+")


def faults() -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each fault test."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        everything = any(
            isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node) and MARK in ast.unparse(node)
            for node in tree.body
        )
        tests = (
            one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
        )
        for test in tests:
            if everything or any(MARK in ast.unparse(one) for one in test.decorator_list):
                yield f"{path.relative_to(ROOT)}:{test.name}", ast.get_docstring(test) or ""


@pytest.mark.parametrize(("name", "said"), list(faults()))
def test_a_fault_test_says_what_it_breaks_and_what_is_lost(name: str, said: str) -> None:
    assert FORM.fullmatch(re.sub(r"[\s|]+", " ", said)), name
