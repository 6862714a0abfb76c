"""The examples of docs/python-api.md, run in order in an empty folder, and what they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import jobkit
from jobkit.core.errors import JobkitError
from tests.support.commands import ran as typed

PAGE = Path(__file__).parents[2] / "docs" / "python-api.md"
FENCE = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps() -> Iterator[tuple[str, str, str]]:
    """Yield each block to run: its language, its text, and what it should print."""
    blocks = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    for (language, text), following in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language != "text":
            yield language, text, following[1] if following[0] == "text" else ""


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_examples_print_what_stands_under_them() -> None:
    names: dict[str, object] = {}
    ran = 0
    for language, text, printed in steps():
        if language == "sh":
            typed(*text.split()[1:])
            continue
        with redirect_stdout(StringIO()) as said:
            exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102 - the page's own examples
        assert said.getvalue() == printed
        ran += 1
    assert ran >= 6


def test_every_name_is_there_and_on_the_page() -> None:
    table, _ = PAGE.read_text(encoding="utf-8").split("\n\nOn the site", 1)
    assert {*re.findall(r"`([A-Z]\w+|[a-z_]+)`", table)} >= {*jobkit.__all__}
    assert set(dir(jobkit)) >= set(jobkit.__all__)
    assert all(callable(getattr(jobkit, name)) for name in jobkit.__all__)
    modules = {path.stem for path in Path(jobkit.__path__[0]).iterdir()}
    assert not modules.intersection(jobkit.__all__), "a module that is imported takes its name"


def test_a_name_that_is_not_there_and_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="no attribute 'plann'"):
        getattr(jobkit, "plann")  # noqa: B009 - mypy knows that it is not there
    with pytest.raises(JobkitError, match="not a run folder"):
        jobkit.load(tmp_path)
