# ruff: noqa: S603, S607 - the commands of rows.yaml, and bash
"""One cell of the table: a folder, its commands in bash, and whether they show what rows.yaml claims."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

RECORDS = Path(__file__).parents[1] / "records"
CELL_S = 180
KEPT = 8000
"""Characters of a cell's output that are kept: its end."""
TIMED_OUT = 124
"""The exit status of a cell that ran too long, as that of timeout(1)."""

SCHEDULER_VERSION = {"slurm": "sinfo --version", "sge": "qstat -help | head -n 1"}
VERSIONS = (
    "import importlib.metadata as m, json, sys; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
)
WRAPPER = '#!/bin/bash\necho "{name} $*" >>{here}/calls.txt\nexec /usr/bin/{name} "$@"\n'


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a command showed about one program."""

    row: str
    program: str
    answer: str
    command: str
    shows: str
    versions: dict[str, str]
    scheduler: str
    started: str
    seconds: float
    status: int
    output: str
    confirmed: bool


def confirms(shows: str, status: int, output: str) -> bool:
    """Return whether a cell's output proves its claim: it matches, with status 0 and no traceback."""
    failed = status != 0 or "Traceback (most recent call last)" in output
    return not failed and re.search(shows, output, re.MULTILINE) is not None


class Practice(NamedTuple):
    """A practice cluster: the lines that make its commands find it, and the scheduler's version."""

    exports: str = ""
    version: str = ""


class Bench:
    """The folder in which cells run, one after the other, and the programs that they run."""

    def __init__(self, table: dict[str, Any], folder: Path, peers: Path) -> None:
        """Read the versions of the programs in ``peers``, the ``bin`` of their environment."""
        self.table, self.folder, self.peers = table, folder, peers
        names = {
            name for program, names in table["packages"].items() if program != "jobkit" for name in names
        }
        found = printed([str(peers / "python"), "-c", VERSIONS, *sorted(names)])
        self.versions = json.loads(found) | {"jobkit": version("jobkit")}

    def key(self, name: str, program: str) -> tuple[str, str, str, dict[str, str]]:
        """Return what a cell runs and with which versions: its result holds until one of them changes."""
        cell = self.table["rows"][name]["cells"][program]
        versions = {package: self.versions[package] for package in self.table["packages"][program]}
        return cell["answer"], cell["run"], cell["shows"], versions

    def run(self, name: str, program: str, cluster: Practice) -> Cell:
        """Run a cell in a new folder."""
        answer, command, shows, versions = self.key(name, program)
        here = Path(tempfile.mkdtemp(dir=self.folder))
        lay_out(here, self.table["files"])
        started, clock = datetime.now(UTC), time.monotonic()
        script = f"{cluster.exports}\n{self.table['helpers']}\n{command.replace('{here}', str(here))}"
        status, output = run_bash(script, here, self.environment(here))
        output = neutral(output, here, self.peers)[-KEPT:]
        return Cell(
            row=name,
            program=program,
            answer=answer,
            command=command,
            shows=shows,
            versions=versions,
            scheduler=cluster.version,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 1),
            status=status,
            output=output,
            confirmed=confirms(shows, status, output),
        )

    def environment(self, here: Path) -> dict[str, str]:
        """Return the environment of a cell, which has its own home, cache and temporary folder."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("JOBKIT", "RFM"))}
        return env | {
            "PATH": f"{here / 'bin'}:{self.peers}:{env['PATH']}",
            "HOME": str(here),
            "TMPDIR": str(here / "tmp"),
            "XDG_CACHE_HOME": str(here / "cache"),
            "JOBKIT_CACHE": str(here / "cache"),
            "RECORDS": str(RECORDS),
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "RFM_COLORIZE": "n",
            "RFM_ENABLE_RESULTS_STORAGE": "1",
            "SECONDS_EACH": "0",
            "SUBMIT": "sh",
        }


def lay_out(here: Path, files: dict[str, str]) -> None:
    """Put into a cell's folder the files of rows.yaml, jobkit, and submit commands that are counted."""
    (here / "bin").mkdir()
    (here / "tmp").mkdir()
    for name, text in files.items():
        (here / name).write_text(text.replace("{here}", str(here)), encoding="utf-8")
    for name in ("sbatch", "qsub"):
        wrapper = here / "bin" / name
        wrapper.write_text(WRAPPER.format(here=here, name=name), encoding="utf-8")
        wrapper.chmod(0o755)
    (here / "bin" / "jobkit").symlink_to(Path(sys.executable).parent / "jobkit")


def run_bash(script: str, here: Path, env: dict[str, str]) -> tuple[int, str]:
    """Return the status and the output of a script; end what it started if it runs too long."""
    log = here / "output.txt"
    with log.open("w", encoding="utf-8") as file:
        shell = subprocess.Popen(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=here,
            env=env,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(CELL_S)
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()
    return status, log.read_text(encoding="utf-8", errors="replace")


def printed(argv: list[str]) -> str:
    """Return what a command prints on its standard output."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def neutral(output: str, here: Path, peers: Path) -> str:
    """Return the output without this machine's paths, name and kernel."""
    ours = Path(sys.executable).parent
    names = {
        here: ".",
        here.parent: "bench",
        RECORDS: "benchmarks/records",
        RECORDS.parents[1]: "checkout",
        ours.parent: "jobkit-environment",
        peers.parent: "peers",
        Path(sys.base_prefix): "python",
    }
    for path in sorted(names, key=lambda path: -len(str(path))):
        output = output.replace(str(path), names[path])
    output = output.replace(platform.platform(), platform.system())
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", output)


@contextmanager
def practice(scheduler: str | None, folder: Path) -> Iterator[Practice]:
    """Start a practice cluster, yield it, and end it."""
    if scheduler is None:
        yield Practice()
        return
    jobkit = [sys.executable, "-m", "jobkit", "practice"]
    try:
        subprocess.run([*jobkit, "up", scheduler, "--dir", folder], check=True, stdout=sys.stderr)
        exports = printed([*jobkit, "env", "--dir", str(folder)])
        yield Practice(exports, printed(["bash", "-c", f"{exports}\n{SCHEDULER_VERSION[scheduler]}"]).strip())
    finally:
        with uninterrupted():
            down = [*jobkit, "down", "--dir", str(folder)]
            subprocess.run(down, check=True, stdout=sys.stderr, start_new_session=True)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore the signals that ask this process to end, for as long as it ends a cluster."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
