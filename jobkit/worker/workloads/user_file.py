"""A file of the user's that a spec names, ``./tagger.py:tag``: found, read and imported.

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
from pathlib import Path
from types import ModuleType
from typing import Any

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.files import MOST_BYTES, read_bytes
from jobkit.core.frozen import frozen
from jobkit.core.records import FileRef
from jobkit.core.terminal import did_you_mean
from jobkit.worker.workloads.base import not_imported

_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")


def names_file(workload: str) -> bool:
    """Return whether a spec's ``workload`` names a file and a function of it."""
    return _FORM.fullmatch(workload) is not None


def source_path(workload: str, folder: str | None) -> str:
    """Return the absolute path of the file.

    ``workload``: as in a spec.
    ``folder``: the spec's folder.
    """
    found = _FORM.fullmatch(workload)
    if found is None:
        raise ValueError(workload)
    return os.path.abspath(os.path.join(folder or "", os.path.expanduser(found["file"])))  # noqa: PTH100, PTH111, PTH118 - without `..`, and links as they are


def file_ref(workload: str, folder: str | None) -> FileRef:
    """Return the file with its digest."""
    path = source_path(workload, folder)
    data = _read(workload, Path(path), path)
    name, sha256 = os.path.basename(path), hashlib.sha256(data).hexdigest()  # noqa: PTH119 - a string
    return FileRef(path=path, name=name, sha256=sha256, size_bytes=len(data))


@frozen
class UserFile:
    """A file of the user's that was imported."""

    module: ModuleType
    path: str  # of the original, absolute
    sha256: str
    imports: tuple[str, ...]  # the top-level packages that it imports anywhere, the standard library aside

    def versions(self) -> dict[str, str]:
        """Return what is known of the version of the file, and of the packages that it has imported."""
        found = {name: getattr(sys.modules.get(name), "__version__", None) for name in self.imports}
        versions = {name: version for name, version in found.items() if isinstance(version, str)}
        return {os.path.basename(self.path): self.sha256[:12], **versions}  # noqa: PTH119 - a string


_IMPORTED: dict[tuple[str, str], UserFile] = {}


def import_file(
    workload: str, folder: str | None, staged: str | None = None, *, parsed: bool = False
) -> UserFile:
    """Return the file, imported once a process.

    ``workload``, ``folder``: as for `source_path`. Python looks in the file's own folder for what it imports,
        after the installed packages.
    ``staged``: the folder with the copy that belongs to the run; by default the original is read.
    ``parsed``: run none of its code: what is defined has no body, and what is no literal is missing.
    """
    path = source_path(workload, folder)
    home, base = os.path.split(path)
    data = _read(workload, Path(staged, base) if staged else Path(path), path)
    sha256 = hashlib.sha256(data).hexdigest()
    if known := _IMPORTED.get((path, sha256)):
        return known
    if home not in sys.path:
        sys.path.append(home)
    # so that ``spacy.py`` hides no package
    module = ModuleType(f"_jobkit_file_{base.removesuffix('.py')}_{len(_IMPORTED)}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look there
    try:
        code, flags = (_outline(ast.parse(data)), annotations.compiler_flag) if parsed else (data, 0)
        exec(compile(code, path, "exec", flags, dont_inherit=True), module.__dict__)  # noqa: S102 - the user's code is to run
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        del sys.modules[module.__name__]
        hint = f"{sys.executable} {shlex.quote(path)} shows the whole error"
        raise not_imported(workload, home, error, hint) from error
    _IMPORTED[path, sha256] = UserFile(module, path, sha256, _imports(data))
    return _IMPORTED[path, sha256]


def _outline(tree: ast.Module | ast.ClassDef) -> Any:  # noqa: ANN401 - as it came
    """Return code with the same names and signatures, and with no expression but literals."""
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            node.bases, node.keywords, node.decorator_list = [], [], []
            kept.append(_outline(node))
        elif isinstance(node, ast.FunctionDef):
            node.body, node.decorator_list = [ast.Pass()], []
            for defaults in (node.args.defaults, node.args.kw_defaults):
                defaults[:] = [one if _is_literal(one) else ast.Constant(None) for one in defaults]  # type: ignore[misc]  # of keywords some are None
            kept.append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            kept += [node] if _is_literal(node.value) else []
        elif isinstance(node, ast.Import | ast.ImportFrom) and "typing" in ast.unparse(node).split():
            kept.append(node)
    tree.body = kept or [ast.Pass()]
    return ast.fix_missing_locations(tree)


def _is_literal(node: ast.expr | None) -> bool:
    try:
        ast.literal_eval(node or "None")
    except (ValueError, TypeError):
        return False
    return True


def _imports(data: bytes) -> tuple[str, ...]:
    nodes = [*ast.walk(ast.parse(data))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return tuple(sorted({name.partition(".")[0] for name in names} - sys.stdlib_module_names))


def _read(workload: str, path: Path, original: str) -> bytes:
    try:
        return read_bytes(path, MOST_BYTES)
    except FileNotFoundError:
        near = did_you_mean(path.name, [other.name for other in sorted(path.parent.glob("*.py"))])
        message = f"workload {workload!r}: there is no file {original}{near and f'; {near}'}"
        raise JobkitError(message, hint="the path is relative to the folder of the spec") from None
    except OSError as error:
        raise file_error(error, path) from error
