# ruff: noqa: T201 - it prints what it found
"""What each shortcut of ``shortcuts: exact`` gives, and that none changes an entity.

``python -m benchmarks.shortcuts gains --model DIR --device cuda --out FILE``: each shortcut alone, and added
to those before it, in one process and in 16 that share the GPU through MPS. The processes load once; the
calls come from one queue, sorted by length, and the time is that from the first call to the end of the last.

``python -m benchmarks.shortcuts equal --model DIR --device cuda --out FILE``: the SHA-256 of the entities of
stock Stanza and of ``exact``, for each batch size and number of processes.

``python -m benchmarks.shortcuts kernels --model DIR --out FILE``: the time of the kernels on a GPU.

``python -m benchmarks.shortcuts alone --model DIR --out FILE``: one process, several times in turn: the plain
loop with TF32 as PyTorch sets it and without, and stock next to ``exact`` with calls sorted by length.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobkit.core.knobs import BATCH_SIZE, OFF, SHORTCUTS
from jobkit.planning.sample import SEED, generate
from jobkit.worker.paragraphs import split_sentences
from jobkit.worker.workloads.stanza_ner import SentenceCut, StanzaNer

LOSS, DECODER, WORDS = "no loss", "no decoder", "no characters of words"
WHOLE, VITERBI, FREEZE = "whole calls in the tokenizer", "Viterbi by batch", "garbage collector between calls"
GATHER, FEATURES, ONCE = "words of a batch at once", "features once a character", "entities once"
PARTS = (LOSS, DECODER, WORDS, WHOLE, VITERBI, FREEZE, GATHER, FEATURES, ONCE)
"""In the order in which they are added up."""
BATCH_SIZES = (32, 64, 128, 300, 1000)
CALL, SENTENCES = 100, 150
"""Paragraphs of a call and sentences of an NER batch, where gains are measured."""
SORTED_CALLS = {"paragraphs_per_call": CALL, "sentences_per_ner_batch": SENTENCES, "order": "sorted"}
LOOP = 300
"""Paragraphs of a call, and sentences of an NER batch, of the plain loop."""


class Tagger:
    """One process of a benchmark: a loaded workload, and some of the shortcuts."""

    def __init__(self, model: Path, device: str, **params: Any) -> None:  # noqa: ANN401 - knobs
        self.device = device
        self.workload = StanzaNer()
        self.workload.load(model, device, {SHORTCUTS: OFF, **params}, 1)

    def cut(self, size: int) -> None:
        """Cut calls and NER batches as ``batch_size`` does."""
        self.workload._params = {BATCH_SIZE: size}  # noqa: SLF001 - the benchmark takes the workload apart
        self.workload._cut = SentenceCut(size=size)  # noqa: SLF001

    def use(self, parts: Sequence[str]) -> None:
        """Use these shortcuts, and no others."""
        from jobkit.worker.workloads import stanza_shortcuts

        workload = self.workload
        stock = workload._stock  # noqa: SLF001
        base = stanza_shortcuts.BatchTagger if ONCE in parts else stanza_shortcuts.Tagger
        batches = stanza_shortcuts.NoWordCharacters if WORDS in parts else stanza_shortcuts.StanzaBatches
        chosen: Any = type("Chosen", (base,), {"BATCHES": batches})
        tagger = chosen.of(stock["ner"], workload._cut)  # noqa: SLF001
        tagger.trainers = [_trainer(trainer, parts) for trainer in stock["ner"].trainers]
        tokenizer = stanza_shortcuts._tokenizer(stock["tokenize"]) if FEATURES in parts else stock["tokenize"]  # noqa: SLF001
        workload._use({"ner": tagger, "tokenize": tokenizer}, exact=WHOLE in parts)  # noqa: SLF001
        gc.unfreeze()
        gc.enable()
        gc.collect()
        if FREEZE in parts:
            gc.freeze()
            gc.disable()

    def process(self, paragraphs: Sequence[str]) -> tuple[Any, ...]:
        """Return the entities of a call."""
        found = self.workload.process(paragraphs).entities
        if not gc.isenabled():
            gc.collect()
        return found

    def reserved_bytes(self, *, reset: bool = False) -> int:
        """Return the most that torch's allocator held since the last reset."""
        if self.device != "cuda":
            return 0
        import torch

        peak = int(torch.cuda.max_memory_reserved())
        if reset:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return peak


def _trainer(trainer: Any, parts: Sequence[str]) -> Any:  # noqa: ANN401 - Stanza is untyped
    from stanza.models.ner.model import NERTagger
    from stanza.models.ner.trainer import Trainer
    from torch import nn

    from jobkit.worker.workloads import stanza_shortcuts as own
    from jobkit.worker.workloads.stanza_shortcuts import seen_as

    replaced: dict[str, Any] = {}
    for name in ("charmodel_forward", "charmodel_backward"):
        model = getattr(trainer.model, name)
        model = seen_as(own.Characters if GATHER in parts else type(model), model)
        replaced[name] = own.with_parts(model, **({"decoder": nn.Identity()} if DECODER in parts else {}))
    if LOSS in parts:
        replaced["crits"] = nn.ModuleList(seen_as(own.NoLoss, crit) for crit in trainer.model.crits)
    made = seen_as(own.BatchTrainer if VITERBI in parts else Trainer, trainer)
    vars(made).pop("predict", None)  # that of the other one, watched
    made.model = own.with_parts(seen_as(NERTagger, trainer.model), **replaced)
    return made


# -- processes


def work(connection: Any, counter: Any, model: Path, device: str, params: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Serve one benchmark: load, then for each order take calls from the queue until it is empty."""
    tagger = Tagger(model, device, **params)
    connection.send("loaded")
    while (order := connection.recv()) is not None:
        parts, calls, warm_up, size = order
        if size:
            tagger.cut(size)
        tagger.use(parts)
        tagger.process(warm_up)
        tagger.reserved_bytes(reset=True)
        connection.send("ready")
        connection.recv()
        cpu_s, found = time.process_time(), {}
        while (number := _next(counter)) < len(calls):
            found[number] = tagger.process(calls[number])
        end_s, used_s = time.monotonic(), time.process_time() - cpu_s
        connection.send((end_s, used_s, tagger.reserved_bytes(), found))


def _next(counter: Any) -> int:  # noqa: ANN401 - multiprocessing is untyped here
    with counter.get_lock():
        counter.value += 1
        return int(counter.value) - 1


class Pool:
    """Some processes with one model each."""

    def __init__(self, count: int, model: Path, device: str, **params: Any) -> None:  # noqa: ANN401 - knobs
        context = multiprocessing.get_context("spawn")
        self.counter = context.Value("i", 0)
        self.connections, self.processes = [], []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, self.counter, model, device, params))
            process.start()
            self.connections.append(ours)
            self.processes.append(process)
        for connection in self.connections:
            connection.recv()

    def run(self, parts: Sequence[str], calls: Sequence[Sequence[str]], size: int = 0) -> dict[str, Any]:
        """Work through calls with these shortcuts; return what was measured."""
        self.counter.value = 0
        for connection in self.connections:
            connection.send((parts, calls, calls[len(calls) // 2], size))
        for connection in self.connections:
            connection.recv()
        begin_s = time.monotonic()
        for connection in self.connections:
            connection.send("go")
        ends = [connection.recv() for connection in self.connections]
        found = {number: rows for *_, some in ends for number, rows in some.items()}
        paragraphs, seconds = sum(map(len, calls)), max(end for end, *_ in ends) - begin_s
        rows = [found[number] for number in range(len(calls))]
        return {
            "shortcuts": list(parts),
            "processes": len(self.processes),
            "paragraphs": paragraphs,
            "seconds": seconds,
            "paragraphs_per_s": paragraphs / seconds,
            "cpu_ms_per_paragraph": 1000 * sum(used for _, used, *_ in ends) / paragraphs,
            "reserved_bytes": sum(reserved for _, _, reserved, _ in ends),
            "entities": sum(map(len, rows)),
            "sha256": hashlib.sha256(repr(rows).encode()).hexdigest(),
        }

    def close(self) -> None:
        """End the processes."""
        for connection in self.connections:
            connection.send(None)
        for process in self.processes:
            process.join()


@contextlib.contextmanager
def mps(device: str) -> Iterator[None]:
    """Run a daemon of NVIDIA's MPS with folders of its own, if there is a GPU."""
    command = shutil.which("nvidia-cuda-mps-control") if device == "cuda" else None
    if command is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:  # a daemon runs already
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        os.environ |= own
        subprocess.run([command, "-d"], check=True)  # noqa: S603 - by its path
        try:
            yield
        finally:
            subprocess.run([command], input="quit\n", text=True, check=False)  # noqa: S603 - by its path
            for name in own:
                os.environ.pop(name)


def text_of(paragraphs: int) -> list[str]:
    """Return so many paragraphs: the sample, again and again."""
    sample = generate(SEED).paragraphs
    return [sample[number % len(sample)] for number in range(paragraphs)]


def cut(paragraphs: Sequence[str], size: int, *, by_length: bool) -> list[list[str]]:
    """Return paragraphs as calls."""
    if by_length:
        longest = {text: max(map(len, split_sentences(text)), default=0) for text in set(paragraphs)}
        paragraphs = sorted(paragraphs, key=lambda text: longest[text], reverse=True)
    return [list(paragraphs[at : at + size]) for at in range(0, len(paragraphs), size)]


# -- the benchmarks


def gains(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield speed, CPU time and memory with each shortcut alone, and added up."""
    added = [PARTS[:number] for number in range(len(PARTS) + 1)]
    alone = [(part,) for part in PARTS[1:]]
    for processes, paragraphs in ((1, arguments.alone), (arguments.processes, arguments.together)):
        calls = cut(text_of(paragraphs), CALL, by_length=True)
        with mps(arguments.device) if processes > 1 else contextlib.nullcontext():
            pool = Pool(
                processes, arguments.model, arguments.device, precision=arguments.precision, **SORTED_CALLS
            )
            for parts in [*added, *alone]:
                yield pool.run(parts, calls)
            pool.close()


def equal(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the entities' SHA-256 of both ways, for each batch size and number of processes."""
    with mps(arguments.device):
        many = Pool(arguments.processes, arguments.model, arguments.device, precision="fp32")
        for size in arguments.sizes:
            for paragraphs in (881, arguments.paragraphs):
                calls = cut(text_of(paragraphs), size, by_length=False)
                for parts in ((), tuple(part for part in PARTS if part not in _left_out(arguments.device))):
                    yield {"batch_size": size, **many.run(parts, calls, size)}
        many.close()


def alone(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield speeds of one process, several times in turn: the plain loop and sorted calls, two precisions."""
    texts: dict[str, tuple[list[list[str]], dict[str, Any]]] = {
        "text": (cut(text_of(arguments.alone), LOOP, by_length=False), {BATCH_SIZE: LOOP}),
        "sorted": (cut(text_of(arguments.alone), CALL, by_length=True), SORTED_CALLS),
    }
    pools = {
        (precision, order): Pool(1, arguments.model, arguments.device, precision=precision, **params)
        for precision in ("", "fp32")
        for order, (_, params) in texts.items()
    }
    for repeat in range(1, arguments.repeats + 1):
        for (precision, order), pool in pools.items():
            for parts in ((), (FREEZE,), PARTS):
                row = {"precision": precision or "as PyTorch sets it", "order": order, "repeat": repeat}
                yield row | pool.run(parts, texts[order][0])
    for pool in pools.values():
        pool.close()


def kernels(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the time of the kernels of one process, stock and with all shortcuts."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    tagger = Tagger(arguments.model, arguments.device, precision=arguments.precision, **SORTED_CALLS)
    calls = cut(text_of(arguments.alone), CALL, by_length=True)
    for parts in ((), PARTS):
        tagger.use(parts)
        tagger.process(calls[0])
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for call in calls:
                tagger.process(call)
            torch.cuda.synchronize()
        spent = {event.key: event.self_device_time_total / 1000 for event in profiled.key_averages()}
        longest = sorted(spent, key=lambda name: spent[name], reverse=True)[:12]
        yield {
            "shortcuts": list(parts),
            "precision": arguments.precision,
            "paragraphs": arguments.alone,
            "kernels_ms_per_paragraph": sum(spent.values()) / arguments.alone,
            "longest_ms": {name[:90]: spent[name] for name in longest},
        }


BENCHMARKS = {"gains": gains, "equal": equal, "kernels": kernels, "alone": alone}


def _left_out(device: str) -> tuple[str, ...]:
    return () if device == "cuda" else (WHOLE,)


def main() -> None:
    """Measure one of them, and write the raw figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=BENCHMARKS)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--alone", type=int, default=1_762, help="paragraphs for one process")
    parser.add_argument("--repeats", type=int, default=5, help="of alone")
    parser.add_argument("--together", type=int, default=17_620, help="paragraphs for all processes")
    parser.add_argument("--sizes", type=int, nargs="+", default=BATCH_SIZES, help="batch sizes of equal")
    parser.add_argument("--paragraphs", type=int, default=10_000, help="of the longer text of equal")
    arguments = parser.parse_args()
    measured = []
    for row in BENCHMARKS[arguments.what](arguments):
        measured.append(row)
        print({key: value for key, value in row.items() if key != "shortcuts"}, *row["shortcuts"], flush=True)
        arguments.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
