"""What of a command line is on the laptop and must travel: the spec and what it names, corpora, site files.

A name that begins with ``on:`` is a path on the cluster already.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.layout import is_run_folder
from jobkit.core.terminal import did_you_mean, note
from jobkit.extensions.on_host.protocol import mark
from jobkit.extensions.on_host.transfer import copies_below, is_large

THERE = "on:"
"""Marks a path on the cluster."""
OUTSIDE = "outside"
"""The folder of a project on the cluster with files from outside of the folder on the laptop."""


@dataclass(slots=True)
class Inputs:
    """What travels for a command, and what the command is on the cluster."""

    base: Path  # the folder of the project
    inside: list[Path] = field(default_factory=list)  # files and folders in it
    outside: list[Path] = field(default_factory=list)  # files and folders elsewhere, absolute
    # by a word of the command line: what it is on the cluster
    renamed: dict[str, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)  # ``key=value`` for a further ``--set``
    # the workload and the part ``model`` of the spec, if it needs one
    model: tuple[str, Mapping[str, Any]] | None = None

    def words(self, words: Sequence[str]) -> list[str]:
        """Return a command line as it is on the cluster."""
        there = []
        for word in words:
            option, equals, value = word.partition("=")
            attached = bool(equals) and option.startswith("--") and value in self.renamed
            there.append(f"{option}={self.renamed[value]}" if attached else self.renamed.get(word, word))
        return there + [part for change in self.changes for part in ("--set", change)]

    def marks(self) -> dict[str, str]:
        """Return what the files are that travel, also those in folders, by their path in the project."""
        named = (*self.inside, *self.outside)
        copies = copies_below(named)
        return {
            self._there(file): mark(file, by_time=large)
            for path in named
            for large in [is_large(path)]
            for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
            if file.is_file() and not any(map(file.is_relative_to, copies))
        }

    def place(self, path: Path) -> str:
        """Let a file or folder travel, and return its path on the cluster, from the folder of the project."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - without `..`, and links as they are
        (self.inside if path.is_relative_to(self.base) else self.outside).append(path)
        return self._there(path)

    def _there(self, path: Path) -> str:
        inside = path.is_relative_to(self.base)
        return str(path.relative_to(self.base) if inside else Path(OUTSIDE, *path.parts[1:]))


def find_inputs(params: Mapping[str, Any]) -> Inputs:
    """Return what travels for a command."""
    inputs = Inputs(Path.cwd())
    # Options that may name files
    for word in _words(params, ("corpus", "site", "setting")):
        _file(inputs, word)
    if document := params.get("document"):  # the text of a spec that has no file
        _spec(inputs, Path("spec"), params.get("overrides") or (), document)
    # Arguments that may name a spec, a script or a workload
    for word in _words(params, ("spec", "run", "source", "word")):
        path = Path(word)
        if path.suffix in {".yaml", ".yml"} and path.is_file() and not _is_of_a_run(path):
            _spec(inputs, path, params.get("overrides") or ())
        elif path.suffix in {".yaml", ".yml"} and not path.exists():
            here = [str(other) for other in path.parent.glob("*.y*ml")]
            note(f"{word} is not on this machine{did_you_mean(word, here)}: looking for it on the cluster")
        elif ":" in word and not path.exists():
            _workload(inputs, word, Path.cwd())
        else:
            _file(inputs, word)
    if isinstance(text := params.get("text"), str) and not _is_no_file(text):
        _file(inputs, text)
    return inputs


def _words(params: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    values = [params.get(name) for name in names]
    return [
        str(word) for value in values if value for word in (value if isinstance(value, tuple) else (value,))
    ]


def _file(inputs: Inputs, word: str) -> None:
    """Let a file or folder travel that a word of the command line names, if there is one that is no run."""
    if word.startswith(THERE):
        inputs.renamed[word] = word.removeprefix(THERE)
    elif (path := _path(word)).exists() and not _is_of_a_run(path):
        place = inputs.place(path)
        if place != os.path.normpath(word):
            inputs.renamed[word] = place


def _path(word: str) -> Path:
    return Path(os.path.expanduser(word))  # noqa: PTH111 - it leaves the ~ of an unknown user as it is


def _is_of_a_run(path: Path) -> bool:
    """Return whether a path is a run folder or a file of one: that on the cluster is meant."""
    return is_run_folder(path) or is_run_folder(path.parent)


def _spec(inputs: Inputs, path: Path, overrides: Sequence[str], text: str | None = None) -> None:
    from jobkit.spec.yaml_files import read_document

    data = read_document(path, overrides, text=text).data
    base = Path(os.path.abspath(path)).parent  # noqa: PTH100 - as above
    if not base.is_relative_to(inputs.base):
        hint = f"cd {base}, or type the command in a folder above the spec and above this one"
        raise JobkitError(f"{path}: the spec is not in this folder, which is the project", hint=hint)
    if text is None:
        _file(inputs, str(path))
    _text(inputs, str(data.get("text", "sample")), base)
    workload = data.get("workload", "stanza-ner")
    if isinstance(workload, dict):
        for name in workload.get("files") or ():
            _named(inputs, f"workload.files: {name}", str(name), base)
    else:
        _workload(inputs, str(workload), base)
    if queries := data.get("queries"):
        _named(inputs, f"queries: {queries}", str(queries), base)
    for key in ("template", "site"):
        name = str(data.get(key) or "")
        if (key == "template" and name) or "/" in name or name.endswith((".yaml", ".yml")):
            _named(inputs, f"{key}: {name}", name, base if key == "template" else inputs.base)
    _model(inputs, str(workload), data.get("model"), base)


def _text(inputs: Inputs, name: str, base: Path) -> None:
    if name.startswith(THERE):
        inputs.changes.append(f"text={name.removeprefix(THERE)}")
    elif not _is_no_file(name):
        given = _path(name)
        found = [place for place in (base / given, inputs.base / given) if place.exists()]
        place = inputs.place(found[0]) if found else ""
        if given.is_absolute() or place.startswith(f"{OUTSIDE}/"):
            inputs.changes += [f"text={place}"] if place else []


def _is_no_file(text: str) -> bool:
    return text.partition(":")[0] in {"sample", "http", "https"}


def _workload(inputs: Inputs, workload: str, base: Path) -> None:
    from jobkit.worker.workloads.user_file import names_file

    if names_file(workload):
        _named(inputs, f"workload: {workload}", workload.rpartition(":")[0], base)
    elif ":" in workload:
        module = base / workload.partition(":")[0].partition(".")[0]
        for path in (*sorted(base.glob("*.py")), module):
            if path.exists():
                inputs.place(path)


def _model(inputs: Inputs, workload: str, model: object, base: Path) -> None:
    """Note which model a spec needs; let the folder travel that it names by its path."""
    from jobkit.planning.models import USUAL

    named = model if isinstance(model, dict) else {}
    path = str(named.get("path") or "")
    if path.startswith(THERE):
        inputs.changes.append(f"model.path={path.removeprefix(THERE)}")
    elif path:
        _named(inputs, f"model.path: {path}", path, base)
    elif named or workload in {"stanza-ner", *USUAL}:
        inputs.model = (workload, named)


def _named(inputs: Inputs, key: str, name: str, base: Path) -> None:
    """Let a file travel that a spec names; refuse one that the spec would not find there."""
    path = base / _path(name)
    if not path.exists():
        return
    place = inputs.place(path)
    if _path(name).is_absolute() and not place.startswith(f"{OUTSIDE}/"):
        hint = f"write it from the folder of the spec: {os.path.relpath(path, base)}"
        raise JobkitError(f"{key} has another path on the cluster", hint=hint)
    if place.startswith(f"{OUTSIDE}/"):
        hint = f"copy it into {inputs.base}, or type the command in a folder above both"
        raise JobkitError(f"{key} is not in this folder, which is the project", hint=hint)
