"""Static embeddings on one thread of a CPU: ``encode`` of sentence-transformers by hand, and jobkit.

``python -m benchmarks.static`` adds rounds to its record, ``records/static.json``, until there are `ROUNDS`,
and says the ratios. A round takes both ways in turn at each batch size, in CPU seconds: other work on
the machine changes them less than it changes wall seconds. The model is one of 32,000 words and 256 numbers.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobkit.core.files import write_atomically
from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.terminal import say
from jobkit.planning.sample import sample_text
from jobkit.worker.workloads.base import workload_class

RECORD = Path(__file__).with_name("records") / "static.json"
ROUNDS, PARAGRAPHS = 9, 4_000
BATCHES = (32, 256, 1_024)
WORDS, WIDTH = 32_000, 256


def build(folder: Path, texts: Sequence[str]) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - no password
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=WORDS, special_tokens=["[UNK]"], show_progress=False)
    made.train_from_iterator(texts, trainer)
    torch.manual_seed(0)
    whole = SentenceTransformer(modules=[StaticEmbedding(made, embedding_dim=WIDTH)], device="cpu")
    whole.save(str(folder), create_model_card=False)


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Measure the rounds that the record lacks, and say the ratios."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    sample = split_paragraphs(sample_text(PARAGRAPHS))
    texts = (sample * (1 + PARAGRAPHS // len(sample)))[:PARAGRAPHS]
    names = ("torch", "sentence-transformers", "tokenizers")
    found: dict[str, Any] = {
        "versions": {name: metadata.version(name) for name in names},
        "paragraphs": PARAGRAPHS,
        "characters": sum(map(len, texts)),
        "rounds": [],
    }
    if RECORD.is_file() and {**(before := json.loads(RECORD.read_text())), "rounds": []} == found:
        found = before
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "static"
        build(folder, texts)
        by_hand = SentenceTransformer(str(folder), device="cpu")
        opened: Any = workload_class("sentence-embedding")()
        opened.load(folder, "cpu", {}, 1)

        def tag(size: int) -> None:
            opened.change({"batch_size": size})
            for at in range(0, PARAGRAPHS, size):
                opened.process(texts[at : at + size])

        for number in range(len(found["rounds"]), ROUNDS):
            seconds: dict[str, dict[str, float]] = {}
            for size in BATCHES:
                ways: list[tuple[str, Callable[[], object]]] = [
                    ("encode", lambda size=size: by_hand.encode(texts, batch_size=size)),  # type: ignore[misc]
                    ("jobkit", lambda size=size: tag(size)),  # type: ignore[misc]
                ]
                order = ways if number % 2 else ways[::-1]
                seconds[str(size)] = {way: cpu_seconds(work) for way, work in order}
            found["rounds"].append(seconds)
            write_atomically(RECORD, json.dumps(found, indent=1) + "\n")
    for batch in BATCHES:
        of = str(batch)
        ratios = [one[of]["encode"] / one[of]["jobkit"] for one in found["rounds"]]
        speeds = {
            way: PARAGRAPHS / statistics.median(one[of][way] for one in found["rounds"])
            for way in ("encode", "jobkit")
        }
        words = ", ".join(f"{way} {speed:,.0f} paragraphs/s" for way, speed in speeds.items())
        say(
            f"batches of {of}: {words}; jobkit is {statistics.median(ratios):.2f} times as fast "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
