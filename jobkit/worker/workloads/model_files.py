"""Check the model that was copied to the node: a try measures only the model that was planned.

Standard library only: this module is imported on the compute node.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobkit.core.files import write_atomically
from jobkit.core.records import FOLDER, ModelRef, Outcome
from jobkit.worker.failure import TryFailed
from jobkit.worker.workloads.stanza_ner import PROCESSORS

RESOURCES_FILE = "resources.json"
MARK = "verified"
"""A file next to the model that holds its fingerprint once that has been computed."""


def check_model(inputs: Path, planned: ModelRef) -> None:
    """Compare the model with the planned model, once for all tasks that share the inputs."""
    mark = inputs / MARK
    if mark.is_file() and mark.read_text(encoding="ascii") == planned.fingerprint:
        return
    folder = inputs / "model"
    if planned.kind == FOLDER:
        files = folder_files(folder)
    elif missing := missing_files(folder, planned.name):
        raise TryFailed(Outcome.MODEL_MISSING, f"model {planned.path}: {missing}")
    else:
        resources = json.loads((folder / RESOURCES_FILE).read_text(encoding="utf-8"))
        files = needed_files(resources, planned.name)
    actual = fingerprint(folder, files)
    if actual != planned.fingerprint:
        message = f"{planned.path} is not the model that was planned: fingerprint {actual[:12]}"
        raise TryFailed(Outcome.STAGE_IN, f"{message}, not {planned.fingerprint[:12]}")
    with contextlib.suppress(OSError):  # without the mark, the next task computes it again
        write_atomically(mark, planned.fingerprint)


def missing_files(folder: Path, name: str) -> str:
    """Return which files of a Stanza model a folder lacks; empty if Stanza can load it."""
    resources = folder / RESOURCES_FILE
    try:
        needed = needed_files(json.loads(resources.read_text(encoding="utf-8")), name)
    except OSError:
        return f"no {RESOURCES_FILE}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{RESOURCES_FILE} does not list {name}"
    missing = [path for path in needed if not (folder / path).is_file()]
    return f"no {', '.join(missing)}" if missing else ""


def folder_files(folder: Path) -> tuple[str, ...]:
    """Return the files of a model that is a whole folder; a job copies them, and no hidden file."""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return tuple(str(path) for path in files if not any(part.startswith(".") for part in path.parts))


def fingerprint(folder: Path, files: tuple[str, ...]) -> str:
    """Return the sha256 over files of a folder: their names and their bytes."""
    whole = hashlib.sha256()
    for name in sorted(files):
        with (folder / name).open("rb") as stream:
            whole.update(f"{name}\n{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def needed_files(resources: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the files of a language's default tokenizer and tagger, and of their dependencies."""
    packages = resources[name]
    default = packages["packages"]["default"]
    chosen = [(part, default[part]) for part in PROCESSORS.split(",")]
    if "mwt" in default:  # Stanza loads it with the tokenizer
        chosen.append(("mwt", default["mwt"]))
    built_on = [
        (needed["model"], needed["package"])
        for part, package in chosen
        for needed in packages[part][package].get("dependencies", ())
    ]
    return tuple(dict.fromkeys(f"{name}/{part}/{package}.pt" for part, package in (*chosen, *built_on)))
