"""Models that are a whole folder: where they are looked for, and how they are fetched."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import FOLDER
from jobkit.planning import models
from jobkit.planning.models import NOT_BUILT
from jobkit.worker.workloads.model_files import folder_files

TAGGER, EMBEDDER, SPACY = models.USUAL
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b'{"model_type": "bert"}', "tokenizer.json": b"{}", "onnx/model.onnx": b"large"}


def a_model(folder: Path, name: str = "config.json") -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_text("{}", encoding="utf-8")
    (folder / ".hidden").write_text("not staged", encoding="utf-8")
    return folder


def test_a_folder_of_the_users_is_the_model(tmp_path: Path) -> None:
    a_model(tmp_path / "mine")
    found = models.find(TAGGER, {"path": "mine"}, tmp_path, tmp_path / "cache")
    assert (found.path, found.name, found.kind) == (str(tmp_path / "mine"), "mine", FOLDER)
    assert (found.stand_in, found.caveat, found.title, found.size_bytes) == (False, "", "mine", 2)


def test_the_users_own_workload_takes_any_folder(tmp_path: Path) -> None:
    a_model(tmp_path / "mine", "weights.bin")
    assert models.find("own:Own", {"path": "mine"}, tmp_path, tmp_path).name == "mine"


@pytest.mark.parametrize(
    ("workload", "model", "said"),
    [
        (TAGGER, {"path": "absent"}, "no such folder"),
        (SPACY, {"path": "mine"}, "no config.cfg, so it is no model of spacy-ner"),
        ("stanza-ner", {"path": "mine"}, "for other workloads than stanza-ner"),
        (TAGGER, {}, "'dslim/bert-base-NER' is not on this machine"),
        (SPACY, {"name": "absent_model"}, "'absent_model' is not on this machine"),
        (EMBEDDER, {"size": "tiny"}, "only a stand-in has the size 'tiny'"),
        ("own:Own", {"name": "a/b"}, "'a/b' is not on this machine"),
    ],
)
def test_what_is_not_there_is_refused(
    workload: str, model: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    a_model(tmp_path / "mine")
    with pytest.raises(JobkitError, match=said) as error:
        models.find(workload, model, tmp_path, tmp_path / "cache")
    assert error.value.hint


def test_the_cache_of_the_hub_is_looked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    model = tmp_path / "hub" / "models--dslim--bert-base-NER"
    snapshot = a_model(model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT, encoding="ascii")
    assert models.find(TAGGER, {"name": "en"}, tmp_path, tmp_path).path == str(snapshot)


def test_an_installed_package_of_spacy_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "en_test_model"
    made = a_model(inside / "en_test_model-1.0", "config.cfg")
    (made / "meta.json").write_text("{}", encoding="utf-8")
    (inside / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert models.find(SPACY, {"name": "en_test_model"}, tmp_path, tmp_path).path == str(made)


def test_a_stand_in_is_described_before_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    found = models.find(TAGGER, {"fallback": "stand-in"}, tmp_path, tmp_path)
    assert (found.fingerprint, found.architecture) == (NOT_BUILT, "bert-base")
    assert found.caveat == "RANDOM weights, architecture bert-base"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download asks for."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        data = FILES.get(path.partition(f"/resolve/{COMMIT}/")[2])
        if path.startswith("/api/models/org/model/tree/"):
            tree = [{"type": "file", "path": name, "size": len(d), "oid": "0"} for name, d in FILES.items()]
            data = json.dumps(tree).encode()
        elif path.startswith("/api/models/org/model"):
            siblings = [{"rfilename": name} for name in FILES]
            data = json.dumps({"id": "org/model", "sha": COMMIT, "siblings": siblings}).encode()
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.send_header("ETag", f'"{abs(hash(path)):040x}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body and data:
            self.wfile.write(data)


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=partial(server.serve_forever, 0.01))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_of_the_hub_is_fetched_whole(hub: str, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    fetched = models.fetch_hub("org/model", tmp_path, endpoint=hub, say=print)
    assert folder_files(Path(fetched.path)) == ("config.json", "tokenizer.json")
    found = models.find(TAGGER, {"name": "org/model"}, tmp_path, tmp_path)
    assert found == fetched
    assert found in [*models.list_folders(tmp_path)]
    again = models.fetch_hub("org/model", tmp_path, endpoint=hub, say=print)
    assert again == fetched


def test_a_model_that_the_hub_lacks_is_an_error(hub: str, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(JobkitError, match="could not be fetched"):
        models.fetch_hub("org/absent", tmp_path, endpoint=hub, say=print)
