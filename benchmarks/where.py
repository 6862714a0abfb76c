"""Where a paragraph's time goes in the tagger with ``shortcuts: exact``, and two builds next to each other.

``python -m benchmarks.where profile --model DIR --device cuda --out FILE``: one worker through calls of a
sweep, sorted by length: its speed and CPU time, and where its CPU time goes, by a sampler with 250 Hz; then
of a smaller part the operations and kernels that torch's profiler counts.

``python -m benchmarks.where sides --model DIR --device cuda --out FILE --builds A B``: folders with a
build of jobkit each. A try of ``python -m jobkit.worker`` with some workers in each, in turn; and the plain
loop.

``python -m benchmarks.where equal --model DIR --device cuda --out FILE``: how many paragraphs of the sample,
and hostile ones, have the tokens, the tags and the entities of stock Stanza with calls of the same size.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from jobkit.planning.sample import SEED, generate
from jobkit.worker.paragraphs import split_sentences

PARAGRAPHS, CALL, PADDED, LOOP = 881, 300, 310_000, 300
HZ = 250
SETTINGS: tuple[dict[str, int | str], ...] = (
    {"padded": PADDED, "paragraphs_per_call": CALL, "order": "sorted"},
    {"batch_size": 300},
    {"batch_size": 32},
)
"""Of which the first is a sweep's."""
LOOP_PART = 20
"""The plain loop works on one paragraph of so many."""


def text_of(copies: int) -> list[str]:
    """Return the built-in sample so many times."""
    some = list(generate(SEED, PARAGRAPHS).paragraphs)
    return some * copies or some[:60]


def calls_of(texts: Sequence[str]) -> list[list[str]]:
    """Return texts as the calls of a sweep, sorted by their longest sentence."""
    longest = {text: max(map(len, split_sentences(text)), default=0) for text in set(texts)}
    ordered = sorted(texts, key=lambda text: longest[text], reverse=True)
    return [ordered[at : at + CALL] for at in range(0, len(ordered), CALL)]


# -- one worker


class Sampler:
    """Adds up the CPU time of this process, by the innermost line of jobkit or Stanza.

    A signal waits for the end of a C function, so each look counts all that was used since the last one.
    """

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.last_s = 0.0

    def look(self, _number: int, frame: Any) -> None:  # noqa: ANN401 - a frame
        """Add what was used to where it is; the time of a C function is that of the line that called it."""
        used_s, self.last_s = time.process_time() - self.last_s, time.process_time()
        while frame and not any(part in frame.f_code.co_filename for part in ("/stanza/", "/jobkit/")):
            frame = frame.f_back
        where = "elsewhere"
        if frame:
            file = "/".join(frame.f_code.co_filename.split("/")[-2:])
            where = f"{file} {frame.f_code.co_qualname}:{frame.f_lineno}"
        self.counts[where] += used_s

    def __enter__(self) -> Self:
        self.last_s = time.process_time()
        signal.signal(signal.SIGPROF, self.look)
        signal.setitimer(signal.ITIMER_PROF, 1 / HZ, 1 / HZ)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def worked(workload: Any, calls: Sequence[Sequence[str]]) -> list[Any]:  # noqa: ANN401
    """Work through calls, as a worker does."""
    found = []
    for call in calls:
        found.append(workload.process(call).entities)
        gc.collect()
    return found


def profile(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what one worker costs, sampled and not, and what it launches."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    from jobkit.worker.workloads.stanza_ner import StanzaNer

    workload, on_gpu = StanzaNer(), arguments.device == "cuda"
    params = SETTINGS[0] | {"shortcuts": "exact"}
    workload.load(arguments.model, arguments.device, params, 1)
    texts = text_of(arguments.copies)
    calls, refused = calls_of(texts), workload.check_shortcuts(texts[:100])
    worked(workload, calls[: len(calls) // 8 + 1])
    gc.freeze()
    gc.disable()
    facts = {"cores": len(os.sched_getaffinity(0)), "paragraphs": len(texts), "refused": refused}
    for sampled in (False, True):
        sampler = Sampler()
        cpu_s, start_s = time.process_time(), time.perf_counter()
        if sampled:
            with sampler:
                found = worked(workload, calls)
        else:
            found = worked(workload, calls)
        wall_s, used_s = time.perf_counter() - start_s, time.process_time() - cpu_s
        yield facts | {
            "sampled": sampled,
            "paragraphs_per_s": len(texts) / wall_s,
            "wall_ms_per_paragraph": 1000 * wall_s / len(texts),
            "cpu_ms_per_paragraph": 1000 * used_s / len(texts),
            "entities": sum(map(len, found)),
            "sha256": hashlib.sha256(repr(found).encode()).hexdigest(),
            "where_ms": {
                name: round(1000 * used_s / len(texts), 5)
                for name, used_s in sorted(sampler.counts.items(), key=lambda one: -one[1])[:80]
            },
        }
    some = calls[:: max(1, len(calls) // 6)]
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with recorded(activities=activities) as trace:
        worked(workload, some)
        if on_gpu:
            torch.cuda.synchronize()
    count = sum(map(len, some))
    rows = trace.key_averages()
    operations = sorted(rows, key=lambda row: row.self_cpu_time_total, reverse=True)[:25]
    kernels = sorted(rows, key=lambda row: row.self_device_time_total, reverse=True)[:15]
    yield facts | {
        "paragraphs": count,
        "calls": len(some),
        "kernels_ms_per_paragraph": sum(row.self_device_time_total for row in rows) / 1000 / count,
        "operations": {
            row.key[:90]: [row.count, round(row.self_cpu_time_total / 1000, 3)] for row in operations
        },
        "kernels": {
            row.key[:90]: [row.count, round(row.self_device_time_total / 1000, 3)] for row in kernels
        },
    }


# -- next to stock Stanza


def hostile_paragraphs(count: int) -> list[str]:
    """Return paragraphs of odd characters, addresses, long words and no words, among others."""
    chance = random.Random(SEED)  # noqa: S311 - to be made again
    words = " ".join(generate(SEED, 40).paragraphs).split()
    odd = "\u2019\n\t\u2014\u00e9\u0085\u0097\u00a0\u2028\u3000\u00bd\U0001d4b30\x00\x07\x1b\x7f\u0130"
    addresses = [
        "a.b@c.org",
        "see http://www.x.com/y?z=1.",
        "www.jobs.gov,",
        "x.co",
        '"a b"@c.de',
        "3.5.",
        "U.S.",
    ]
    makes = [
        lambda: " ".join(chance.choices(words, k=chance.randint(1, 60))),
        lambda: "".join(chance.choices(odd + "aZ .,", k=chance.randint(1, 40))),
        lambda: " ".join(chance.choices(addresses + words[:20], k=chance.randint(1, 20))),
        lambda: " ".join(chance.choices(words, k=chance.randint(200, 500))),
        lambda: chance.choice("w\u4e2d.") * chance.randint(1, 1_200) + " " + chance.choice(words),
        lambda: "  ".join(chance.choices([*odd, *words], k=chance.randint(2, 50))),
        lambda: chance.choice(["", " ", "x", "\x00", " .", "Ada.", "\u0097", "A\n \nb", "\ufeff", "A  "]),
    ]
    return [chance.choice(makes[: 7 if number % 4 == 0 else 6])() for number in range(count)]


def equal(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield for some settings how many paragraphs are as those of stock Stanza."""
    from jobkit.worker.workloads.stanza_ner import StanzaNer

    texts = {
        "hostile": hostile_paragraphs(arguments.hostile),
        "sample": text_of(arguments.copies)[:PARAGRAPHS],
    }
    for params in SETTINGS:
        stock, exact = StanzaNer(), StanzaNer()
        for workload, shortcuts in ((stock, "off"), (exact, "exact")):
            workload.load(arguments.model, arguments.device, {**params, "shortcuts": shortcuts}, 1)
        for name, some in texts.items():
            found, expected = (_everything(workload, some) for workload in (exact, stock))
            pairs = [*zip(found, expected, strict=True)]
            yield {
                "text": name,
                "params": params,
                "paragraphs": len(some),
                "equal": sum(one == other for one, other in pairs),
                "entities": sum(len(other[1]) for _, other in pairs),
                "equal_entities": sum(len(other[1]) for one, other in pairs if one[1] == other[1]),
                "differ": [number for number, (one, other) in enumerate(pairs) if one != other][:20],
            }


def _everything(workload: Any, texts: Sequence[str]) -> list[Any]:  # noqa: ANN401
    size = workload.items_per_call()
    calls = [texts[at : at + size] for at in range(0, len(texts), size)]
    return [row for call in calls for row in workload._everything(call)]  # noqa: SLF001 - what its check compares


# -- two builds


def tried(build: Path, model: Path, device: str, texts: Sequence[str], **settings: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a point
    """Run a try of the worker of a build; return its speed, and the hash of its entities."""
    sys.path.insert(0, str(build))
    from jobkit.core.json_codec import to_json
    from jobkit.core.records import ModelRef, Point, TextRef
    from jobkit.worker.workloads.model import fingerprint

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs, out = folder / "inputs", folder / "out"
        inputs.mkdir()
        out.mkdir()
        text = "\n\n".join(texts).encode()
        (inputs / "text").write_bytes(text)
        (inputs / "model").symlink_to(model)
        digest = hashlib.sha256(text).hexdigest()
        point = Point(
            run_id="where",
            index=1,
            point_id="point",
            workload="stanza-ner",
            repeat=1,
            text=TextRef(path=str(inputs / "text"), sha256=digest, size_bytes=len(text), name="sample"),
            model=ModelRef(
                path=str(model),
                name="en",
                size="full",
                stand_in=True,
                fingerprint=fingerprint(model, "en", "stanza"),
                size_bytes=0,
            ),
            device=device,
            allocator="expandable_segments:True",
            threads=1,
            phase="search",
            **settings,
        )
        (folder / "points.jsonl").write_text(to_json(point) + "\n")
        words = ["--points", folder / "points.jsonl", "--point", "1", "--inputs", inputs, "--out", out]
        env = {**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        env["PYTHONPATH"] = os.pathsep.join([str(build), os.environ.get("PYTHONPATH", "")])
        start_s = time.perf_counter()
        done = subprocess.run(  # noqa: S603 - jobkit itself
            [sys.executable, "-m", "jobkit.worker", *map(str, words)],
            check=False,
            env=env,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        whole_s = time.perf_counter() - start_s
        if not (out / "record.json").exists():
            return {"error": done.stdout[-2000:]}
        record = json.loads((out / "record.json").read_text())
        rows = (out / "entities.tsv").read_bytes() if (out / "entities.tsv").exists() else b""
    summary = record["summary"] or {}
    return {
        "build": build.name,
        "outcome": record["outcome"],
        "log": "" if record["outcome"] == "ok" else done.stdout[-2000:],
        "paragraphs": len(texts),
        "paragraphs_per_s": summary.get("items", 0) / (summary.get("work_s") or 1e9),
        "whole_s": whole_s,
        "effective": record.get("effective"),
        "sha256": hashlib.sha256(b"".join(sorted(rows.splitlines(keepends=True)))).hexdigest(),
        "rows": rows.count(b"\n"),
        **{name: settings[name] for name in ("workers", "mps", "shortcuts", "params")},
    }


def sides(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the speeds of the builds, in turn."""
    texts, cores = text_of(arguments.copies), len(os.sched_getaffinity(0))
    settings = {
        "params": {"padded": arguments.padded},
        "order": "sorted",
        "work_unit": arguments.call,
        "shortcuts": "exact",
        "workers": arguments.workers,
        "mps": "auto" if arguments.device == "cuda" and arguments.workers > 1 else "off",
    }
    loop = {"params": {"batch_size": LOOP}, "order": "text", "shortcuts": "off", "workers": 1, "mps": "off"}
    if arguments.loop:
        [build, *_] = arguments.builds
        for _ in range(arguments.loop):
            found = tried(build, arguments.model, arguments.device, texts[: len(texts) // LOOP_PART], **loop)
            yield {"cores": cores, "loop": True, **found}
    for repeat in range(arguments.repeats):
        for build in arguments.builds[:: 1 if repeat % 2 else -1]:
            found = tried(build, arguments.model, arguments.device, texts, **settings)
            yield {"cores": cores, "repeat": repeat, **found}


def main() -> None:
    """Measure, and write the raw figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("profile", "equal", "sides"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--hostile", type=int, default=1_128, help="hostile paragraphs")
    parser.add_argument("--builds", type=Path, nargs="+")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--loop", type=int, default=0)
    parser.add_argument("--padded", type=int, default=PADDED)
    parser.add_argument("--call", type=int, default=CALL)
    arguments = parser.parse_args()
    measured = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    for row in {"profile": profile, "equal": equal, "sides": sides}[arguments.what](arguments):
        measured.append(row)
        shown = {key: value for key, value in row.items() if key not in {"where_ms", "operations", "kernels"}}
        sys.stdout.write(f"{shown}\n")
        sys.stdout.flush()
        arguments.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
