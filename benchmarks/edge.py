# ruff: noqa: T201 - it prints what it found
"""The largest batch on a real GPU: jobkit's prediction next to what searching for it finds.

``PYTORCH_ALLOC_CONF=expandable_segments:True python -m benchmarks.edge --text sample:9999 --out FILE``

One process an allocator setting and text. A trial tags the worst batch of a batch size under a cap
on the allocator (in text order: the whole pass), whoever asks for it; its time is measured once and
charged to every contender that runs it. The time to start a process is measured too, for a user's
trials are jobs. Batch sizes mean the envelope: this one and all smaller ones. ``--turn FILE`` lets
several processes read their text side by side and measure one after the other.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from jobkit.answers.loads import Lengths, Loads
from jobkit.answers.memory import ALLOCATED, NEED, Memory
from jobkit.answers.memory_line import Observation, fit_memory
from jobkit.core.measurements import Need
from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.paths import cache_dir
from jobkit.core.records import Outcome
from jobkit.planning import models
from jobkit.planning.batch_sizes import share, sizes
from jobkit.planning.sample import sample_text
from jobkit.worker.failure import outcome_of
from jobkit.worker.measure import memory
from jobkit.worker.measure.memory import Device, open_device
from jobkit.worker.workloads.base import Heavy
from jobkit.worker.workloads.stanza_ner import StanzaNer, columns_of
from tests.support import builders

GIB = 2**30
CAPS_GIB = (4.0, 8.0, 16.0, 40.0)
SIZE_BYTES_PER_LOAD, SIZE_BYTES = 12_300.0, 0.25 * GIB
"""A rough line, only to place the points: the largest at about a quarter of what the card takes."""
LIGHTNING_FIRST = 2
"""Where Lightning's batch-size finder begins doubling (its ``init_val``)."""
SCAN = 12
"""Batch sizes tried below the edge that bisection found, to see whether all of them pass."""
SCAN_SHARE = 0.25
"""How far below it, as a share of it; down to the safe batch where that is lower."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A batch size tried under a cap; what tensors held before it tells whether all began alike."""

    batch: int
    load: int
    passed: bool
    seconds: float
    held_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as Stanza tokenised it, and the columns that it takes in a batch."""

    parsed: Any
    columns: int


@dataclass(slots=True)
class Bench:
    """The text, tokenised once, and the tagger on the card."""

    device: Device
    tagger: StanzaNer
    sentences: list[list[Sentence]]
    loads: Loads
    order: str
    allocator: str | None
    start_s: float
    tried: dict[tuple[int, int | None], Trial] = field(default_factory=dict)
    laid_out: dict[int, Callable[[], object]] = field(default_factory=dict)

    def work(self, batch: int) -> Callable[[], object]:
        """Return what a trial of a batch size does: its worst batch, or the pass in text order."""
        if self.order == "text":
            pieces = [self.tag(chunk) for chunk in self.chunks(batch)]
            return lambda: [piece() for piece in pieces]
        _, source = self.loads.worst(batch)
        if source not in self.laid_out:
            self.laid_out[source] = self.tag(self.worst(batch))
        return self.laid_out[source]

    def worst(self, batch: int) -> list[Sentence]:
        """Return the sentences of the largest load of this batch size and all smaller ones."""
        _, source = self.loads.worst(batch)
        return max(self.chunks(source), key=lambda one: len(one) * _longest(one))

    def tag(self, sentences: Sequence[Sentence]) -> Callable[[], object]:
        """Return a function that tags these sentences as one NER batch."""
        return self.tagger.again([one.parsed for one in sentences], _longest(sentences))[0].again

    def chunks(self, batch: int) -> list[list[Sentence]]:
        """Return the NER batches of a batch size, in text order."""
        found = []
        for first in range(0, len(self.sentences), batch):
            call = [one for paragraph in self.sentences[first : first + batch] for one in paragraph]
            found += [call[left : left + batch] for left in range(0, len(call), batch)]
        return found

    def trial(self, batch: int, cap_bytes: int | None) -> Trial:
        """Try a batch size under a cap, once."""
        if (batch, cap_bytes) not in self.tried:
            self.device.cap(None)
            self.device.empty_cache()
            self.device.cap(cap_bytes)
            work, held_bytes = self.work(batch), self.device.allocated_bytes()
            start = time.perf_counter()
            try:
                work()
                self.device.synchronise()
                passed = True
            except Exception as error:
                if outcome_of(error)[0] is not Outcome.GPU_OOM:
                    raise
                passed = False
            seconds = time.perf_counter() - start
            self.device.empty_cache()
            load = self.loads.load(batch)
            self.tried[batch, cap_bytes] = Trial(batch, load, passed, seconds, held_bytes)
        return self.tried[batch, cap_bytes]


def _longest(sentences: Sequence[Sentence]) -> int:
    return max(sentence.columns for sentence in sentences)


@dataclass(slots=True)
class Search:
    """What a contender tried and found."""

    name: str
    found: int
    trials: list[Trial]
    extra_s: float = 0.0

    def summary(self, start_s: float) -> dict[str, Any]:
        """Return trials and seconds, without and with a process start each."""
        work_s = sum(trial.seconds for trial in self.trials) + self.extra_s
        return {
            "name": self.name,
            "found": self.found,
            "trials": len(self.trials),
            "out_of_memory": sum(not trial.passed for trial in self.trials),
            "work_s": work_s,
            "with_starts_s": work_s + start_s * len(self.trials),
            "tried": [asdict(trial) for trial in self.trials],
        }


def bisection(trial: Callable[[int], Trial], most: int) -> Search:
    """Search all batch sizes by halving."""
    low, high, done = 0, most + 1, []
    while high - low > 1:
        middle = (low + high) // 2
        done.append(trial(middle))
        low, high = (middle, high) if done[-1].passed else (low, middle)
    return Search("bisection", low, done)


def doubling(trial: Callable[[int], Trial], most: int, *, then_halve: bool) -> Search:
    """Double until it fails, as Lightning's finder does, and in its ``binsearch`` mode halve then.

    Like it, this tries one size beyond the text, which then is one batch, and stops if that passes.
    https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/tuner/batch_size_scaling.py
    """
    low, high, size, done = 1, 0, LIGHTNING_FIRST, []
    while not high or (then_halve and high - low > 1):
        done.append(trial(size))
        low, high = (size, high) if done[-1].passed else (low, size)
        if low >= most:
            break
        size = (low + high) // 2 if high else 2 * size
    return Search("Lightning, binsearch" if then_halve else "Lightning, power", min(low, most), done)


def below(truth: int, safe: int) -> range:
    """Return the batch sizes from an edge downwards that are tried for holes."""
    floor = min(truth - truth * SCAN_SHARE, safe or truth)
    return range(truth, int(max(floor, 1)) - 1, -max(1, round((truth - floor) / SCAN)))


def jobkit(bench: Bench, cap_bytes: int, up_to: float | None = None) -> tuple[Search, dict[str, Any]]:
    """Measure a few small points, fit, and verify with one run."""
    largest_load = (cap_bytes - SIZE_BYTES) / SIZE_BYTES_PER_LOAD
    chosen = sizes(bench.loads, largest_load, share=up_to or share(cap_bytes)).batch_sizes
    start = time.perf_counter()
    told_by = {batch: needs(bench, batch) for batch in chosen}
    need_s = time.perf_counter() - start
    slack = max(one.reserved_bytes / one.allocated_bytes for many in told_by.values() for one in many)
    fit = fit_memory(
        [
            Observation(one.load, _bytes(bench, one, slack), f"{batch}")
            for batch in chosen
            for one in told_by[batch]
        ],
        in_steps=bench.order == "load",
    )
    kind = NEED if bench.order == "load" else ALLOCATED
    found = Memory(kind=kind, line=fit, load_by_batch={}, loads=bench.loads).predict(cap_bytes)
    done = [
        Trial(batch, bench.loads.load(batch), passed=True, seconds=sum(one.seconds for one in told_by[batch]))
        for batch in chosen
    ]
    if found.safe_batch:
        done.append(bench.trial(found.safe_batch, cap_bytes))
    told = asdict(found) | {"fit": fit if isinstance(fit, str) else asdict(fit), "slack": slack}
    points = [{"batch": batch, "needs": [asdict(one) for one in told_by[batch]]} for batch in chosen]
    return Search("jobkit", found.safe_batch, done), told | {"points": points, "need_s": need_s}


def _bytes(bench: Bench, one: Need, slack: float) -> float:
    """Return what a measurement counts, as `jobkit.answers.memory` takes it."""
    return one.passed_bytes if bench.order == "load" else one.allocated_bytes * slack


def needs(bench: Bench, batch: int) -> Sequence[Need]:
    """Return what a point of this batch size tells, as `jobkit.worker.work` measures it."""
    point = replace(builders.point(), order="load", allocator=bench.allocator, cap_bytes=None)
    if bench.order == "load":
        worst = bench.worst(batch)
        heavy = bench.tagger.again([one.parsed for one in worst], _longest(worst))
        return memory.measure_needs(bench.device, heavy, point)
    whole = Heavy(bench.loads.load(batch), bench.work(batch))
    return memory.measure_needs(bench.device, [whole], replace(point, allocator=None))


def cell(bench: Bench, cap_gib: float) -> dict[str, Any]:
    """Return what every contender found under one cap."""
    cap_bytes = int(cap_gib * GIB)
    mine, told = jobkit(bench, cap_bytes)
    most = bench.loads.limit
    searches = [bisection(lambda batch: bench.trial(batch, cap_bytes), most)]
    if bench.order == "load":  # a pass in text order takes too long to be searched three times
        searches += [
            doubling(lambda batch: bench.trial(batch, cap_bytes), most, then_halve=halve)
            for halve in (True, False)
        ]
    truth = searches[0].found
    sizes = () if truth >= most else below(truth, mine.found)
    scanned = [bench.trial(batch, cap_bytes) for batch in sizes]
    failing = [one.batch for one in scanned if not one.passed]
    return {
        "cap_gib": cap_gib,
        "saturated": truth >= most,
        "truth": truth,
        "truth_load": bench.loads.load(truth),
        "first_failing_below": min(failing, default=None),
        "scanned": [asdict(one) for one in scanned],
        "prediction": told,
        "contenders": [one.summary(bench.start_s) for one in (mine, *searches)],
    }


def paragraphs_of(text: str) -> list[str]:
    """Return the paragraphs of ``sample``, ``sample:N``, its shorter ones (``sample:N<400``), or a file."""
    name, _, longest = text.partition("<")
    if name != "sample" and not name.startswith("sample:"):
        return list(split_paragraphs(Path(text).read_text(encoding="utf-8")))
    number = 881 if name == "sample" else int(name.partition(":")[2])
    found = split_paragraphs(sample_text(number))
    return [one for one in found if not longest or len(one) <= int(longest)]


def load(text: str, size: str, order: str) -> Bench:
    """Return the bench of a text, and in it the time from nothing to a loaded model."""
    start = time.perf_counter()
    device = open_device("cuda")
    named = {"size": size, "fallback": "stand-in"}
    found = models.find("stanza-ner", named, Path(), cache_dir())
    model = models.build("stanza-ner", found, cache_dir(), say=print)
    before = time.perf_counter()
    tagger = StanzaNer()
    tagger.load(Path(model.path), "cuda", {}, 4)
    tagger.process(["A warm-up, so that the kernels are there."])
    device.synchronise()
    start_s = time.perf_counter() - start
    print(f"start {start_s:.1f} s, of it the model {time.perf_counter() - before:.1f} s", flush=True)
    sentences, loads = tokenised(tagger, paragraphs_of(text))
    return Bench(device, tagger, sentences, loads, order, os.environ.get("PYTORCH_ALLOC_CONF"), start_s)


def tokenised(tagger: StanzaNer, paragraphs: Sequence[str]) -> tuple[list[list[Sentence]], Loads]:
    """Return the sentences of each paragraph, and the loads that they make."""
    sentences: list[list[Sentence]] = []
    for first in range(0, len(paragraphs), 1000):
        sentences += [
            [Sentence(one, columns_of(one)) for one in parsed]
            for parsed in tagger.tokenised(paragraphs[first : first + 1000])
        ]
    return sentences, Loads(
        Lengths(paragraphs=tuple(tuple(one.columns for one in many) for many in sentences))
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells and write them after each, so that a time limit loses no more than one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", default="sample", help="sample, sample:N, sample:N<400, or a file")
    parser.add_argument("--size", default="full")
    parser.add_argument("--order", choices=["load", "text"], default="load")
    parser.add_argument("--caps", default=",".join(map(str, CAPS_GIB)), help="GiB of allocator memory")
    parser.add_argument("--turn", type=Path, help="a file to be locked while measuring")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    bench = load(asked.text, asked.size, asked.order)
    gc.freeze()  # the text that the bench keeps is none of what a trial's garbage collection goes through
    if asked.turn:
        turn = asked.turn.open("w")
        fcntl.flock(turn, fcntl.LOCK_EX)
    torch = bench.device.torch
    report: dict[str, Any] = {
        "text": asked.text,
        "order": asked.order,
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF") or "default",
        "gpu": torch.cuda.get_device_name(0),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": dict(bench.tagger.versions()),
        "paragraphs": len(bench.loads.lengths.paragraphs),
        "sentences": sum(map(len, bench.loads.lengths.paragraphs)),
        "start_s": bench.start_s,
        "limit": bench.loads.limit,
        "cells": [],
    }
    for cap in map(float, asked.caps.split(",")):
        begun = time.perf_counter()
        report["cells"].append(cell(bench, cap))
        asked.out.write_text(json.dumps(report, separators=(",", ":")) + "\n", encoding="utf-8")
        last = report["cells"][-1]
        print(
            f"cap {cap} GiB: truth {last['truth']}, holes from {last['first_failing_below']},"
            f" predicted {last['prediction']['largest_batch']}, safe {last['prediction']['safe_batch']};"
            f" {time.perf_counter() - begun:.0f} s",
            *(f"{one['name']}: {one['trials']} trials, {one['work_s']:.1f} s" for one in last["contenders"]),
            sep="\n  ",
            flush=True,
        )


if __name__ == "__main__":
    main()
