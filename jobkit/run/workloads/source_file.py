"""A Python file of the user's, as a spec names it: ``./tagger.py:tag``. Standard library only.

The file travels with the run, so its code is read from the copy in the folder of the inputs. Its errors and
its ``__file__`` name the original, which is the file that the user can open.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.records import FileRef
from jobkit.core.terminal import did_you_mean
from jobkit.run.failure import describe_error

_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")
PREFIX = "_jobkit_file_"
"""Begins the name of such a module in `sys.modules`, so that ``spacy.py`` hides no package."""


def names_file(workload: str) -> bool:
    """Return whether a spec's ``workload`` names a file and a function of it."""
    return _FORM.fullmatch(workload) is not None


def source_path(workload: str, folder: str | None) -> str:
    """Return the absolute path of the file.

    Parameters
    ----------
    workload
        As in a spec.
    folder
        The spec's folder.
    """
    found = _FORM.fullmatch(workload)
    if found is None:
        raise ValueError(workload)
    return os.path.abspath(os.path.join(folder or "", os.path.expanduser(found["file"])))  # noqa: PTH100, PTH111, PTH118 - without `..`, and links as they are


def file_ref(workload: str, folder: str | None) -> FileRef:
    """Return the file with its digest.

    Raises
    ------
    JobkitError
        If it cannot be read.
    """
    path = source_path(workload, folder)
    data = _read(workload, Path(path), path)
    digest = hashlib.sha256(data).hexdigest()
    return FileRef(path=path, name=os.path.basename(path), sha256=digest, size_bytes=len(data))  # noqa: PTH119 - a string


def function_name(workload: str) -> str:
    """Return the name behind the colon."""
    return workload.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file of the user's that was imported.

    Attributes
    ----------
    path
        Of the original, absolute.
    imports
        The top-level packages that it imports anywhere, the standard library aside.
    """

    module: ModuleType
    path: str
    sha256: str
    imports: tuple[str, ...]

    def versions(self) -> dict[str, str]:
        """Return what is known of the version of the file, and of the packages that it has imported."""
        found = {name: getattr(sys.modules.get(name), "__version__", None) for name in self.imports}
        versions = {name: version for name, version in found.items() if isinstance(version, str)}
        return {os.path.basename(self.path): self.sha256[:12], **versions}  # noqa: PTH119 - a string


_IMPORTED: dict[tuple[str, str], UserFile] = {}


def import_file(workload: str, folder: str | None, staged: str | None = None) -> UserFile:
    """Return the file, imported once a process.

    Parameters
    ----------
    workload, folder
        As for `source_path`. Python looks in the file's own folder for what it imports, after the
        installed packages.
    staged
        The folder with the copy that belongs to the run; by default the original is read.

    Raises
    ------
    JobkitError
        If there is no such file, or it fails during its import.
    """
    path = source_path(workload, folder)
    home, base = os.path.split(path)
    data = _read(workload, Path(staged, base) if staged else Path(path), path)
    sha256 = hashlib.sha256(data).hexdigest()
    if known := _IMPORTED.get((path, sha256)):
        return known
    if home not in sys.path:
        sys.path.append(home)
    module = ModuleType(f"{PREFIX}{base.removesuffix('.py')}_{len(_IMPORTED)}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look there
    try:
        exec(compile(data, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the user's code is to run
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        del sys.modules[module.__name__]
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        message = f"workload {workload!r} cannot be imported: {describe_error(error, home)}"
        hint = (
            f"{sys.executable} -m pip install {absent}"
            if absent
            else f"{sys.executable} {shlex.quote(path)} shows the whole error"
        )
        raise JobkitError(message, hint=hint) from error
    _IMPORTED[path, sha256] = UserFile(module, path, sha256, _imports(data))
    return _IMPORTED[path, sha256]


def _imports(data: bytes) -> tuple[str, ...]:
    """Return the top-level packages that a source imports, the standard library aside."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return tuple(sorted(names - sys.stdlib_module_names))


def _read(workload: str, path: Path, original: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        near = did_you_mean(path.name, [other.name for other in sorted(path.parent.glob("*.py"))])
        message = f"workload {workload!r}: there is no file {original}{near and f'; {near}'}"
        raise JobkitError(message, hint="the path is relative to the folder of the spec") from None
    except OSError as error:
        raise file_error(error, path) from error
