# ruff: noqa: T201 - it prints what it found
"""The largest batch that jobkit names, in a user's script: with the lines that jobkit prints, and without.

``python -m benchmarks.user_script --out FILE`` on a machine with a GPU. It has jobkit find the largest batch
of bert-base (random weights) on the sample under a cap, writes the script below, pastes the lines of ``jobkit
recommend`` above it, and runs it: as jobkit ran, in text order, and without the lines. About two minutes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobkit.core.layout import read_points
from jobkit.core.records import Point
from jobkit.core.units import parse_size
from jobkit.runs.trials import trials

SPEC = """\
name: user-script
workload: hf-token-classification
model: {{name: dslim/bert-base-NER, size: {size}, fallback: stand-in}}
device: auto
find_max: {{memory: {memory}}}
sweep: {{batch_size: auto}}
repeats: 1
resources: {{gpus: 1}}
scheduler: local
"""
USER = """\
import re, sys, torch
from transformers import pipeline
model, text, batch, cap, order = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
gpu = torch.cuda.is_available()
if gpu: torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.get_device_properties(0).total_memory)
how = dict(aggregation_strategy="simple", stride=64, device=0 if gpu else -1)
tagger = pipeline("token-classification", model=model, **how)
texts = re.split(r"\\n\\s*\\n", open(text, encoding="utf-8").read().strip())
calls = [texts[at : at + batch] for at in range(0, len(texts), batch)]
if order == "load": calls.sort(key=lambda call: -len(call) * max(map(len, call)))
done = sum(len(tagger(call, batch_size=batch)) for call in calls)
print(done, torch.cuda.max_memory_reserved() if gpu else 0)
"""
"""What a user writes; the line with the cap makes a large GPU one of the size in question."""
OUT_OF_MEMORY = "OutOfMemoryError"


def jobkit(*words: str) -> str:
    """Return the output of a command of jobkit in this Python."""
    command = [sys.executable, "-m", "jobkit", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - our own


def largest(folder: Path, memory: str, size: str) -> tuple[Path, Point, int]:
    """Return the run in which jobkit found the largest batch, a point of it, and that batch."""
    spec = folder / "user-script.yaml"
    spec.write_text(SPEC.format(size=size, memory=memory), encoding="utf-8")
    jobkit("sweep", str(spec), "--wait", "--runs-dir", str(folder / "runs"))
    (run,) = (folder / "runs").iterdir()
    held = [trial for trial in trials(run) if trial.held]
    if not held:
        raise SystemExit(f"jobkit found no batch that fits: {trials(run)}")
    return run, read_points(run)[0][0], held[-1].batch_size


def arm(folder: Path, point: Point, batch: int, cap_bytes: int, lines: Sequence[str], order: str) -> Any:  # noqa: ANN401 - JSON
    """Return how the user's script ended below some lines of a job script."""
    assert point.model  # noqa: S101 - a tagger has one
    words = [sys.executable, str(folder / "user.py"), point.model.path, point.text.path]
    script = "\n".join([*lines, shlex.join([*words, str(batch), str(cap_bytes + 1024), order])])
    start = time.monotonic()
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)  # noqa: S603, S607 - our own
    found: dict[str, Any] = {"order": order, "lines": list(lines), "status": ended.returncode}
    found["seconds"] = round(time.monotonic() - start, 1)
    if ended.returncode == 0:
        found["paragraphs"], found["reserved_bytes"] = map(int, ended.stdout.split())
    else:
        found["error"] = OUT_OF_MEMORY if OUT_OF_MEMORY in ended.stderr else ended.stderr[-2000:]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Find the largest batch, and run the script in three ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="4GiB", help="of PyTorch's allocator")
    parser.add_argument("--size", default="full", choices=["full", "tiny"])
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, point, batch = largest(folder, asked.memory, asked.size)
        conditions = json.loads(jobkit("recommend", str(run), "--json"))["conditions"]
        lines = conditions["lines"]
        (folder / "user.py").write_text(USER, encoding="utf-8")
        cap_bytes = parse_size(asked.memory)
        arms = [
            arm(folder, point, batch, cap_bytes, *way)
            for way in ((lines, "load"), (lines, "text"), ((), "load"))
        ]
        report = {
            "memory": asked.memory,
            "batch_size": batch,
            "device": point.device,
            "conditions": conditions,
            "trials": (run / "trials.jsonl").read_text(encoding="utf-8").splitlines(),
            "script": USER,
            "arms": arms,
        }
    asked.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"batch_size {batch} in {asked.memory}, on {point.device}")
    for one in arms:
        lines_ = "with" if one["lines"] else "without"
        done = one.get("error") or f"{one['reserved_bytes'] / 2**30:.2f} GiB reserved"
        print(f"  {lines_} the lines, order {one['order']}: {done}, {one['seconds']} s")


if __name__ == "__main__":
    main()
