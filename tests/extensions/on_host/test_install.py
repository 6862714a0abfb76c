"""The wheel of this jobkit, which `init` sends."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobkit.extensions.on_host.install import make_wheel

INSTALL = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target")
AGAIN = """\
import sys
from pathlib import Path
sys.path[1:1] = {path!r}
from jobkit.extensions.on_host.install import make_wheel
make_wheel(Path({place!r}))
"""


@pytest.mark.installs
@pytest.mark.slow
def test_an_installed_jobkit_is_packed_as_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PIP_NO_BUILD_ISOLATION", "0"
    )  # that is, none (pip's manual): no network, a third of the time
    first, again = make_wheel(tmp_path), tmp_path / "again"
    again.mkdir()
    subprocess.run((*INSTALL, tmp_path / "installed", first), check=True)
    around = {"PYTHONPATH": str(tmp_path / "installed"), "PATH": "/usr/bin:/bin"}
    code = AGAIN.format(path=sys.path, place=str(again))
    subprocess.run((sys.executable, "-S", "-c", code), env=around, check=True)
    second = again / first.name
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        names = {name for name in one.namelist() if not name.endswith("/RECORD")}
        assert names <= {*two.namelist()}
        assert all(one.read(name) == two.read(name) for name in names)
        assert not [name for name in two.namelist() if name.endswith(".pyc") or name.startswith("..")]
        assert any(name.startswith("jobkit/shipped/templates/") for name in two.namelist())
