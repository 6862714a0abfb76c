"""Where models are looked for, and how they are fetched: Stanza's, and those that are a whole folder."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobkit.commands.workload import models as command
from jobkit.core.errors import JobkitError
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import FOLDER, ModelRef
from jobkit.planning import models
from jobkit.planning.models import NOT_BUILT, list_models, model_places
from jobkit.worker.workloads.model import folder_files, missing_files
from jobkit.worker.workloads.stanza_ner import StanzaNer

pytestmark = pytest.mark.xdist_group("torch")  # one worker imports it, for all tests of this group


@pytest.fixture(autouse=True)
def no_models_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Stanza's own folder, and the hub's, somewhere empty."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("STANZA_RESOURCES_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def shown(cache: Path) -> list[str]:
    """Return what stands in the model folder, what is hidden left out."""
    return [path.name for path in (cache / "models").iterdir() if not path.name.startswith(".")]


def find(cache: Path, size: str = "full", fallback: str | None = None, name: str = "en") -> ModelRef:
    named = {"name": name, "size": size, "fallback": fallback}
    return models.find("stanza-ner", named, Path(), cache)


def test_a_missing_model_names_the_places_and_a_stand_in_is_described_without_building(
    cache: Path, tmp_path: Path, tiny_model: ModelRef, kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANZA_RESOURCES_DIR", str(tmp_path / "named"))
    with pytest.raises(JobkitError, match="not on this machine") as caught:
        find(cache)
    for place in (cache / "models" / "en", tmp_path / "named", tmp_path / "xdg"):
        assert str(place) in caught.value.message
    assert "jobkit models fetch en" in caught.value.hint
    with pytest.raises(JobkitError, match="only the stand-in has the size 'tiny'") as caught:
        find(cache, "tiny")
    assert "model.fallback: stand-in" in caught.value.hint
    with pytest.raises(JobkitError, match="'de' is not on this machine"):
        find(cache, "full", "stand-in", "de")  # the stand-in is English
    for size in ("tiny", "full"):
        found = find(cache, size, "stand-in")
        assert (found.stand_in, found.fingerprint) == (True, NOT_BUILT)
        assert found.size_bytes > 1_000_000
    assert not cache.exists()
    assert find(kept_cache, "tiny", "stand-in") == tiny_model
    assert (tiny_model.stand_in, len(tiny_model.fingerprint)) == (True, 64)
    assert (tiny_model.name, tiny_model.size) == ("en", "tiny")


def test_a_real_model_is_found_before_the_stand_in_and_all_are_listed(
    cache: Path, tmp_path: Path, tiny_model: ModelRef, kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list_models(cache) == ()
    assert tiny_model in list_models(kept_cache)
    named, own = tmp_path / "named", cache / "models" / "en"
    shutil.copytree(tiny_model.path, named)
    (named / "de").mkdir()
    (named / "de" / "large").write_bytes(bytes(10**6))
    monkeypatch.setenv("STANZA_RESOURCES_DIR", str(named))
    found = find(cache, fallback="stand-in")
    assert (found.path, found.stand_in, found.fingerprint) == (str(named), False, tiny_model.fingerprint)
    assert found.size_bytes == tiny_model.size_bytes
    shutil.copytree(named, own)
    assert find(cache).path == str(own)
    assert [model.path for model in list_models(cache)] == [str(own), str(named)]


def test_a_model_without_what_it_builds_on_is_none(cache: Path, tiny_model: ModelRef) -> None:
    folder = cache / "models" / "en"
    shutil.copytree(tiny_model.path, folder)
    assert not missing_files(folder, "en")
    resources = folder / "resources.json"
    whole = resources.read_text()
    listed = json.loads(whole)
    listed["en"]["packages"]["default"]["mwt"] = "jobkit"  # words split in two need their model
    listed["en"]["mwt"] = {"jobkit": {"md5": ""}}
    resources.write_text(json.dumps(listed))
    assert missing_files(folder, "en") == "no en/mwt/jobkit.pt"
    resources.write_text(whole)
    for lost in ("forward_charlm", "pretrain", "ner", "tokenize"):
        (folder / "en" / lost / "jobkit.pt").rename(folder / lost)
        with pytest.raises(JobkitError, match=f"no en/{lost}/jobkit.pt"):
            find(cache)
        (folder / lost).rename(folder / "en" / lost / "jobkit.pt")
    for text in ("", "[]", "{}", '{"en": {"packages": {}}}', '{"en": "de"}'):
        resources.write_text(text)
        assert "does not list en" in missing_files(folder, "en")


@pytest.mark.slow
def test_stanzas_own_folder_is_where_stanza_says(cache: Path) -> None:
    import stanza
    from platformdirs import user_cache_dir

    own = Path(user_cache_dir("stanza", "StanfordNLP", stanza.__resources_version__)) / "resources"
    assert model_places("en", cache)[-1] == own


def test_a_fetched_model_is_found_and_loads(
    cache: Path, mirror: tuple[Path, str], tiny_model: ModelRef, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("", "../en", "EN", "en/.."):
        with pytest.raises(JobkitError, match="no model is called") as caught:
            models.fetch(name, cache, mirror[1], say=print)
        assert caught.value.hint
    assert not cache.exists()
    said: list[str] = []
    with pytest.raises(JobkitError, match=r"could not be fetched: .*127"):
        models.fetch("en", cache, "http://127.0.0.1:1", say=said.append)
    with pytest.raises(JobkitError, match="Unknown language requested: xx"):
        models.fetch("xx", cache, mirror[1], say=said.append)
    assert shown(cache) == []
    fetched = models.fetch("en", cache, mirror[1], say=said.append)
    assert fetched == find(cache)
    assert (fetched.fingerprint, fetched.stand_in) == (tiny_model.fingerprint, False)
    assert len(said) == 3
    assert capsys.readouterr() == ("", "")
    assert shown(cache) == ["en"]
    StanzaNer().load(Path(fetched.path), "cpu", {}, 1)
    again = models.fetch("en", cache, mirror[1], say=said.append)
    assert again == fetched


def test_a_fetch_that_fails_leaves_the_old_model_and_goes_on_where_it_was_cut(
    cache: Path, mirror: tuple[Path, str]
) -> None:
    folder, address = mirror
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "ANSWER_S", 0.1)
        for name in ("en", "org/model"):
            with pytest.raises(JobkitError, match=r"could not be fetched: .*(no answer within|timed out)"):
                models.fetch(name, cache, f"http://127.0.0.1:{silent.getsockname()[1]}", say=print)
    old = models.fetch("en", cache, address, say=print)
    late = folder / "en" / "ner" / "jobkit.pt"
    whole = late.read_bytes()
    late.unlink()
    with pytest.raises(JobkitError, match="could not be fetched"):
        models.fetch("en", cache, address, say=print)
    late.write_bytes(b"cut short")
    with pytest.raises(JobkitError, match="could not be fetched: md5") as caught:
        models.fetch("en", cache, address, say=print)
    assert "jobkit models fetch en" in caught.value.hint
    assert (find(cache), shown(cache)) == (old, ["en"])
    kept = cache / "models" / ".fetch-en" / "en" / "tokenize" / "jobkit.pt"
    before = kept.stat()
    late.write_bytes(whole)
    (folder / "en" / "tokenize" / "jobkit.pt").unlink()
    fetched = models.fetch("en", cache, address, say=print)
    assert find(cache) == fetched
    after = (Path(fetched.path) / "en" / "tokenize" / "jobkit.pt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (cache / "models" / ".fetch-en").exists()


def test_a_stand_in_that_is_damaged_is_refused_and_not_listed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: ModelRef
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    copy = cache / "models" / Path(tiny_model.path).name
    shutil.copytree(tiny_model.path, copy)
    listed = CliRunner().invoke(command, []).output
    assert listed.startswith(f"{tiny_model.name}  stand-in tiny, F1 ")
    assert listed.endswith(f" MiB  {copy}\n")
    (copy / "en" / "ner" / "jobkit.pt").unlink()
    with pytest.raises(JobkitError, match=r"damaged: no en/ner/jobkit\.pt") as caught:
        models.find("stanza-ner", {"size": "tiny", "fallback": "stand-in"}, Path(), cache)
    assert f"rm -r {copy} && jobkit models build --size tiny" in caught.value.hint
    assert list_models(cache) == ()


TAGGER, EMBEDDER, SPACY = models.USUAL
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"", "tokenizer.json": b"{}"}
FILES["onnx/model.onnx"] = b"large"


def a_model(folder: Path, name: str = "config.json") -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").touch()
    (folder / "tokenizer.json").touch()
    (folder / ".hidden").write_text("not staged", encoding="utf-8")
    return folder


def test_a_folder_of_the_users_is_the_model(tmp_path: Path) -> None:
    a_model(tmp_path / "mine")
    found = models.find(TAGGER, {"path": "mine"}, tmp_path, tmp_path / "cache")
    assert (found.path, found.name, found.kind) == (str(tmp_path / "mine"), "mine", FOLDER)
    assert (found.stand_in, found.caveat, found.title, found.size_bytes) == (False, "", "mine", 2)
    a_model(tmp_path / "any", "weights.bin")
    assert models.find("own:Own", {"path": "any"}, tmp_path, tmp_path).name == "any"
    found = models.find(TAGGER, {"fallback": "stand-in"}, tmp_path, tmp_path)
    assert (found.fingerprint, found.architecture) == (NOT_BUILT, "bert-base biased to O")
    assert found.caveat == "RANDOM weights, architecture bert-base biased to O"


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    a_model(tmp_path / "mine")
    for workload, model, said in (
        (TAGGER, {"path": "absent"}, "no such folder"),
        (SPACY, {"path": "mine"}, "no config.cfg, so it is no model of spacy-ner"),
        ("stanza-ner", {"path": "mine"}, "for other workloads than stanza-ner"),
        ("own:Own", {"name": "a/b"}, "'a/b' is not on this machine"),
        ("stanza-ner", {"name": "a/b"}, "a name with a / is not one of stanza-ner"),
    ):
        with pytest.raises(JobkitError, match=said) as error:
            models.find(workload, model, tmp_path, tmp_path / "cache")
        assert error.value.hint


def test_the_cache_of_the_hub_and_installed_packages_are_looked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "hub" / "models--dslim--bert-base-NER"
    snapshot = a_model(model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT, encoding="ascii")
    assert models.find(TAGGER, {"name": "en"}, tmp_path, tmp_path).path == str(snapshot)
    made = a_model(tmp_path / "en_test_model" / "en_test_model-1.0", "config.cfg")
    (made / "meta.json").write_text("{}", encoding="utf-8")
    (tmp_path / "en_test_model" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert models.find(SPACY, {"name": "en_test_model"}, tmp_path, tmp_path).path == str(made)


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download asks for."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_GET(self) -> None:
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
        if self.command == "GET" and data:
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.do_GET()


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
    with pytest.raises(JobkitError, match="could not be fetched"):
        models.fetch("org/absent", tmp_path, hub, say=print)
    fetched = models.fetch("org/model", tmp_path, hub, say=print)
    assert folder_files(Path(fetched.path)) == ("config.json", "model.safetensors", "tokenizer.json")
    found = models.find(TAGGER, {"name": "org/model"}, tmp_path, tmp_path)
    assert found == fetched
    assert found in models.list_models(tmp_path)
    again = models.fetch("org/model", tmp_path, hub, say=print)
    assert again == fetched
