"""Every hint about an outcome, typed as it stands: the point then goes well."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobkit import cli
from jobkit.core.extras import INDEX
from jobkit.core.records import Outcome
from jobkit.runs.hints import REMEDIES, FixKind, Step, remedy
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStatus
from jobkit.runs.status_text import next_steps
from jobkit.worker import failure
from tests.support.builders import point as a_point
from tests.support.copiers import stand_in
from tests.support.swept import Sweep
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - a fixture is found by its name here

CHOICES = {"HH:MM:SS": "01:00:00", "FOLDER": str(Path(sys.executable).parents[1])}
"""What a person puts for the words of a hint."""
HERE: Mapping[Outcome, tuple[int, str]] = {
    Outcome.ENVIRONMENT: (1, "import no_such_package"),
    Outcome.BUG: (2, "raise ValueError('on purpose')"),
    Outcome.STOPPED: (4, ""),
}
"""What goes wrong here with which batch size; 2 and 3 fail the same way, so that 4 is stopped."""
_WORDS = """
ram_oom timeout node_fail preempted cancelled pruned lost
gpu_busy no_gpu model_missing scratch_full queue_error dependency
"""
SUBMITTED = {Outcome(word) for word in _WORDS.split()}
"""What is submitted again to a cluster."""
SPEC = """\
name: t
workload: own:Own
text: text.txt
model: {{size: tiny, fallback: stand-in}}
scheduler: local
site: {site}
sweep: {{batch_size: [1, 2, 3, 4]}}
repeats: 1
resources: {{gpus: 0, cpus: 1, memory: 200MiB, walltime: 2m}}
policy: {{follow_up: false, bug: {{stop_after: 2}}}}
"""
OWN = """\
import os, pathlib, time
from jobkit.worker.workloads.count import Count

class Own(Count):
    NEEDS_MODEL = True

    def load(self, model, device, params, threads):
        does = pathlib.Path(__file__).with_name(f"does-{params['batch_size']}")
        exec(does.read_text() if does.exists() else "")
        super().load(model, device, params, threads)
"""


def point(run: Path, size: int) -> PointStatus:
    return read_status([run])[0].points[size - 1]


def steps_of(one: PointStatus, run: Path) -> list[Step]:
    steps = next_steps(read_status([run])[0], one, str(run))
    return [step for step in steps if step.kind is not FixKind.LOG]


def typed(steps: list[Step]) -> None:
    """Type the steps, in their order, as a person would; what looks at a node is tested elsewhere."""
    for step in steps:
        words = shlex.split(step.command)
        words = [next((w.replace(k, v) for k, v in CHOICES.items() if w.endswith(f"={k}")), w) for w in words]
        if words[:2] != ["jobkit", "doctor"]:
            assert words[0] == "jobkit"
            assert cli._exit_code(words[1:]) in {0, 4}, step


@pytest.mark.long
@pytest.mark.usefixtures("tiny_model")
def test_what_failed_here(tmp_path: Path, kept_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n")
    site = f"name: here\nscheduler: local\nscratch: {tmp_path}/scratch\nsync_interval_s: 1\n"
    (tmp_path / "site.yaml").write_text(site)
    (tmp_path / "spec.yaml").write_text(SPEC.format(site=tmp_path / "site.yaml"))
    faults = {tmp_path / f"does-{size}": does for size, does in [*HERE.values(), (3, HERE[Outcome.BUG][1])]}
    for path, does in faults.items():
        path.write_text(does)
    monkeypatch.setenv("JOBKIT_CACHE", str(kept_cache))
    monkeypatch.chdir("/")  # the folder of the spec, and not the one where it is typed, holds the workload
    assert cli._exit_code(["sweep", str(tmp_path / "spec.yaml"), "--runs-dir", str(tmp_path / "runs")]) == 4
    (run,) = (tmp_path / "runs").iterdir()
    for path in faults:
        path.unlink()
    for outcome, (size, _) in HERE.items():
        one = point(run, size)
        told = one.verdict.evidence
        assert one.outcome is outcome, told
        assert ("own.py:9: ValueError: on purpose" in told) == (outcome in {Outcome.BUG, Outcome.STOPPED})
        steps = steps_of(one, run)
        typed(steps[:1] if outcome is Outcome.ENVIRONMENT else steps)  # its second is the other way
        assert point(run, size).outcome is Outcome.OK


@pytest.mark.slow
@pytest.mark.parametrize("outcome", sorted(SUBMITTED))
def test_what_is_submitted_again(outcome: Outcome, sweep: Sweep) -> None:
    if outcome is Outcome.QUEUE_ERROR:
        sweep.ended(*[Outcome.OK] * 5, None)
        sweep.queue(f"100_6|PENDING|BadConstraints||0:00|N/A|{sweep.run.name}\n")
        (sweep.folder / "scancel").write_text(f"#!/bin/sh\n: >{sweep.folder}/queue\n")
        typed(list(remedy(outcome, "", run=str(sweep.run), point=point(sweep.run, 6).point, alone=True)))
    else:
        sweep.ended(*[Outcome.OK] * 5, outcome)
        typed(steps_of(point(sweep.run, 6), sweep.run))
    assert (sweep.run / "tasks-2.txt").read_text() == "6\n"
    script = (sweep.run / "job-2.sh").read_text()
    assert ("--mem=300M" in script) is (outcome is Outcome.RAM_OOM), "what the others held, and room"
    assert ("--time=00:02:00" in script) is (outcome is Outcome.TIMEOUT)


@pytest.mark.slow
def test_inputs_and_results_that_could_not_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n")
    (tmp_path / "site.yaml").write_text(f"name: x\nscheduler: local\nscratch: {tmp_path}/scratch\n")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    keys = (
        "name: t\nworkload: count\ntext: text.txt\nscheduler: local\nsite: ./site.yaml\n"
        "sweep: {batch_size: 1}\nrepeats: 1\nresources: {gpus: 0}\npolicy: {follow_up: false}\n"
    )
    (tmp_path / "spec.yaml").write_text(keys)
    for outcome, pattern in ((Outcome.STAGE_IN, ".inputs/"), (Outcome.STAGE_OUT, "/out/")):
        program = stand_in(tmp_path / "bin", f'[[ "$*" != *{pattern}* ]] || exit 1')
        monkeypatch.setenv("PATH", path)
        assert cli._exit_code(["sweep", "spec.yaml", "--runs-dir", outcome]) == 4
        (run,) = (tmp_path / outcome).iterdir()
        one = point(run, 1)
        assert one.outcome is outcome, one.verdict.evidence
        program.unlink()
        typed(steps_of(one, run))
        if outcome is Outcome.STAGE_OUT:
            kept = one.verdict.evidence.partition("kept in ")[2].partition(":")[2].partition(";")[0]
            home = run / "results" / one.point.point_id / "try-1"
            shutil.copytree(Path(kept) / "out", home, dirs_exist_ok=True)
        assert point(run, 1).outcome is Outcome.OK


PYTHON_ = "/opt/my env/bin/python"
FORCED = f"install --force-reinstall torch --index-url {INDEX}"


CPU_BUILD = f"the point requests CUDA, but torch 2.9+cpu in {PYTHON_} is a CPU build"
BY_MESSAGE: Mapping[tuple[Outcome, str], list[str]] = {
    (Outcome.NO_GPU, CPU_BUILD): [f"'{PYTHON_}' -m pip {FORCED}", "jobkit resume R"],
    (Outcome.NO_GPU, failure.Cause.NO_DRIVER): ["nvidia-smi", "jobkit resume R --set resources.queue=NAME"],
    (Outcome.TIMEOUT, "stopped by SIGUSR1"): ["jobkit status R 3"],
    # A batch that hung does not get more time.
    (Outcome.TIMEOUT, f"worker 1 {failure.Cause.HANG} of 4"): ["jobkit logs R 3", "jobkit resume R 3"],
}


@pytest.mark.parametrize(("outcome", "message"), BY_MESSAGE)
def test_the_message_decides_between_remedies(outcome: Outcome, message: str) -> None:
    commands = [step.command for step in remedy(outcome, message, run="R", point=a_point(3))]
    assert commands == BY_MESSAGE[outcome, message]


def test_every_outcome_has_a_remedy_that_is_tried() -> None:
    """Fail for a new outcome, until it is in the table and in a test of this module."""
    results = {outcome for outcome, steps in REMEDIES.items() if not steps}
    assert results == {Outcome.OK, Outcome.GPU_OOM}
    assert {*HERE, *SUBMITTED, Outcome.STAGE_IN, Outcome.STAGE_OUT} | results == set(Outcome) == set(REMEDIES)
