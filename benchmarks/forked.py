"""What a fork from a process that has imported the framework saves: forked and fresh tries, in pairs.

``python -m benchmarks.forked --device cuda --size full --pairs 8 --out FILE`` is the same on a GPU.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.overhead import Setting, interval, of_a_setting, say
from benchmarks.raw import Row
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import ENTITIES_FILE, POINTS_FILE, RECORD_FILE
from jobkit.core.paths import cache_dir
from jobkit.core.records import Record
from jobkit.core.units import format_bytes_gib
from jobkit.planning import models
from jobkit.planning.points import Inputs, plan
from jobkit.planning.texts import find_text
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.worker import parent
from jobkit.worker.process import ALLOCATOR_VARIABLES

TITLE = "Forked tries"
LEAST = 0.80
"""Of the seconds of the import, what a fork has to save."""
SAME_MEMORY = 0.01


USUAL = Setting(pairs=8, paragraphs=60, batch_size=20)


@dataclass(frozen=True, slots=True)
class Tried:
    """A try: its seconds from the start of its process to the end, its record, and its entities."""

    seconds: float
    record: Record
    entities: bytes


class Tries:
    """Runs the tries of one point, each in a folder of its own."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        self._folder = folder
        self._count = 0
        (folder / "inputs").mkdir()
        text = find_text(f"sample:{setting.paragraphs}", base=folder, cache=cache_dir())
        named = {"size": setting.size, "fallback": "stand-in"}
        found = models.find("stanza-ner", named, Path(), cache_dir())
        model = models.build("stanza-ner", found, cache_dir(), say=say)
        (folder / "inputs" / "text").symlink_to(text.path)
        (folder / "inputs" / "model").symlink_to(model.path)
        spec = SweepSpec.model_validate({"name": "b", "sweep": {"batch_size": [setting.batch_size]}})
        point, *_ = plan(spec, Inputs(run_id="b-1", text=text, model=model, device=setting.device))
        (folder / POINTS_FILE).write_text(to_json(point) + "\n", encoding="utf-8")
        self._environment = {**os.environ, **dict.fromkeys(ALLOCATOR_VARIABLES, point.allocator or "")}
        self._environment.pop(parent.VARIABLE, None)

    def run(self, *, forked: bool) -> Tried:
        """Run a try as the job script does; check that it succeeded in the way that was asked for."""
        self._count += 1
        out = self._folder / str(self._count)
        out.mkdir()
        paths = {"points": self._folder / POINTS_FILE, "inputs": self._folder / "inputs", "out": out}
        words = ["--point", "1", *(word for name, path in paths.items() for word in (f"--{name}", str(path)))]
        owner = {parent.VARIABLE: str(os.getpid())} if forked else {}
        began_s = time.perf_counter()
        argv = [sys.executable, "-m", "jobkit.worker", *words]
        subprocess.run(argv, env={**self._environment, **owner}, check=True)  # noqa: S603 - our own module
        seconds = time.perf_counter() - began_s
        text = (out / RECORD_FILE).read_text(encoding="utf-8")
        record = from_json(Record, text, where=str(out))
        if record.forked != forked:
            raise RuntimeError(f"{out}: forked is {record.forked}; the log above has the reason")
        return Tried(seconds, record, (out / ENTITIES_FILE).read_bytes())


def measure(folder: Path) -> list[Row]:
    """Return the rows on the CPU, with the tiny stand-in."""
    return compare(USUAL, folder)


def compare(setting: Setting, folder: Path) -> list[Row]:
    """Return the rows of one setting; the model is built if it is missing."""
    tries = Tries(folder, setting)
    first = tries.run(forked=True)  # it starts the parent
    tries.run(forked=False)  # the files are in the page cache from now on
    pairs = []
    for number in range(setting.pairs):
        order = (True, False) if number % 2 else (False, True)
        pair = {forked: tries.run(forked=forked) for forked in order}
        pairs.append((pair[True], pair[False]))
    return [*_times(setting, pairs, first), *_memories(pairs), _entities(pairs)]


def _times(setting: Setting, pairs: Sequence[tuple[Tried, Tried]], first: Tried) -> list[Row]:
    """Return the rows of seconds."""
    what = f"{setting.size} stand-in, {setting.paragraphs} paragraphs, {_where(setting, first.record)}"
    shares = [(fresh.seconds - forked.seconds) / (fresh.record.import_s or 0.0) for forked, fresh in pairs]
    ratios = [forked.seconds / fresh.seconds for forked, fresh in pairs]
    fresh_s = [fresh.seconds for _, fresh in pairs]
    import_s = [fresh.record.import_s or 0.0 for _, fresh in pairs]
    return [
        Row(what=f"a fresh try: {what}", shown=_spread(fresh_s), raw={"fresh_s": fresh_s}),
        Row(what="of it, the import", shown=_spread(import_s), raw={"import_s": import_s}),
        *_parts([fresh.record for _, fresh in pairs], "of it"),
        Row(
            what="a forked try",
            shown=_spread([forked.seconds for forked, _ in pairs]),
            raw={"forked_s": [forked.seconds for forked, _ in pairs]},
        ),
        *_parts([forked.record for forked, _ in pairs], "of it"),
        Row(what="the first forked try, which waits for the parent", shown=f"{first.seconds:.2f} s"),
        Row(what="forked / fresh, of a pair", shown=_spread(ratios, ""), raw={"ratios": ratios}),
        Row(
            what="seconds saved / seconds of the import, of a pair",
            shown=_spread(shares, ""),
            target=f">= {LEAST:.2f}",
            met=median(shares) >= LEAST,
            raw={"shares": shares},
        ),
    ]


def _parts(records: Sequence[Record], what: str) -> list[Row]:
    """Return the rows of loading, which creates the CUDA context, and of the warm-up."""
    load_s = [record.load_s or 0.0 for record in records]
    warm_up_s = [record.warm_up_s or 0.0 for record in records]
    return [
        Row(what=f"{what}, loading the model", shown=_spread(load_s), raw={"load_s": load_s}),
        Row(what=f"{what}, the warm-up", shown=_spread(warm_up_s), raw={"warm_up_s": warm_up_s}),
    ]


def _memories(pairs: Sequence[tuple[Tried, Tried]]) -> list[Row]:
    """Return the rows of memory: of the GPU if there is one, and of the host."""
    rows = []
    for name, what in (("process_peak_bytes", "GPU memory"), ("context_bytes", "CUDA context")):
        sizes = [[getattr(tried.record.memory, name) for tried in pair] for pair in pairs]
        if all(None not in pair for pair in sizes):
            rows.append(_same(what, name, sizes))
    host = [[tried.record.memory.ram_peak_bytes or 0 for tried in pair] for pair in pairs]
    shown = " and ".join(format_bytes_gib(median(sizes)) for sizes in zip(*host, strict=True))
    what = "host memory, forked (with its parent) and fresh"
    return [*rows, Row(what=what, shown=shown, raw={"ram_peak_bytes": host})]


def _same(what: str, name: str, sizes: Sequence[Sequence[int]]) -> Row:
    """Return the row of a memory that a fork must not change."""
    ratios = [forked / fresh for forked, fresh in sizes]
    return Row(
        what=f"{what}, forked / fresh",
        shown=_spread(ratios, "", digits=4),
        target=f"within {SAME_MEMORY:.0%}",
        met=max(abs(ratio - 1) for ratio in ratios) <= SAME_MEMORY,
        raw={name: sizes},
    )


def _entities(pairs: Sequence[tuple[Tried, Tried]]) -> Row:
    same = len({tried.entities for pair in pairs for tried in pair}) == 1
    return Row(what="entities", shown="the same" if same else "differ", target="the same", met=same)


def _where(setting: Setting, record: Record) -> str:
    return record.gpu.name if record.gpu else f"{setting.device.upper()} ({platform.machine()})"


def _spread(values: Sequence[float], unit: str = " s", *, digits: int = 2) -> str:
    """Return the median and the 95 % interval of it."""
    low, high = interval(values)
    return f"{median(values):.{digits}f}{unit}, 95 %: {low:.{digits}f} to {high:.{digits}f}{unit}"


if __name__ == "__main__":
    of_a_setting("forked", TITLE, USUAL, compare)
