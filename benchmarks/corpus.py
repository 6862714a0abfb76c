"""Planning a corpus: speed a core next to ``sha256sum``, memory, and cutting shards of 100 GiB."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from itertools import islice
from pathlib import Path

import zstandard

from benchmarks.raw import Row
from benchmarks.timing import Timing, middle, once
from jobkit.planning.sample import generate, join_paragraphs

TITLE = "Planning a corpus"
TEXT_BYTES = 2**28
FILES = 100_000
RUNS = 5
LEAST_SHARE = 1 / 3
MOST_BYTES = 2**30
MOST_CUT_S = 60

SCAN = """
import sys
from jobkit.extensions.corpus.scan import scan
from jobkit.extensions.corpus.scan import find_sources
if __name__ == "__main__":
    found = scan(find_sources(sys.argv[2:]), processes=int(sys.argv[1]))
    print(found.corpus.paragraphs)
"""
CUT = """
import json, random, sys, time
from pathlib import Path
from jobkit.extensions.corpus.plan import Corpus, Piece, Shard, write_plan
from jobkit.extensions.corpus.plan import cut
chance = random.Random(1)
size, at, pieces = 2**19, 0, []
while at < 100 * 2**30:
    length = chance.randint(size // 2, size * 3 // 2)
    pieces.append(Piece(source=0, start=at, end=at + length, paragraphs=length // 450,
                        characters=length, longest=2000, sha256=f"{at:064x}"))
    at += length
begun = time.perf_counter()
parts = cut(pieces, [piece.characters for piece in pieces], int(sys.argv[2]))
loads = [sum(piece.characters for piece in part) for part in parts]
cut_s = time.perf_counter() - begun
shards = (Shard(index=n, pieces=tuple(p), load=l) for n, (p, l) in enumerate(zip(parts, loads), 1))
write_plan(Path(sys.argv[1]), Corpus(sources=(), documents=1, paragraphs=1, characters=at), shards)
print(json.dumps({"pieces": len(pieces), "shards": len(parts), "cut_s": cut_s,
                  "spread": (max(loads) - min(loads)) / (sum(loads) / len(loads))}))
"""


def measure(folder: Path) -> list[Row]:
    """Return the speed of each kind of file, of many files, and the cutting of shards."""
    (folder / "scan.py").write_text(SCAN, encoding="utf-8")
    text = _text(folder)
    digest = middle([once(["sha256sum", str(text)]) for _ in range(RUNS)])
    speed = _speed(digest["cpu_s"])
    rows = [Row(what="`sha256sum` of 256 MiB of text", shown=f"{speed:,.0f} MiB/s", raw={**digest})]
    for what, path in _files(folder, text).items():
        rows.append(_kind(folder, what, path, speed))
        if path != text:
            path.unlink()
    rows.append(_both_cores(folder, text))
    text.unlink()
    return [*rows, _many(folder), _cut(folder)]


def _speed(seconds: float, size_bytes: float = TEXT_BYTES) -> float:
    return size_bytes / 2**20 / seconds


def _paragraphs() -> list[str]:
    """Return some 4 MB of paragraphs, as jobkit's sample text has them."""
    return [paragraph for seed in range(24) for paragraph in generate(seed).paragraphs]


def _text(folder: Path) -> Path:
    path = folder / "corpus.txt"
    block = (join_paragraphs(_paragraphs()) + "\n").encode()
    with path.open("wb") as file:
        for _ in range(TEXT_BYTES // len(block)):
            file.write(block)
        file.write(block[: TEXT_BYTES - file.tell()])
    return path


def _files(folder: Path, text: Path) -> dict[str, Path]:
    """Write the same text as other kinds of file; return all kinds."""
    packed, small = folder / "packed.txt.gz", folder / "small.txt.zst"
    with text.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as file:
        shutil.copyfileobj(plain, file, 2**20)
    with text.open("rb") as plain, small.open("wb") as file:
        zstandard.ZstdCompressor().copy_stream(plain, file)
    return {"text": text, "`.gz`": packed, "`.zst`": small, "JSONL": _jsonl(folder)}


def _jsonl(folder: Path) -> Path:
    path = folder / "documents.jsonl"
    paragraphs = _paragraphs()
    number = 0
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < TEXT_BYTES:
            some = iter(paragraphs)
            while part := list(islice(some, 20)):
                number += 1
                file.write(json.dumps({"id": number, "text": join_paragraphs(part)}) + "\n")
    return path


def _scan(folder: Path, path: Path, processes: int, runs: int = RUNS) -> tuple[dict[str, float], Timing]:
    argv = [sys.executable, str(folder / "scan.py"), str(processes), str(path)]
    timings = [once(argv) for _ in range(runs)]
    return middle(timings), timings[0]


def _kind(folder: Path, what: str, path: Path, digest: float) -> Row:
    timing, _ = _scan(folder, path, 1)
    size = path.stat().st_size if what == "JSONL" else TEXT_BYTES
    speed = _speed(timing["cpu_s"], size)
    share = speed / digest
    rss = timing["maxrss_bytes"] / 2**20
    return Row(
        what=f"{what}, one process ({share:.2f} of `sha256sum`; {rss:.0f} MiB at most)",
        shown=f"{speed:,.0f} MiB/s",
        target="≥ 1/3 of `sha256sum`" if what == "text" else "",
        met=share >= LEAST_SHARE if what == "text" else None,
        raw={**timing, "size_bytes": size, "share": share},
    )


def _both_cores(folder: Path, text: Path) -> Row:
    timing, _ = _scan(folder, text, 2)
    most = 3 * timing["maxrss_bytes"]
    return Row(
        what="text, two processes, by the clock (three processes of at most "
        f"{timing['maxrss_bytes'] / 2**20:.0f} MiB)",
        shown=f"{_speed(timing['wall_s']):,.0f} MiB/s",
        target="< 1 GiB",
        met=most < MOST_BYTES,
        raw={**timing, "maxrss_all_bytes": most},
    )


def _many(folder: Path) -> Row:
    below = folder / "many"
    for number in range(FILES):
        if number % 1000 == 0:
            (below / f"{number // 1000:03d}").mkdir(parents=True)
        path = below / f"{number // 1000:03d}" / f"{number:06d}.txt"
        path.write_text(f"Text {number}.\n\n{'word ' * 100}\n", encoding="utf-8")
    timing, _ = _scan(folder, below, 2, runs=1)
    shutil.rmtree(below)
    return Row(
        what=f"{FILES:,} text files of half a KiB ({timing['wall_s'] / FILES * 1e6:.0f} µs each; "
        f"{timing['maxrss_bytes'] / 2**20:.0f} MiB at most)",
        shown=f"{timing['wall_s']:.1f} s",
        raw={**timing},
    )


def _cut(folder: Path) -> Row:
    timing = once([sys.executable, "-c", CUT, str(folder), "10000"])
    told = json.loads(timing.stdout)
    good = timing.wall_s < MOST_CUT_S and timing.maxrss_bytes < MOST_BYTES
    return Row(
        what=f"100 GiB in {told['pieces']:,} pieces, cut into {told['shards']:,} shards and written, "
        f"the whole process ({timing.maxrss_bytes / 2**20:.0f} MiB; loads within {told['spread']:.1%})",
        shown=f"{timing.wall_s:.1f} s",
        target="< 60 s and 1 GiB",
        met=good,
        raw={**told, "wall_s": timing.wall_s, "cpu_s": timing.cpu_s, "maxrss_bytes": timing.maxrss_bytes},
    )
