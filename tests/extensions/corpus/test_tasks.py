from __future__ import annotations

import pytest

from jobkit.extensions.corpus.scan import RANGE_BYTES, piece_bytes, tasks
from jobkit.extensions.corpus.sources import SourceFile


def found(size: int, number: int = 0, compression: str = "") -> SourceFile:
    return SourceFile(
        path=f"/{number}", name=f"{number}", kind="text", compression=compression, size_bytes=size, mtime_ns=0
    )


@pytest.mark.parametrize(
    ("mib", "pieces"), [(1, 4096), (16, 4096), (2**10, 26_000), (100 * 2**10, 200_000), (2**20, 200_000)]
)
def test_a_larger_corpus_has_more_and_larger_pieces(mib: int, pieces: int) -> None:
    size = mib * 2**20
    assert size / piece_bytes([found(size)]) == pytest.approx(pieces, rel=0.05)


def test_small_files_go_together_and_large_ones_in_ranges() -> None:
    large = 3 * RANGE_BYTES - 1
    corpus = [found(1), found(2), found(large), found(3), found(large, compression="gz"), found(4)]
    made = [
        [(part.source, part.digest, part.stop) for part in task] for task in tasks(corpus, ("t", "i"), {1})
    ]
    assert made == [
        [(0, False, None)],
        [(2, True, None)],
        *([(2, False, stop)] for stop in (RANGE_BYTES, 2 * RANGE_BYTES, large)),
        [(3, False, None), (4, False, None)],
        [(5, False, None)],
    ]


def test_many_small_files_are_several_tasks() -> None:
    sizes = [len(task) for task in tasks([found(1, number) for number in range(600)], ("t", "i"), set())]
    assert sizes == [256, 256, 88]
