"""The memory of a worker that goes through a shard: the same at its end as after a quarter of it.

``python -m benchmarks.shards --mebibytes 1024 --out FILE``; ``--workload stanza-ner`` is the tiny stand-in.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from benchmarks import raw
from benchmarks.raw import Row
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import BATCHES_FILE, CORPUS_FILE, POINTS_FILE, RECORD_FILE
from jobkit.core.paths import cache_dir
from jobkit.core.records import ModelRef, Point, Record, TextRef
from jobkit.extensions.corpus.plan import MANIFEST_FILE, Rows, Shard, write_plan
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.planning import models
from jobkit.planning.points import Inputs, plan
from jobkit.planning.sample import generate, join_paragraphs
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.worker.process import process_tree, pss_bytes

TITLE = "A shard of a corpus"
MIB = 2**20
FLAT_BYTES = 16 * MIB
"""More than this the last quarter must not take beyond the second: C's allocator alone differs by MiB."""
PERIOD_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What works through how much."""

    workload: str = "count"
    mebibytes: int = 128
    workers: tuple[int, ...] = (1, 2)
    batch_size: int = 100
    sort_window: int = 10_000


@dataclass(frozen=True, slots=True)
class Done:
    """A try: its record, the manifest of its rows, and its memory every half a second of its work."""

    record: Record
    rows: Rows
    bytes: list[int]


def compare(setting: Setting, folder: Path) -> list[Row]:
    """Return the rows of one setting; the model is built if it is missing."""
    run = prepare(setting, folder)
    return [row for workers in setting.workers for row in _rows(setting, workers, work(run, workers))]


def prepare(setting: Setting, folder: Path) -> Path:
    """Write the text, and a run folder with it as one shard; return that."""
    run = folder / "run"
    run.mkdir()
    write_text(folder / "corpus.txt", setting.mebibytes * MIB)
    found = scan(find_sources([str(folder / "corpus.txt")]))
    write_plan(run, found.corpus, [Shard(index=1, pieces=tuple(found.pieces), load=0)])
    (run / POINTS_FILE).write_text(to_json(_point(setting, run)) + "\n", encoding="utf-8")
    if setting.workload != "count":
        (folder / "model").symlink_to(_model().path)
    return run


def write_text(path: Path, size: int) -> None:
    """Write generated paragraphs, numbered, until there are so many bytes."""
    paragraphs = generate(1).paragraphs
    with path.open("w", encoding="utf-8") as stream:
        for number in count():
            if stream.tell() >= size:
                return
            stream.write(join_paragraphs([f"Part {number}.\n", *paragraphs]) + "\n")


def _point(setting: Setting, run: Path) -> Point:
    spec = SweepSpec.model_validate(
        {
            "name": "b",
            "workload": setting.workload,
            "order": "sorted",
            "sweep": {"batch_size": [setting.batch_size]},
        }
    )
    text = TextRef(path=str(run / CORPUS_FILE), sha256="", size_bytes=0, name="corpus.txt")
    model = None if setting.workload == "count" else _model()
    point, *_ = plan(spec, Inputs(run_id="b-1", text=text, model=model, device="cpu"))
    return replace(point, shard=True, threads=1, sort_window=setting.sort_window)


def work(run: Path, workers: int) -> Done:
    """Work through the shard in a fresh process, and follow its memory."""
    path, out = run / POINTS_FILE, run.parent / f"out-{workers}"
    point = from_json(Point, path.read_text(encoding="utf-8"), where=str(path))
    path.write_text(to_json(replace(point, workers=workers)) + "\n", encoding="utf-8")
    out.mkdir()
    words = ["--points", path, "--point", "1", "--inputs", run.parent, "--out", out]
    seen = []
    with subprocess.Popen([sys.executable, "-m", "jobkit.worker", *map(str, words)]) as process:  # noqa: S603 - our own module
        while process.poll() is None:
            time.sleep(PERIOD_S)
            if (out / BATCHES_FILE).exists() and (held := memory_of(process.pid)):
                seen.append(held)
    record, rows = (out / name for name in (RECORD_FILE, MANIFEST_FILE))
    return Done(
        from_json(Record, record.read_text(encoding="utf-8"), where=str(record)),
        from_json(Rows, rows.read_text(encoding="utf-8"), where=str(rows)),
        seen,
    )


def memory_of(pid: int) -> int | None:
    """Return the memory of a process and its children; pages that they share count once."""
    sizes = [pss_bytes(one) for one in process_tree(pid)]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _rows(setting: Setting, workers: int, done: Done) -> list[Row]:
    """Return the rows of one number of workers: memory in two quarters of the work, and the speed."""
    name = f"{setting.workload}, {workers} worker{'s' if workers > 1 else ''}"
    quarter = len(done.bytes) // 4
    early, late = max(done.bytes[quarter : 2 * quarter]), max(done.bytes[3 * quarter :])
    summary = done.record.summary
    if summary is None or summary.items != done.rows.paragraphs:
        raise RuntimeError(f"{name}: {done.record.outcome}: {done.record.message}")
    return [
        Row(what=f"{name}: memory in the second quarter of the work", shown=f"{early / MIB:.0f} MiB"),
        Row(what=f"{name}: in the last quarter", shown=f"{late / MIB:.0f} MiB"),
        Row(
            what=f"{name}: more in the last quarter",
            shown=f"{(late - early) / MIB:.0f} MiB",
            target=f"< {FLAT_BYTES // MIB} MiB",
            met=late - early < FLAT_BYTES,
            raw={"early_bytes": early, "late_bytes": late, "most_bytes": max(done.bytes)},
        ),
        Row(
            what=f"{name}: {done.rows.paragraphs:,} paragraphs, {done.rows.rows:,} rows",
            shown=f"{summary.work_s:.0f} s, {1024 * setting.mebibytes / summary.work_s:,.0f} KiB/s",
            raw={"work_s": summary.work_s, "rows_bytes": done.rows.size_bytes},
        ),
    ]


def _model() -> ModelRef:
    named = {"size": "tiny", "fallback": "stand-in"}
    found = models.find("stanza-ner", named, Path(), cache_dir())
    return models.build("stanza-ner", found, cache_dir(), say=_say)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> None:
    """Measure at the setting that the command line gives, and write the raw data."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description=TITLE)
    parser.add_argument("--workload", choices=("count", "stanza-ner"), default="count")
    parser.add_argument("--mebibytes", type=int, default=128)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--sort-window", type=int, default=10_000)
    parser.add_argument("--out", type=Path, required=True)
    chosen = vars(parser.parse_args())
    out, chosen["workers"] = chosen.pop("out"), tuple(chosen["workers"])
    title = f"{TITLE}, {chosen['mebibytes']:,} MiB, {chosen['workload']}"
    command = f"python -m benchmarks.shards {shlex.join(sys.argv[1:])}"
    raw.write(out, title, command, lambda folder: compare(Setting(**chosen), folder))


if __name__ == "__main__":
    main()
