"""The stand-in model: a Stanza tokenizer and tagger trained on generated text, built on first use.

It is used if the real model is not available. ``tiny`` is for trials on a CPU; ``full`` has the English
model's dimensions, and so its memory and speed. Its entities mean nothing outside text of the kind of
`jobkit.planning.sample`. It is trained in a separate process, the only one here that imports torch and
stanza: the memory of a GPU that this process used is free again before anything is measured.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from jobkit.core.errors import JobkitError
from jobkit.core.files import exclusive_lock, write_atomically
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.paths import cache_write_errors, make_folder, share_with_group
from jobkit.core.terminal import Say
from jobkit.planning.child_process import run_in_child
from jobkit.planning.sample import generate
from jobkit.planning.standin import parts
from jobkit.run.workloads.base import Entity
from jobkit.run.workloads.stanza.ner import StanzaNer

RECIPE = 1
"""Raise it if the training changes in a way that the figures below do not show."""
CARD_FILE = "standin.json"
TRAINING_SEED, HELD_OUT_SEED = 1847, 1911
TRAINING_PARAGRAPHS = 4000

SIZES: Mapping[str, parts.Size] = MappingProxyType(
    {
        "tiny": parts.Size(
            charlm_hidden=64,
            ner_hidden=128,
            word_dim=50,
            characters=0,
            words=3000,
            ner_steps=500,
            ner_rate=0.008,
            tokenizer_steps=200,
        ),
        # The English model's: 250,000 word vectors and 944 characters follow from the sizes of
        # its files conll17.pt (107 MB) and 1billion.pt (22.7 MB).
        "full": parts.Size(
            charlm_hidden=1024,
            ner_hidden=256,
            word_dim=100,
            characters=944,
            words=250_000,
            ner_steps=600,
            ner_rate=0.001,
            tokenizer_steps=200,
        ),
    }
)
"""The sizes of stand-ins."""

SIZE_BYTES: Mapping[str, int] = MappingProxyType({"tiny": 3_600_000, "full": 198_000_000})
"""The approximate size of each on disk, for a plan that is made before it is built."""

TOOK: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("tiny", "cpu"): "80 s on one core of an AMD EPYC",
        ("full", "cuda"): "half a minute",
        ("full", "cpu"): "about ten minutes",
    }
)
"""How long the training took where it was measured, by size and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of a stand-in: the file ``standin.json`` in its folder.

    Attributes
    ----------
    f1, precision, recall
        Of entities, span and label exact, on generated text that it was not trained on.
    sentences, gold_sentences
        The number that it found in that text, and the true number.
    device
        The device on which it was trained.
    """

    size: str
    recipe: int
    training_seed: int
    held_out_seed: int
    f1: float
    precision: float
    recall: float
    sentences: int
    gold_sentences: int
    device: str
    versions: Mapping[str, str]


def standin_path(size: str, cache: Path) -> Path:
    """Return the folder of the stand-in of a size; its name changes with the training.

    Raises
    ------
    JobkitError
        If there is no such size.
    """
    if size not in SIZES:
        hint = f"`model.size` may be {' or '.join(SIZES)}"
        raise JobkitError(f"there is no stand-in model of size {size!r}", hint=hint)
    made = (RECIPE, asdict(SIZES[size]), TRAINING_SEED, TRAINING_PARAGRAPHS)
    return cache / "models" / f"stand-in-{size}-{hashlib.sha256(repr(made).encode()).hexdigest()[:8]}"


def is_built(folder: Path) -> bool:
    """Return whether a stand-in is complete: its card is written last."""
    return (folder / CARD_FILE).is_file()


def read_card(folder: Path) -> Card:
    """Return what is known of a stand-in that is built."""
    path = folder / CARD_FILE
    return from_json(Card, path.read_text(encoding="utf-8"), where=str(path))


def make_standin(size: str, cache: Path, say: Say) -> Card:
    """Build the stand-in of a size in the cache unless it is there; of several processes one builds it.

    Parameters
    ----------
    size
        ``tiny`` or ``full``, which is trained on a GPU if there is one; `TOOK` has the times.
    cache
        The cache folder.
    say
        Prints a line of progress from time to time.

    Raises
    ------
    JobkitError
        If there is no such size, or the training fails.
    """
    folder = standin_path(size, cache)
    what, gpus = f"building the stand-in model ({size})", size == "full"
    build_once(folder, "jobkit.planning.standin.build:train", size, what=what, gpus=gpus, say=say)
    return read_card(folder)


def build_once(folder: Path, function: str, *arguments: object, what: str, gpus: bool, say: Say) -> None:
    """Have a child process build a stand-in unless it is there; of several processes one builds it.

    Parameters
    ----------
    folder
        Of the stand-in.
    function, arguments, what, gpus, say
        As for `run_in_child`; the first argument is the folder to build in, absolute.

    Raises
    ------
    JobkitError
        If that fails.
    """
    if is_built(folder):
        return
    lock = folder.with_name(f".{folder.name}.lock")
    with cache_write_errors(folder.parent):
        make_folder(folder.parent)
        lock.touch()
        share_with_group(lock)
    busy = partial(say, "another jobkit is building the stand-in model: waiting for it")
    with exclusive_lock(lock, busy):
        if not is_built(folder):
            with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
                made = Path(scratch) / folder.name
                run_in_child(function, str(made), *arguments, say=say, what=what, gpus=gpus)
                made.replace(folder)
                share_with_group(folder)


def train(path: str, size: str, *, say: Say) -> None:
    """Train the stand-in of a size into a folder; `make_standin` has a child process do it.

    Parameters
    ----------
    path
        The folder, absolute; it is made.
    size, say
        As for `make_standin`.
    """
    import torch

    folder = Path(path)
    device = "cuda" if size == "full" and torch.cuda.is_available() else "cpu"
    took = f"when measured, this took {TOOK[size, device]}"
    say(f"training the stand-in model ({size}, on {device}): {took}; the next time it comes from the cache")
    sample = generate(TRAINING_SEED, TRAINING_PARAGRAPHS)
    order = parts.Order(folder=folder, sample=sample, size=SIZES[size], device=device, say=say)
    logging.getLogger("stanza").disabled = True  # importing its trainers sets it to DEBUG
    if size == "tiny":
        # Small matrices gain nothing from a second thread, and where other work runs on the same
        # cores the threads wait for one another: ten minutes were seen instead of one.
        torch.set_num_threads(1)
    parts.seed(TRAINING_SEED)
    characters = parts.make_character_models(order)
    vectors = parts.make_word_vectors(order)
    parts.train_tokenizer(order)
    parts.train_ner(order, characters=characters, vectors=vectors)
    _write_resources(folder)
    card = _evaluate(folder, size, device)
    write_atomically(folder / CARD_FILE, to_json(card) + "\n")
    say(f"stand-in model ({size}): F1 {card.f1:.3f} on held-out generated text")


def _write_resources(folder: Path) -> None:
    """Write the ``resources.json`` that Stanza finds the parts by; it has no address to fetch from."""
    md5 = {part: hashlib.md5(parts.part_path(folder, part).read_bytes()).hexdigest() for part in parts.PARTS}  # noqa: S324
    packages: dict[str, object] = {part: {parts.PACKAGE: {"md5": digest}} for part, digest in md5.items()}
    needed = [{"model": part, "package": parts.PACKAGE} for part in parts.PARTS[2:]]
    packages["ner"] = {parts.PACKAGE: {"md5": md5["ner"], "dependencies": needed}}
    packages["packages"] = {"default": {"tokenize": parts.PACKAGE, "ner": parts.PACKAGE}}
    packages |= {"lang_name": "English (jobkit's stand-in)", "default_md5": ""}
    text = json.dumps({parts.LANGUAGE: packages, "url": ""}, indent=1)
    write_atomically(folder / "resources.json", text + "\n")


def _evaluate(folder: Path, size: str, device: str) -> Card:
    """Tag text that the model has not seen, as a job would, and compare with the gold."""
    import torch

    held_out = generate(HELD_OUT_SEED)
    workload = StanzaNer()
    workload.load(folder, device, {"batch_size": 100}, torch.get_num_threads())
    entities: set[Entity] = set()
    sentences = 0
    for first in range(0, len(held_out.paragraphs), 100):
        result = workload.process(held_out.paragraphs[first : first + 100])
        entities.update(row._replace(paragraph=row.paragraph + first) for row in result.entities)
        sentences += result.sentences or 0
    right = len(entities & set(held_out.gold))
    return Card(
        size=size,
        recipe=RECIPE,
        training_seed=TRAINING_SEED,
        held_out_seed=HELD_OUT_SEED,
        f1=2 * right / (len(entities) + len(held_out.gold)),
        precision=right / max(len(entities), 1),
        recall=right / len(held_out.gold),
        sentences=sentences,
        gold_sentences=sum(map(len, held_out.sentences)),
        device=device,
        versions=dict(workload.versions()),
    )
