"""Names in docstrings: a single backtick on each side marks a name of the code."""

from __future__ import annotations

import ast
import builtins
import re
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

import pytest

REFERENCE = re.compile(r"(?<!`)`(\w+(?:\.\w+)*)(?:\(\))?`(?!`)")


@pytest.mark.xdist_group("torch")  # some of the names are in modules that import it
def test_every_name_in_a_docstring_exists() -> None:
    """A name without its module is one of any module, or a word of the code in quotes."""
    known, found = set(dir(builtins)), []
    for path in sorted((Path(__file__).parents[2] / "jobkit").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        texts = {node.value for node in nodes if isinstance(node, ast.Expr)}
        code = [node for node in nodes if not isinstance(node, ast.Constant) or node not in texts]
        names = [getattr(node, key, None) for node in code for key in ("name", "id", "attr", "arg", "value")]
        known |= {name for name in names if isinstance(name, str)}
        docs = [str(text.value) for text in texts if isinstance(text, ast.Constant)]
        found += [(path.name, name) for text in docs for name in REFERENCE.findall(text)]
    for one in [one for one in found if "." in one[1]]:
        with suppress(ImportError, AttributeError):
            resolve_name(one[1])
            found.remove(one)
    named = [one for one in found if one[1].startswith("jobkit.") or not known.issuperset(one[1].split("."))]
    assert named == []
