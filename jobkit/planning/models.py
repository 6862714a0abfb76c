"""Find the model that a spec names, on disk or as a stand-in; fetch one beforehand.

A job never downloads. stanza and huggingface_hub are imported only to fetch, and a process that imported them
measures nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import platformdirs

from jobkit.core.errors import JobkitError, NotFoundError
from jobkit.core.extras import missing_extra
from jobkit.core.frozen import keyed
from jobkit.core.paths import cache_lock, share_with_group
from jobkit.core.records import FOLDER, FULL, MODEL_OPTIONS, STANZA, ModelRef
from jobkit.core.terminal import Say, shell_quote
from jobkit.planning.saved_model import NO_POOLING, refuse_keys, refuse_unfit
from jobkit.planning.standin import (
    ARCHITECTURES,
    LANGUAGE,
    SIZE_BYTES,
    Architecture,
    is_built,
    make_stand_in,
    random_path,
    standin_path,
)
from jobkit.worker.workloads.base import missing_framework
from jobkit.worker.workloads.model import (
    PROCESSORS,
    RESOURCES_FILE,
    fingerprint,
    folder_files,
    missing_files,
    read_json,
)

STANZA_NER = "stanza-ner"
STAND_IN = "stand-in"
NOT_BUILT = "not-built-yet"
"""The fingerprint of a stand-in that a run has yet to build."""
ANSWER_S = 2.5
"""How long a server may take for its first answer."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
USUAL: Mapping[str, str] = {
    "hf-token-classification": "dslim/bert-base-NER",
    "sentence-embedding": "sentence-transformers/all-MiniLM-L6-v2",
    "spacy-ner": "en_core_web_sm",
}
"""The model that the name `LANGUAGE` means to a workload."""


# -- where models come from


@keyed
class Source:
    """Where models of one kind are on this machine."""

    kind: str  # of a `ModelRef`
    places: Callable[[str, Path], Iterable[Path]]  # the folders that may have a model, given name and cache
    lacks: Callable[[Path, str], str]  # which file a folder lacks to be a model of a name; empty for none
    fetch: str = "jobkit models fetch"  # the command that fetches a model, without its name
    saves: str = "save_pretrained(FOLDER)"  # what writes such a folder
    instead: str = "or: `model.path`, or random weights, to try jobkit: --stand-in"


def model_places(name: str, cache: Path) -> tuple[Path, ...]:
    """Return the folders that may have a model: of the cache, as the user names one, and Stanza's own.

    Stanza, whose import takes seconds, is not imported.
    """
    places = [cache / "models" / name]
    if named := os.environ.get("STANZA_RESOURCES_DIR"):
        places.append(Path(named))
    spec = importlib.util.find_spec("stanza")
    if spec and spec.origin:
        source = Path(spec.origin).with_name("_version.py").read_text(encoding="utf-8")
        if version := re.search(r"__resources_version__\s*=\s*['\"]([^'\"]+)", source):
            own = platformdirs.user_cache_dir("stanza", "StanfordNLP", version[1])
            places.append(Path(own) / "resources")
    return tuple(place.expanduser().absolute() for place in places)


def hub_folder(name: str, cache: Path) -> Path:
    return cache / "models" / f"hub-{name.replace('/', '--')}"


def _hub_places(name: str, cache: Path) -> Iterator[Path]:
    """Yield the folders of a model of the hub: here, and in the hub's own cache."""
    if HUB_NAME.fullmatch(name):
        yield hub_folder(name, cache)
        home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
        folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
        model = folder / f"models--{name.replace('/', '--')}"
        main = model / "refs" / "main"
        if main.is_file():
            yield model / "snapshots" / main.read_text(encoding="utf-8").strip()


def _spacy_places(name: str, cache: Path) -> Iterator[Path]:
    """Yield the folders of an installed package, which are named after its version, or of the hub."""
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec and spec.origin:
        yield from sorted(path.parent for path in Path(spec.origin).parent.glob("*/config.cfg"))
    yield from _hub_places(name, cache)


def _lacks_config(folder: Path, _name: str) -> str:
    known = ("config.json", "modules.json", "adapter_config.json")
    return "" if any((folder / name).is_file() for name in known) else "no config.json"


def _lacks_pipeline(folder: Path, _name: str) -> str:
    missing = [name for name in ("config.cfg", "meta.json") if not (folder / name).is_file()]
    return f"no {missing[0]}" if missing else ""


OF_STANZA = Source(
    kind=STANZA,
    places=model_places,
    lacks=missing_files,
    instead="or, to try jobkit without it: --stand-in",
)
OF_HUB = Source(kind=FOLDER, places=_hub_places, lacks=_lacks_config)
OF_SPACY = Source(
    kind=FOLDER,
    places=_spacy_places,
    lacks=_lacks_pipeline,
    fetch="python -m spacy download",
    saves="nlp.to_disk(FOLDER)",
)


def real_name(workload: str, name: str) -> str:
    """Return the name of the model that a spec means by a name."""
    return USUAL.get(workload, name) if name == LANGUAGE else name


def source_of(workload: str, name: str) -> Source:
    """Return where a workload, shipped or the user's own, has a model of this name, or path, from."""
    if workload == "spacy-ner":
        return OF_SPACY
    return OF_HUB if workload in USUAL or "/" in name else OF_STANZA


def fetch_command(workload: str, name: str) -> str:
    return f"{source_of(workload, name).fetch} {shell_quote(name)}"


# -- fetch one


def fetch(name: str, cache: Path, address: str | None, *, say: Say) -> ModelRef:
    """Download a model of the Hugging Face hub, or Stanza's of a language, into the cache, whole.

    An interrupted download goes on where it ended, in ``.fetch-NAME`` next to the models. Stanza compares
    every file with its md5. ``$HF_ENDPOINT``, ``$HF_TOKEN`` and the other variables of huggingface_hub have
    their usual effect. ``address`` is a mirror of the hub, or of Stanza's resources; ``None`` for its own.
    """
    of_hub = "/" in name
    if not (HUB_NAME.fullmatch(name) if of_hub else re.fullmatch(r"[a-z]{2,}(-[a-z]+)*", name)):
        raise JobkitError(f"no model is called {name!r}", hint="name a language: jobkit models fetch en")
    extra = ("a model of the hub", "hf", "huggingface_hub")
    if lack := missing_extra(*extra) if of_hub else missing_framework(STANZA_NER):
        raise lack
    source, download = (OF_HUB, _download_from_hub) if of_hub else (OF_STANZA, _download_of_stanza)
    folder = next(iter(source.places(name, cache)))
    what = name if of_hub else f"Stanza's model {name} ({PROCESSORS})"
    say(f"fetching {what} into {folder}")
    part = folder.with_name(f".fetch-{folder.name}")
    busy = partial(say, f"another jobkit is fetching {name}: waiting for it")
    with cache_lock(folder.with_name(f"{part.name}.lock"), busy):
        why: object
        try:
            download(name, part, address)
            why = source.lacks(part, name)
        except Exception as error:  # noqa: BLE001 - also what requests, the hub client and zip raise
            why = error
        if why:
            reason = " ".join(str(why).split()) or type(why).__name__
            place = "where there is a network, with $JOBKIT_CACHE on a shared disk"
            or_else = "" if of_hub or name != LANGUAGE else f"; or set `model.fallback: {STAND_IN}`"
            message = f"model {name!r} could not be fetched: {reason}"
            hint = f"run `jobkit models fetch {name}` {place}{or_else}"
            raise JobkitError(message, hint=hint) from (why if isinstance(why, Exception) else None)
        with TemporaryDirectory(dir=folder.parent, prefix=".old-") as scratch:
            _swap(part, folder, Path(scratch) / "old")
        share_with_group(folder)
    return _ref(folder, name, source)


def _download_from_hub(name: str, folder: Path, address: str | None) -> None:
    _await_answer(address or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    from huggingface_hub import snapshot_download

    # Files of the hub that PyTorch does not read
    not_needed = ["*.h5", "*.msgpack", "*.ot", "*.onnx", "*.tflite", "onnx/*", "openvino/*", "coreml/*"]
    snapshot_download(name, local_dir=folder, endpoint=address, ignore_patterns=not_needed)


def _download_of_stanza(name: str, folder: Path, address: str | None) -> None:
    usual = "https://raw.githubusercontent.com/stanfordnlp/stanza-resources/main"
    _await_answer(address or os.environ.get("STANZA_RESOURCES_URL") or usual)
    import stanza

    options = {"resources_url": address} if address else {}
    stanza.download(name, model_dir=str(folder), processors=PROCESSORS, verbose=False, **options)


def _await_answer(address: str) -> None:
    """Raise an OSError if a server gives no answer within `ANSWER_S`: the libraries wait for minutes."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    reasons = [f"no answer within {ANSWER_S:g} s"]

    def ask() -> None:
        try:
            urlopen(Request(address, method="HEAD"), timeout=ANSWER_S).close()  # noqa: S310 - reads nothing
        except (ValueError, HTTPError):
            pass  # a word of Stanza, and no address; or an answer
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if not isinstance(reason, ssl.SSLError):  # the library may know more certificates
                reasons[0] = getattr(reason, "strerror", None) or str(reason)
                return
        reasons.clear()

    asking = Thread(target=ask, daemon=True)  # for a name that does not resolve takes the resolver's time
    asking.start()
    asking.join(ANSWER_S)
    if reasons:
        raise OSError(f"{address}: {reasons[0]}")


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


# -- those on this machine


def list_models(cache: Path) -> tuple[ModelRef, ...]:
    """Return Stanza's models and trained stand-ins, then those of the hub and those of random weights."""
    folders = [folder for folder in model_places("", cache) if folder.is_dir()]
    inside = {path.name for folder in folders for path in folder.iterdir() if path.is_dir()}
    languages = [name for name in inside if re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", name)]
    named = {(place, name) for name in languages for place in model_places(name, cache)}
    places = sorted((cache / "models").glob("hub-*--*"))
    of_hub = [(place, place.name.removeprefix("hub-").replace("--", "/", 1)) for place in places]
    return (
        *(_ref(place, name, OF_STANZA) for place, name in sorted(named) if not missing_files(place, name)),
        *_built([(STANZA_NER, size) for size in SIZE_BYTES], cache),
        *(_ref(place, name, OF_HUB) for place, name in of_hub if not OF_HUB.lacks(place, name)),
        *_built(ARCHITECTURES, cache),
    )


def _built(stand_ins: Iterable[tuple[str, str]], cache: Path) -> Iterator[ModelRef]:
    """Yield the stand-ins, by workload and size, that are on disk, but for damaged ones."""
    for workload, size in stand_ins:
        with contextlib.suppress(JobkitError):
            if (model := stand_in(workload, size, cache)).fingerprint != NOT_BUILT:
                yield model


def stand_in(workload: str, size: str, cache: Path, name: str = LANGUAGE) -> ModelRef:
    """Return the stand-in of a workload; if it is not built, as it would be."""
    folder, source = standin_path(size, cache).absolute(), OF_STANZA
    of = Architecture("", SIZE_BYTES[size])
    if workload in USUAL:
        folder, source = random_path(workload, size, cache).absolute(), OF_HUB
        of, name = ARCHITECTURES[workload, size], real_name(workload, name)
    if not is_built(folder):
        return ModelRef(
            path=str(folder),
            name=name,
            size=size,
            stand_in=True,
            fingerprint=NOT_BUILT,
            size_bytes=of.size_bytes,
            kind=source.kind,
            architecture=of.name,
        )
    if source is OF_STANZA and (lack := missing_files(folder, LANGUAGE)):
        again = f"rm -r {shell_quote(str(folder))} && jobkit models build --size {size}"
        raise JobkitError(f"the {size} {STAND_IN} in {folder} is damaged: {lack}", hint=again)
    return replace(_ref(folder, name, source), size=size, stand_in=True, architecture=of.name)


def _ref(folder: Path, name: str, source: Source, asked: Mapping[str, object] | None = None) -> ModelRef:
    """Return a model that is on disk; ``asked``: the spec's `model`."""
    options: dict[str, Any] = {key: value for key in MODEL_OPTIONS if (value := (asked or {}).get(key))}
    staged = [folder / RESOURCES_FILE, *(folder / name).rglob("*")]  # what a job copies
    if source.kind == FOLDER:
        staged = [folder / file for file in folder_files(folder)]
    return ModelRef(
        path=str(folder.absolute()),
        name=name,
        size=FULL,
        stand_in=False,
        fingerprint=fingerprint(folder, name, source.kind, options),
        size_bytes=sum(path.stat().st_size for path in staged if path.is_file()),
        kind=source.kind,
        **options,
    )


def find(workload: str, model: Mapping[str, object], base: Path, cache: Path) -> ModelRef:
    """Return the model that a spec in ``base`` names; a missing stand-in is described as it would be.

    A real model is ``full``; any other size is a stand-in's.
    """
    refuse_keys(workload, model)
    if path := model.get("path"):
        return _named_by_path(workload, (base / str(path)).expanduser().absolute(), model)
    name, size = str(model.get("name", LANGUAGE)), str(model.get("size", FULL))
    if workload == STANZA_NER and "/" in name:
        hint = "name the workload that loads it, hf-token-classification for instance"
        raise JobkitError(f"model {name!r}: a name with a / is not one of {STANZA_NER}, as en is", hint=hint)
    name = real_name(workload, name)
    source = source_of(workload, name)
    places = list(source.places(name, cache)) if size == FULL else []
    for place in places:
        if not source.lacks(place, name):
            refuse_unfit(workload, place, model)
            return _ref(place, name, source, model)
    has_stand_in = name == LANGUAGE or (workload, size) in ARCHITECTURES
    if not (model.get("fallback") and has_stand_in):
        if size == FULL:
            raise _not_here(workload, name, source, places, has_stand_in=has_stand_in)
        to_try = f", or set `model.fallback: {STAND_IN}`" if has_stand_in else ""
        message = f"model {name!r}: only the {STAND_IN} has the size {size!r}"
        raise JobkitError(message, hint=f"set `model.size: {FULL}`{to_try}")
    if model.get("pooling"):
        raise JobkitError(f"model.pooling: a {STAND_IN} has a pooling of its own", hint=NO_POOLING)
    return stand_in(workload, size, cache, name)


def _named_by_path(workload: str, folder: Path, model: Mapping[str, object]) -> ModelRef:
    if workload == STANZA_NER:
        hint = "name the language, and give $STANZA_RESOURCES_DIR its folder"
        raise JobkitError(f"model.path is for other workloads than {STANZA_NER}", hint=hint)
    if not folder.is_dir():
        hint = "`model.path` is a folder, relative to the spec's"
        raise JobkitError(f"{folder}: no such folder", hint=hint)
    source = source_of(workload, str(folder))
    if workload in USUAL and (lack := source.lacks(folder, "")):
        message = f"{folder}: {lack}, so it is no model of {workload}"
        raise JobkitError(message, hint=f"`{source.saves}` writes such a folder")
    refuse_unfit(workload, folder, model)
    return _ref(folder, folder.name, source, model)


def _not_here(
    workload: str, name: str, source: Source, places: Iterable[Path], *, has_stand_in: bool
) -> NotFoundError:
    """Return the error of a model that is in none of its places, with the command that fetches it."""
    if absent := missing_framework(STANZA_NER if source is OF_STANZA else workload):
        return NotFoundError(absent.message, hint=absent.hint)  # fetching needs it too
    looked = "; ".join(f"{place} ({source.lacks(place, name)})" for place in places)
    message = f"model {name!r} is not on this machine{f'; looked in {looked}' if looked else ''}"
    other = "   (or: `model.path`)"
    if has_stand_in:
        other = f"   ({source.instead})"
    elif source is OF_STANZA:
        other = f"; only {LANGUAGE} has a {STAND_IN}"
    return NotFoundError(message, hint=f"{fetch_command(workload, name)}{other}")


def find_or_stand_in(workload: str, model: Mapping[str, object], base: Path, cache: Path) -> ModelRef:
    """Return the model that a spec names, or a stand-in if it is missing: tiny, if the spec names no size."""
    asked = {**model, "fallback": STAND_IN}
    found = find(workload, asked, base, cache)
    if not found.stand_in or model.get("size") or model.get("fallback"):
        return found
    return find(workload, {**asked, "size": "tiny"}, base, cache)


def refuse_stand_in(workload: str, model: ModelRef | None, command: str, *ways: str) -> None:
    """Refuse a stand-in where ``command`` needs the real model; ``ways`` say what to do once it is there."""
    if model is None or not model.stand_in:
        return
    message = f"{command} needs the real {model.name}, not this: {model.label}"
    lines = [
        fetch_command(workload, model.name),
        *ways,
        "or, to try jobkit with this model: --stand-in",
    ]
    raise JobkitError(message, hint="\n        ".join(lines))


def build(workload: str, model: ModelRef, cache: Path, *, say: Say) -> ModelRef:
    """Return a model, built now if it is a stand-in that is missing."""
    if model.fingerprint != NOT_BUILT:
        return model
    if lack := missing_framework(workload):
        raise lack
    make_stand_in(workload, model.size, cache, say)
    return replace(stand_in(workload, model.size, cache, model.name), prompt=model.prompt)


def with_prompt(workload: str, model: ModelRef | None, prompt: str) -> ModelRef | None:
    """Return a model whose texts begin with a prompt; refuse a word that names none, or an empty one."""
    if workload != "sentence-embedding":
        hint = "sentence-embedding does; a function of your own can put one before its texts"
        raise JobkitError(f"prompt: {workload} puts none before a text", hint=hint)
    if model is None:
        return None  # which is an error already
    if model.stand_in:
        return replace(model, prompt=prompt)  # the names of the real model's are not known
    prompts = read_json(Path(model.path) / "config_sentence_transformers.json").get("prompts") or {}
    if prompt and not prompts.get(prompt, prompt):
        hint = f'write the text itself: "{prompt}: "'
        raise JobkitError(f"prompt: the prompt {prompt!r} of {model.name} is empty", hint=hint)
    if prompt not in prompts and re.fullmatch(r"[\w-]+", prompt, re.ASCII):
        names = [name for name, text in prompts.items() if text]
        has = f"has {', '.join(names)}" if names else "has none"
        hint = 'one of these, or the text itself, with its blank: "query: "'
        raise JobkitError(f"prompt: {prompt!r} names no prompt of {model.name}, which {has}", hint=hint)
    return replace(model, prompt=prompt)
