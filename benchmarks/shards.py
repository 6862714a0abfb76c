"""The memory of a worker that goes through a shard: the same for a text that is sixteen times as large.

``python -m benchmarks.shards --mebibytes 1024 --out FILE``; ``--workload stanza-ner`` is the tiny stand-in.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from benchmarks import raw
from benchmarks.row import Row
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import POINTS_FILE, RECORD_FILE
from jobkit.core.paths import cache_dir
from jobkit.core.records import ModelRef, Point, Record, TextRef
from jobkit.corpus.plan import CORPUS_FILE, MANIFEST_FILE, Rows, Shard, write_plan
from jobkit.corpus.scan import scan
from jobkit.corpus.sources import find_sources
from jobkit.planning.models import find_model
from jobkit.planning.points import Inputs, plan
from jobkit.planning.sample import generate, join_paragraphs
from jobkit.spec.sweep_spec import SweepSpec

TITLE = "A shard of a corpus"
MIB = 2**20
PART = 16
"""The smaller text is this part of the larger."""
FLAT_BYTES = 32 * MIB
"""More than this the larger text must not take: C's allocator alone differs by more than 10 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What works through how much."""

    workload: str = "count"
    mebibytes: int = 128
    workers: tuple[int, ...] = (1, 2)
    batch_size: int = 100


Done = tuple[Record, Rows]
"""The record of a try, and the manifest of its rows."""


def compare(setting: Setting, folder: Path) -> list[Row]:
    """Return the rows of one setting; the model is built if it is missing."""
    size = setting.mebibytes * MIB
    small, large = (prepare(setting, folder / str(some), some) for some in (size // PART, size))
    rows = []
    for workers in setting.workers:
        rows += _rows(setting, workers, work(small, workers), work(large, workers))
    return rows


def prepare(setting: Setting, folder: Path, size: int) -> Path:
    """Write a text of a size, and a run folder with it as one shard; return that."""
    run = folder / "run"
    run.mkdir(parents=True)
    write_text(folder / "corpus.txt", size)
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
    return replace(point, shard=True, threads=1)


def work(run: Path, workers: int) -> Done:
    """Work through the shard in a fresh process; return its record and the manifest of its rows."""
    path, out = run / POINTS_FILE, run.parent / f"out-{workers}"
    point = from_json(Point, path.read_text(encoding="utf-8"), where=str(path))
    path.write_text(to_json(replace(point, workers=workers)) + "\n", encoding="utf-8")
    out.mkdir()
    words = ["--points", path, "--point", "1", "--inputs", run.parent, "--out", out]
    subprocess.run([sys.executable, "-m", "jobkit.run", *map(str, words)], check=True)  # noqa: S603 - our own module
    record, rows = (out / name for name in (RECORD_FILE, MANIFEST_FILE))
    return (
        from_json(Record, record.read_text(encoding="utf-8"), where=str(record)),
        from_json(Rows, rows.read_text(encoding="utf-8"), where=str(rows)),
    )


def _rows(
    setting: Setting, workers: int, small: tuple[Record, Rows], large: tuple[Record, Rows]
) -> list[Row]:
    """Return the rows of one number of workers: memory with both texts, and the speed with the larger."""
    name = f"{setting.workload}, {workers} worker{'s' if workers > 1 else ''}"
    peaks = [record.memory.rss_peak_bytes or 0 for record, _ in (small, large)]
    (record, rows), grown = large, peaks[1] - peaks[0]
    summary = record.summary
    if summary is None or summary.items != rows.paragraphs:
        raise RuntimeError(f"{name}: {record.outcome}: {record.message}")
    return [
        *(
            Row(what=f"{name}: memory with {size} MiB of text", shown=f"{peak / MIB:.0f} MiB")
            for size, peak in zip((setting.mebibytes // PART, setting.mebibytes), peaks, strict=True)
        ),
        Row(
            what=f"{name}: more memory for {PART} times the text",
            shown=f"{grown / MIB:.0f} MiB",
            target=f"< {FLAT_BYTES // MIB} MiB",
            met=grown < FLAT_BYTES,
            raw={"rss_peak_bytes": peaks},
        ),
        Row(
            what=f"{name}: {rows.paragraphs:,} paragraphs, {rows.rows:,} rows",
            shown=f"{summary.work_s:.0f} s, {setting.mebibytes / summary.work_s:.1f} MiB/s",
            raw={"work_s": summary.work_s, "paragraphs": rows.paragraphs, "rows_bytes": rows.size_bytes},
        ),
    ]


def _model() -> ModelRef:
    return find_model("en", "tiny", fallback="stand-in", cache=cache_dir(), say=_say)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> None:
    """Measure at the setting that the command line gives, and write the raw data."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description=TITLE)
    parser.add_argument("--workload", choices=("count", "stanza-ner"), default="count")
    parser.add_argument("--mebibytes", type=int, default=128)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    chosen = vars(parser.parse_args())
    out, chosen["workers"] = chosen.pop("out"), tuple(chosen["workers"])
    title = f"{TITLE}, {chosen['mebibytes']:,} MiB, {chosen['workload']}"
    command = f"python -m benchmarks.shards {shlex.join(sys.argv[1:])}"
    raw.write(out, title, command, lambda folder: compare(Setting(**chosen), folder))


if __name__ == "__main__":
    main()
