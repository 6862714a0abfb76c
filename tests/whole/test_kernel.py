"""The kernel knows no extension: it imports none, and no condition in it asks for one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNEL = ("core", "schedulers", "worker", "spec", "runs", "answers", "planning", "report", "launch")
TABLE = "core/extensions.py"
"""The table of extensions."""
FIELDS = "core/records.py"
"""Reads the fields of a point that say what it is for: `Point.kind`."""
WORDS = frozenset(
    {"apply", "corpus", "dcgm", "merge", "phase", "preflight", "profile", "profiled", "profiler"}
    | {"shard", "shards", "tune", "tuning"}
)
NOT_EXTENSIONS = {
    "answers/objective.py": {"phase"},  # a word of the search that answers, passed through
    "report/plot/pictures.py": {"phase"},  # the same
    "report/plot/data.py": {"phase"},  # the same
    "report/rows.py": {"phase"},  # a column of the table
    "planning/texts.py": {"read_corpus"},  # of `recommend --corpus`: how much text there is
    "report/recommend/advice.py": {"corpus"},  # the same
    "report/recommend/output.py": {"corpus", "corpus_j"},  # the same
    "report/tables.py": {"profiled"},  # points that are in no table
    "spec/checks.py": {"profile"},  # a key of the spec, whose earlier values are refused
}
"""Names in conditions that only look like an extension's, each with its reason."""


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what a piece of code decides by."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.BoolOp | ast.Compare):
            yield node
        elif isinstance(node, ast.match_case) and node.guard:
            yield node.guard


def names(condition: ast.expr) -> Iterator[str]:
    """Yield the names and words of a condition."""
    for node in ast.walk(condition):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def asked(code: str) -> set[str]:
    """Return the names of extensions in the conditions of some code."""
    found = {name for condition in conditions(ast.parse(code)) for name in names(condition)}
    return {
        name
        for name in found
        if re.fullmatch(r"[\w.]+", name)
        and WORDS & {word.lower() for word in re.split(r"[_.]|(?<=[a-z])(?=[A-Z])", name)}
    }


def modules() -> Iterator[tuple[str, str]]:
    """Yield the modules of the kernel, each with its code."""
    for room in KERNEL:
        for path in sorted((ROOT / "jobkit" / room).rglob("*.py")):
            yield str(path.relative_to(ROOT / "jobkit")), path.read_text(encoding="utf-8")


def test_no_condition_of_the_kernel_asks_for_an_extension() -> None:
    branches = {
        name: found
        for name, code in modules()
        if name not in {TABLE, FIELDS} and (found := asked(code) - NOT_EXTENSIONS.get(name, set()))
    }
    assert branches == {}


def test_every_exception_is_still_needed() -> None:
    code = dict(modules())
    unused = {name: left for name, words in NOT_EXTENSIONS.items() if (left := words - asked(code[name]))}
    assert unused == {}


def test_the_kernel_names_no_module_of_an_extension() -> None:
    naming = [name for name, code in modules() if "jobkit.extensions" in code and name != TABLE]
    assert naming == []


def test_a_branch_is_found() -> None:
    assert asked("x = 1 if run.noun == 'shard' else 2") == {"shard"}
    assert asked("y = [p for p in points if p.profile != OFF]") == {"profile"}
    assert asked("z = is_corpus_folder(run) and 1") == {"is_corpus_folder"}
    assert asked("kind.settle(run)") == set()
