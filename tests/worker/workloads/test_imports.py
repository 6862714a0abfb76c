"""Frameworks are imported without the packages that they seldom use, and have them when they use them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType

import pytest

from jobkit.worker.workloads.imports import import_without

SCORES = {"__init__": "VERSION = 2\n", "ranks": "def rank(a, *, b):\n    return a - b\nclass Graph: pass\n"}
USES = """\
try:
    import missing_scores
except ImportError:
    pass
else:
    raise ZeroDivisionError
import scores as sc
import scores.ranks
from scores.ranks import rank
def use():
    return sc.VERSION, rank(5, b=2), isinstance(scores.ranks.Graph(), scores.ranks.Graph)
"""


AT_ONCE = "from scores.ranks import Graph\nclass Own(Graph):\n    pass\n"


@pytest.mark.parametrize(("second", "is_later"), [("", True), (AT_ONCE, False)])
def test_a_package_is_imported_when_the_framework_uses_it(
    second: str, *, is_later: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A framework of which any part uses it at once is imported as it is."""
    name = f"framework_{is_later}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(f"from {name}.first import use\nimport {name}.second\n")
    (tmp_path / name / "first.py").write_text(USES)
    (tmp_path / name / "second.py").write_text(second)
    (tmp_path / "scores").mkdir()
    for module, text in SCORES.items():
        (tmp_path / "scores" / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        framework = import_without(name, ("scores", "missing_scores"))
        assert ("scores" not in sys.modules) is is_later
        assert isinstance(framework.first.rank, FunctionType)
        assert (framework.first.rank.__name__ == "rank") is not is_later
        assert framework.use() == (2, 3, True)
    finally:
        for one in [one for one in sys.modules if one.partition(".")[0] in {name, "scores"}]:
            del sys.modules[one]
