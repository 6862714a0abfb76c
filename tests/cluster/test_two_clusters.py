"""Two clusters of one scheduler share a home: a run belongs to the one to which it was submitted."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from jobkit.core.errors import ExitCode
from jobkit.practice.cluster import Cluster
from jobkit.runs import journal
from jobkit.schedulers.registry import by_name
from tests.cluster.lab import ClusterLab, held_by
from tests.support.commands import jobkit

SPEC = """\
name: two
workload: count
text: sample:20
sweep: {batch_size: [1, 2]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 400MiB, walltime: "00:02:00"}
policy: {follow_up: false}
"""
SEQUENCES = int(os.environ.get("JOBKIT_SEQUENCES", "2"))
STEPS, POINTS = 14, 2
LOOKS = "status", "logs"
COMMANDS = "sweep", "status", "resume", "cancel", "logs"
PRECIOUS = {
    "slurm": "sbatch --hold --array=1-2 -J precious --mem=50 --wrap true",
    "sge": "qsub -h -t 1-2 -N precious -b y true",
}  # an array that waits and is not of jobkit
QUEUE = {"slurm": "squeue -h -r -t PD -o %j", "sge": "qstat -u * -xml"}


class Shell:
    """A shell that talks to one of the clusters."""

    def __init__(self, lab: ClusterLab, cluster: Cluster) -> None:
        self.lab, self.cluster = lab, cluster
        self.waiting: Counter[str] = Counter()  # how many tasks of each name must wait in its queue

    def jobkit(self, *words: str | Path) -> tuple[int, str]:
        done = jobkit(*words, cwd=self.lab.home, env=self.cluster.place.variables)
        return done.returncode, done.stdout + done.stderr

    def sweep(self) -> Path:
        """Submit a run whose tasks wait."""
        known = {*self.lab.home.glob("runs/*")}
        hold = ("--set", f"resources.options={held_by(self.lab.scheduler)}")
        code, said = self.jobkit("sweep", self.lab.home / "spec.yaml", *self.lab.place, "--new", *hold)
        assert code == 0, said
        (run,) = {*self.lab.home.glob("runs/*")} - known
        self.waiting[run.name] = POINTS
        return run

    def keep(self, number: int) -> None:
        """Have others' arrays in its queue, up to a number that the other cluster has given."""
        last = 0
        while last < number:
            said = self.cluster.place.ask(*PRECIOUS[self.lab.scheduler].split()).stdout
            last = int("".join(char if char.isdecimal() else " " for char in said).split()[0])
            self.waiting["precious"] += 2

    def queue(self) -> Counter[str]:
        answer = self.cluster.place.ask(*QUEUE[self.lab.scheduler].split())
        if self.lab.scheduler == "slurm":
            return Counter(answer.stdout.split())
        return Counter(row.name for row in by_name("sge").parse_queue(answer) or ())


@pytest.fixture
def shells(
    lab: ClusterLab, two_clusters: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> tuple[Shell, Shell]:
    """Return two shells; a task that two looks miss would be lost at once."""
    monkeypatch.setattr(journal, "GONE_AFTER", timedelta(0))
    lab.spec(SPEC)
    first, second = (Shell(lab, one) for one in two_clusters)
    return first, second


def last_job(run: Path) -> int:
    events = (json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines())
    return max(int(event["job_id"]) for event in events if event["event"] == "submitted")


def test_no_command_of_either_shell_touches_or_doubles_a_job(shells: tuple[Shell, Shell]) -> None:
    for seed in range(SEQUENCES):
        _types(shells, random.Random(seed))  # noqa: S311 - no secret
    _types_to_a_run_of_an_earlier_version(*shells)


def _types(shells: tuple[Shell, Shell], choose: random.Random) -> None:
    """Type commands at random in either shell, and compare the queues after each."""
    homes: dict[Path, Shell] = {}
    typed = []
    for _ in range(STEPS):
        shell = choose.choice(shells)
        command = choose.choice(COMMANDS) if homes else "sweep"
        run = shell.sweep() if command == "sweep" else choose.choice([*homes])
        home = homes.setdefault(run, shell)
        if command != "sweep":
            code, said = shell.jobkit(command, run, *["1"] * (command == "logs"))
            typed.append(f"{command} of {run.name} {'here' if shell is home else 'there'}: {code}\n{said}")
            assert "lost" not in said, typed
            if shell is not home and (home.waiting[run.name] or command in {"resume", "cancel"}):
                assert "; this shell talks to " in said, typed
                assert code == (ExitCode.TO_COME if command in LOOKS else ExitCode.REFUSED), typed
            elif command in {"resume", "cancel"}:
                home.waiting[run.name] = POINTS if command == "resume" else 0
        for other in shells:
            if other is not home:
                other.keep(last_job(run))
        assert [one.queue() for one in shells] == [+one.waiting for one in shells], typed


def _types_to_a_run_of_an_earlier_version(here: Shell, there: Shell) -> None:
    """Its journal does not have the cluster, so the name decides whose a number is."""
    run = here.sweep()
    there.keep(last_job(run))
    path = run / "journal.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        del event["scheduler_id"]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    for command in ("status", "resume", "cancel"):
        code, said = there.jobkit(command, run)
        assert f"job {last_job(run)} has another name, user or time" in said
        assert code == (ExitCode.TO_COME if command in LOOKS else ExitCode.REFUSED)
    assert [here.queue(), there.queue()] == [+here.waiting, there.waiting]
    assert here.jobkit("cancel", run)[0] == 0
    here.waiting[run.name] = 0
    assert [here.queue(), there.queue()] == [+here.waiting, there.waiting]
