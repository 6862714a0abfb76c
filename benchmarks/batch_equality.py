"""Compare what the shipped workloads with an extra return at several batch sizes, counting each difference.

``python -m benchmarks.batch_equality --workload hf-token-classification --size full --device cuda``

In another batch a text is padded differently and kernels add in another order, so scores differ by rounding.
Of token classification the logits of every token are compared with those at batch size 1: a label that
differs matters only if its margin, the distance of the two highest logits at batch size 1, is above twice the
largest difference of any logit. Of embeddings the numbers are compared, of spaCy the entities.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.paths import cache_dir
from jobkit.core.records import ModelRef
from jobkit.core.terminal import say
from jobkit.planning import models
from jobkit.planning.sample import sample_text
from jobkit.worker.workloads.base import EXTRA_OF, Result, workload_class

BATCH_SIZES = (1, 8, 64, 256)
THREADS = 2


def outputs(workload: str, model: ModelRef, paragraphs: Sequence[str], batch: int, device: str) -> Any:  # noqa: ANN401
    """Return what a workload returns at one batch size: logits by token, vectors by text, or entities."""
    opened: Any = workload_class(workload)()
    params = {"batch_size": batch} | ({} if workload == "spacy-ner" else {"precision": "fp32"})
    opened.load(Path(model.path), device, params, THREADS)
    logits: list[Any] = []
    if workload == "hf-token-classification":
        network = opened._network  # noqa: SLF001 - the benchmark looks at what the user does not see
        network.register_forward_hook(
            lambda _, args, inputs, output: logits.extend(_of_tokens(inputs or args[0], output.logits)),
            with_kwargs=True,
        )
    results: list[tuple[int, Result]] = [
        (at, opened.process(paragraphs[at : at + batch])) for at in range(0, len(paragraphs), batch)
    ]
    if logits:
        import torch

        return torch.cat(logits)
    if workload == "sentence-embedding":
        import torch

        return torch.cat([torch.from_numpy(result.vectors) for _, result in results])
    return {(at + entity[0], *entity[1:]) for at, result in results for entity in result.entities}


def _of_tokens(inputs: Any, logits: Any) -> list[Any]:  # noqa: ANN401 - torch is untyped
    """Return the logits of every row's own tokens, without the padding."""
    mask = inputs["attention_mask"].bool()
    return [row[own].float().cpu() for row, own in zip(logits, mask, strict=True)]


def compared(workload: str, first: Any, other: Any) -> dict[str, float | int]:  # noqa: ANN401 - tensors or sets
    """Return how what `outputs` returned at another batch size differs from the first."""
    if workload == "spacy-ner":
        return {"entities": len(first), "differ": len(first ^ other)}
    difference = float((first - other).abs().max())
    if workload == "sentence-embedding":
        cosine = float((first * other).sum(dim=1).min())
        return {"vectors": len(first), "largest_difference": difference, "least_cosine": round(cosine, 6)}
    top = first.topk(2, dim=1).values
    margins, labels = top[:, 0] - top[:, 1], first.argmax(dim=1) != other.argmax(dim=1)
    return {
        "tokens": len(first),
        "largest_difference": difference,
        "labels_differ": int(labels.sum()),
        "labels_differ_above_rounding": int((labels & (margins > 2 * difference)).sum()),
        "largest_margin_of_these": float(margins[labels].max()) if bool(labels.any()) else 0.0,
    }


def main() -> None:
    """Print the comparison as JSON, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workload", choices=[*EXTRA_OF][1:], required=True)
    parser.add_argument("--size", choices=["full", "tiny"], default="tiny")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--paragraphs", type=int, default=300)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    paragraphs = split_paragraphs(sample_text(asked.paragraphs))
    described = models.stand_in(asked.workload, asked.size, cache_dir())
    model = models.build(asked.workload, described, cache_dir(), say=say)
    first, *others = BATCH_SIZES
    at_first = outputs(asked.workload, model, paragraphs, first, asked.device)
    answer = {
        "workload": asked.workload,
        "model": model.caveat,
        "device": asked.device,
        "paragraphs": len(paragraphs),
        "against_batch_size_1": {
            str(batch): compared(
                asked.workload, at_first, outputs(asked.workload, model, paragraphs, batch, asked.device)
            )
            for batch in others
        },
    }
    text = json.dumps(answer, indent=1) + "\n"
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    say(text.rstrip())


if __name__ == "__main__":
    main()
