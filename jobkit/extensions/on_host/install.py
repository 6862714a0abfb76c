"""``jobkit --on HOST init``: install this version of jobkit there, after a yes, if none there fits."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from jobkit.core import shell, terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.host import PROTOCOL
from jobkit.extensions.on_host import transfer
from jobkit.extensions.on_host.client import Cluster
from jobkit.extensions.on_host.connection import VENV
from jobkit.extensions.on_host.protocol import MARK

WHEELS = "$HOME/.local/share/jobkit"
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3")
PYTHON, VERSION, HOME = (f"{MARK}{word} " for word in ("python", "version", "home"))
"""What begins a line of the answer of `LOOK`, behind what a login shell prints."""
INSTALLED = f"{MARK}installed"
NOT_PACKED = (".pyc", "/RECORD", "/INSTALLER", "/REQUESTED", "direct_url.json")
LOOK = f"""
for p in {" ".join(PYTHONS)}; do
  q=$(command -v "$p") && "$q" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue
  echo "{PYTHON}$q"
  break
done
for p in "{VENV}/bin/jobkit" "$(command -v jobkit)"; do
  [ -x "$p" ] && "$p" --version | sed 's/^/{VERSION}/' && break
done
echo "{HOME}$HOME"
"""
INSTALL = f"""
set -e
cd "{WHEELS}"
"%s" -m venv venv
install="venv/bin/python -m pip install --disable-pip-version-check --quiet"
$install "%s"
$install --force-reinstall --no-deps "%s"
echo {INSTALLED}
"""
"""A script; its blanks are the Python, and twice the wheel: other code may have the same version."""


def install_if_missing(cluster: Cluster) -> bool:
    """Return whether the host has a jobkit that fits; install it after a yes."""
    found = _look(cluster)
    version = metadata.version("jobkit")
    if found.get(VERSION, "").endswith(f"protocol {PROTOCOL}"):
        terminal.note(f"{cluster.host} has {found[VERSION]}")
        return True
    if PYTHON not in found:
        raise JobkitError(
            f"{cluster.host} has no Python 3.11 or later on the PATH of its login shell",
            hint="load its module in your start file there (module avail python), then type this again",
        )
    folder = f"{found[HOME]}/.local/share/jobkit"
    terminal.note(_plan(cluster.host, found, version, folder))
    sys.stderr.write("Install it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        terminal.note("nothing was changed")
        return False
    _install(cluster, found[PYTHON], folder)
    return True


def _look(cluster: Cluster) -> dict[str, str]:
    """Return what the host answers, by the word that begins the line."""
    lines = _script(cluster, LOOK).stdout.splitlines()
    return {
        word: line.partition(word)[2] for word in (PYTHON, VERSION, HOME) for line in lines if word in line
    }


def _script(cluster: Cluster, script: str, *, show: bool = False) -> shell.Completed:
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        if show:
            terminal.note(line.rstrip("\n"))

    done = shell.run_streaming(cluster.connection.script_argv(), keep, text=script, env=dict(os.environ))
    return shell.Completed(done.argv, done.status, "".join(lines), done.stderr)


def _plan(host: str, found: dict[str, str], version: str, folder: str) -> str:
    other = found.get(VERSION)
    has = f"{host} has {other}, which this version cannot talk to." if other else f"{host} has no jobkit."
    return "\n".join(
        (
            f"{has} jobkit would",
            f"  make a virtual environment, {folder}/venv, with {found[PYTHON]}",
            f"  install jobkit {version} into it from a wheel of this machine, and PyTorch and the other",
            "  packages from the package index that pip uses there: several GB",
            f"Nothing else changes. To remove it: rm -r {folder}/venv",
            *(["Jobs that use an older jobkit there now may fail."] if other else []),
        )
    )


def _install(cluster: Cluster, python: str, folder: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        wheel = make_wheel(Path(made))
        _script(cluster, f'mkdir -p "{WHEELS}"')
        transfer.send(cluster.connection, [wheel], wheel.parent, folder)
        terminal.note("installing: this takes minutes, most of them for PyTorch")
        done = _script(cluster, INSTALL % (python, wheel.name, wheel.name), show=True)
    if not done.stdout.rstrip().endswith(f"{INSTALLED}"):
        raise JobkitError(
            f"{cluster.host}: jobkit could not be installed (status {done.status}): "
            f"{terminal.printable(done.stderr.strip()[-MOST_SAID:])}",
            hint=f"its output is above; by hand: ssh {cluster.host}, then {python} -m venv {folder}/venv",
            exit_code=ExitCode.REFUSED,
        )


MOST_SAID = 2000
"""Characters of the errors of pip that are repeated."""


def make_wheel(folder: Path) -> Path:
    """Write the wheel of this jobkit into a folder, and return its path.

    An installed jobkit is packed again from its files; one of a checkout is built by pip.

    Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    """
    own = metadata.distribution("jobkit")
    origin = json.loads(own.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        source = unquote(urlparse(origin["url"]).path)
        options = ("--quiet", "--no-deps", "--wheel-dir", str(folder))
        argv = [sys.executable, "-m", "pip", "wheel", *options, source]
        shell.check(shell.run(argv, timeout_s=BUILD_S), "the wheel of this checkout cannot be built")
        return next(folder.glob("jobkit-*.whl"))
    wheel = folder / f"jobkit-{own.version}-py3-none-any.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in own.files or ():
            name = file.as_posix()
            if name.startswith("..") or name.endswith(NOT_PACKED):
                continue
            data = Path(str(file.locate())).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            packed.writestr(name, data)
            rows.writerow((name, f"sha256={digest}", len(data)))
        listed = f"jobkit-{own.version}.dist-info/RECORD"
        rows.writerow((listed, "", ""))
        packed.writestr(listed, record.getvalue())
    return wheel


BUILD_S = 300
