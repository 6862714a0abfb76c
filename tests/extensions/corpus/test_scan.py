"""Every paragraph of every shard is that of the document, whatever the borders and the white space."""

from __future__ import annotations

import gzip
import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.layout import CORPUS_FILE, PLAN_FILE
from jobkit.core.paragraphs import split_paragraphs
from jobkit.extensions.corpus import readers, scan_text
from jobkit.extensions.corpus import scan as scanning
from jobkit.extensions.corpus.plan import read_corpus, read_planned
from jobkit.extensions.corpus.readers import Paragraph, given_offset
from jobkit.extensions.corpus.scan import Scan, find_sources, in_order, scan
from tests.support.corpora import HARD, jsonl, plan, read_all, read_as_text, read_shard, reference


@contextmanager
def borders(block: int, piece: int) -> Iterator[None]:
    """Read in blocks, ranges and pieces of a few bytes, so that small files have all the borders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "TEXT_BLOCK_BYTES", block)
        patch.setattr(readers, "LINE_BLOCK_BYTES", block)
        patch.setattr(scanning, "RANGE_BYTES", block)
        patch.setattr(readers, "WINDOW_BYTES", block)
        patch.setattr(scanning, "piece_bytes", lambda _: piece)
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


def test_a_long_text_in_the_usual_blocks(tmp_path: Path) -> None:
    chance = Random(1)  # noqa: S311 - not cryptography
    words = ["word ", "né ", "漢字", "\t", "\u2003", "“", "\u00a0", "\r\n", "\n"]
    parts = [chance.choice(words) * chance.choice([1, 1, 1, 2, 40]) for _ in range(80_000)]
    parts[40_000] = "long line\n" * 300_000
    parts[20_000] = parts[60_000] = "\n" + " \u3000\t" * 20_000 + "\n"
    parts[30_000] = "old\rMac\r\r \r"
    data = "".join(parts).encode()
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    read = scan(find_sources([str(path)]), processes=1)
    found = [one.text for one in read_all(tmp_path, plan(tmp_path, read, 4))]
    assert found == reference(read_as_text(data))


def test_white_space_is_what_strip_strips() -> None:
    known = {chr(code) for code in scan_text.WHITE_ASCII} | {char.decode() for char in scan_text.WHITE_WIDE}
    assert known == {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}


BLANKS = "\u2003" * 50
TEXT = f"Eins\r\n zwei é\r\n\r\n \t\r\nDrei\n{BLANKS}\nvier 漢\rfünf\r\r{BLANKS}sechs"
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


def yielded(paragraphs: Iterator[Paragraph]) -> tuple[int, JobkitError]:
    """Return how many paragraphs come before the error."""
    found: list[Paragraph] = []
    with pytest.raises(JobkitError) as caught:
        found.extend(paragraphs)
    return len(found), caught.value


@pytest.mark.parametrize("packed", [False, True])
def test_nothing_of_a_changed_piece_is_read(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    data = b"".join(b"Paragraph %d\n\n" % number for number in range(9))
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    write = gzip.compress if packed else bytes
    path.write_bytes(write(data))
    plan(tmp_path, scan(find_sources([str(path)])), 1)
    path.write_bytes(write(data.replace(b"6", b"x")))
    number, error = yielded(read_shard(tmp_path, 1))
    assert number == 6
    assert f"{path}: bytes 78 to 90: changed since the corpus was planned" in error.message
    assert error.hint
    path.write_bytes(write(data[:40]))
    assert yielded(read_shard(tmp_path, 1))[0] == 3
    path.write_bytes(write(data)[:30])
    assert ("the archive ends early" if packed else "changed") in yielded(read_shard(tmp_path, 1))[1].message
    path.unlink()
    assert "No such file" in yielded(read_shard(tmp_path, 1))[1].message


def test_a_folder_that_is_no_apply(tmp_path: Path) -> None:
    for call in (lambda: read_corpus(tmp_path), lambda: read_planned(tmp_path, 1)):
        with pytest.raises(JobkitError, match="gone: without it") as caught:
            call()
        assert "in another folder" in caught.value.hint
    (tmp_path / CORPUS_FILE).write_text("{}")
    (tmp_path / PLAN_FILE).write_text("")
    with pytest.raises(JobkitError, match="not a Corpus"):
        read_corpus(tmp_path)
    with pytest.raises(JobkitError, match="no shard 1"):
        read_planned(tmp_path, 1)


@pytest.mark.slow
def test_a_killed_process_is_reported_and_no_process_is_waited_for() -> None:
    with pytest.raises(JobkitError, match="was killed"):
        list(in_order(signal.raise_signal, [0, 0, signal.SIGKILL, 0], 2))
    begin = time.monotonic()
    with closing(in_order(time.sleep, [0, 600, 600], 2)) as answers:
        next(answers)
    assert time.monotonic() - begin < 300, "no process is waited for once no answer is wanted"


@pytest.mark.slow
def test_several_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "RANGE_BYTES", 5000)
    (tmp_path / "a.txt").write_text("Ein Absatz é\r\n\r\n" * 3000, encoding="utf-8", newline="")
    (tmp_path / "b.jsonl").write_text(jsonl([{"id": n, "text": "x\n\ny"} for n in range(2000)]))
    for number in range(300):
        (tmp_path / f"{'c' if number else '0'}{number}.txt").write_text(f"{number}")
    found = find_sources([str(tmp_path)])
    assert scan(found, processes=3) == scan(found, processes=1)


KILLED = """\
import os, time
from jobkit.extensions.corpus.scan import in_order

def where(seconds):
    time.sleep(seconds)
    return os.getpid()

if __name__ == "__main__":
    print(*in_order(where, [0, 0], 2), flush=True)
    for _ in in_order(where, [0, 1, 1], 2):
        print("x", flush=True)
"""


@pytest.mark.slow
def test_no_process_is_left_if_the_first_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 2
        process.kill()
    for child in children:
        deadline = time.monotonic() + 60
        while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{child}").exists()
