"""A soak: hundreds of short points through a real scheduler, while workers, nodes and the client are killed.

``python -m benchmarks.soak slurm 500 [--seed N] [--nodes]`` on a cluster that tests/cluster brought up and
that nobody else uses. It sweeps the workload ``count``, kills at random, resumes until nothing failed, and
checks: every point ends with an outcome, none is counted twice, none is lost. What happened is printed as
JSON; benchmarks/records/soak.json holds the runs that docs/measurements.md quotes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from jobkit.core.records import RESULTS, Outcome
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding, RunStatus
from tests.cluster.daemons import Daemons, SgeDaemons, SlurmDaemons

JOBKIT = [sys.executable, "-m", "jobkit"]
MOVING = frozenset({PointStanding.RUNNING, PointStanding.WAITING, PointStanding.UNSETTLED})
REPEATS = 10
SPEC = """\
name: soak
workload: count
text: sample
sweep: {{batch_size: [{sizes}]}}
repeats: {repeats}
resources: {{gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}}
max_parallel: 8
policy: {{bug: {{stop_after: 0}}}}
"""
SITE = {
    "slurm": 'name: soak\nscheduler: slurm\nqueue: cpu\nrequests: {queue: "--partition={queue}", '
    'cpus: "--cpus-per-task={cpus}", memory: "--mem={memory}", walltime: "--time={walltime}"}\n',
    "sge": 'name: soak\nscheduler: sge\nqueue: serial.q\nrequests: {queue: "-q {queue}", '
    'cpus: "-pe smp {cpus}", memory: "-l h_vmem={memory}", walltime: "-l h_rt={walltime}"}\n',
}


@dataclass
class Tally:
    """What was killed, and what it took."""

    scheduler: str
    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    tries: int = 0
    seconds: float = 0.0

    def kill(self, kind: str) -> None:
        """Count one kill."""
        self.kills[kind] = self.kills.get(kind, 0) + 1


@dataclass
class Report(Tally):
    """What a soak came to."""

    points: int = 0
    rounds: list[dict[str, int]] = field(default_factory=list)
    status_s: list[float] = field(default_factory=list)
    lost_points: int = 0
    twice: int = 0
    without_outcome: int = 0


class Chaos(threading.Thread):
    """Kills processes of the runs of a folder, and its nodes, at random moments until it is told to stop."""

    def __init__(self, home: Path, dice: random.Random, report: Tally, *, nodes: bool) -> None:
        super().__init__(daemon=True)
        self.home, self.dice, self.report, self.nodes = home, dice, report, nodes
        self.over = threading.Event()

    def run(self) -> None:
        """Kill about one process in two seconds, and break something else now and then."""
        while not self.over.wait(self.dice.uniform(0.2, 3.0)):
            if victims := processes(self.home):
                kind, pid = self.dice.choice(victims)
                if killed(pid):
                    self.report.kill(kind)
            self.break_more()

    def break_more(self) -> None:
        """Break a node now and then."""
        if self.nodes and self.dice.random() < 0.03:
            self.report.kill(break_node(self.report.scheduler, self.dice))

    def stop(self) -> None:
        """Stop, and return when the last kill is done."""
        self.over.set()
        self.join()


def processes(runs: Path) -> list[tuple[str, int]]:
    """Return the workers and job scripts of a folder's runs: what each is, and its process id."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            if "jobkit.worker" in words and any(word.startswith(str(runs)) for word in words):
                found.append(("worker", int(entry.name)))
                found.append(("job script", parent(int(entry.name))))
    return [(kind, pid) for kind, pid in found if pid > 1]


def parent(pid: int) -> int:
    """Return the parent's process id; 0 where the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def killed(pid: int) -> bool:
    """Kill a process with SIGKILL; tell whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def break_node(scheduler: str, dice: random.Random) -> str:
    """Break a node, and mend it some seconds later; return what was done."""
    if scheduler == "sge":
        return _restart(SgeDaemons(), "execd", dice)
    if dice.random() < 0.5:
        subprocess.run(
            ["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=soak"],  # noqa: S607
            check=False,
        )
        time.sleep(dice.uniform(1, 5))
        subprocess.run(["scontrol", "update", "NodeName=n2", "State=RESUME"], check=False)  # noqa: S607
        return "node down"
    return _restart(SlurmDaemons(), "slurmd-n2", dice)


def _restart(daemons: Daemons, name: str, dice: random.Random) -> str:
    daemons.kill(name)
    time.sleep(dice.uniform(1, 5))
    daemons.start(name)
    return name


def client(home: Path, words: Sequence[object], kill_after_s: float | None = None) -> int | None:
    """Run a jobkit command and return its status; ``None`` if it was killed after a while."""
    with (home / "client.log").open("a", encoding="utf-8") as log:
        log.write(f"$ jobkit {' '.join(map(str, words))}\n")
        log.flush()
        process = subprocess.Popen([*JOBKIT, *map(str, words)], cwd=home, stdout=log, stderr=log)  # noqa: S603
    try:
        return process.wait(kill_after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def settled(run: Path, report: Report) -> RunStatus:
    """Wait until nothing of a run moves; time `jobkit status`-like looks meanwhile."""
    while True:
        start = time.monotonic()
        (seen,) = read_status([run])
        report.status_s.append(round(time.monotonic() - start, 3))
        if not any(point.standing in MOVING for point in seen.points) and not seen.silent:
            return seen
        time.sleep(2)


def emptied(run: Path) -> RunStatus:
    """Return a look at a run of which the queue holds nothing any more."""
    while True:
        (seen,) = read_status([run])
        if not seen.queued and not seen.silent:
            return seen
        time.sleep(2)


def count(seen: RunStatus) -> dict[str, int]:
    """Return how many points have which outcome."""
    return dict(Counter(str(point.outcome) for point in seen.points))


def soak(report: Report, home: Path, *, nodes: bool) -> None:
    """Sweep, kill, resume until all points are done, and count."""
    dice = random.Random(report.seed)  # noqa: S311 - not for secrets
    (home / "soak.yaml").write_text(SITE[report.scheduler] + "sync_interval_s: 1\n", encoding="utf-8")
    sizes = ", ".join(str(size) for size in range(1, report.points // REPEATS + 1))
    (home / "spec.yaml").write_text(SPEC.format(sizes=sizes, repeats=REPEATS), encoding="utf-8")
    words: list[object] = [
        "sweep",
        "spec.yaml",
        "--scheduler",
        report.scheduler,
        "--site",
        home / "soak.yaml",
    ]
    begin = time.monotonic()
    if client(home, words, dice.uniform(0.8, 1.2)) is None:
        report.kill("client")
    if not list(home.glob("runs/*/points.jsonl")):
        client(home, words)
    (run,) = (path.parent for path in home.glob("runs/*/points.jsonl"))
    chaos = Chaos(home / "runs", dice, report, nodes=nodes)
    chaos.start()
    for turn in range(12):
        seen = settled(run, report)
        report.rounds.append(count(seen))
        if all(point.outcome in RESULTS for point in seen.points):
            break
        if turn == 1:
            chaos.stop()  # the second resume has peace
        if turn < 1 and client(home, ["resume", run], dice.uniform(0.5, 1.5)) is None:
            report.kill("client")
            time.sleep(31)  # a submission that was cut off is looked for after half a minute
        client(home, ["resume", run])
    if chaos.is_alive():
        chaos.stop()
    seconds = time.monotonic() - begin
    client(home, ["cancel", run])  # tasks that their scheduler began anew, though their point is done
    finish(report, emptied(run), seconds)


def finish(report: Report, seen: RunStatus, seconds: float) -> None:
    """Check what the soak promises, point by point."""
    report.seconds = round(seconds, 1)
    report.tries = sum(len(point.tries) for point in seen.points)
    report.lost_points = report.points - len({point.point.point_id for point in seen.points})
    report.without_outcome = sum(point.outcome is None for point in seen.points)
    report.twice = sum(sum(tried.outcome is Outcome.OK for tried in point.tries) > 1 for point in seen.points)


Soaked = TypeVar("Soaked", bound=Tally)


def asked(module: str, number: str, report: type[Soaked], soak: Callable[..., None]) -> Soaked:
    """Run the soak that the command line asks for, print its report as JSON, and return it."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}")
    parser.add_argument("scheduler", choices=list(SITE))
    parser.add_argument(number, type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", action="store_true", help="break nodes too: for a cluster of one's own")
    given = vars(parser.parse_args())
    nodes, result = given.pop("nodes"), report(**given)
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        try:
            soak(result, Path(folder), nodes=nodes)
        except BaseException:
            sys.stderr.write((Path(folder) / "client.log").read_text(encoding="utf-8")[-20000:])
            raise
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    return result


def main() -> int:
    """Run one soak and print its report."""
    report = asked("soak", "points", Report, soak)
    bad = report.lost_points or report.twice or report.without_outcome
    return 1 if bad or any(word != "ok" for word in report.rounds[-1]) else 0


if __name__ == "__main__":
    sys.exit(main())
