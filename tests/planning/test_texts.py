from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.loads import NONE, PUNCTUATION, TOKENIZER, Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef, TextRef
from jobkit.planning import texts
from jobkit.planning.models import NOT_BUILT
from jobkit.planning.sample import SEED, generate
from jobkit.planning.texts import cached_lengths, estimated_lengths, find_text, paragraphs_of, text_lengths
from jobkit.worker.paragraphs import read_paragraphs
from tests.support.builders import own_workload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a spec."""
    made = tmp_path / "specs"
    made.mkdir()
    return made


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_the_sample_is_written_to_the_cache(folder: Path, cache: Path) -> None:
    described = find_text("sample:30", base=folder, cache=cache, write=False)
    assert not cache.exists()
    found = find_text("sample:30", base=folder, cache=cache)
    assert (found, found.name) == (described, "sample:30")
    assert Path(found.path).parent == cache / "texts"
    assert found.sha256[:12] in Path(found.path).name
    kept = read_paragraphs(Path(found.path))
    assert len(kept) == 30
    nowhere = replace(found, path=str(cache / "gone.txt"))
    assert paragraphs_of(nowhere) == paragraphs_of(found) == list(generate(SEED, 30).paragraphs)


def test_the_sample_is_generated_once_for_a_cache_that_is_there(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    made = find_text("sample:30", base=folder, cache=cache, write=False)
    kept = Path(made.path).read_bytes()
    monkeypatch.setattr(texts, "sample_text", lambda _: pytest.fail("generated again"))
    for write in (False, True):
        assert find_text("sample:30", base=folder, cache=cache, write=write) == made
    monkeypatch.setattr(texts, "generator_version", lambda: "another")
    with pytest.raises(pytest.fail.Exception, match="generated again"):
        find_text("sample:30", base=folder, cache=cache)
    monkeypatch.undo()
    Path(made.path).write_bytes(kept[:100])
    assert find_text("sample:30", base=folder, cache=cache) == made
    assert Path(made.path).read_bytes() == kept, "a damaged copy is written again"
    shutil.rmtree(cache / "texts")
    (cache / "texts").write_text("no folder", encoding="ascii")
    assert find_text("sample:30", base=folder, cache=cache, write=False).size_bytes > 0
    with pytest.raises(JobkitError):
        find_text("sample:30", base=folder, cache=cache)


def test_a_path_is_relative_to_the_spec_then_to_here(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.txt").write_text("of the spec\n")
    here = folder.parent / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("a.txt").write_text("of here\n")
    Path("b.txt").write_text("of here\n")
    digest = hashlib.sha256(b"of the spec\n").hexdigest()
    assert find_text("a.txt", base=folder, cache=cache) == TextRef(
        path=str(folder / "a.txt"), sha256=digest, size_bytes=12, name="a.txt"
    )
    assert find_text("b.txt", base=folder, cache=cache).path == str(here / "b.txt")
    assert find_text(str(folder / "a.txt"), base=here, cache=cache).path == str(folder / "a.txt")


@pytest.mark.fault
@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", "is empty", "text"),
        (b"PK\x00\x01", "is binary .a NUL at byte 2", "plain UTF-8"),
        (b"na\xefve", "not UTF-8 at byte 2", "iconv -f latin1"),
        (b" \n\t\r\n", "holds no paragraph", "text"),
        (b"\xef\xbb\xbf", "holds no paragraph", "text"),
    ],
)
def test_a_text_that_a_job_could_not_read(
    folder: Path, cache: Path, data: bytes, message: str, hint: str
) -> None:
    """FAULT: the text is empty, white space, binary, or in Latin-1.

    HOW: real: such a file.
    REPORTED: what is wrong, at which byte, and for Latin-1 the iconv command.
    LOST: nothing: no run folder is made.
    """
    (folder / "a.txt").write_bytes(data)
    with pytest.raises(JobkitError, match=message) as caught:
        find_text("a.txt", base=folder, cache=cache)
    assert str(folder / "a.txt") in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("typed", ["./corpsu.txt", "texts/corpsu.txt"])
def test_a_misspelt_file_is_answered_with_the_closest_name(typed: str, folder: Path, cache: Path) -> None:
    (folder / typed).parent.mkdir(exist_ok=True)
    (folder / typed).with_name("corpus.txt").write_text("One.\n", encoding="utf-8")
    with pytest.raises(JobkitError) as caught:
        find_text(typed, base=folder, cache=cache)
    named = (caught.value.hint or "").removeprefix("did you mean ").removesuffix("?")
    assert find_text(named, base=folder, cache=cache).name == named
    with pytest.raises(JobkitError, match=r"no .*specs/a\.txt nor ") as caught:
        find_text("a.txt", base=folder, cache=cache)
    assert "sample" in caught.value.hint


def test_an_address_is_downloaded_once_and_one_that_fails_leaves_nothing(
    folder: Path, cache: Path, serve: Callable[[Path], str]
) -> None:
    server = serve(folder)
    with pytest.raises(JobkitError, match="not downloaded yet"):
        find_text(f"{server}/a.txt", base=folder, cache=cache, write=False)
    assert not cache.exists()
    for address, said in (
        (server, r"could not be downloaded: .*404"),
        ("http://127.0.0.1:1", "could not be"),
    ):
        with pytest.raises(JobkitError, match=said) as caught:
            find_text(f"{address}/a.txt", base=folder, cache=cache)
        assert "curl" in caught.value.hint
    assert not list((cache / "texts").iterdir())
    (folder / "a.txt").write_text("from afar\n")
    found = find_text(f"{server}/a.txt", base=folder, cache=cache)
    assert found.name == f"{server}/a.txt"
    assert Path(found.path).read_text() == "from afar\n"
    (folder / "a.txt").unlink()
    assert find_text(f"{server}/a.txt", base=folder, cache=cache) == found
    assert find_text(f"{server}/a.txt", base=folder, cache=cache, write=False) == found
    assert [path.suffix for path in (cache / "texts").iterdir()] == [".txt"]


@pytest.mark.parametrize("number", ["007", "10000", ""])
def test_a_sample_of_no_such_length_says_which_there_are(folder: Path, cache: Path, number: str) -> None:
    (folder / f"sample:{number}").write_text("One.", encoding="utf-8")
    with pytest.raises(JobkitError, match=rf"^text 'sample:{number}': the built-in text has 1 to 9,999 par"):
        find_text(f"sample:{number}", base=folder, cache=cache)
    assert find_text(f"./sample:{number}", base=folder, cache=cache).size_bytes == 4
    with pytest.raises(JobkitError, match=r"^no text is named\n.*without the key the text is `sample`"):
        find_text("  ", base=folder, cache=cache)


@pytest.fixture
def text(tmp_path: Path) -> TextRef:
    return find_text("sample:40", base=tmp_path, cache=tmp_path)


ASKED_WRONGLY = r"own\.py:4\): lengths\(\) returned "


@pytest.mark.slow
def test_without_a_framework_they_are_found_at_once(tmp_path: Path, text: TextRef) -> None:
    said: list[str] = []
    found = text_lengths("count", text, None, cache=tmp_path, say=said.append)
    assert found.paragraphs == tuple((len(one),) for one in paragraphs_of(text))
    assert (found.source, said) == (TOKENIZER, [])
    assert cached_lengths("count", text, None, tmp_path) is None
    name = own_workload(tmp_path, "lengths = None")
    found = text_lengths(name, text, None, cache=tmp_path, say=said.append, folder=str(tmp_path))
    assert (found, found.source) == (Lengths.unknown(40), NONE), "a workload may tell none"


def test_with_a_model_they_are_found_once_and_an_estimate_is_near(
    tmp_path: Path, tiny_model: ModelRef, kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make model` has found those of the sample; test_workload_traits.py asks how they are found."""
    text = find_text("sample", base=tmp_path, cache=tmp_path)
    asked = (text, tiny_model)
    found = text_lengths("stanza-ner", *asked, cache=kept_cache, say=print)
    estimate = Loads(estimated_lengths(paragraphs_of(text)))
    for size in (10, 50, 100):
        assert estimate.load(size) == pytest.approx(Loads(found).load(size), rel=0.05)
    monkeypatch.setattr(texts, "run_in_child", lambda *_, **__: pytest.fail("found again"))
    assert text_lengths("stanza-ner", *asked, cache=kept_cache, say=pytest.fail) == found
    assert cached_lengths("stanza-ner", *asked, kept_cache) == found
    assert cached_lengths("stanza-ner", *asked, tmp_path) is None
    (tmp_path / "lengths").mkdir()
    for path in (kept_cache / "lengths").glob("*.json"):
        shutil.copy(path, tmp_path / "lengths")
    others = [(replace(text, sha256="0"), tiny_model), (text, replace(tiny_model, fingerprint="0"))]
    assert [cached_lengths("stanza-ner", *other, tmp_path) for other in others] == [None, None]
    assert cached_lengths("stanza-ner", *asked, tmp_path) == found
    for path in (tmp_path / "lengths").iterdir():
        path.write_text("{}")
    assert cached_lengths("stanza-ner", *asked, tmp_path) is None


def test_without_its_model_or_in_haste_they_are_estimated(
    tmp_path: Path, text: TextRef, tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for model in (replace(tiny_model, fingerprint=NOT_BUILT), None):
        found = text_lengths("stanza-ner", text, model, cache=tmp_path, say=said.append)
        assert found.source == PUNCTUATION
    assert ((tmp_path / "lengths").exists(), said) == (False, [])
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so: no such file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = text_lengths("stanza-ner", text, tiny_model, cache=tmp_path, say=said.append, or_estimate=True)
    assert (found.source, "libcudart" in said[-1], "estimates" in said[-1]) == (PUNCTUATION, True, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise RuntimeError('no such')", r"could not be computed: .*own\.py:6: RuntimeError: no such"),
        ("return [[1]]", rf"{ASKED_WRONGLY}lengths of 1 paragraphs, not 40"),
        ("return [['1']] * 40", rf"{ASKED_WRONGLY}\[\['1'\]"),
    ],
)
def test_a_workload_that_fails_to_tell_is_named(body: str, told: str, tmp_path: Path, text: TextRef) -> None:
    name, folder = own_workload(tmp_path, "@staticmethod", "def lengths(p, m):", f"    {body}"), str(tmp_path)
    with pytest.raises(JobkitError, match=told) as caught:
        text_lengths(name, text, None, cache=tmp_path, say=print, folder=folder, or_estimate="raise" in body)
    assert caught.value.hint
