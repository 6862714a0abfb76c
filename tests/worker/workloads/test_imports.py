"""Frameworks are imported without the packages that they seldom use, and have them when they use them."""

from __future__ import annotations

import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("code", "is_later"), [(USES, True), (f"{USES}class Own(scores.ranks.Graph):\n    pass\n", False)]
)
def test_a_package_is_imported_when_the_framework_uses_it(
    code: str, *, is_later: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A framework that uses it at once is imported as it is."""
    name = f"framework_{is_later}"
    (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    (tmp_path / "scores").mkdir()
    for module, text in SCORES.items():
        (tmp_path / "scores" / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    framework = import_without(name, ("scores", "missing_scores"))
    assert ("scores" not in sys.modules) is is_later
    assert framework.use() == (2, 3, True)
    for one in ("scores", "scores.ranks", name):
        del sys.modules[one]
