"""The fault matrix: every test marked ``fault`` as a row of docs/reliability.md.

After a change to such a test's docstring: ``python -m tests.support.fault_matrix``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- the matrix begins -->\n", "<!-- the matrix ends -->\n"
FORM = re.compile(
    r"FAULT: (?P<fault>.+?)[\s|]+HOW: (?P<how>.+?)[\s|]+REPORTED: (?P<reported>.+?)[\s|]+LOST: (?P<lost>.+)"
)


@dataclass(frozen=True)
class Fault:
    """A fault test: where it stands, and its four columns."""

    module: Path
    name: str
    fault: str
    how: str
    reported: str
    lost: str


def faults() -> Iterator[tuple[str, list[Fault]]]:
    """Yield the first line of each test module that has fault tests, and those."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        everything = "pytest.mark.fault" in " ".join(_marks(tree))
        found = [
            _fault(path, node)
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            if everything or any("mark.fault" in ast.unparse(one) for one in node.decorator_list)
        ]
        if found:
            yield (ast.get_docstring(tree) or path.stem).splitlines()[0].rstrip("."), found


def _marks(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield ast.unparse(node.value)


def _fault(path: Path, node: ast.FunctionDef) -> Fault:
    said = FORM.fullmatch(" ".join((ast.get_docstring(node) or "").split()))
    if said is None:
        raise AssertionError(
            f"{path}:{node.lineno}: {node.name}: docstring is not FAULT: HOW: REPORTED: LOST:"
        )
    words = {key: value.strip().rstrip(".") for key, value in said.groupdict().items()}
    return Fault(path.relative_to(ROOT), node.name, **words)


def matrix() -> str:
    """Return the tables, a heading a module."""
    parts = []
    for title, found in faults():
        parts += [f"\n## {title}\n", "| fault | how | what jobkit reports | lost |", "|---|---|---|---|"]
        parts += [f"| {one.fault} | {one.how} | {one.reported} | {one.lost} |" for one in found]
        parts.append(f"\n`{found[0].module}`")
    return "\n".join(parts) + "\n\n"


def page(text: str) -> str:
    """Return the page with the matrix as it is now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + matrix() + END + tail


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
