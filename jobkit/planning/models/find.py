"""The model that a spec names, for any workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.records import STANZA, ModelRef
from jobkit.core.terminal import Say
from jobkit.planning.models import folders, stanza

TINY = "tiny"
"""The size of the stand-in that is trained in about a minute."""


def is_folder(workload: str, model: Mapping[str, object]) -> bool:
    """Return whether what a spec names is a whole folder, and not a language of Stanza."""
    return workload in folders.USUAL or bool(model.get("path")) or "/" in str(model.get("name", ""))


def find(workload: str, model: Mapping[str, object], base: Path, cache: Path) -> ModelRef:
    """Return the model that a spec names; a stand-in that is missing is described as it would be.

    Parameters
    ----------
    workload
        As the spec names it.
    model
        The part ``model`` of the spec.
    base
        The folder of the spec.
    cache
        The cache folder.

    Raises
    ------
    JobkitError
        If there is no such model, with what provides it.
    """
    name, size = str(model.get("name", "en")), str(model.get("size", "full"))
    fallback = str(model["fallback"]) if model.get("fallback") else None
    if not is_folder(workload, model):
        return stanza.find_model(name, size, fallback=fallback, cache=cache, say=lambda _: None, build=False)
    path = base / str(model["path"]) if model.get("path") else None
    if path and workload == "stanza-ner":
        hint = "name the language, and give $STANZA_RESOURCES_DIR its folder"
        raise JobkitError("model.path is for other workloads than stanza-ner", hint=hint)
    return folders.find_folder(workload, name, size, fallback=fallback, path=path, cache=cache)


def find_or_stand_in(workload: str, model: Mapping[str, object], base: Path, cache: Path) -> ModelRef:
    """Return the model that a spec names, or a stand-in if it is missing: tiny, if the spec names no size.

    Parameters and errors are those of `find`.
    """
    asked = {**model, "fallback": stanza.STAND_IN}
    found = find(workload, asked, base, cache)
    if not found.stand_in or model.get("size") or model.get("fallback"):
        return found
    return find(workload, {**asked, "size": TINY}, base, cache)


def refuse_stand_in(workload: str, model: ModelRef | None, command: str, *ways: str) -> None:
    """Refuse a model that jobkit made in place of the real one.

    Parameters
    ----------
    model
        ``None`` for a workload without a model.
    command
        What needs the real model.
    ways
        What to do once the real model is there; by default to type the same command again.

    Raises
    ------
    JobkitError
        With the command that fetches the real model.
    """
    if model is None or not model.stand_in:
        return
    message = f"{command} needs the real {model.name}, not this: {model.label}"
    lines = [
        folders.fetch_command(workload, model.name),
        *ways,
        "or, to try jobkit with this model: --stand-in",
    ]
    raise JobkitError(message, hint="\n        ".join(lines))


def stand_in(workload: str, size: str, cache: Path) -> ModelRef:
    """Return the stand-in of a workload, also if there is a real model.

    Raises
    ------
    JobkitError
        If there is no such size.
    """
    if workload in folders.USUAL:
        return folders.random_model(workload, folders.USUAL[workload], size, cache)
    return stanza.describe_stand_in(size, cache)


def build(workload: str, model: ModelRef, cache: Path, *, say: Say) -> ModelRef:
    """Return a stand-in, built if it is not there yet.

    Raises
    ------
    JobkitError
        If it cannot be built.
    """
    if model.kind == STANZA:
        return stanza.build_stand_in(model.size, cache, say=say)
    return folders.build_random(workload, model, cache, say=say)
