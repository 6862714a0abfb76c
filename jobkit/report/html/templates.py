"""The templates of the page, which make HTML of a `Block`: a title, paragraphs, code to copy, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any

from jobkit.core.blocks import notes_of
from jobkit.core.terminal import NoWrap, for_terminal

if TYPE_CHECKING:
    import jinja2

PARTS = resources.files("jobkit.report.html")


def render(name: str, /, **values: object) -> str:
    """Return a template with these values; each is escaped."""
    return _environment().get_template(name).render(values)


def text_of(name: str) -> str:
    """Return a file of this package."""
    return (PARTS / name).read_text(encoding="utf-8")


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a block without indents and gaps; code that stands together in one piece."""
    for words, group in groupby(lines, _words):
        if words is None:
            yield from (line.strip().removeprefix("- ") for line in group if line)
            continue
        if words:
            yield words
        yield NoWrap("\n".join(line.code for line in group if isinstance(line, NoWrap)))


def _words(line: str) -> str | None:
    """Return the words before a line of code; ``None`` of prose."""
    return line.words.strip() if isinstance(line, NoWrap) else None


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(text_of),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"paragraphs": paragraphs, "notes": notes_of}
    environment.tests["code"] = lambda line: isinstance(line, NoWrap)
    return environment


def _safe(value: Any) -> Any:  # noqa: ANN401 - whatever a template prints
    """Return text without control characters, which HTML does not allow; jobkit's own markup as it is."""
    return for_terminal(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
