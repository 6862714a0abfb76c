"""Specs and run folders of any size: written fast, with nothing synced to disk."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import EXIT_FILE, POINTS_FILE, RECORD_FILE
from jobkit.core.measurements import Gpu, MemoryReadings, Sampler, Summary
from jobkit.core.records import JobFacts, ModelRef, Outcome, Point, Record, TextRef

REPEATS = 10
GIB = 2**30
RUN_ID = "bench-20260102-101530-3f9a"
_EXIT = "status=0\nstage=done\noutcome=ok\nsignal=\nmessage=\nscratch=\nhost=node1\n"


def write_spec(folder: Path, points: int, repeats: int = 1) -> Path:
    """Write a spec of so many points over a text of two paragraphs; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("One two.\n\nThree four.\n", encoding="utf-8")
    path = folder / f"sweep-{points}.yaml"
    sizes = list(range(1, points // repeats + 1))
    path.write_text(
        f"name: bench\nworkload: count\ntext: text.txt\nsweep: {{batch_size: {sizes}}}\nrepeats: {repeats}\n"
        "max_parallel: null\nresources: {gpus: 0, memory: 1GiB}\nscheduler: slurm\nsite: slurm-default\n",
        encoding="utf-8",
    )
    return path


def write_run(folder: Path, points: int) -> Path:
    """Write a run folder in which so many points are home, ten repeats a size."""
    run = folder / f"run-{points}"
    run.mkdir(parents=True)
    with (run / POINTS_FILE).open("w", encoding="utf-8") as stream:
        for index in range(1, points + 1):
            point = _point(index)
            stream.write(to_json(point) + "\n")
            home = run / "results" / point.point_id / "try-1"
            home.mkdir(parents=True)
            (home / RECORD_FILE).write_text(to_json(record(point)) + "\n", encoding="utf-8")
            (home / EXIT_FILE).write_text(_EXIT, encoding="utf-8")
    return run


def _point(index: int) -> Point:
    size, repeat = (index - 1) // REPEATS + 1, (index - 1) % REPEATS + 1
    return replace(
        _POINT,
        index=index,
        point_id=f"batch_size-{size}-r{repeat}",
        params={"batch_size": size},
        repeat=repeat,
    )


_POINT = Point(
    run_id=RUN_ID,
    index=1,
    point_id="",
    workload="stanza-ner",
    params={},
    repeat=1,
    text=TextRef(path="/texts/sample.txt", sha256="5a" * 32, size_bytes=174_693, name="sample"),
    model=ModelRef(
        path="/models/en", name="en", size="full", stand_in=True, fingerprint="f1" * 8, size_bytes=10**8
    ),
    device="cuda",
    order="load",
    allocator="expandable_segments:True",
    threads=2,
)


_GPU = Gpu(name="GPU", uuid="GPU-1", total_bytes=140 * GIB, driver="550.1", cuda="12.4", foreign_processes=0)


def record(point: Point) -> Record:
    """Return the record of a point that went well on a GPU, with every field that such a try fills."""
    size = point.numbers["batch_size"]
    work_s = 8 + point.repeat / 100
    began = datetime(2026, 1, 2, 10, 15, 30, 123_000, tzinfo=UTC) + timedelta(minutes=point.index)
    return Record(
        point=point,
        try_number=1,
        outcome=Outcome.OK,
        job=JobFacts(scheduler="slurm", job_id="4711", task_id=str(point.index)),
        host="node1",
        started_at=began.isoformat(timespec="milliseconds"),
        ended_at=(began + timedelta(minutes=1)).isoformat(timespec="milliseconds"),
        effective={"batch_size": size},
        versions={"python": "3.11.7", "jobkit": "0.1.0", "stanza": "1.10.1", "torch": "2.5.0"},
        gpu=_GPU,
        memory=_memory(size),
        sampler=Sampler(period_s=0.0101, samples=800, memory_query="v2", utilisation_mean_percent=60.0),
        summary=_summary(size, work_s),
        load_s=4.0,
        warm_up_s=1.0,
        environment={"CUDA_VISIBLE_DEVICES": "0"},
    )


def _memory(size: int) -> MemoryReadings:
    activations = size * 2**16
    return MemoryReadings(
        context_bytes=3 * GIB // 4,
        weights_bytes=GIB // 4,
        activations_bytes=activations,
        other_bytes=2**20,
        allocated_peak_bytes=GIB // 4 + activations,
        reserved_peak_bytes=GIB // 4 + activations,
        process_peak_bytes=GIB + activations,
        device_peak_bytes=GIB + activations,
        device_idle_bytes=0,
        rss_peak_bytes=2 * GIB,
        maxrss_bytes=2 * GIB + 1024,
    )


def _summary(size: int, work_s: float) -> Summary:
    batches = -(-881 // size)
    return Summary(
        items_total=881,
        batches_total=batches,
        items=881,
        sentences=1762,
        characters=170_000,
        batches=batches,
        work_s=work_s,
        items_per_s=881 / work_s,
        batch_mean_s=work_s / batches,
        batch_p50_s=work_s / batches,
        batch_p95_s=1.5 * work_s / batches,
        padding_efficiency=0.26,
        load_max=900 * size,
    )


def read_points(run: Path) -> list[Point]:
    """Return the points of a run folder."""
    lines = (run / POINTS_FILE).read_text(encoding="utf-8").splitlines()
    return [from_json(Point, line, where=POINTS_FILE) for line in lines]
