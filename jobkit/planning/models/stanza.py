"""Find the model that a spec names: one that is on disk, or a stand-in; fetch one beforehand.

A job never downloads. stanza is imported only to fetch, and nothing is measured by a process that did.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs

from jobkit.core.errors import JobkitError
from jobkit.core.files import exclusive_lock
from jobkit.core.paths import cache_write_errors, make_folder, share_with_group
from jobkit.core.records import FULL, ModelRef
from jobkit.core.terminal import Say, shell_quote
from jobkit.planning.standin.build import SIZE_BYTES, is_built, make_standin, standin_path
from jobkit.run.workloads.model_files import RESOURCES_FILE, fingerprint, missing_files, needed_files
from jobkit.run.workloads.stanza.ner import PROCESSORS

LANGUAGE = "en"
"""The model in place of which the stand-in is used."""
STAND_IN = "stand-in"
NOT_BUILT = "not-built-yet"
"""The fingerprint of a stand-in that a run would build first."""
LANGUAGES = re.compile(r"[a-z]{2,}(-[a-z]+)*")
"""What Stanza calls its models."""


def find_model(
    name: str,
    size: str,
    *,
    fallback: str | None,
    cache: Path,
    say: Say,
    build: bool = True,
) -> ModelRef:
    """Return the model that a spec names, building a stand-in if that is allowed and needed.

    Looked for are the cache (what `fetch_model` wrote), ``$STANZA_RESOURCES_DIR``, then Stanza's
    own folder. A real model is ``full``; any other size is a stand-in's.

    Parameters
    ----------
    name
        A language as Stanza names it: ``en``.
    size
        ``full`` or ``tiny``.
    fallback
        ``stand-in`` or ``None``.
    cache
        The cache folder.
    say
        Prints what takes time.
    build
        Whether a missing stand-in is built; otherwise it is described as it would be.

    Raises
    ------
    JobkitError
        If there is no such model and no fallback, with the command that fetches it.
    """
    if size == FULL:
        for place in model_places(name, cache):
            if not missing_files(place, name):
                return _ref(place, name, size, stand_in=False)
    if fallback == STAND_IN and name == LANGUAGE:
        return build_stand_in(size, cache, say=say) if build else describe_stand_in(size, cache)
    raise _not_found(name, size, cache)


def build_stand_in(size: str, cache: Path, *, say: Say) -> ModelRef:
    """Return the stand-in of a size, built if it is not there yet.

    Raises
    ------
    JobkitError
        If there is no such size.
    """
    make_standin(size, cache, say)
    return describe_stand_in(size, cache)


def fetch_model(name: str, cache: Path, *, resources_url: str | None, say: Say) -> ModelRef:
    """Download Stanza's tokenizer and tagger of a language into the cache, whole or not at all.

    Stanza compares every file with its md5. The complete files of an interrupted fetch are kept next to
    the models, in ``.fetch-NAME``, and is not fetched again.

    Parameters
    ----------
    name
        A language as Stanza names it: ``en``.
    resources_url
        A mirror of Stanza's resources, or ``None`` for its own.

    Raises
    ------
    JobkitError
        If it cannot be fetched; a model fetched before stays as it was.
    """
    if not LANGUAGES.fullmatch(name):
        raise JobkitError(f"no model is called {name!r}", hint="name a language: jobkit models fetch en")
    import stanza

    folder = cache / "models" / name
    lock = folder.with_name(f".fetch-{name}.lock")
    with cache_write_errors(folder.parent):
        make_folder(folder.parent)
        lock.touch()
        share_with_group(lock)
    options = {"resources_url": resources_url} if resources_url else {}
    say(f"fetching Stanza's model {name} ({PROCESSORS}) into {folder}")
    made = folder.with_name(f".fetch-{name}")
    busy = partial(say, f"another jobkit is fetching {name}: waiting for it")
    with exclusive_lock(lock, busy):
        try:
            stanza.download(name, model_dir=str(made), processors=PROCESSORS, verbose=False, **options)
        except Exception as error:  # also what requests, the hub client and zip raise
            raise _not_fetched(name, error) from error
        if missing := missing_files(made, name):
            raise _not_fetched(name, missing)
        with TemporaryDirectory(dir=folder.parent, prefix=".old-") as scratch:
            _swap(made, folder, Path(scratch) / "old")
        share_with_group(folder)
    return _ref(folder, name, FULL, stand_in=False)


def model_places(name: str, cache: Path) -> tuple[Path, ...]:
    """Return the folders that may have a model, in the order of the search."""
    named = os.environ.get("STANZA_RESOURCES_DIR")
    places = [cache / "models" / name, Path(named) if named else None, _stanzas_own()]
    return tuple(place.expanduser().absolute() for place in places if place is not None)


def list_models(cache: Path) -> tuple[ModelRef, ...]:
    """Return the models that are on this machine: fetched ones, Stanza's own, stand-ins."""
    named = {place for name in _languages(cache) for place in model_places(name, cache)}
    real = [
        _ref(place, name, FULL, stand_in=False)
        for place in sorted(named)
        for name in _languages(cache)
        if (place.parent != cache.absolute() / "models" or place.name == name)
        and not missing_files(place, name)
    ]
    built = [describe_stand_in(size, cache) for size in SIZE_BYTES if not _spoilt(standin_path(size, cache))]
    return (*real, *built)


def _languages(cache: Path) -> list[str]:
    """Return the names that a model folder on this machine may go by."""
    folders = [cache / "models", *model_places("", cache)]
    inside = {
        path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_dir()
    }
    return sorted(name for name in inside if re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", name))


def describe_stand_in(size: str, cache: Path) -> ModelRef:
    """Return the stand-in as it is, or as it would be."""
    folder = standin_path(size, cache).absolute()
    if is_built(folder):
        if lack := _spoilt(folder):
            again = f"rm -r {shell_quote(str(folder))} && jobkit models build --size {size}"
            raise JobkitError(f"the {size} {STAND_IN} in {folder} is damaged: {lack}", hint=again)
        return _ref(folder, LANGUAGE, size, stand_in=True)
    return ModelRef(
        path=str(folder),
        name=LANGUAGE,
        size=size,
        stand_in=True,
        fingerprint=NOT_BUILT,
        size_bytes=SIZE_BYTES[size],
    )


def _spoilt(folder: Path) -> str:
    """Return what a stand-in lacks; empty if it is complete."""
    return missing_files(folder, LANGUAGE) if is_built(folder) else "not built"


def _ref(folder: Path, name: str, size: str, *, stand_in: bool) -> ModelRef:
    resources = json.loads((folder / RESOURCES_FILE).read_text(encoding="utf-8"))
    staged = [folder / RESOURCES_FILE, *(folder / name).rglob("*")]  # what a job copies
    return ModelRef(
        path=str(folder),
        name=name,
        size=size,
        stand_in=stand_in,
        fingerprint=fingerprint(folder, needed_files(resources, name)),
        size_bytes=sum(path.stat().st_size for path in staged if path.is_file()),
    )


def _swap(new: Path, folder: Path, old: Path) -> None:
    """Replace a folder, which may not exist, by a new one; if this fails, the old one stays as it was."""
    had_one = folder.exists()
    if had_one:
        folder.replace(old)
    try:
        new.replace(folder)
    except OSError:
        if had_one:
            old.replace(folder)
        raise


def _stanzas_own() -> Path | None:
    """Return Stanza's default model folder without importing Stanza, which takes seconds."""
    spec = importlib.util.find_spec("stanza")
    if spec is None or spec.origin is None:
        return None
    source = Path(spec.origin).with_name("_version.py").read_text(encoding="utf-8")
    version = re.search(r"__resources_version__\s*=\s*['\"]([^'\"]+)", source)
    if version is None:
        return None
    return Path(platformdirs.user_cache_dir("stanza", "StanfordNLP", version[1])) / "resources"


def _not_found(name: str, size: str, cache: Path) -> JobkitError:
    fallback = (
        f"set `model.fallback: {STAND_IN}`" if name == LANGUAGE else f"only {LANGUAGE} has a {STAND_IN}"
    )
    if size != FULL:
        hint = f"set `model.size: {FULL}`, or {fallback}"
        return JobkitError(f"model {name!r}: only the {STAND_IN} has the size {size!r}", hint=hint)
    without = "to try jobkit without it: --stand-in" if name == LANGUAGE else fallback
    looked = "; ".join(f"{place} ({missing_files(place, name)})" for place in model_places(name, cache))
    hint = f"jobkit models fetch {name}   (or, {without})"
    return JobkitError(f"model {name!r} is not on this machine; looked in {looked}", hint=hint)


def _not_fetched(name: str, why: object) -> JobkitError:
    reason = " ".join(str(why).split()) or type(why).__name__
    hint = (
        f"run `jobkit models fetch {name}` where there is a network, with $JOBKIT_CACHE on a shared disk;"
        f" or set `model.fallback: {STAND_IN}`"
    )
    return JobkitError(f"model {name!r} could not be fetched: {reason}", hint=hint)
