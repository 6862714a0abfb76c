"""What a run requested and did not use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.archives import group
from jobkit.answers.gpus import gpu_kind
from jobkit.core.blocks import as_text
from jobkit.core.errors import JobkitError
from jobkit.core.layout import Exit
from jobkit.core.measurements import MemoryReadings, Sampler
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB, MIB
from jobkit.report.recommend.material import read_use
from jobkit.report.recommend.waste import Fix, Waste, blocks, smallest_card, wastes
from tests.support.builders import (
    GPU,
    grid,
    point,
    record,
    write_answer,
    write_begin,
    write_event,
    write_exit,
    write_points,
    write_record,
    write_records,
    write_submitted,
)
from tests.support.commands import jobkit

SPEC = """\
name: demo
sweep: {batch_size: [50, 100]}
resources: {gpus: 1, cpus: 4, memory: 8GiB, walltime: "01:00:00"}
"""
BEGAN = datetime(2026, 1, 2, 10, 0, tzinfo=UTC)


def used(
    of: Record,
    *,
    seconds: float = 3000,
    work_s: float = 2900,
    busy: float | None = 90,
    ram: int = 6 * GIB,
    gpu_peak: int = 100 * GIB,
    cpu_s: float | None = 11_000,
) -> Record:
    """Return a record of a point that used what it requested, unless something is given."""
    assert of.summary
    return replace(
        of,
        started_at=BEGAN.isoformat(),
        ended_at=(BEGAN + timedelta(seconds=seconds)).isoformat(),
        summary=replace(of.summary, work_s=work_s),
        sampler=Sampler(utilisation_mean_percent=busy),
        memory=MemoryReadings(process_peak_bytes=gpu_peak, maxrss_bytes=ram),
        gpu=replace(GPU, total_bytes=140 * GIB) if of.gpu else None,
        cpu_s=cpu_s,
    )


def run(
    tmp_path: Path, records: Sequence[Record], more: str = "scheduler: slurm\nsite: slurm-default\n"
) -> Path:
    """Write a run of Slurm's job 77, a task for each record."""
    folder = write_records(tmp_path / "run", records)
    (folder / "sweep.yaml").write_text(SPEC + more, encoding="utf-8")
    write_submitted(folder, "slurm", "77", first=1, last=len(records))
    return folder


def found(folder: Path) -> dict[str, Waste]:
    """Return the wastes by name."""
    return {waste.name: waste for waste in wastes(read_use(folder))}


def printed(folder: Path) -> str:
    """Return what `jobkit waste` prints."""
    use = read_use(folder)
    return as_text(blocks(use, wastes(use)))


def fix_of(waste: Waste) -> Fix:
    """Return the fix of what must be waste."""
    assert waste.wasted
    assert waste.fix
    return waste.fix


def header(waste: Waste) -> list[str]:
    return [line for lines in fix_of(waste).lines for line in lines.lines]


def points(number: int = 2, *, device: str = "cuda") -> list[Record]:
    """Return plain records of Slurm."""
    return [record(one) for one in grid(range(10, 10 * number + 1, 10), device=device)]


def test_a_run_that_used_what_it_requested_wastes_nothing(tmp_path: Path) -> None:
    folder = run(tmp_path, [used(one) for one in points()])
    judged = found(folder)
    assert len(judged) == 7
    assert {waste.wasted for waste in judged.values()} == {False}
    assert {waste.points for waste in judged.values()} == {2}
    assert judged["work on the login node"].used == "in jobs, on node1"
    assert "Of the seven kinds, 0 are waste, 7 are not." in printed(folder)


def test_a_point_that_runs_or_left_no_record_is_not_said_to_be_old(tmp_path: Path) -> None:
    (one,) = grid([50])
    folder = run(tmp_path, [record(one)])
    (folder / "results" / one.point_id / "try-1" / "record.json").unlink()
    write_begin(folder, one)
    why = {waste.why for waste in found(folder).values() if waste.wasted is None}
    assert why == {"no point has ended"}
    assert "1 point has not ended yet." in printed(folder)
    assert f"next: jobkit status {folder}" in jobkit("waste", str(folder)).stderr
    write_exit(folder, one, Exit(status=1, stage="environment"))
    assert found(folder)["cores"].why == "no point left a record"


@pytest.mark.parametrize("folder", sorted(group("tune").iterdir())[:2], ids=lambda folder: folder.name)
def test_a_search_does_not_advise_a_search(folder: Path) -> None:
    assert found(folder)["idle GPU"].fix is None


def test_a_point_on_the_cpu_needs_no_gpu(tmp_path: Path) -> None:
    folder = run(tmp_path, [used(one) for one in points(device="cpu")])
    idle = found(folder)["idle GPU"]
    assert fix_of(idle).keys == {"resources.gpus": 0}
    assert [lines.lines for lines in fix_of(idle).leave_out] == [("#SBATCH --gres=gpu:1",)]
    assert "leave out: #SBATCH --gres=gpu:1" in printed(folder)


@pytest.mark.parametrize(("peak", "busy", "workers"), [(4 * GIB, 26, 3), (4 * GIB, 0, 16), (60 * GIB, 26, 2)])
def test_workers_share_an_idle_gpu_as_far_as_they_fit(
    tmp_path: Path, peak: int, busy: float, workers: int
) -> None:
    records = [used(one, busy=busy, gpu_peak=peak, ram=GIB) for one in points()]
    idle = found(run(tmp_path, records))["idle GPU"]
    assert fix_of(idle).keys["workers"] == workers
    assert f"#SBATCH --cpus-per-task={4 * workers}" in header(idle)
    assert ("resources.memory" in fix_of(idle).keys) == (1.2 * workers > 8)


def test_without_room_for_a_second_worker_a_search_decides(tmp_path: Path) -> None:
    idle = found(run(tmp_path, [used(one, busy=10) for one in points()]))["idle GPU"]
    assert fix_of(idle).command == "jobkit tune SPEC"


def test_memory_is_judged_by_the_larger_of_record_and_accounting(tmp_path: Path) -> None:
    folder = run(tmp_path, [used(one, ram=7 * GIB // 2) for one in points()])
    memory = found(folder)["memory"]
    assert fix_of(memory).keys == {"resources.memory": "5GiB"}, "a fifth more"
    assert header(memory) == ["#SBATCH --mem=5G"]
    task = "77_1|COMPLETED|0:0|3000||8G|4|node1|None|demo-20260102-101530-3f9a|2026-01-02T11:00:00"
    batch = f"77_1.batch|COMPLETED|0:0|3000|{7 * GIB}|8G|4|node1||batch|2026-01-02T11:00:00"
    write_answer(folder, "slurm", "accounting", f"{task}\n{batch}\n")
    assert (found(folder)["memory"].wasted, found(folder)["memory"].used) == (False, "7.00 GiB at most")


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("memory", Outcome.RAM_OOM), ("walltime", Outcome.TIMEOUT), ("too large a GPU", Outcome.GPU_OOM)],
)
def test_what_ran_out_is_no_waste(tmp_path: Path, name: str, outcome: Outcome) -> None:
    little = [used(one, ram=GIB, seconds=60, work_s=50, gpu_peak=GIB) for one in points()]
    folder = run(tmp_path, [replace(little[0], outcome=outcome), little[1]])
    waste = found(folder)[name]
    assert (waste.wasted, waste.fix) == (False, None)
    assert "ran out" in waste.why


def test_a_try_that_got_more_is_compared_with_that(tmp_path: Path) -> None:
    one = points(1)[0]
    folder = run(tmp_path, [replace(used(one), outcome=Outcome.RAM_OOM)])
    more = ["resources.memory=40GiB"]
    for number, words, outcome in ((2, [], Outcome.RAM_OOM), (3, more, Outcome.OK)):
        job = replace(one.job, job_id=f"{76 + number}")
        write_submitted(folder, "slurm", job.job_id, first=1, last=1, round=number, given=words)
        write_record(folder, replace(used(one), try_number=number, outcome=outcome, job=job))
        assert found(folder)["memory"].requested == ("40.00 GiB" if words else "12.00 GiB")


def test_cores_that_were_not_busy(tmp_path: Path) -> None:
    cores = found(run(tmp_path, [used(one, cpu_s=3100) for one in points()]))["cores"]
    assert cores.used == "1.0 busy on average"
    assert fix_of(cores).keys == {"resources.cpus": 2}
    assert header(cores) == ["#SBATCH --cpus-per-task=2"]
    own = "scheduler: slurm\nsite: slurm-default\nthreads: 4\n"
    threads = found(run(tmp_path / "b", [used(one, cpu_s=300) for one in points()], own))["cores"]
    assert fix_of(threads).keys == {"resources.cpus": 1, "threads": 1}


@given(peak_mib=st.integers(1, 140 * 1024))
def test_a_smaller_card_always_holds_the_peak(peak_mib: int) -> None:
    smaller = smallest_card(peak_mib * MIB, 140 * GIB)
    assert smaller is None or peak_mib * MIB < gpu_kind(smaller.name).usable_bytes < 70 * GIB


def test_what_is_not_known_is_not_judged(tmp_path: Path) -> None:
    for name, change, unknown in (
        ("gpu", {"gpu": None}, {"too large a GPU"}),
        ("peaks", {"memory": MemoryReadings()}, {"too large a GPU", "memory"}),
        ("busy", {"sampler": Sampler(utilisation_mean_percent=None)}, {"idle GPU"}),
    ):
        judged = found(run(tmp_path / name, [replace(used(one), **change) for one in points()]))
        assert {name for name, waste in judged.items() if waste.wasted is None} == unknown


def test_tiny_jobs_share_one(tmp_path: Path) -> None:
    short = [used(one, seconds=60, work_s=20) for one in points(20)]
    tiny = found(run(tmp_path, short))["tiny jobs"]
    assert tiny.requested == "20 jobs"
    assert fix_of(tiny).keys == {"pack": 10, "resources.walltime": "00:02:00"}
    assert header(tiny) == ["#SBATCH --time=00:20:00"]
    working = [used(one, seconds=60, work_s=50) for one in points(4)]
    for name, records in (("work", working), ("one", short[:1])):
        assert found(run(tmp_path / name, records))["tiny jobs"].wasted is False


def test_points_that_share_a_job_are_one_job(tmp_path: Path) -> None:
    short = [used(one, seconds=60, work_s=20) for one in points(4)]
    folder = run(tmp_path, short, "scheduler: slurm\nsite: slurm-default\npack: 4\n")
    (folder / "journal.jsonl").unlink()
    (folder / "tasks").write_text("1 2 3 4\n")
    write_submitted(folder, "slurm", "77", first=1, last=1, list="tasks")
    for one in short:
        path = folder / "results" / one.point.point_id / "try-1" / "record.json"
        path.write_text(path.read_text().replace(f'"task_id": "{one.point.index}"', '"task_id": "1"'))
    judged = found(folder)
    assert (judged["tiny jobs"].requested, judged["tiny jobs"].wasted) == ("1 job", False)
    assert header(judged["walltime"]) == ["#SBATCH --time=00:20:00"]


def test_tiny_shards_become_larger_shards(tmp_path: Path) -> None:
    short = [used(one, seconds=60, work_s=20) for one in points(4)]
    shards = [replace(one, point=replace(one.point, shard=True)) for one in short]
    folder = run(tmp_path, shards)
    (folder / "winners").mkdir()
    for one in shards:
        (folder / "winners" / f"{one.point.point_id}.json").touch()
    assert "--shard-minutes 30" in fix_of(found(folder)["tiny jobs"]).command
    assert "  command  jobkit apply" in printed(folder)


def local(tmp_path: Path, seconds: float, on_path: Sequence[str] | None = None) -> dict[str, Waste]:
    """Return the wastes of a run on this machine."""
    records = [used(one, seconds=seconds, work_s=seconds * 0.9) for one in points()]
    records = [replace(one, job=replace(one.job, scheduler="local")) for one in records]
    folder = run(tmp_path, records, "scheduler: local\n")
    (folder / "journal.jsonl").unlink()
    recorded = {} if on_path is None else {"on_path": on_path}
    write_event(folder, "submitted", scheduler="local", job_id="77", cluster="", first=1, last=2, **recorded)
    return found(folder)


def test_work_on_a_login_node(tmp_path: Path) -> None:
    login = local(tmp_path, 600, on_path=["slurm"])["work on the login node"]
    assert login.used == "00:20:00, with Slurm there"
    assert fix_of(login).keys == {"scheduler": "slurm"}
    assert "#SBATCH --time=01:00:00" in header(login)
    assert local(tmp_path / "short", 20, on_path=["sge"])["work on the login node"].wasted is False
    assert local(tmp_path / "none", 600, on_path=[])["work on the login node"].wasted is False
    assert local(tmp_path / "old", 600)["work on the login node"].wasted is None
    for file in (tmp_path / "short").rglob("record.json"):
        file.unlink()
    running = found(tmp_path / "short" / "run")["work on the login node"]
    assert (running.wasted, running.why) == (None, "no point has ended")


def test_a_run_that_has_not_begun_has_used_nothing(tmp_path: Path) -> None:
    folder = write_points(tmp_path / "run", [point()])
    (folder / "sweep.yaml").write_text(SPEC + "scheduler: slurm\n")
    with pytest.raises(JobkitError, match="no point has begun"):
        read_use(folder)
    with pytest.raises(JobkitError, match="not a run folder"):
        read_use(tmp_path)
    (folder / "sweep.yaml").write_text("name: [")
    with pytest.raises(JobkitError, match="jobkit does not know what the run requested"):
        read_use(folder)


def test_a_try_without_a_record_has_the_times_of_the_accounting(tmp_path: Path) -> None:
    one = points(1)[0]
    folder = run(tmp_path, [used(one)])
    (folder / "results" / one.point.point_id / "try-1" / "record.json").unlink()
    row = "77_1|FAILED|1:0|600||8G|4|node1|None|demo-20260102-101530-3f9a|2026-01-02T11:00:00\n"
    write_answer(folder, "slurm", "accounting", row)
    write_event(folder, "refused", status=1, said="")
    judged = found(folder)
    assert judged["walltime"].used == "00:10:00 at most"
    assert fix_of(judged["walltime"]).keys == {"resources.walltime": "00:15:00"}, "a quarter more, and 2 min"
    unknown = {name for name, waste in judged.items() if waste.wasted is None}
    assert unknown == {"idle GPU", "memory", "cores", "too large a GPU", "tiny jobs"}
