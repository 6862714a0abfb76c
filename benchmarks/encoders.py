"""Encoders at the speed of the GPU: scripts by hand, the libraries' own ways, and jobkit, in one command.

``python -m benchmarks.encoders FILE [--copies 80] [--ways hand,library,jobkit] [--size full]`` writes FILE.
The text is the sample, so many times; the models have random weights, the tagger's head biased to ``O``.
Cells that FILE has already are not measured again.

*By hand* is what a person would write for one GPU: a thread tokenizes the next window of texts with the
tokenizer's own threads; a window is sorted by tokens, the longest first, and cut into batches of at most a
budget of padded tokens; labels and scores, or vectors, stay on the GPU until the window is done. The
*library* is the pipeline of transformers, and ``encode`` of sentence-transformers with all texts. *jobkit* is
a try of ``python -m jobkit.worker`` with one worker, whose record has the speed. All times include
tokenizing, and none includes loading.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning import standin
from jobkit.planning.sample import sample_text

TAGGER, EMBEDDER = "hf-token-classification", "sentence-embedding"
PARAGRAPHS, WINDOW, REPEATS = 881, 10_000, 2
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
BUDGETS = {
    (TAGGER, "fp32"): (16_384, 65_536),
    (TAGGER, "tf32"): (16_384, 65_536),
    (TAGGER, "bf16"): (65_536, 262_144),
    (EMBEDDER, "fp32"): (65_536, 262_144),
    (EMBEDDER, "bf16"): (65_536, 131_072, 262_144),
}
"""The padded tokens that are tried by workload and precision, by hand and by jobkit."""
PARTS = {TAGGER: 8, EMBEDDER: 2}
"""The libraries work on one of so many paragraphs: they are slow."""
BATCHES = {TAGGER: (32,), EMBEDDER: (32, 256)}

Forward = Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]


def say(*words: object) -> None:
    """Print a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


# -- by hand


def hand(texts: Sequence[str], backend: Any, forward: Forward, budget: int, device: str) -> None:  # noqa: ANN401 - tokenizers is untyped
    """Work through the texts; what comes out is copied to the host, window by window."""

    def tokenized(first: int) -> list[Any]:
        return sorted(backend.encode_batch(texts[first : first + WINDOW]), key=len, reverse=True)

    with ThreadPoolExecutor(1) as thread, torch.inference_mode():
        ahead = thread.submit(tokenized, 0)
        for first in range(0, len(texts), WINDOW):
            window = ahead.result()
            if first + WINDOW < len(texts):
                ahead = thread.submit(tokenized, first + WINDOW)
            outputs = [forward(*padded(batch, device)) for batch in batches(window, budget)]
            for column in zip(*outputs, strict=True):
                torch.cat(column).cpu()


def batches(window: Sequence[Any], budget: int) -> Iterator[Sequence[Any]]:
    """Cut encodings, the longest first, into batches of at most so many padded tokens."""
    start = 0
    while start < len(window):
        size = max(1, budget // len(window[start]))
        yield window[start : start + size]
        start += size


def padded(batch: Sequence[Any], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = np.fromiter(map(len, batch), np.int64)
    mask = np.arange(lengths[0]) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.fromiter(itertools.chain.from_iterable(one.ids for one in batch), np.int64)
    made = [torch.from_numpy(array).to(device, non_blocking=True) for array in (ids, mask.astype(np.int64))]
    return made[0], made[1]


def hand_ready(workload: str, model: Path, precision: str, device: str) -> tuple[Any, Forward]:
    """Return the tokenizer and the network of a workload."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.enable_cudnn_sdp(
        enabled=False
    )  # it makes a plan for each new shape: 0.3 s on an H100
    dtype = TYPES[precision]
    if workload == TAGGER:
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        tokenizer, most = AutoTokenizer.from_pretrained(model), 512
        network = AutoModelForTokenClassification.from_pretrained(model, dtype=dtype).to(device).eval()

        def forward(ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
            scores = network(input_ids=ids, attention_mask=mask).logits.float().softmax(-1)
            return [one[mask.bool()] for one in scores.max(-1)]
    else:
        from sentence_transformers import SentenceTransformer

        whole = SentenceTransformer(str(model), device=device, model_kwargs={"dtype": dtype})
        tokenizer, most, network = whole.tokenizer, whole.max_seq_length, whole[0].auto_model

        def forward(ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
            states = network(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(states.dtype)
            means = (states * weights).sum(1) / weights.sum(1)
            return [torch.nn.functional.normalize(means.float())]

    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.enable_truncation(most)
    return backend, forward


def by_hand(
    workload: str, model: Path, precision: str, texts: Sequence[str], device: str
) -> list[dict[str, Any]]:
    os.environ.pop("TOKENIZERS_PARALLELISM", None)  # the pipeline has set it
    backend, forward = hand_ready(workload, model, precision, device)
    found = []
    for budget in BUDGETS[workload, precision]:
        hand(texts[:WINDOW], backend, forward, budget, device)
        for _ in range(REPEATS):
            found.append(
                {
                    "way": "hand",
                    "budget": budget,
                    "paragraphs_per_s": speed(hand, texts, backend, forward, budget, device),
                }
            )
            say(workload, precision, found[-1])
    return found


def speed(work: Callable[..., object], texts: Sequence[str], *rest: object) -> float:
    began = time.perf_counter()
    work(texts, *rest)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return len(texts) / (time.perf_counter() - began)


# -- the libraries


def library(
    workload: str, model: Path, precision: str, texts: Sequence[str], device: str
) -> list[dict[str, Any]]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    texts, dtype = list(texts[:: PARTS[workload]]), TYPES[precision]
    work: Callable[..., object]
    if workload == TAGGER:
        from transformers import pipeline

        tag = pipeline(
            "token-classification",
            str(model),
            device=device,
            dtype=dtype,
            aggregation_strategy="simple",
            stride=64,
        )
        work = lambda some, size: tag(list(some), batch_size=size)  # noqa: E731
    else:
        from sentence_transformers import SentenceTransformer

        whole = SentenceTransformer(str(model), device=device, model_kwargs={"dtype": dtype})
        work = lambda some, size: whole.encode(list(some), batch_size=size)  # noqa: E731
    found = []
    for size in BATCHES[workload]:
        work(texts[:500], size)
        found.append({"way": "library", "batch_size": size, "paragraphs_per_s": speed(work, texts, size)})
        say(workload, precision, found[-1])
    return found


# -- jobkit


def jobkit(
    workload: str, model: Path, precision: str, texts: Sequence[str], device: str, budget: int
) -> dict[str, Any]:
    """Return the speed of a try of a worker, as its record has it, and the record."""
    from jobkit.core.json_codec import to_json
    from jobkit.core.records import ModelRef, Point, TextRef
    from jobkit.worker.workloads.model import fingerprint

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs, out = folder / "inputs", folder / "out"
        for made in (inputs, out):
            made.mkdir()
        text = "\n\n".join(texts).encode()
        (inputs / "text").write_bytes(text)
        (inputs / "model").symlink_to(model)
        point = Point(
            run_id="encoders",
            index=1,
            point_id="point",
            workload=workload,
            params={"padded": budget},
            repeat=1,
            text=TextRef(
                path=str(inputs / "text"),
                sha256=hashlib.sha256(text).hexdigest(),
                size_bytes=len(text),
                name="sample",
            ),
            model=ModelRef(
                path=str(model),
                name="stand-in",
                size="full",
                stand_in=True,
                fingerprint=fingerprint(model, "", "folder"),
                size_bytes=0,
                kind="folder",
            ),
            device=device,
            order="sorted",
            work_unit=WINDOW,
            allocator="expandable_segments:True",
            threads=2,
            precision=precision,
            shortcuts="exact",
        )
        (folder / "points.jsonl").write_text(to_json(point) + "\n")
        words = [
            "--points",
            str(folder / "points.jsonl"),
            "--point",
            "1",
            "--inputs",
            str(inputs),
            "--out",
            str(out),
        ]
        env = {**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        subprocess.run([sys.executable, "-m", "jobkit.worker", *words], check=False, env=env)  # noqa: S603 - jobkit itself
        record = json.loads((out / "record.json").read_text())
        calls = [json.loads(line) for line in (out / "batches.jsonl").read_text().splitlines()]
    if record["check"]["refused"]:
        raise SystemExit(f"the encoder is not used: {record['check']}")
    summary, tokens = record["summary"], sum(call["tokens"] for call in calls)
    return {
        "way": "jobkit",
        "budget": budget,
        "paragraphs_per_s": summary["items"] / summary["work_s"],
        "characters_per_s": summary["characters"] / summary["work_s"],
        "tokens_per_s": tokens / summary["work_s"],
        "check": record["check"]["found"],
        "record": record,
    }


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--copies", type=int, default=80)
    parser.add_argument("--ways", default="hand,library,jobkit")
    parser.add_argument("--size", default="full")
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "encoders")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts, ways = split_paragraphs(sample_text(PARAGRAPHS)) * arguments.copies, arguments.ways.split(",")
    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name() if device == "cuda" else "",
        "cores": len(os.sched_getaffinity(0)),
        "versions": {
            name: metadata.version(name) for name in ("torch", "transformers", "sentence-transformers")
        },
        "paragraphs": len(texts),
        "characters": sum(map(len, texts)),
        "cells": json.loads(arguments.file.read_text())["cells"] if arguments.file.exists() else [],
    }
    measured = {(cell["workload"], cell["precision"]) for cell in found["cells"]}
    for workload, precision in [cell for cell in BUDGETS if cell not in measured]:
        model = arguments.models / f"{workload}-{arguments.size}"
        if not model.exists():
            model.mkdir(parents=True)
            standin.build_random(str(model), workload, arguments.size, say=say)
        rows = by_hand(workload, model, precision, texts, device) if "hand" in ways else []
        if "library" in ways and precision == "fp32":
            rows += library(workload, model, precision, texts, device)
        if "jobkit" in ways:
            ours: list[dict[str, Any]] = []
            for budget in (*BUDGETS[workload, precision], None):  # again at the fastest
                best = budget or max(ours, key=lambda row: row["paragraphs_per_s"])["budget"]
                ours.append(jobkit(workload, model, precision, texts, device, best))
                say(
                    workload,
                    precision,
                    {key: ours[-1][key] for key in ("budget", "paragraphs_per_s", "check")},
                )
            rows += ours
        found["cells"].append({"workload": workload, "precision": precision, "rows": rows})
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
