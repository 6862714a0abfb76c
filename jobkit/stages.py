"""A stage's module called as its function: ``jobkit.plan(spec)``, where ``jobkit.plan`` is a module.

Python sets the attribute ``plan`` of the package to the module as soon as anything imports it, so
the function of the same name cannot stand there. A module of this class can be called instead
(docs.python.org/3/reference/datamodel.html, "Customizing module attribute access").
"""

from __future__ import annotations

import sys
from types import ModuleType


class _Stage(ModuleType):
    """A module that is called as the function of its own name."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call that function."""
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def callable_stage(name: str) -> None:
    """Let the module ``name`` be called as the function that it is named after."""
    sys.modules[name].__class__ = _Stage
