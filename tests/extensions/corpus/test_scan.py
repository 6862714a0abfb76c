"""Every paragraph of every shard is that of the document, whatever the borders and the white space."""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.paragraphs import split_paragraphs
from jobkit.extensions.corpus import scan as tasks
from jobkit.extensions.corpus import scan_part, scan_text
from jobkit.extensions.corpus import scan_part as lines
from jobkit.extensions.corpus.reading import given_offset
from jobkit.extensions.corpus.scan import Scan, scan
from jobkit.extensions.corpus.sources import find_sources
from tests.support.corpora import HARD, jsonl, plan, read_all, read_as_text, reference


@contextmanager
def borders(block: int, piece: int) -> Iterator[None]:
    """Read in blocks, ranges and pieces of a few bytes, so that small files have all the borders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_text, "TEXT_BLOCK_BYTES", block)
        patch.setattr(lines, "LINE_BLOCK_BYTES", block)
        patch.setattr(tasks, "RANGE_BYTES", block)
        patch.setattr(scan_part, "_WINDOW_BYTES", block)
        patch.setattr(tasks, "piece_bytes", lambda _: piece)
        yield


def check_text(folder: Path, path: Path, data: bytes, shards: int) -> Scan:
    """Check that the shards of a text file have its paragraphs, and where they are."""
    read = scan(find_sources([str(path)]), processes=1)
    made = plan(folder, read, shards)
    found = read_all(folder, made)
    assert [one.text for one in found] == split_paragraphs(read_as_text(data))
    assert [one.number for one in found] == list(range(len(found)))
    given_text = data.decode()
    for one in found:
        places = [given_offset(one, at) for at in range(len(one.text) + 1)]
        given_part = given_text[places[0] : places[-1]]
        assert given_part.replace("\r\n", "\n").replace("\r", "\n") == one.text
        assert all(given_text[place] in {char, "\r"} for place, char in zip(places, one.text, strict=False))
        assert all(low < high for low, high in pairwise(places))
    assert read.corpus.paragraphs == len(found)
    assert read.corpus.characters == sum(len(one.text) for one in found)
    assert max(piece.longest for piece in read.pieces) == max(len(one.text) for one in found)
    assert read.corpus.sources[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    return read


@given(HARD, st.integers(1, 40), st.integers(0, 60), st.integers(1, 5), st.booleans())
def test_text_in_any_blocks(hard: str, block: int, piece: int, shards: int, bom: bool) -> None:  # noqa: FBT001
    data = b"\xef\xbb\xbf" * bom + hard.encode()
    with TemporaryDirectory() as folder, borders(block, piece):
        path = Path(folder, "text.txt")
        path.write_bytes(data)
        if reference(read_as_text(data)):
            check_text(Path(folder), path, data, shards)
        else:
            with pytest.raises(JobkitError, match="no paragraph"):
                scan(find_sources([str(path)]))


@given(st.lists(HARD, min_size=1, max_size=6), st.integers(1, 40), st.integers(0, 60), st.integers(1, 5))
def test_jsonl_in_any_blocks(texts: list[str], block: int, piece: int, shards: int) -> None:
    with TemporaryDirectory() as folder, borders(block, piece):
        path = Path(folder, "documents.jsonl")
        path.write_text(jsonl([{"id": number, "text": one} for number, one in enumerate(texts)]))
        expected = [
            (str(number), place, paragraph)
            for number, one in enumerate(texts)
            for place, paragraph in enumerate(reference(one.replace("\r\n", "\n").replace("\r", "\n")))
        ]
        if not expected:
            return
        read = scan(find_sources([str(path)]), processes=1)
        found = read_all(Path(folder), plan(Path(folder), read, shards))
        assert [(one.document, one.number, one.text) for one in found] == expected
        for one in found:
            given_text = texts[int(one.document)]
            part = given_text[given_offset(one, 0) : given_offset(one, len(one.text))]
            assert part.replace("\r\n", "\n").replace("\r", "\n") == one.text
        assert read.corpus.documents == len(texts)


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(3))
def test_a_long_text_in_the_usual_blocks(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - not cryptography
    words = ["word ", "né ", "漢字", "\t", "\u2003", "“", "\u00a0", "\r\n" if seed == 1 else "\n", "\n"]
    parts = [chance.choice(words) * chance.choice([1, 1, 1, 2, 40]) for _ in range(150_000)]
    parts[70_000] = "long line\n" * 300_000
    parts[30_000] = parts[90_000] = "\n" + " \u3000\t" * 20_000 + "\n"
    if seed == 2:
        parts[40_000] = "old\rMac\r\r \r"
    data = "".join(parts).encode()
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    read = scan(find_sources([str(path)]), processes=1)
    found = [one.text for one in read_all(tmp_path, plan(tmp_path, read, 4))]
    assert found == reference(read_as_text(data))


def test_white_space_is_what_strip_strips() -> None:
    known = {chr(code) for code in scan_text.WHITE_ASCII} | {char.decode() for char in scan_text.WHITE_WIDE}
    assert known == {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}


def test_a_line_of_blanks_alone_and_one_with_a_word_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    data = ("a\n" + "\u2003" * 50 + "\nb\n" + "\u2003" * 50 + "c\n").encode()
    path.write_bytes(data)
    assert check_text(tmp_path, path, data, 2).corpus.paragraphs == 2


TEXT = "Eins\r\n zwei é\r\n\r\n \t\r\nDrei\n\u2028\nvier 漢\rfünf\r\rsechs"


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("ending", PACKED)
def test_compressed_text_also_of_several_members(tmp_path: Path, ending: str) -> None:
    data = TEXT.encode() * 50
    path = tmp_path / f"text.txt{ending}"
    path.write_bytes(
        b"".join(PACKED[ending](data[start : start + 300]) for start in range(0, len(data), 300))
    )
    read = check_text(tmp_path, path, data, 7)
    assert read.corpus.sources[0].size_bytes == path.stat().st_size
