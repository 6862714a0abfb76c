"""MiB/s of a plan of Parquet and CSV, next to pyarrow's own reader: ``python -m benchmarks.tables``."""

from __future__ import annotations

import sys
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks.corpus import SCAN
from benchmarks.timing import once
from jobkit.planning.sample import generate, join_paragraphs

TEXT_BYTES = 2**31
PYARROW = """
import sys, pyarrow as pa
from pyarrow import csv, parquet
pa.set_cpu_count(1)
path = sys.argv[1]
if path.endswith("csv"):
    options = csv.ParseOptions(newlines_in_values=True)
    batches = csv.open_csv(path, parse_options=options)
else:
    batches = parquet.ParquetFile(path).iter_batches(columns=["id", "text"], use_threads=False)
print(sum(batch.num_rows for batch in batches))
"""


def write(folder: Path) -> None:
    """Write 2 GiB of documents of 20 paragraphs, once as Parquet and once as CSV."""
    some = [paragraph for seed in range(24) for paragraph in generate(seed).paragraphs]
    texts = [join_paragraphs(some[at : at + 20]) for at in range(0, len(some) - 20, 20)]
    number = TEXT_BYTES * len(texts) // sum(map(len, texts))
    table = pa.table({"id": range(number), "text": [*islice(cycle(texts), number)]})
    parquet.write_table(table, folder / "a.parquet", row_group_size=10_000, use_dictionary=False)
    csv.write_csv(table, folder / "a.csv")


def main() -> None:
    with TemporaryDirectory() as name:
        (Path(name) / "scan.py").write_text(SCAN, encoding="utf-8")
        once(
            [sys.executable, "-m", "benchmarks.tables", name]
        )  # a child of a large process counts its memory
        for path in (Path(name, "a.parquet"), Path(name, "a.csv")):
            for who, argv in {
                "pyarrow": ["-c", PYARROW, str(path)],
                "a plan of jobkit, one process": [f"{name}/scan.py", "1", str(path)],
                "a plan of jobkit, two processes": [f"{name}/scan.py", "2", str(path)],
            }.items():
                found = once([sys.executable, *argv])
                speed, rss = TEXT_BYTES / 2**20 / found.wall_s, found.maxrss_bytes / 2**20
                print(f"{path.suffix:9}{who:33}{speed:6,.0f} MiB/s of text, {rss:4,.0f} MiB at most")  # noqa: T201 - a program


if __name__ == "__main__":
    write(Path(sys.argv[1])) if sys.argv[1:] else main()
