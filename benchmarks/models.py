"""Compare jobkit with the library by hand on tiny models of the real classes, a hundred kinds.

``python -m benchmarks.models [KIND..]``, on a CPU; the record keeps the kinds that are not named.

A kind is ``refused`` before a job, ``exact`` (the encoder finds what the library finds at every budget and
batch size) or ``off`` (the encoder is refused, and the library does the work); ``different`` would be a
difference in silence.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from jobkit.core.errors import JobkitError
from jobkit.core.terminal import say
from jobkit.planning import models
from jobkit.worker.workloads.base import workload_class
from jobkit.worker.workloads.extras import token_counts
from tests.support import tiny_models
from tests.support.tiny_models import EMBEDDERS, TAGGERS, TEXTS

RECORD = Path(__file__).with_name("records") / "models.json"
TAGGER, EMBEDDER = "hf-token-classification", "sentence-embedding"
SETTINGS = [
    *({"padded": 600}, {"padded": 4_000}, {"padded": 16_384}),
    *({"batch_size": 1}, {"batch_size": 7}, {"batch_size": 32}),
]
OFF = ({"batch_size": 64},)  # all texts at once, for models whose padding changes what they find
STRATEGIES = ("simple", "first", "average", "max")
FEW = [text for text in TEXTS if len(text) < 4_000]
"""Texts of a quick comparison: one of them is cut into pieces still."""
NEAR = 1e-5
"""Two numbers of a vector in fp32 that are so near are equal."""


def outcome(workload: str, folder: Path, *, quick: bool = False) -> tuple[str, str]:
    """Return what becomes of a model, and why; ``quick`` leaves out settings, strategies, loads and `off`."""
    texts = FEW if quick else TEXTS
    settings, strategies = (SETTINGS[:1], STRATEGIES[:1]) if quick else (SETTINGS, STRATEGIES)
    try:
        found = models.find(workload, {"path": str(folder)}, Path(), folder)
    except JobkitError as error:
        return "refused", error.message.replace(f"{folder.parent}/", "")
    opened = _loaded(workload, folder, "exact", "simple")
    refused = opened.check_shortcuts(texts, texts)
    why = str(opened.effective()["shortcuts"]).partition(": ")[2] or refused
    if quick and refused:
        return "off", why
    lengths: Any = getattr(workload_class(workload), "lengths")  # noqa: B009 - not of the Protocol
    counted = lengths(texts, found)
    with patch.object(token_counts, "count", return_value=None):  # so the library counts
        if counted != lengths(texts, found):
            return "different", "lengths"
    by_hand, same = (_tagged, _alike) if workload == TAGGER else (_embedded, _near)
    for strategy in strategies if workload == TAGGER else STRATEGIES[:1]:
        expected = by_hand(texts, folder, strategy)
        few = settings if strategy == STRATEGIES[0] else settings[:1]
        for shortcuts in ("off",) if refused else ("exact", "off")[: 1 if quick else 2]:
            opened = opened if quick else _loaded(workload, folder, shortcuts, strategy)
            for setting in few if shortcuts == "exact" else OFF:
                opened.change({"shortcuts": shortcuts, "aggregation": strategy, **setting})
                if not same(_run(texts, opened, workload), expected):
                    return "different", f"{shortcuts} at {setting} {strategy}"
    return ("off", why) if refused else ("exact", "")


def _loaded(workload: str, folder: Path, shortcuts: str, strategy: str) -> Any:  # noqa: ANN401 - any workload
    opened = workload_class(workload)()
    opened.load(folder, "cpu", {"precision": "fp32", "shortcuts": shortcuts, "aggregation": strategy}, 1)
    return opened


def _run(texts: Sequence[str], opened: Any, workload: str) -> Any:  # noqa: ANN401 - of either kind
    size, found = opened.items_per_call(), []
    for at in range(0, len(texts), size):
        result = opened.process(texts[at : at + size])
        if workload == EMBEDDER:
            found += [*result.vectors]
        else:
            found += [(one.paragraph + at, *one[1:]) for one in result.entities]
    return found


def _tagged(texts: Sequence[str], folder: Path, strategy: str) -> Any:  # noqa: ANN401 - as above
    """Return what a pipeline finds."""
    from transformers import AutoTokenizer, pipeline

    from jobkit.worker.workloads.extras.encoder_workloads import stride_of, tokenizer_of

    usual = tokenizer_of(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = usual.model_max_length
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer("one call makes it forget the padding of its tokenizer.json")
    stride = stride_of(usual.model_max_length)
    made: Callable[..., Any] = pipeline(
        "token-classification",
        model=str(folder),
        tokenizer=tokenizer,
        aggregation_strategy=strategy,
        stride=stride,
    )
    found = made(texts, batch_size=OFF[0]["batch_size"])
    return [
        (number, text[one["start"] : one["end"]], str(one["entity_group"]), one["start"], one["end"])
        for number, (text, several) in enumerate(zip(texts, found, strict=True))
        for one in several
    ]


def _embedded(texts: Sequence[str], folder: Path, _: str) -> Any:  # noqa: ANN401 - as above
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    if getattr(model.tokenizer, "pad_token", "") is None:  # the library refuses a batch then
        model.tokenizer.pad_token = model.tokenizer.eos_token
    return [*model.encode(texts, batch_size=OFF[0]["batch_size"], show_progress_bar=False)]


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return Counter(one) == Counter(other)


def _near(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(bool((abs(a - b) < NEAR).all()) for a, b in zip(one, other, strict=True))


def build(kind: str, folder: Path) -> tuple[str, Path]:
    """Build a kind, ``tagger bert``; return its workload and its folder."""
    what, _, name = kind.partition(" ")
    place = folder / kind.replace(" ", "-")
    if what == "tagger":
        tiny_models.build_tagger(TAGGERS[name], place)
        return TAGGER, place
    EMBEDDERS[name](place)
    return EMBEDDER, place


def quiet() -> None:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def main() -> None:
    import torch

    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    warnings.simplefilter("ignore")
    quiet()
    torch.set_num_threads(1)
    kinds = [*(f"tagger {name}" for name in TAGGERS), *(f"embedder {name}" for name in EMBEDDERS)]
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    for kind in sys.argv[1:] or kinds:
        with TemporaryDirectory() as scratch:
            try:
                state, why = outcome(*build(kind, Path(scratch)))
            except Exception as error:  # noqa: BLE001 - whatever a framework raises
                state, why = "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        record[kind] = {"state": state, "why": why.replace(scratch, "")}
        say(f"{kind}: {state} {why}")
        ordered = {name: record[name] for name in kinds if name in record}
        RECORD.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    states = Counter(one["state"] for one in record.values())
    say(", ".join(f"{count} {state}" for state, count in states.most_common()))
    sys.exit(bool(states["different"] or states["failed"]))


if __name__ == "__main__":
    main()
