from __future__ import annotations

from pathlib import Path

from jobkit.extensions.corpus.plan import Corpus, Source


def corpus(*paths: Path) -> Corpus:
    sources = [
        Source(path=str(path), name=path.name, kind="text", size_bytes=1, mtime_ns=0, sha256="")
        for path in paths
    ]
    return Corpus(sources=tuple(sources), documents=1, paragraphs=1, characters=1)


def test_the_folders_of_a_corpus_hold_all_its_files_and_what_links_lead_to(tmp_path: Path) -> None:
    for name in ("a/deep", "b", "far"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "far" / "c.txt").touch()
    (tmp_path / "b" / "c.txt").symlink_to(tmp_path / "far" / "c.txt")
    files = [tmp_path / name for name in ("a/1.txt", "a/deep/2.txt", "b/c.txt")]
    assert corpus(*files).folders() == [str(tmp_path / name) for name in ("a", "b", "far")]
