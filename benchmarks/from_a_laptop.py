"""Go from an empty folder on a laptop to a merged corpus, by ``jobkit --on`` and a one-time code.

``JOBKIT_CLUSTER=1 python -m benchmarks.from_a_laptop --out FILE``, as root on Debian, brings up a practice
Slurm with an OpenSSH server in front of it, installs jobkit for a user there, and types each command once.
Then it types some commands many times, in turn through ``jobkit --on`` and, as a person does who has logged
in, on the cluster itself: the difference is what ``--on`` costs. FILE gets all of it.
"""

# ruff: noqa: T201, S603 - it prints what it found, and runs its own commands
from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobkit.practice import cluster
from tests.cluster.ssh_host import SshHost, login_node

ROOT = Path(__file__).parents[1]
HOST = "cluster-code"
SPEC = """\
name: letters
workload: count
text: letters.txt
sweep: {batch_size: [1, 10, 100]}
repeats: 2
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""
WAY = ("init", "sweep first.yaml --wait", "status", "collect", "recommend RUN --corpus letters.txt")
TO_THE_END = ("apply RUN --corpus letters.txt --out tagged --wait", "merge tagged --fetch")
REPEATED = ("status", "logs RUN 3", "recommend RUN --corpus letters.txt")


class Typist:
    """Types commands on the laptop, and on the cluster."""

    def __init__(self, host: SshHost) -> None:
        self.host, self.codes = host, 0
        self.project = host.laptop.home / "letters"
        self.project.mkdir()

    def on(self, command: str) -> float:
        """Type a command with ``--on``; return its seconds."""
        begun = time.monotonic()
        done = self.host.laptop.type(
            *("jobkit", "--on", HOST, *command.split()),
            answers={"One-time password": self._code, "Install it": "y"},
            cwd=self.project,
        )
        seconds = time.monotonic() - begun
        if done.returncode:
            raise SystemExit(f"{command}: {done.returncode}\n{done.screen}")
        return seconds

    def there(self, command: str) -> float:
        """Type a command on the cluster, in a shell that is open there; return its seconds."""
        program = self.host.home / ".local/share/jobkit/venv/bin/jobkit"
        line = f". ~/.profile; cd {self.host.home}/jobkit/letters; {program} {command}"
        shell = ("runuser", "-u", self.host.user, "--", "bash", "-c", line)
        begun = time.monotonic()
        subprocess.run(shell, check=True, capture_output=True)
        return time.monotonic() - begun

    def _code(self) -> str:
        self.codes += 1
        return self.host.code()


def go(typist: Typist) -> dict[str, Any]:
    """Type the whole way; return each command with its seconds, and what happened at the server."""
    before = typist.host.counts("code")
    seconds = {}
    for command in (*WAY, *TO_THE_END):
        if command == WAY[1]:
            (typist.project / "first.yaml").write_text(SPEC)
            text = "\n\n".join(f"Letter {n}." for n in range(300))
            (typist.project / "letters.txt").write_text(f"{text}\n")
        seconds[command] = typist.on(command.replace("RUN", run_of(typist)))
    rows = len((typist.project / "tagged" / "merged.jsonl").read_text().splitlines())
    happened = typist.host.counts("code") - before
    return {
        "seconds": seconds,
        "commands": len(seconds),
        "codes_typed": typist.codes,
        "connections": happened.connections,
        "logins": happened.logins,
        "ssh_commands": happened.sessions,
        "processes_left": list(typist.host.processes().values()),
        "merged_rows": rows,
    }


def run_of(typist: Typist) -> str:
    """Return the name of the run; empty before there is one."""
    folder = typist.host.home / "jobkit" / "letters" / "runs"
    return next((path.name for path in folder.glob("letters-*")), "")


def overhead(typist: Typist, times: int) -> dict[str, dict[str, Any]]:
    """Return the seconds of commands by ``--on`` and on the cluster, in turn."""
    found: dict[str, dict[str, Any]] = {}
    for command in REPEATED:
        words = command.replace("RUN", run_of(typist))
        pairs = [(typist.on(words), typist.there(words)) for _ in range(times)]
        found[command] = {"on": [on for on, _ in pairs], "there": [there for _, there in pairs]}
        found[command]["more_s"] = spread([on - there for on, there in pairs])
        print(command, found[command]["more_s"])
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, and the smallest and the largest."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--times", type=int, default=15)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="laptop-"))
    place.chmod(0o755)
    started = cluster.up(place, "slurm")
    os.environ.update(cluster.variables([started]))
    try:
        with login_node(place) as host:
            host.reset(cluster.variables([started]))
            host.pin(ROOT / "constraints.txt")
            typist = Typist(host)
            data = {"way": go(typist), "overhead": overhead(typist, options.times)}
    finally:
        cluster.down(place)
        shutil.rmtree(place)
    options.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(data["way"], indent=1))


if __name__ == "__main__":
    main()
