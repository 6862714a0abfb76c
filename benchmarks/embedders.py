"""Embedders of 2026 at the speed of the GPU: ``encode`` of sentence-transformers, and jobkit, in one command.

``python -m benchmarks.embedders FILE [--size full] [--paragraphs 28192]`` writes FILE after each row,
and measures no row again that FILE has. It is made for one H200 and 9 minutes; ``--size tiny`` is for a CPU.

The models have the real classes and sizes, random weights, and tokenizers of the sample's bytes: an LLM that
takes the last token of texts padded on the left, as Qwen3-Embedding does; ModernBERT-base; XLM-R-large. The
text is the sample, over and over, for both ways. ``encode`` gets all texts at once, at several batch sizes.
*jobkit* is a try of ``python -m jobkit.worker``, whose check against the library is in the row.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.encoders import PARAGRAPHS, TYPES, jobkit, say, speed
from jobkit.core.files import write_atomically
from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning.sample import sample_text

EMBEDDER, PRECISION = "sentence-embedding", "bf16"
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
MODELS: dict[str, dict[str, Any]] = {
    "Qwen3-Embedding-0.6B": {
        "kind": "Qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 32_768,
    },
    "ModernBERT-base": {"kind": "ModernBert"},
    "XLM-R-large": {
        "kind": "XLMRoberta",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "max_position_embeddings": 514,
    },
}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"num_key_value_heads": 2}
BATCHES = {"full": (32, 128, 512), "tiny": (32, 128)}
BUDGETS = {"full": (8_192, 16_384, 65_536), "tiny": (1_000, 4_000)}
LIBRARY_PART = {32: 4}
"""``encode`` with a small batch is slow: it works on one of so many paragraphs."""


def build(folder: Path, size: str, device: str, kind: str, **sizes: int) -> None:
    """Save an embedder with random weights: of an LLM the last token, padded on the left, else the mean."""
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    is_llm, alphabet = kind == "Qwen3", pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=20_000, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([sample_text(PARAGRAPHS)], trainer)
    ends = [(word, made.token_to_id(word)) for word in SPECIAL[1:3]]
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>" if is_llm else "<s> $A </s>", special_tokens=ends
    )
    pad, begin, end, unknown = SPECIAL
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=pad,
        bos_token=begin,
        eos_token=end,
        unk_token=unknown,
        padding_side="left" if is_llm else "right",
        model_max_length=512,
    )
    numbers = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 50_368}
    shrunk = TINY if size == "tiny" else {}
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **shrunk, **numbers})
    torch.manual_seed(0)
    with torch.device(device):
        network = getattr(transformers, f"{kind}Model")(config)
    with tempfile.TemporaryDirectory() as backbone:
        network.save_pretrained(backbone)
        tokenizer.save_pretrained(backbone)
        pooling = Pooling(config.hidden_size, "lasttoken" if is_llm else "mean")
        whole = SentenceTransformer(modules=[Transformer(backbone), pooling, Normalize()], device="cpu")
        whole.save(str(folder), create_model_card=False)


def library(folder: Path, texts: list[str], device: str, precision: str, size: int) -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer

    whole = SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": TYPES[precision]})
    some = texts[:: LIBRARY_PART.get(size, 1)]
    whole.encode(some[: 4 * size], batch_size=size)
    return {"paragraphs_per_s": speed(lambda part: whole.encode(part, batch_size=size), some)}


def main() -> None:
    """Measure what FILE lacks, and say the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", choices=BATCHES, default="full")
    parser.add_argument("--paragraphs", type=int, default=32 * PARAGRAPHS)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "embedders")
    arguments = parser.parse_args()
    device, size = "cuda" if torch.cuda.is_available() else "cpu", arguments.size
    precision = PRECISION if device == "cuda" else "fp32"
    sample = split_paragraphs(sample_text(min(PARAGRAPHS, arguments.paragraphs)))
    texts = (sample * (1 + arguments.paragraphs // len(sample)))[: arguments.paragraphs]
    names = ("torch", "transformers", "sentence-transformers", "tokenizers")
    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name() if device == "cuda" else "",
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: metadata.version(name) for name in names},
        "precision": precision,
        "paragraphs": len(texts),
        "characters": sum(map(len, texts)),
        "rows": [],
    }
    if arguments.file.exists():
        before = json.loads(arguments.file.read_text())
        if {**before, "rows": []} != found:
            raise SystemExit(f"{arguments.file}: of another GPU, text or version; name another file")
        found = before
    rows: list[dict[str, Any]] = found["rows"]
    for name, sizes in MODELS.items():
        folder = arguments.models / f"{name}-{size}"
        if not (folder / "modules.json").exists():
            build(folder, size, device, **sizes)
        cells = [("library", one) for one in BATCHES[size]] + [("jobkit", one) for one in BUDGETS[size]]
        for way, one in cells:
            key = {"model": name, "way": way, "batch_size" if way == "library" else "budget": one}
            if any(key.items() <= row.items() for row in rows):
                continue
            if way == "library":
                row = library(folder, texts, device, precision, one)
                torch.cuda.empty_cache()
            else:
                row = jobkit(EMBEDDER, folder, precision, texts, device, one)
            rows.append({**row, **key})
            say(key, round(row["paragraphs_per_s"], 1), row.get("check", ""))
            write_atomically(arguments.file, json.dumps(found, indent=1) + "\n")
        best = {
            way: max(row["paragraphs_per_s"] for row in rows if (row["model"], row["way"]) == (name, way))
            for way in ("library", "jobkit")
        }
        say(f"{name}: jobkit {best['jobkit'] / best['library']:.2f} times encode at its best batch size")


if __name__ == "__main__":
    main()
