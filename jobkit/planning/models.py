"""Find the model that a spec names, on disk or as a stand-in; fetch one beforehand.

A job never downloads. stanza and huggingface_hub are imported only to fetch, and a process that imported them
measures nothing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import platformdirs

from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.paths import cache_lock, share_with_group
from jobkit.core.records import FOLDER, FULL, MODEL_OPTIONS, STANZA, ModelRef
from jobkit.core.terminal import Say, shell_quote
from jobkit.planning.saved_model import NO_POOLING, refuse_keys, refuse_unfit
from jobkit.planning.standin import (
    ARCHITECTURES,
    SIZE_BYTES,
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

LANGUAGE = "en"
"""The language whose model the stand-in replaces."""
STAND_IN = "stand-in"
NOT_BUILT = "not-built-yet"
"""The fingerprint of a stand-in that a run has yet to build."""
ANSWER_S = 2.5
"""How long a server may take for its first answer."""
LANGUAGES = re.compile(r"[a-z]{2,}(-[a-z]+)*")


def fetch(name: str, cache: Path, address: str | None, *, say: Say) -> ModelRef:
    """Download a model of the Hugging Face hub, or Stanza's of a language, into the cache, whole.

    An interrupted download goes on where it ended, in ``.fetch-NAME`` next to the models. Stanza compares
    every file with its md5. ``$HF_ENDPOINT``, ``$HF_TOKEN`` and the other variables of huggingface_hub have
    their usual effect. ``address`` is a mirror of the hub, or of Stanza's resources; ``None`` for its own.
    """
    of_hub = "/" in name
    if not (HUB_NAME if of_hub else LANGUAGES).fullmatch(name):
        raise JobkitError(f"no model is called {name!r}", hint="name a language: jobkit models fetch en")
    extra = ("a model of the hub", "hf", "huggingface_hub")
    if lack := missing_extra(*extra) if of_hub else missing_framework("stanza-ner"):
        raise lack
    folder = hub_folder(name, cache) if of_hub else cache / "models" / name
    what = name if of_hub else f"Stanza's model {name} ({PROCESSORS})"
    say(f"fetching {what} into {folder}")
    part = folder.with_name(f".fetch-{folder.name}")
    busy = partial(say, f"another jobkit is fetching {name}: waiting for it")
    hub = "https://huggingface.co"
    stanzas = "https://raw.githubusercontent.com/stanfordnlp/stanza-resources/main"
    # Files of the hub that PyTorch does not read
    not_needed = ("*.h5", "*.msgpack", "*.ot", "*.onnx", "*.tflite", "onnx/*", "openvino/*", "coreml/*")
    with cache_lock(folder.with_name(f"{part.name}.lock"), busy):
        why: object
        try:
            variable, usual = ("HF_ENDPOINT", hub) if of_hub else ("STANZA_RESOURCES_URL", stanzas)
            _await_answer(address or os.environ.get(variable) or usual)
            if of_hub:
                from huggingface_hub import snapshot_download

                snapshot_download(name, local_dir=part, endpoint=address, ignore_patterns=list(not_needed))
                why = lacking("", part)
            else:
                import stanza

                options = {"resources_url": address} if address else {}
                stanza.download(name, model_dir=str(part), processors=PROCESSORS, verbose=False, **options)
                why = missing_files(part, name)
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
    return _ref(folder, name, kind=FOLDER if of_hub else STANZA)


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


def list_models(cache: Path) -> tuple[ModelRef, ...]:
    """Return Stanza's models and trained stand-ins, then those of the hub and those of random weights."""
    named = {place for name in _languages(cache) for place in model_places(name, cache)}
    real = [
        _ref(place, name)
        for place in sorted(named)
        for name in _languages(cache)
        if (place.parent != cache.absolute() / "models" or place.name == name)
        and not missing_files(place, name)
    ]
    built = [
        stand_in("stanza-ner", size, cache) for size in SIZE_BYTES if not _spoilt(standin_path(size, cache))
    ]
    places = sorted((cache / "models").glob("hub-*--*"))
    named_by_hub = {place: place.name.removeprefix("hub-").replace("--", "/", 1) for place in places}
    hub = [_ref(place, name, kind=FOLDER) for place, name in named_by_hub.items() if not lacking("", place)]
    random = [
        stand_in(workload, size, cache)
        for workload, size in ARCHITECTURES
        if is_built(random_path(workload, size, cache))
    ]
    return (*real, *built, *hub, *random)


def _languages(cache: Path) -> list[str]:
    folders = [cache / "models", *model_places("", cache)]
    inside = {
        path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_dir()
    }
    return sorted(name for name in inside if re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", name))


def stand_in(workload: str, size: str, cache: Path, name: str = LANGUAGE) -> ModelRef:
    """Return the stand-in of a workload; if it is not built, as it would be."""
    if workload in USUAL:
        of, folder = ARCHITECTURES[workload, size], random_path(workload, size, cache)
        name = USUAL[workload] if name == LANGUAGE else name
        return _ref(folder, name, size, kind=FOLDER, about_bytes=of.size_bytes, architecture=of.name)
    folder = standin_path(size, cache).absolute()
    if is_built(folder) and (lack := _spoilt(folder)):
        again = f"rm -r {shell_quote(str(folder))} && jobkit models build --size {size}"
        raise JobkitError(f"the {size} {STAND_IN} in {folder} is damaged: {lack}", hint=again)
    return _ref(folder, LANGUAGE, size, about_bytes=SIZE_BYTES[size])


def _spoilt(folder: Path) -> str:
    """Return what a stand-in lacks; empty if it is complete."""
    return missing_files(folder, LANGUAGE) if is_built(folder) else "not built"


def _ref(
    folder: Path,
    name: str,
    size: str = FULL,
    *,
    kind: str = STANZA,
    about_bytes: int = 0,
    architecture: str = "",
    asked: Mapping[str, object] | None = None,
) -> ModelRef:
    """Return a model that is on disk, or a stand-in, which has ``about_bytes`` until it is built.

    ``asked``: the spec's `model`.
    """
    size_bytes, digest = about_bytes, NOT_BUILT
    options: dict[str, Any] = {key: value for key in MODEL_OPTIONS if (value := (asked or {}).get(key))}
    if not about_bytes or is_built(folder):
        staged = [folder / RESOURCES_FILE, *(folder / name).rglob("*")]  # what a job copies
        if kind == FOLDER:
            staged = [folder / file for file in folder_files(folder)]
        digest = fingerprint(folder, name, kind, options)
        size_bytes = sum(path.stat().st_size for path in staged if path.is_file())
    return ModelRef(
        path=str(folder.absolute()),
        name=name,
        size=size,
        stand_in=bool(about_bytes),
        fingerprint=digest,
        size_bytes=size_bytes,
        kind=kind,
        architecture=architecture,
        **options,
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


USUAL: Mapping[str, str] = {
    "hf-token-classification": "dslim/bert-base-NER",
    "sentence-embedding": "sentence-transformers/all-MiniLM-L6-v2",
    "spacy-ner": "en_core_web_sm",
}
"""The model that the name `LANGUAGE` means to a workload."""
SAVES = {"spacy-ner": "nlp.to_disk(FOLDER)", "sentence-embedding": "model.save(FOLDER)"}
"""What writes a folder of a workload, if it is not ``save_pretrained``."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def hub_folder(name: str, cache: Path) -> Path:
    return cache / "models" / f"hub-{name.replace('/', '--')}"


def lacking(workload: str, folder: Path) -> str:
    """Return the file that a folder lacks to be a model of a workload; empty if it lacks none."""
    # The files that make a folder a model of a workload; for other workloads it is one of `one_of`
    needed = {"spacy-ner": ("config.cfg", "meta.json")}
    one_of = ("config.json", "modules.json", "adapter_config.json")
    if workload not in needed:
        return "" if any((folder / name).is_file() for name in one_of) else f"no {one_of[0]}"
    missing = [name for name in needed[workload] if not (folder / name).is_file()]
    return f"no {missing[0]}" if missing else ""


def _places(workload: str, name: str, cache: Path) -> Iterator[Path]:
    """Yield the folders of an installed spaCy package and of a model of the hub, here or in its own cache."""
    spec = importlib.util.find_spec(name) if workload == "spacy-ner" and name.isidentifier() else None
    if spec and spec.origin:  # inside, the model's folder is named after its version
        yield from sorted(path.parent for path in Path(spec.origin).parent.glob("*/config.cfg"))
    if HUB_NAME.fullmatch(name):
        yield hub_folder(name, cache)
        home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
        folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
        model = folder / f"models--{name.replace('/', '--')}"
        main = model / "refs" / "main"
        if main.is_file():
            yield model / "snapshots" / main.read_text(encoding="utf-8").strip()


def fetch_command(workload: str, name: str) -> str:
    if workload == "spacy-ner":
        return f"python -m spacy download {shell_quote(name)}"
    return f"jobkit models fetch {shell_quote(name)}"


TINY = "tiny"
"""The size of the stand-in that is trained in about a minute."""


def is_folder(workload: str, model: Mapping[str, object]) -> bool:
    """Return whether a spec names a whole folder, and not a language of Stanza."""
    return workload in USUAL or bool(model.get("path")) or "/" in str(model.get("name", ""))


def find(workload: str, model: Mapping[str, object], base: Path, cache: Path) -> ModelRef:
    """Return the model that a spec in ``base`` names; a missing stand-in is described as it would be.

    A real model is ``full``; any other size is a stand-in's.
    """
    refuse_keys(workload, model)
    name, size = str(model.get("name", LANGUAGE)), str(model.get("size", FULL))
    if path := model.get("path"):
        return _named_by_path(workload, (base / str(path)).expanduser().absolute(), model)
    stanza, places = not is_folder(workload, model), list[Path]()
    if not stanza and name == LANGUAGE:
        name = USUAL.get(workload, name)
    if size == FULL:
        places += model_places(name, cache) if stanza else _places(workload, name, cache)
    for place in places:
        if not (missing_files(place, name) if stanza else lacking(workload, place)):
            if not stanza:
                refuse_unfit(workload, place, model)
            return _ref(place, name, kind=STANZA if stanza else FOLDER, asked=model)
    if model.get("fallback") and (name == LANGUAGE if stanza else (workload, size) in ARCHITECTURES):
        if model.get("pooling"):
            raise JobkitError(f"model.pooling: a {STAND_IN} has a pooling of its own", hint=NO_POOLING)
        return stand_in(workload, size, cache, name)
    framework = "stanza-ner" if stanza else workload
    if size == FULL and framework in {"stanza-ner", *USUAL} and (absent := missing_framework(framework)):
        raise absent  # fetching needs it too
    raise _not_here(framework, name, size, places)


def _not_here(workload: str, name: str, size: str, places: Sequence[Path]) -> JobkitError:
    """Return that a model is in none of these places; a workload that is not shipped names a folder."""
    stanza, instead = workload == "stanza-ner", "set `model.path`"
    if stanza and "/" in name:
        others = " or ".join(one for one, usual in USUAL.items() if "/" in usual)
        hint = f"name the workload that loads it: --for {others}, in a spec `workload`"
        return JobkitError(f"model {name!r}: a name with a / is not one of stanza-ner, as en is", hint=hint)
    if stanza and name != LANGUAGE:
        instead = f"; only {LANGUAGE} has a {STAND_IN}"
    elif stanza or workload in USUAL:
        instead = f", or set `model.fallback: {STAND_IN}`{'' if stanza else ' (random weights)'}"
    if size != FULL:
        message = f"model {name!r}: only {'the' if stanza else 'a'} {STAND_IN} has the size {size!r}"
        return JobkitError(message, hint=f"set `model.size: {FULL}`{instead}")
    lacks = (f"{place} ({missing_files(place, name)})" if stanza else str(place) for place in places)
    looked = f"; looked in {'; '.join(lacks)}" if places else ""
    without = f"or: `model.path`{', or random weights, to try jobkit: --stand-in' * (workload in USUAL)}"
    if stanza:
        without = "or, to try jobkit without it: --stand-in"
    more = instead if stanza and name != LANGUAGE else f"   ({without})"
    hint = f"{fetch_command(workload, name)}{more}"
    return JobkitError(f"model {name!r} is not on this machine{looked}", hint=hint)


def _named_by_path(workload: str, folder: Path, model: Mapping[str, object]) -> ModelRef:
    if workload == "stanza-ner":
        hint = "name the language, and give $STANZA_RESOURCES_DIR its folder"
        raise JobkitError("model.path is for other workloads than stanza-ner", hint=hint)
    if not folder.is_dir():
        hint = "`model.path` is a folder, relative to the spec's"
        raise JobkitError(f"{folder}: no such folder", hint=hint)
    if workload in USUAL and (lack := lacking(workload, folder)):
        saves = SAVES.get(workload, "save_pretrained(FOLDER)")
        message = f"{folder}: {lack}, so it is no model of {workload}"
        raise JobkitError(message, hint=f"`{saves}` writes such a folder")
    refuse_unfit(workload, folder, model)
    return _ref(folder, folder.name, kind=FOLDER, asked=model)


def find_or_stand_in(workload: str, model: Mapping[str, object], base: Path, cache: Path) -> ModelRef:
    """Return the model that a spec names, or a stand-in if it is missing: tiny, if the spec names no size."""
    asked = {**model, "fallback": STAND_IN}
    found = find(workload, asked, base, cache)
    if not found.stand_in or model.get("size") or model.get("fallback"):
        return found
    return find(workload, {**asked, "size": TINY}, base, cache)


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
