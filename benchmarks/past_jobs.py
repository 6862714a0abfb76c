"""Follow the advice of ``jobkit waste``, and count the jobs that are killed, and what is freed.

``python -m benchmarks.past_jobs --out FOLDER`` needs a cluster of ``jobkit practice`` in the environment. It
submits thirty jobs of three kinds by plain scripts that know nothing of jobkit, waits for them, asks
``jobkit waste JOBID... --json``, and submits thirty like them with the advised lines. FOLDER gets the answer
of the accounting, jobkit's advice, how each of the second thirty ended, and on Slurm what ``reportseff``
prints of the first thirty, if it is installed.
"""

# ruff: noqa: T201, S603, S311 - it prints what it found, runs its own commands, and draws sizes
from __future__ import annotations

import argparse
import getpass
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobkit.schedulers.protocol import Whose
from jobkit.schedulers.registry import past_of

HOLD = """
import sys, time
size, seconds = int(sys.argv[1]), float(sys.argv[2])
block = bytearray(size * 2**20)
block[::4096] = b"x" * len(block[::4096])
time.sleep(seconds)
"""
"""Holds so many MiB for so many seconds."""
JOBS = 10
DEADLINE_S = 420.0


@dataclass(frozen=True)
class Kind:
    """Jobs of one name: what they request, and between which sizes and times they lie."""

    name: str
    memory_mib: int
    minutes: int
    cpus: int
    gpus: int
    held_mib: tuple[int, int]
    seconds: tuple[float, float]


KINDS = (
    Kind("parse", 900, 30, 2, 0, (60, 160), (2.0, 5.0)),
    Kind("train", 700, 50, 1, 1, (150, 220), (3.0, 6.0)),
    Kind("merge", 400, 10, 1, 0, (40, 60), (1.5, 3.0)),
)


def header(scheduler: str, kind: Kind) -> list[str]:
    """Return the header lines that the owner of the script has chosen."""
    clock = f"00:{kind.minutes:02}:00"
    if scheduler == "slurm":
        lines = [f"--mem={kind.memory_mib}M", f"--time={clock}", f"--cpus-per-task={kind.cpus}"]
        lines += [f"--gres=gpu:{kind.gpus}"] if kind.gpus else []
        return [f"#SBATCH {line}" for line in lines]
    lines = [f"-l h_vmem={kind.memory_mib // kind.cpus}M", f"-l h_rt={clock}"]
    lines += [f"-pe smp {kind.cpus}"] if kind.cpus > 1 else []
    lines += [f"-l ngpus={kind.gpus}"] if kind.gpus else []
    return [f"#$ {line}" for line in lines]


def advised(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return header lines with those that the advice replaces."""

    def key(line: str) -> str:
        return re.split(r"[=\d]", line)[0]

    changed = {key(line): line for line in new}
    return [changed.get(key(line), line) for line in old]


def submit(scheduler: str, kind: Kind, lines: Sequence[str], folder: Path, chance: random.Random) -> str:
    """Submit a job by a script of its own, and return its id."""
    size, seconds = chance.randint(*kind.held_mib), chance.uniform(*kind.seconds)
    script = folder / f"{kind.name}.sh"
    command = f"{sys.executable} {folder / 'hold.py'} {size} {seconds:.2f}"
    script.write_text("\n".join(["#!/bin/bash", *lines, command, ""]), encoding="utf-8")
    argv = ["sbatch", "--parsable", "-J", kind.name, "-o", "/dev/null"]
    if scheduler == "sge":
        argv = ["qsub", "-terse", "-N", kind.name, "-o", "/dev/null", "-j", "y", "-cwd"]
    done = subprocess.run([*argv, str(script)], check=True, capture_output=True, text=True, cwd=folder)
    return done.stdout.strip()


def ended(scheduler: str, ids: Sequence[str]) -> dict[str, Any] | None:
    """Return the jobs of these ids once the accounting has the end of all; else ``None``."""
    past = past_of(scheduler)
    site = run(past.site_argvs(Whose(user=getpass.getuser()))[0])
    text = "".join(run(argv) for argv in past.argvs(Whose(ids=tuple(ids)), (), site))
    jobs = {job.job_id: job for job in past.read(text.splitlines(), site) if job.ended}
    return jobs if set(ids) <= jobs.keys() else None


def run(argv: Sequence[str]) -> str:
    """Return what a command prints."""
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout


def until(question: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Ask until there is an answer; give up at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while (answer := question()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError("the jobs did not end in time")
        time.sleep(2.0)
    return answer


def thirty(scheduler: str, lines: Mapping[str, Sequence[str]], folder: Path, seed: int) -> dict[str, Any]:
    """Submit thirty jobs in mixed order, and return them once they have ended."""
    chance = random.Random(seed)
    order = [kind for kind in KINDS for _ in range(JOBS)]
    chance.shuffle(order)
    ids = [submit(scheduler, kind, lines[kind.name], folder, chance) for kind in order]
    return until(lambda: ended(scheduler, ids))


def above(name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[int]:
    """Return how many of the second jobs of a name held more memory than all first ones, and of how many."""
    before, after = (
        [job.held_bytes or 0 for job in jobs.values() if job.name == name] for jobs in (first, second)
    )
    return [sum(size > max(before) for size in after), len(after)]


def main() -> None:
    """Run the experiment on the cluster of the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scheduler", choices=["slurm", "sge"], required=True)
    options = parser.parse_args()
    out, scheduler = options.out.absolute(), options.scheduler
    out.mkdir(parents=True, exist_ok=True)
    (out / "hold.py").write_text(HOLD, encoding="utf-8")
    asked = {kind.name: header(scheduler, kind) for kind in KINDS}
    first = thirty(scheduler, asked, out, seed=1)
    waste = (sys.executable, "-m", "jobkit", "waste", "--scheduler", scheduler)
    advice = json.loads(run((*waste, *first, "--json")))
    groups = {group["name"]: group for group in advice["groups"]}
    better = {name: advised(lines, groups[name]["lines"]) for name, lines in asked.items()}
    second = thirty(scheduler, better, out, seed=2)
    result: dict[str, Any] = {
        "scheduler": scheduler,
        "asked": asked,
        "advised": better,
        "reserved_gib_hours": {name: groups[name]["reserved_gib_hours"] for name in asked},
        "above_all_of_the_first": {kind.name: above(kind.name, first, second) for kind in KINDS},
        "first": {job.job_id: [job.name, job.state, job.well] for job in first.values()},
        "second": {job.job_id: [job.name, job.state, job.well] for job in second.values()},
    }
    (out / f"{scheduler}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / f"{scheduler}-advice.json").write_text(json.dumps(advice, indent=1) + "\n", encoding="utf-8")
    (out / f"{scheduler}.txt").write_text(run((*waste, *first)), encoding="utf-8")
    if scheduler == "slurm" and shutil.which("reportseff"):
        text = run(("reportseff", "--no-color", *first))
        (out / "reportseff.txt").write_text(text, encoding="utf-8")
    for path in (*out.glob("*.sh"), out / "hold.py"):
        path.unlink()
    print(f"{scheduler}: {sum(well for *_, well in result['second'].values())} of {3 * JOBS} ended well")


if __name__ == "__main__":
    main()
