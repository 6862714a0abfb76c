"""The wheel of this jobkit, which `init` sends."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobkit.extensions.on_host.install import make_wheel


@pytest.mark.slow
def test_an_installed_jobkit_is_packed_as_it_came(tmp_path: Path) -> None:
    first = make_wheel(tmp_path)
    place = tmp_path / "installed"
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place))
    subprocess.run((sys.executable, *install, str(first)), check=True)
    code = "import sys; from pathlib import Path; from jobkit.extensions.on_host.install import make_wheel\n"
    code += "made = make_wheel(Path(sys.argv[1])); print(made)"
    again = tmp_path / "again"
    again.mkdir()
    shadow = {"PYTHONPATH": f"{place}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        (sys.executable, "-S", "-c", f"import sys; sys.path[1:1] = {sys.path!r}; {code}", str(again)),
        env=shadow,
        capture_output=True,
        text=True,
        check=True,
    )
    second = Path(done.stdout.strip())
    assert second.name == first.name
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        names = {name for name in one.namelist() if not name.endswith("/RECORD")}
        assert names <= {*two.namelist()}
        assert all(one.read(name) == two.read(name) for name in names)
        assert not [name for name in two.namelist() if name.endswith(".pyc") or name.startswith("..")]
    twice = tmp_path / "twice"
    subprocess.run((sys.executable, *install[:-1], str(twice), str(second)), check=True)
    assert (twice / "jobkit" / "shipped" / "templates").is_dir()
