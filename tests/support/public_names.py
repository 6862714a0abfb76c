"""What ``import jobkit`` offers: every name, with signature and members.

After a change that is meant to be seen from outside: ``python -m tests.support.public_names``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jobkit

FILE = Path(__file__).parents[1] / "data" / "public-names.txt"


def lines() -> Iterator[str]:
    """Yield a line a name, and one a member of a class that is jobkit's own."""
    for name in sorted(jobkit.__all__):
        value = getattr(jobkit, name)
        if not inspect.isclass(value):
            yield f"{name}{_signature(value)}"
            continue
        yield f"{name}: {', '.join(base.__name__ for base in value.__mro__[:-1])}"
        if issubclass(value, jobkit.SweepSpec):  # its keys have tests of their own
            continue
        annotated = {member for base in value.__mro__ for member in getattr(base, "__annotations__", ())}
        for member in sorted({*dir(value), *annotated} - {*dir(Exception)}):
            if not member.startswith("_"):
                found = inspect.getattr_static(value, member, None)
                yield f"    {member}{_signature(found) if inspect.isfunction(found) else ''}"


def _signature(function: Callable[..., Any]) -> str:
    return re.sub(r"<function \S+ at \w+>", "...", str(inspect.signature(function)))


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
