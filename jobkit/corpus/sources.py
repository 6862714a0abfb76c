"""Find the files of a corpus. Standard library only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import JobkitError, file_error

TEXT, JSONL = "text", "jsonl"
_COMPRESSED = {".gz": "gz", ".zst": "zst"}
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file of the corpus that is not read yet; its fields are those of `jobkit.corpus.plan.Source`."""

    path: str
    name: str
    kind: str
    compression: str
    size_bytes: int
    mtime_ns: int


def find_sources(paths: Sequence[str]) -> list[Found]:
    """Return the files of a corpus, in the order of the paths, below a folder by name.

    Parameters
    ----------
    paths
        Files and folders as the user gave them. Of a folder, at any depth, the files that end in ``.txt``
        or ``.jsonl``, also with ``.gz`` or ``.zst`` after it; hidden ones are left out.

    Raises
    ------
    JobkitError
        If a path is standard input, is missing, is neither file nor folder, holds no text, or is given twice.
    """
    if not paths:
        raise JobkitError("no corpus", hint="--corpus PATH...: text files, JSONL files or folders of them")
    found: list[Found] = []
    for path in paths:
        found += _below(path)
    _refuse_twice(found)
    return found


def _below(path: str) -> list[Found]:
    if path in _STDIN:
        raise JobkitError(
            f"--corpus {path}: standard input cannot be read a second time after a failure",
            hint="write it to a file first: cat > corpus.txt",
        )
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path as it was given, also with a slash at its end
        if stat.S_ISDIR(mode):
            return _in_folder(path)
        if stat.S_ISREG(mode):
            return [_found(path, path)]
    except OSError as error:
        raise file_error(error, path, hint="see --corpus") from error
    raise JobkitError(
        f"--corpus {path}: neither a file nor a folder: jobkit reads a corpus more than once",
        hint="write it to a file first",
    )


def _in_folder(folder: str) -> list[Found]:
    name = Path(folder).resolve().name
    found = [
        _found(f"{folder.rstrip('/')}/{inside}", f"{name}/{inside}") for inside in _names(Path(folder), "")
    ]
    if not found:
        raise JobkitError(
            f"--corpus {folder}: a folder without a .txt or .jsonl file, also as .gz or .zst",
            hint="files with other names are read if you name them: --corpus FOLDER/*",
        )
    return found


def _names(folder: Path, before: str) -> Iterator[str]:
    """Yield the names of the texts below a folder, each folder's in order."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    for entry in inside:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _names(folder / entry.name, f"{before}{entry.name}/")
        elif _stem(entry.name).endswith((".txt", ".jsonl")) and entry.is_file():
            yield before + entry.name


def is_jsonl(name: str) -> bool:
    """Return whether a file is of JSON lines, by its name."""
    return _stem(name).endswith(".jsonl")


def _stem(name: str) -> str:
    """Return a name without the ending of a compressed file."""
    base, ending = os.path.splitext(name)  # noqa: PTH122 - a name, not a path
    return base if ending in _COMPRESSED else name


def _found(path: str, name: str) -> Found:
    status = os.stat(path)  # noqa: PTH116 - 100,000 Path objects cost time
    return Found(
        path=os.path.abspath(path),  # noqa: PTH100 - the same
        name=os.fsencode(name).decode("utf-8", "backslashreplace"),
        kind=JSONL if is_jsonl(name) else TEXT,
        compression=_COMPRESSED.get(os.path.splitext(name)[1], ""),  # noqa: PTH122 - the same
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )


def _refuse_twice(found: list[Found]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        if one.path in seen:
            raise JobkitError(f"--corpus: {one.path} is given twice, as {seen[one.path]} and {one.name}")
        seen[one.path] = one.name
