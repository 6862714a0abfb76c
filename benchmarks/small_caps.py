# ruff: noqa: T201 - it prints what it found
"""Small caps on a real GPU: points up to a quarter of the cap, points up to a half, and the truth.

``python -m benchmarks.small_caps --out FILE`` with PyTorch's default allocator, and once more with
``PYTORCH_ALLOC_CONF=expandable_segments:True``; see docs/measurements.md. The texts are of several
shapes, for what the blocks of the default allocator cost depends on the text. No cell is begun after
``--minutes``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import edge
from jobkit.worker.measure import memory

GIB = 2**30
TEXTS = ("sample", "sample:3000", "sample:3000<400", "sample:2000<250")
CAPS_GIB = (4.0, 8.0, 2.0)
SHARES = (0.25, 0.5)


def cell(bench: edge.Bench, cap_gib: float) -> dict[str, Any]:
    """Return what the points up to each share of a cap predict, and the largest batch that passes."""
    cap_bytes = int(cap_gib * GIB)
    told = [(share, *edge.jobkit(bench, cap_bytes, share)) for share in SHARES]
    truth = edge.bisection(lambda batch: bench.trial(batch, cap_bytes), bench.loads.limit).found
    safe = min(search.found for _, search, _ in told)
    scanned = [bench.trial(batch, cap_bytes) for batch in edge.below(truth, safe)]
    failing = [one.batch for one in scanned if not one.passed]
    searched = replace(bench, allocator=memory.SEARCHED)  # whether emptying the cache saves a batch, too
    return {
        "cap_gib": cap_gib,
        "truth": truth,
        "truth_load": bench.loads.load(truth),
        "saturated": truth >= bench.loads.limit,
        "first_failing_below": min(failing, default=None),
        "scanned": [asdict(one) for one in scanned],
        "needs_at_truth": [asdict(one) for one in edge.needs(searched, truth)],
        "predictions": [
            {"share": share, "verified": bench.trial(search.found, cap_bytes).passed} | prediction
            for share, search, prediction in told
            if search.found
        ],
    }


def line(text: str, found: dict[str, Any]) -> str:
    """Return a cell in a line."""
    said = [
        f"up to {one['share']:.0%}: line {one['largest_batch']}, bound {one['safe_batch']}"
        f" ({one['safe_load'] / found['truth_load']:.1%}) {'passed' if one['verified'] else 'FAILED'}"
        for one in found["predictions"]
    ]
    hole = found["first_failing_below"]
    return f"{text}, {found['cap_gib']:g} GiB: truth {found['truth']}, holes from {hole}; {'; '.join(said)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells, and write all of them after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="full")
    parser.add_argument("--texts", default=",".join(TEXTS))
    parser.add_argument("--caps", default=",".join(map(str, CAPS_GIB)), help="GiB of allocator memory")
    parser.add_argument("--minutes", type=float, default=3.5)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    begun, texts = time.monotonic(), asked.texts.split(",")
    bench = edge.load(texts[0], asked.size, "load")
    gc.freeze()
    report: dict[str, Any] = {
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF") or "default",
        "gpu": bench.device.torch.cuda.get_device_name(0),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": dict(bench.tagger.versions()),
        "cells": [],
    }
    benches = {texts[0]: bench}
    for cap in map(float, asked.caps.split(",")):
        for text in texts:
            if time.monotonic() - begun > 60 * asked.minutes:
                print(f"left out: {text}, {cap:g} GiB")
                continue
            if text not in benches:
                sentences, loads = edge.tokenised(bench.tagger, edge.paragraphs_of(text))
                benches[text] = replace(bench, sentences=sentences, loads=loads, tried={}, laid_out={})
            found = cell(benches[text], cap)
            benches[text].laid_out.clear()
            report["cells"].append({"text": text} | found)
            asked.out.write_text(json.dumps(report, separators=(",", ":")) + "\n", encoding="utf-8")
            print(line(text, found), f"{time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
