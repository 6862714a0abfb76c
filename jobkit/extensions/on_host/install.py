"""``jobkit --on HOST init --install``: install this version of jobkit there, if none there fits."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from jobkit.core import shell, terminal
from jobkit.core.errors import JobkitError, RefusedError, UnknownError
from jobkit.core.extras import EXTRAS, NO_EXTRA, origin
from jobkit.core.host import PROTOCOL
from jobkit.extensions.on_host import transfer
from jobkit.extensions.on_host.client import CONNECTION_LOST, Cluster
from jobkit.extensions.on_host.connection import VENV, waiting
from jobkit.extensions.on_host.protocol import MARK

WHEELS = "$HOME/.local/share/jobkit"
UV_PYTHON, MIRROR = "3.12", "https://github.com/astral-sh/python-build-standalone/releases/download"
"""The Python that uv loads, and the place from which it does by default."""
PYTHON, MODULE, VERSION, HAS, HOME = (
    f"{MARK}{word} " for word in ("python", "module", "version", "has", "home")
)
"""What begins a line of the answer of `LOOK`, behind what a login shell prints."""
INSTALLED = f"{MARK}installed"
_PAIRS = " ".join(f"{extra}:{module}" for extra, (module, _) in EXTRAS.items())
LOOK = f"""
fits() {{ "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }}
offer() {{ for p; do q=$(command -v "$p") && fits "$q" && echo "{PYTHON}$q" && return; done; return 1; }}
with_module() {{ eval "$("$modules" sh load "$1" 2>/dev/null)" >/dev/null 2>&1; command -v python3; }}
from_modules() {{
  modules=${{LMOD_CMD:-${{MODULES_CMD:-$(command -v modulecmd)}}}} && [ -x "$modules" ] || return
  for m in $("$modules" sh -t avail 2>&1 | sed -n 's/(.*//; /python[^ ]*\\/3[.]1[1-9]/Ip' | sort -rV); do
    q=$(with_module "$m") && offer "$q" && return
    (eval "$("$modules" sh load "$m")"; fits "$q") >/dev/null 2>&1 && echo "{MODULE}$m" && return
  done
}}
conda=$(command -v conda || echo "$CONDA_EXE"); conda=${{conda%/*/*}}; d=bin/python3
offer python3.13 python3.12 python3.11 python3 ||
  offer /usr/local/$d.1[1-9] /opt/*/$d /opt/*/$d.1[1-9] /opt/*/*/$d /opt/rh/*/root/usr/$d /usr/local/*/$d \\
    "$HOME"/.local/$d.1[1-9] "$HOME"/.local/share/uv/python/*/$d "$HOME"/.pyenv/versions/*/$d \\
    "${{conda:-/none}}"/$d "$conda"/envs/*/$d "$HOME"/*conda*/$d "$HOME"/*forge*/$d \\
    "$HOME"/.conda/envs/*/$d ||
  from_modules
for p in "{VENV}/bin/jobkit" "$(command -v jobkit)"; do
  [ -x "$p" ] && "$p" --version | sed 's/^/{VERSION}/' || continue
  echo "{HAS}$("$(sed -n '1s/^#!//p' "$p")" -c '
from importlib.util import find_spec
pairs = "{_PAIRS}"
print(*[extra for pair in pairs.split() for extra, module in [pair.split(":")] if find_spec(module)])')"
  break
done
echo "{HOME}$(cd && pwd -P)"
"""
"""A script that looks for Python 3.11 or later, one that works without its module, and for jobkit."""
FETCH_PYTHON = f"""
set -e
cd "{WHEELS}"
uv=$(command -v uv) || {{ python3 -m pip install --quiet --target uv uv; uv=uv/bin/uv; }}
export UV_PYTHON_INSTALL_DIR="$PWD/python" UV_PYTHON_INSTALL_BIN=0 UV_PYTHON_INSTALL_MIRROR=%s
"$uv" python install {UV_PYTHON}
for p in "$PWD"/python/*/bin/python3; do echo "{PYTHON}$p"; done
"""
INSTALL = f"""
set -e
cd "{WHEELS}"
%s -m venv venv
install="venv/bin/python -m pip install --disable-pip-version-check --quiet"
$install %s
$install --force-reinstall --no-deps %s
echo {INSTALLED}
"""
"""A script; its blanks: Python, the wheel with extras, the wheel (other code may have the same version)."""


def install_if_missing(cluster: Cluster, extras: Sequence[str], *, permitted: bool) -> None:
    """Install jobkit there, unless the host has one that fits, with these extras; refuse if not permitted.

    Without extras those that are there are enough; jobkit is installed with the tagger's.
    """
    found = _look(_script(cluster, LOOK, last=HOME))
    fits = found.get(VERSION, "").endswith(f"protocol {PROTOCOL}")
    if fits and {*extras} - {NO_EXTRA} <= {*found.get(HAS, "").split()}:
        terminal.note(f"{cluster.host} has {found[VERSION]}")
        return
    extras = sorted({*(extras or ["stanza"])} - {NO_EXTRA})
    mirror = "" if PYTHON in found else _mirror(cluster, found.get(MODULE, ""))
    folder = f"{found[HOME]}/.local/share/jobkit"
    python = found.get(PYTHON) or f"Python {UV_PYTHON}, which uv loads from {mirror} into {folder}/python"
    terminal.note(
        _plan(cluster.host, python, found.get(VERSION, ""), fits=fits, extras=extras, folder=folder)
    )
    if not permitted:
        hint = "to install it type the same again, with --install at its end"
        raise JobkitError(f"{cluster.host}: nothing was changed", hint=hint)
    _script(cluster, f'mkdir -p "{WHEELS}"')
    if mirror:
        loaded = _script(cluster, FETCH_PYTHON % shlex.quote(mirror))
        if PYTHON not in (found := found | _look(loaded)):
            said = terminal.printable(loaded.stderr.strip()[-MOST_SAID:])
            raise RefusedError(
                f"{cluster.host}: uv has loaded no Python from {mirror}: {said}",
                hint=f"type the same again, with a mirror that answers on {cluster.host}",
            )
    _install(cluster, found[PYTHON], folder, extras)


def _mirror(cluster: Cluster, module: str) -> str:
    if module:
        raise JobkitError(
            f"{cluster.host} has Python 3.11 or later in its module {module}, which works only while loaded",
            hint=f"write into your start file there: module load {module}; then type this again",
        )
    lacks = f"{cluster.host} has no Python 3.11 or later on its PATH, in modules, conda or /opt"
    # uv's own
    mirror_variable = "UV_PYTHON_INSTALL_MIRROR"
    if mirror := os.environ.get(mirror_variable):
        return mirror
    raise JobkitError(
        lacks,
        hint="ask its staff for a module that has one; or name a mirror that it reaches, from which uv "
        f"loads one, in front of the same command: {mirror_variable}={MIRROR}",
    )


def _look(done: shell.Completed) -> dict[str, str]:
    words, lines = (PYTHON, MODULE, VERSION, HAS, HOME), done.stdout.splitlines()
    return {word: line.partition(word)[2] for word in words for line in lines if word in line}


def _script(cluster: Cluster, script: str, *, last: str = "", show: bool = False) -> shell.Completed:
    """Run a script there; refuse an answer that the connection has cut, or without its last line."""
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        if show:
            terminal.note(line.rstrip("\n"))

    argv = cluster.connection.argv("exec sh -s")  # which runs what standard input has
    with waiting(f"{cluster.host} to answer"):
        done = shell.run_streaming(argv, keep, text=script, env=dict(os.environ))
    if done.status == CONNECTION_LOST or last not in "".join(lines):
        said = terminal.printable(" ".join(done.stderr.split())[-MOST_SAID:]) or "the connection broke"
        message = f"{cluster.host}: no answer: {said}"
        raise UnknownError(message, hint=transfer.AGAIN)
    return shell.Completed(done.argv, done.status, "".join(lines), done.stderr)


def _plan(host: str, python: str, other: str, *, fits: bool, extras: Sequence[str], folder: str) -> str:
    lacks = ", which lacks an extra" if fits else ", which this version cannot talk to"
    brought = [EXTRAS[extra][1] for extra in extras]
    return "\n".join(
        (
            f"{host} has {other}{lacks}." if other else f"{host} has no jobkit.",
            "jobkit would",
            f"  make a virtual environment, {folder}/venv, with {python}",
            f"  install jobkit {metadata.version('jobkit')} into it from a wheel that it sends,",
            "  and what it needs from the package index that pip uses there: 230 MB",
            *(f"  with {what}" for what in brought),
            f"Nothing else changes. To remove it: rm -r {folder}",
            *(["Jobs that use an older jobkit there now may fail."] if other and not fits else []),
        )
    )


def _install(cluster: Cluster, python: str, folder: str, extras: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        wheel = make_wheel(Path(made))
        transfer.send(cluster.connection, [wheel], wheel.parent, folder)
        terminal.note("installing: this takes minutes if it brings torch")
        brings = f"[{','.join(extras)}]" if extras else ""
        named = (python, f"./{wheel.name}{brings}", f"./{wheel.name}")
        done = _script(cluster, INSTALL % tuple(map(shlex.quote, named)), show=True)
    if not done.stdout.rstrip().endswith(f"{INSTALLED}"):
        raise RefusedError(
            f"{cluster.host}: jobkit could not be installed (status {done.status}): "
            f"{terminal.printable(done.stderr.strip()[-MOST_SAID:])}",
            hint=f"its output is above; by hand: ssh {cluster.host}, then {python} -m venv {folder}/venv",
        )


MOST_SAID = 2000
"""Characters of the errors of pip that are repeated."""


def make_wheel(folder: Path) -> Path:
    """Write the wheel of this jobkit into a folder, and return its path.

    An installed jobkit is packed again from its files; one of a checkout is built by pip, or by uv.

    Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    """
    own, (source, editable) = metadata.distribution("jobkit"), origin()
    if editable:
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir")
        build = pip if importlib.util.find_spec("pip") else ("uv", "build", "--quiet", "--wheel", "--out-dir")
        argv = (*build, str(folder), str(source))
        shell.check(shell.run(argv, timeout_s=300), "the wheel of this checkout cannot be built")
        return next(folder.glob("jobkit-*.whl"))
    wheel = folder / f"jobkit-{own.version}-py3-none-any.whl"
    kept: list[str] = []
    of_the_installer = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for line in (own.read_text("RECORD") or "").splitlines():
            name = line.partition(",")[0]
            if name.startswith("..") or name.endswith(".pyc") or Path(name).name in of_the_installer:
                continue
            kept.append(line)
            if Path(name).name != "RECORD":
                packed.write(str(own.locate_file(name)), name)
        packed.writestr(f"jobkit-{own.version}.dist-info/RECORD", "\n".join([*kept, ""]))
    return wheel
