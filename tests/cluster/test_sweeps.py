"""Whole sweeps through the real daemons, by the commands that a user types."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from jobkit.launch import scheduler_calls
from jobkit.launch import submission as submit
from jobkit.launch.job import Job
from jobkit.planning.prepare import Options, prepare
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import Array
from tests.cluster.daemons import Wait
from tests.cluster.lab import COUNT, CPUS_VARIABLE, WORKLOADS, ClusterLab
from tests.support import commands

SEVERAL = {"slurm": ("cpu", "low"), "sge": ("serial.q", "gpu.q")}


def test_a_sweep_goes_out_to_several_queues_and_its_records_come_home(lab: ClusterLab) -> None:
    queues = SEVERAL[lab.scheduler]
    text = COUNT.replace("gpus: 0,", f"gpus: 0, queue: [{', '.join(queues)}],")
    commands.ended_well(lab.sweep(lab.spec(text), "--wait"))
    assert ",".join(queues) in (lab.run_dir() / "job.sh").read_text(encoding="utf-8")
    detail = lab.jobkit("status", lab.run_dir(), "1").stdout
    assert any(re.search(rf"queue +{re.escape(queue)}$", detail, re.MULTILINE) for queue in queues)
    points = lab.points()
    assert [point["outcome"] for point in points] == ["ok"] * 3
    told = [(event["event"], event["role"]) for event in lab.events()]
    assert told == [(what, role) for role in ("points", "follow") for what in ("submitting", "submitted")]
    lab.clears_scratch()
    entities = {path.read_bytes() for path in lab.run_dir().glob("results/*/try-1/entities.tsv")}
    assert len(list(lab.run_dir().glob("results/*/try-1/entities.tsv"))) == 3
    assert len(entities) == 1, "the batch size must not change what is found"
    accounting = [json.loads(line) for line in (lab.run_dir() / "accounting.jsonl").read_text().splitlines()]
    assert accounting[-1]["kind"] == "accounting"
    named = re.compile(rf"(.*\.o)?{lab.job()}[._]\d")  # as Grid Engine or Slurm names the log of a task
    assert len([path for path in (lab.run_dir() / "logs").iterdir() if named.match(path.name)]) == 3
    wastes = {waste["name"]: waste for waste in json.loads(lab.jobkit("waste", "--json").stdout)["wastes"]}
    assert all(waste["wasted"] is not None for waste in wastes.values()), wastes
    assert not wastes["work on the login node"]["wasted"]
    [lines] = wastes["tiny jobs"]["fix"]["lines"]
    assert [line.split()[0] for line in lines["lines"]] == [by_name(lab.scheduler).DIRECTIVE]


def test_arrays_beyond_the_index_limit_are_offset(lab: ClusterLab, wait_until: Wait) -> None:
    """Points 1 to 3 as two arrays, as a controller with a limit of 2 would get them."""
    options = Options(scheduler=lab.scheduler, site=str(lab.home / "lab.yaml"), runs_dir=lab.home / "runs")
    prepared = prepare(lab.spec(COUNT), options, build=True, say=print)
    submit.write_run(prepared)
    scheduler = by_name(lab.scheduler)
    for offset, last in ((0, 2), (2, 1)):
        array = Array(first=1, last=last, offset=offset, throttle=1)
        job = Job(script="job.sh", array=array)
        scheduler_calls.submit_array(scheduler, prepared.run_dir, job)
    wait_until(lambda: all(point["outcome"] == "ok" for point in lab.points()), 120)


def test_each_request_is_an_array_of_its_own(lab: ClusterLab) -> None:
    """The scheduler gives each point its CPUs, and one array at a time, as ``max_parallel: 1`` says."""
    text = COUNT.replace("[1, 10, 100]}", "[10], threads: [1, 2]}").replace(
        "max_parallel: 2", "max_parallel: 1"
    )
    done = commands.ended_well(lab.sweep(lab.spec(text + "policy: {follow_up: false}\n"), "--wait"))
    assert "1 to 2 CPUs" in done.stderr
    assert len({event["job_id"] for event in lab.events() if event["event"] == "submitted"}) == 2
    records = [json.loads(path.read_text()) for path in lab.run_dir().glob("results/*/try-1/record.json")]
    given = CPUS_VARIABLE[lab.scheduler]
    cpus = sorted((record["point"]["threads"], int(record["environment"][given])) for record in records)
    assert cpus == [(1, 1), (2, 2)]
    spans = sorted((record["started_at"], record["ended_at"]) for record in records)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.fault
def test_a_walltime_that_is_too_short_ends_as_timeout_with_what_was_done(
    lab: ClusterLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULT: the walltime passes while a point works.

    HOW: real: 32 s, with a warning 20 s before, Slurm (`--signal=B:USR1@`) and Grid Engine (`s_rt`). Slurm
    takes a minute for it, and looks every 30 s: its warning may come that much earlier.
    REPORTED: `timeout`, in a record with the number of batches done; the policy gives the next try more
    time.
    LOST: nothing: the batches that were done are home.
    """
    told, site = lab.home / "told", lab.home / "lab.yaml"
    site.write_text(site.read_text().replace("warning_s: 5", "warning_s: 20"))
    text = COUNT.replace("workload: count", "workload: odd:Slow").replace("[1, 10, 100]", "[100]")
    text = text.replace("00:02:00", "00:00:32")
    text += f"environment: {{variables: {{PYTHONPATH: '{WORKLOADS}', ODD_TOLD: '{told}'}}}}\n"
    text += "policy: {follow_up: false}\n"
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    done = lab.sweep(lab.spec(text), "--wait")
    assert done.returncode == 4, done.stdout + done.stderr
    (point,) = lab.points()
    assert point["outcome"] == "timeout"
    assert "its walltime of 00:00:32: " in lab.jobkit("status", lab.run_dir()).stdout
    record = json.loads(next(lab.run_dir().glob("results/*/try-1/record.json")).read_text())
    assert record["summary"]["batches"] == 1
    assert record["signal"] == "USR1"
    assert len(next(lab.run_dir().glob("results/*/try-1/batches.jsonl")).read_text().splitlines()) == 1
    lab.clears_scratch()
