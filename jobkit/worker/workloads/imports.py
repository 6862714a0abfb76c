"""Import a framework without the packages that training and evaluation alone need: up to half of its import.

Each of them is a thousand files of a shared file system or more. What names one gets a stand-in, which
imports the package when it is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def import_without(framework: str, later: Collection[str]) -> ModuleType:
    """Import a framework; ``later``: packages that it is to import when it uses them.

    A version that uses one of them at once is imported as it is. What is not installed stays missing.
    """
    before = set(sys.modules)
    finder = _Finder({name for name in later if name not in before and find_spec(name)})
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(framework)
    except Exception:
        if not finder.found:
            raise
        package = framework.partition(".")[0]
        for name in {name for name in sys.modules if name.partition(".")[0] == package} - before:
            del sys.modules[name]
    finally:
        sys.meta_path.remove(finder)
        for name in finder.found:
            sys.modules.pop(name, None)
    return importlib.import_module(framework)


class _Later(ModuleType):
    """A module that is not imported yet; each name of it is a function until the framework's import ends."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the module has
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is not self:
            return getattr(importlib.import_module(self.__name__), name)

        def when_called(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
            return getattr(importlib.import_module(self.__name__), name)(*args, **options)

        return when_called


class _Finder:
    """Finds the packages that are imported later, and their modules."""

    def __init__(self, later: Collection[str]) -> None:
        self._later = later
        self.found: list[str] = []

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: object = None) -> ModuleSpec | None:
        later = name.partition(".")[0] in self._later
        return ModuleSpec(name, self, is_package=True) if later else None  # type: ignore[arg-type]  # as below

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self.found.append(spec.name)
        return _Later(spec.name)

    def exec_module(self, _module: ModuleType) -> None:
        """Run nothing: a module of this kind has no code."""
