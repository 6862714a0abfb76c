# ruff: noqa: E501 - a row a line
"""What the sampler and the lines of JSON cost the tagger: calls with and without, in turn.

``python -m benchmarks.overhead --device cuda --size full --pairs 12 --out FILE`` is the same on a GPU.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import NormalDist, median
from typing import TextIO

from benchmarks import raw
from benchmarks.raw import Row
from jobkit.core import json_codec
from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.paths import cache_dir
from jobkit.planning import models
from jobkit.planning.sample import sample_text
from jobkit.worker import steps
from jobkit.worker.measure import nvml
from jobkit.worker.measure.memory import Device, open_device
from jobkit.worker.measure.sampler import Sampling, sampling
from jobkit.worker.paragraphs import Call
from jobkit.worker.workloads.stanza_ner import StanzaNer

TITLE = "Overhead of measuring"
MOST = 0.01
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is tagged, and where."""

    device: str = "cpu"
    size: str = "tiny"
    pairs: int = 20
    paragraphs: int = 300
    batch_size: int = 10


@dataclass(slots=True)
class Seen:
    """What was seen of the sampler, and the seconds of every call, with and without.

    ``calls`` holds ``(wall with, wall without, CPU with, CPU without)``; CPU is the tagging thread's.
    """

    calls: list[tuple[float, float, float, float]] = field(default_factory=list)
    samples: int = 0
    sampled_s: float = 0.0
    sampler_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """All that a call needs, ready."""

    workload: StanzaNer
    device: Device
    sampler: Sampling
    lines: TextIO

    def with_it(self, index: int, call: Call, seen: Seen) -> tuple[float, float]:
        """Do a call as a try does: sampled, measured, its line written; return wall and CPU seconds."""
        pid = self._woken()
        before = _cpu_s(pid)
        taken = _timed(lambda: self._measured(index, call))
        peaks = self.sampler.ask("peaks")
        seen.sampler_cpu_s += _cpu_s(pid) - before
        if peaks.sampler and peaks.sampler.period_s is not None:
            seen.samples += peaks.sampler.samples
            seen.sampled_s += peaks.sampler.samples * peaks.sampler.period_s
        return taken

    def _woken(self) -> int:
        """Let the sampler run, and have it do at once what it does once a second; return its id."""
        pid = self.sampler._process.pid  # noqa: SLF001 - to stop it between the calls
        os.kill(pid, signal.SIGCONT)
        for _ in range(2):
            self.sampler.ask("mark")
        return pid

    def _measured(self, index: int, call: Call) -> None:
        batch, _ = steps.run_call(call, self.workload, self.device)
        batch = replace(batch, index=index)
        self.lines.write(json_codec.to_json(batch) + "\n")
        self.lines.flush()

    def without_it(self, call: Call) -> tuple[float, float]:
        """Do a call and nothing else, after the same preparations; return wall and CPU seconds."""
        os.kill(self._woken(), signal.SIGSTOP)

        def bare() -> None:
            self.workload.process(call.paragraphs)
            self.device.synchronise()

        return _timed(bare)


def _timed(act: Callable[[], None]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.thread_time()
    act()
    return time.perf_counter() - wall, time.thread_time() - cpu


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(folder: Path) -> list[Row]:
    """Return the rows on the CPU, with the tiny stand-in and one thread."""
    return compare(Setting(), folder)


def compare(setting: Setting, folder: Path) -> list[Row]:
    """Return the rows of one setting; the model is built where it is missing."""
    named = {"size": setting.size, "fallback": "stand-in"}
    found = models.find("stanza-ner", named, Path(), cache_dir())
    model = models.build("stanza-ner", found, cache_dir(), say=say)
    workload = StanzaNer()
    device = open_device(setting.device)
    workload.load(Path(model.path), setting.device, {"batch_size": setting.batch_size}, 1)
    text = split_paragraphs(sample_text(setting.paragraphs))
    size = setting.batch_size
    cuts = (range(len(text))[start : start + size] for start in range(0, len(text), size))
    todo = [Call(tuple(cut), tuple(text[place] for place in cut)) for cut in cuts]
    seen = Seen()
    uuid = nvml.visible_uuid(device.cuda_uuid) if setting.device == "cuda" else None
    with (
        sampling([uuid] if uuid else []) as sampler,
        (folder / "batches.jsonl").open("a", encoding="utf-8") as lines,
    ):
        stage = Stage(workload, device, sampler, lines)
        _pair(stage, todo, Seen(), first=0)  # warm-up
        for number in range(setting.pairs):
            _pair(stage, todo, seen, first=number)
        os.kill(sampler._process.pid, signal.SIGCONT)  # noqa: SLF001 - so that it can end
    return _rows(setting, seen, _where(setting, device))


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _where(setting: Setting, device: Device) -> str:
    if setting.device == "cuda":
        return str(device.torch.cuda.get_device_name(0))
    return f"CPU ({platform.machine()})"


def _pair(stage: Stage, todo: Sequence[Call], seen: Seen, *, first: int) -> None:
    """Do every call twice, one after the other, once with and once without."""
    for index, call in enumerate(todo):
        if (index + first) % 2:
            without = stage.without_it(call)
            measured = stage.with_it(index, call, seen)
        else:
            measured = stage.with_it(index, call, seen)
            without = stage.without_it(call)
        seen.calls.append((measured[0], without[0], measured[1], without[1]))


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the two-sided confidence interval of a median, whatever the distribution.

    By the order statistics: how many values lie below the median is binomial.
    """
    found, n = sorted(values), len(values)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    below = max(0, math.floor(n / 2 - z * math.sqrt(n) / 2))
    return found[below], found[n - 1 - below]


def _rows(setting: Setting, seen: Seen, where: str) -> list[Row]:
    what = f"{setting.size} stand-in, {setting.paragraphs} paragraphs, {setting.batch_size} a call, {where}"
    period_s = seen.sampled_s / seen.samples
    share = seen.sampler_cpu_s / sum(call[0] for call in seen.calls)
    raw_calls: dict[str, object] = {"calls": [[round(one, 6) for one in call] for call in seen.calls]}
    return [
        _overhead(f"wall time added, {setting.pairs} pairs: {what}", [c[0] / c[1] - 1 for c in seen.calls], raw_calls),
        _overhead("CPU time added to the tagging thread", [c[2] / c[3] - 1 for c in seen.calls], {}),
        Row(what="sampler: achieved period (aim: 10 ms)", shown=f"{period_s * 1e3:.2f} ms", raw={"samples": seen.samples}),
        Row(what="sampler: share of one core, its own process", shown=f"{share:.1%}", raw={"cpu_s": seen.sampler_cpu_s}),
    ]  # fmt: skip


def _overhead(what: str, added: Sequence[float], told: dict[str, object]) -> Row:
    low, high = interval(added)
    shown = f"{median(added):+.2%}, 95 %: {low:+.2%} to {high:+.2%}"
    return Row(what=what, shown=shown, target="upper limit < 1 %", met=high < MOST, raw=told)


def of_a_setting(
    module: str, title: str, usual: Setting, compare: Callable[[Setting, Path], list[Row]]
) -> None:
    """Compare at the setting that the command line gives, and write the raw data."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=title)
    for name, value in asdict(usual).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--out", type=Path, required=True)
    chosen = vars(parser.parse_args())
    out, setting = chosen.pop("out"), Setting(**chosen)
    title = f"{title}, {setting.device}" if setting.device == "cuda" else title
    command = f"python -m benchmarks.{module} {shlex.join(sys.argv[1:])}"
    raw.write(out, title, command, lambda folder: compare(setting, folder))


if __name__ == "__main__":
    of_a_setting("overhead", TITLE, Setting(), compare)
