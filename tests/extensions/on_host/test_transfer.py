"""What travels to the cluster, with each rsync; a stand-in for ssh runs here what it would run there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from jobkit.extensions.on_host import server, transfer
from jobkit.extensions.on_host.connection import Connection
from jobkit.extensions.on_host.protocol import Request
from tests.support.copiers import rsync_of

pytestmark = pytest.mark.slow


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of another user")
@pytest.mark.parametrize("version", ["3.2", "3.5"])
def test_a_model_travels_through_links_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """They lead to the temporary folder here, and to jobkit's cache on the cluster."""
    model, link, programs = (tmp_path / name for name in ("model", "link", "programs"))
    for folder in (model, tmp_path / "real", programs):
        folder.mkdir()
    (model / "weights").write_text("weights")
    link.symlink_to("real")
    os.lchown(link, os.geteuid() + 1, -1)
    (programs / "ssh").write_text('#!/bin/sh\nfor word; do :; done\nexec sh -c "$word"\n')
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{rsync_of(version, tmp_path)}:{os.environ['PATH']}")
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("JOBKIT_CACHE", str(link / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(link))
    transfer._has_rsync.cache_clear()
    lacks = {"workload": "stanza-ner", "model": {"path": str(tmp_path / "none")}, "folder": "model"}
    place = Path(server.QUESTIONS["prepare"](Request(about={"model": lacks}))["model"])
    transfer.send(Connection("hec", ()), [model], tmp_path, str(place.parent))
    assert (link / "cache" / "models" / "model" / "weights").read_text() == "weights"
