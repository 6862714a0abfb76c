"""Models that are a whole folder: of the Hugging Face hub, a package of spaCy, or a folder of the user's.

A job never downloads. huggingface_hub is imported only to fetch.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from jobkit.core.errors import JobkitError
from jobkit.core.paths import cache_write_errors, make_folder, share_with_group
from jobkit.core.records import FOLDER, FULL, ModelRef
from jobkit.core.terminal import Say, shell_quote
from jobkit.planning.models.stanza import NOT_BUILT, STAND_IN
from jobkit.planning.standin.build import is_built
from jobkit.planning.standin.random_weights import ARCHITECTURES, make_random, random_path
from jobkit.run.workloads.base import missing_framework
from jobkit.run.workloads.model_files import fingerprint, folder_files

ENGLISH = "en"
USUAL: Mapping[str, str] = {
    "hf-token-classification": "dslim/bert-base-NER",
    "sentence-embedding": "sentence-transformers/all-MiniLM-L6-v2",
    "spacy-ner": "en_core_web_sm",
}
"""What the name ``en`` means to a workload."""
NEEDED = {"spacy-ner": ("config.cfg", "meta.json")}
"""The files by which a folder is a model of a workload; of any other ``config.json``."""
NOT_NEEDED = ("*.h5", "*.msgpack", "*.ot", "*.onnx", "*.tflite", "onnx/*", "openvino/*", "coreml/*")
"""Files of the hub that PyTorch does not read."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def find_folder(
    workload: str, name: str, size: str, *, fallback: str | None, path: Path | None, cache: Path
) -> ModelRef:
    """Return the model that a spec names; of a stand-in that is not built yet, what it would be.

    Parameters
    ----------
    workload
        A shipped workload, or the user's own.
    name, size, fallback
        As in the spec; ``en`` is the usual English model of the workload.
    path
        The user's folder; then ``name`` is not used.
    cache
        The cache folder.

    Raises
    ------
    JobkitError
        If there is no such model, with what provides it.
    """
    if path is not None:
        return _of_user(workload, path.expanduser().absolute())
    name = USUAL.get(workload, name) if name == ENGLISH else name
    places = list(_places(workload, name, cache)) if size == FULL else []
    for place in places:
        if not lacking(workload, place):
            return as_ref(place, name)
    if fallback == STAND_IN and (workload, size) in ARCHITECTURES:
        return random_model(workload, name, size, cache)
    raise _not_found(workload, name, size, places)


def build_random(workload: str, model: ModelRef, cache: Path, *, say: Say) -> ModelRef:
    """Return a stand-in with random weights, built if it is not there yet.

    Raises
    ------
    JobkitError
        If the framework is not installed, or it cannot be built.
    """
    if lack := missing_framework(workload):
        raise lack
    make_random(workload, model.size, cache, say)
    return random_model(workload, model.name, model.size, cache)


def fetch_hub(name: str, cache: Path, *, endpoint: str | None, say: Say) -> ModelRef:
    """Download a model of the Hugging Face hub into the cache, by huggingface_hub, whole or not at all.

    An interrupted download goes on where it ended. ``$HF_ENDPOINT``, ``$HF_TOKEN`` and the other variables of
    huggingface_hub have their usual effect.

    Parameters
    ----------
    name
        ``organisation/model``.
    endpoint
        Another address than ``$HF_ENDPOINT`` or the hub's own.

    Raises
    ------
    JobkitError
        If it cannot be fetched.
    """
    from huggingface_hub import snapshot_download

    folder = hub_folder(name, cache)
    part = folder.with_name(f".fetch-{folder.name}")
    say(f"fetching {name} into {folder}")
    with cache_write_errors(folder.parent):
        make_folder(folder.parent)
    try:
        snapshot_download(name, local_dir=part, endpoint=endpoint, ignore_patterns=list(NOT_NEEDED))
    except Exception as error:  # whatever the client and its connection raise
        raise _not_fetched(name, error) from error
    if lack := lacking("", part):
        raise _not_fetched(name, lack)
    with TemporaryDirectory(dir=folder.parent, prefix=".old-") as scratch:
        if folder.exists():
            folder.replace(Path(scratch) / "old")
        part.replace(folder)
    share_with_group(folder)
    return as_ref(folder, name)


def list_folders(cache: Path) -> Iterator[ModelRef]:
    """Yield the models of the hub that were fetched, and the stand-ins with random weights."""
    for place in sorted((cache / "models").glob("hub-*--*")):
        if not lacking("", place):
            yield as_ref(place, place.name.removeprefix("hub-").replace("--", "/", 1))
    for workload, size in ARCHITECTURES:
        if is_built(random_path(workload, size, cache)):
            yield random_model(workload, USUAL[workload], size, cache)


def hub_folder(name: str, cache: Path) -> Path:
    """Return the folder of the cache for a model of the hub."""
    return cache / "models" / f"hub-{name.replace('/', '--')}"


def lacking(workload: str, folder: Path) -> str:
    """Return which file a folder lacks to be a model of a workload; empty if it has all."""
    needed = NEEDED.get(workload, ("config.json",))
    missing = [name for name in needed if not (folder / name).is_file()]
    return f"no {missing[0]}" if missing else ""


def as_ref(folder: Path, name: str) -> ModelRef:
    """Return a model that is a whole folder."""
    files = folder_files(folder)
    return ModelRef(
        path=str(folder.absolute()),
        name=name,
        size=FULL,
        stand_in=False,
        fingerprint=fingerprint(folder, files),
        size_bytes=sum((folder / file).stat().st_size for file in files),
        kind=FOLDER,
    )


def _of_user(workload: str, folder: Path) -> ModelRef:
    if not folder.is_dir():
        raise JobkitError(
            f"{folder}: no such folder", hint="`model.path` is a folder, relative to the spec's"
        )
    shipped = workload in USUAL
    if shipped and (lack := lacking(workload, folder)):
        raise JobkitError(f"{folder}: {lack}, so it is no model of {workload}", hint=_saves(workload))
    return as_ref(folder, folder.name)


def _saves(workload: str) -> str:
    saved = {"spacy-ner": "nlp.to_disk(FOLDER)", "sentence-embedding": "model.save(FOLDER)"}
    return f"such a folder is what `{saved.get(workload, 'save_pretrained(FOLDER)')}` writes"


def random_model(workload: str, name: str, size: str, cache: Path) -> ModelRef:
    """Return a stand-in with random weights as it is, or as it would be."""
    architecture, folder = ARCHITECTURES[workload, size], random_path(workload, size, cache)
    built = is_built(folder)
    files = folder_files(folder) if built else ()
    return ModelRef(
        path=str(folder.absolute()),
        name=name,
        size=size,
        stand_in=True,
        fingerprint=fingerprint(folder, files) if built else NOT_BUILT,
        size_bytes=sum((folder / file).stat().st_size for file in files) or architecture.size_bytes,
        kind=FOLDER,
        architecture=architecture.name,
    )


def _places(workload: str, name: str, cache: Path) -> Iterator[Path]:
    """Yield the folders that may have a model, in the order of the search."""
    if workload == "spacy-ner":
        yield from _package(name)
    if HUB_NAME.fullmatch(name):
        yield hub_folder(name, cache)
        yield from _of_hub_cache(name)


def _package(name: str) -> Iterator[Path]:
    """Yield the folder of a package of spaCy that is installed; it is named after the version."""
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec and spec.origin:
        inside = Path(spec.origin).parent
        yield from sorted(path.parent for path in inside.glob("*/config.cfg"))


def _of_hub_cache(name: str) -> Iterator[Path]:
    """Yield the snapshot of the branch main in huggingface_hub's own cache."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    model = folder / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if main.is_file():
        yield model / "snapshots" / main.read_text(encoding="utf-8").strip()


def fetch_command(workload: str, name: str) -> str:
    """Return the command that brings a model to this machine."""
    if workload == "spacy-ner":
        return f"python -m spacy download {shell_quote(name)}"
    return f"jobkit models fetch {shell_quote(name)}"


def _not_found(workload: str, name: str, size: str, places: list[Path]) -> JobkitError:
    fallback = (
        f"set `model.fallback: {STAND_IN}` (random weights)" if workload in USUAL else "set `model.path`"
    )
    if size != FULL:
        hint = f"set `model.size: {FULL}`, or {fallback}"
        return JobkitError(f"model {name!r}: only a {STAND_IN} has the size {size!r}", hint=hint)
    looked = "; ".join(map(str, places))
    without = ", or random weights, to try jobkit: --stand-in" if workload in USUAL else ""
    message = f"model {name!r} is not on this machine{f'; looked in {looked}' if looked else ''}"
    return JobkitError(message, hint=f"{fetch_command(workload, name)}   (or: `model.path`{without})")


def _not_fetched(name: str, why: object) -> JobkitError:
    reason = " ".join(str(why).split()) or type(why).__name__
    hint = f"run `jobkit models fetch {name}` where there is a network, with $JOBKIT_CACHE on a shared disk"
    return JobkitError(f"model {name!r} could not be fetched: {reason}", hint=hint)
