"""Run folders for tests, made of the real records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobkit.core.files import append_line, write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import Value
from jobkit.core.layout import (
    ACCOUNTING_FILE,
    BATCHES_FILE,
    BEGIN_FILE,
    ENTITIES_FILE,
    EXIT_FILE,
    JOURNAL_FILE,
    POINTS_FILE,
    RECORD_FILE,
    Exit,
)
from jobkit.core.measurements import Gpu, MemoryReadings, Need, Summary
from jobkit.core.records import Batch, JobFacts, ModelRef, Outcome, Point, Record, TextRef
from jobkit.core.units import GIB
from jobkit.worker.record import Task
from jobkit.worker.workloads.base import Entity, as_tsv

TEXT = TextRef(path="/texts/sample.txt", sha256="5a" * 32, size_bytes=174_693, name="sample")
MODEL = ModelRef(
    path="/models/en", name="en", size="full", stand_in=True, fingerprint="f1" * 8, size_bytes=10**8
)
GPU = Gpu(name="NVIDIA H200", uuid="GPU-1", total_bytes=140 * GIB, driver="550.1", cuda="12.4")
VERSIONS = {"stanza": "1.10.1", "torch": "2.5.0"}
ITEMS = 881


def point(index: int = 1, *, params: Mapping[str, Value] | None = None, device: str = "cuda") -> Point:
    """Return a point of run ``demo``."""
    return Point(
        run_id="demo-20260102-101530-3f9a",
        index=index,
        point_id=f"p{index:03d}",
        workload="stanza-ner",
        params=params or {"batch_size": 50},
        repeat=1,
        text=TEXT,
        model=MODEL,
        device=device,
        order="load",
        allocator=None,
        threads=2,
    )


def grid(sizes: Iterable[int], repeats: int = 1, *, device: str = "cuda") -> list[Point]:
    """Return points over batch sizes and repeats, numbered from 1 as `jobkit.plan` does."""
    sizes = list(sizes)
    pairs = [(size, repeat) for repeat in range(1, repeats + 1) for size in sizes]
    return [
        replace(point(index, params={"batch_size": size}, device=device), repeat=repeat)
        for index, (size, repeat) in enumerate(pairs, 1)
    ]


def need(load: int, passed_bytes: int) -> Need:
    """Return the need of a batch; a tenth of it more is reserved, and a tenth less allocated."""
    return Need(
        load=load,
        allocated_bytes=passed_bytes * 9 // 10,
        reserved_bytes=passed_bytes * 11 // 10,
        passed_bytes=passed_bytes,
        failed_bytes=passed_bytes - 2**20,
        tries=5,
        seconds=2.0,
    )


def summary(batch_size: int, work_s: float, load_max: int) -> Summary:
    """Return the summary of a whole pass over the text."""
    batches = -(-ITEMS // batch_size)
    return Summary(
        items_total=ITEMS,
        batches_total=batches,
        items=ITEMS,
        sentences=2 * ITEMS,
        characters=170_000,
        batches=batches,
        work_s=work_s,
        items_per_s=ITEMS / work_s,
        batch_mean_s=work_s / batches,
        batch_p50_s=work_s / batches,
        batch_p95_s=1.5 * work_s / batches,
        padding_efficiency=0.26,
        load_max=load_max,
    )


def memory(batch_size: int) -> MemoryReadings:
    """Return memory that is 1 GiB and 0.01 GiB for each paragraph of the batch, on a GPU."""
    activations = batch_size * GIB // 100
    return MemoryReadings(
        context_bytes=3 * GIB // 4,
        weights_bytes=GIB // 4,
        activations_bytes=activations,
        process_peak_bytes=GIB + activations,
        rss_peak_bytes=2 * GIB,
        maxrss_bytes=2 * GIB + 1024,
    )


def record(of: Point, *, work_s: float = 8.0) -> Record:
    """Return the record of a try of a point that went well, one after the other."""
    size = of.numbers["batch_size"]
    on_gpu = of.device != "cpu"
    began = datetime(2026, 1, 2, 10, 14, 30, tzinfo=UTC) + timedelta(minutes=of.index)
    return Record(
        point=of,
        try_number=1,
        outcome=Outcome.OK,
        job=JobFacts(scheduler="slurm", job_id="77", task_id=str(of.index)),
        host="node1",
        started_at=began.isoformat(),
        ended_at=(began + timedelta(minutes=1)).isoformat(),
        effective={"batch_size": size},
        versions=VERSIONS,
        gpu=GPU if on_gpu else None,
        memory=memory(size) if on_gpu else MemoryReadings(maxrss_bytes=size * GIB // 100),
        summary=summary(size, work_s, 900 * size),
        load_s=4.0,
    )


def batch(index: int, items: int = 50, seconds: float = 0.5) -> Batch:
    """Return a line of ``batches.jsonl``."""
    return Batch(
        index=index, first_item=index * items, items=items, characters=100 * items, load=900, seconds=seconds
    )


def by_hand(of: Point, inputs: Path, out: Path | None = None, **more: Any) -> Task:
    """Return a try of a point by hand, its files in the folder of its inputs if no other is named."""
    task = Task(point=of, try_number=1, inputs=inputs, out=out or inputs, job=JobFacts(scheduler="hand"))
    return replace(task, **more)


def write_points(run: Path, points: Iterable[Point]) -> Path:
    """Make a run folder that lists its points and holds nothing else."""
    (run / "results").mkdir(parents=True)
    write_atomically(run / POINTS_FILE, "".join(to_json(p) + "\n" for p in points))
    return run


def try_folder(run: Path, of: Point, number: int = 1) -> Path:
    """Make the folder of a try."""
    folder = run / "results" / of.point_id / f"try-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_record(run: Path, what: Record) -> None:
    """Bring a record home."""
    folder = try_folder(run, what.point, what.try_number)
    write_atomically(folder / RECORD_FILE, to_json(what))


def write_records(run: Path, records: Iterable[Record]) -> Path:
    """Make a run folder of records, one for each of its points."""
    records = list(records)
    write_points(run, [record.point for record in records])
    for record in records:
        write_record(run, record)
    return run


def of_precision(index: int, precision: str, batch_size: int = 50, repeat: int = 1) -> Point:
    """Return a point of a sweep of precisions."""
    params: dict[str, Value] = {"batch_size": batch_size, "precision": precision}
    return replace(point(index, params=params), precision=precision, repeat=repeat)


def with_shortcuts(of: Record, refused: str = "") -> Record:
    """Return a record of a setting with shortcuts; ``refused`` has why it ran without them."""
    ran = f"off: {refused}" if refused else "exact"
    return replace(
        of, point=replace(of.point, shortcuts="exact"), effective={**of.effective, "shortcuts": ran}
    )


def write_tagged(run: Path, found: Iterable[tuple[Point, Iterable[Entity]]]) -> Path:
    """Write a run whose points succeeded and found these entities."""
    found = list(found)
    write_records(run, [record(one) for one, _ in found])
    for one, entities in found:
        write_atomically(try_folder(run, one) / ENTITIES_FILE, as_tsv(entities))
    return run


def write_exit(run: Path, of: Point, what: Exit, number: int = 1) -> None:
    """Bring an exit file home, in the form that the job script writes."""
    pairs = {key: "" if value is None else value for key, value in asdict(what).items()}
    text = "".join(f"{key}={value}\n" for key, value in pairs.items())
    write_atomically(try_folder(run, of, number) / EXIT_FILE, text)


def write_batches(run: Path, of: Point, batches: Iterable[Batch], *, half: str = "") -> None:
    """Bring batch lines home, and perhaps half of another."""
    text = "".join(to_json(b) + "\n" for b in batches) + half
    (try_folder(run, of) / BATCHES_FILE).write_text(text)


def write_submitted(
    run: Path, scheduler: str, job_id: str, *, first: int, last: int, offset: int = 0, **more: object
) -> None:
    """Note a submission in the journal."""
    span = {"first": first, "last": last, "offset": offset}
    write_event(run, "submitted", scheduler=scheduler, job_id=job_id, cluster="", **span, **more)


def write_event(run: Path, event: str, **fields: object) -> None:
    """Note an event in the journal."""
    line = {"at": "2026-01-02T10:15:00+00:00", "event": event, **fields}
    append_line(run / JOURNAL_FILE, json.dumps(line))


def events(run: Path) -> list[dict[str, Any]]:
    """Return the events of the journal."""
    path = run / JOURNAL_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_answer(
    run: Path,
    scheduler: str,
    kind: str,
    stdout: str,
    *,
    argv: Iterable[str] = ("ask",),
    at: str = "2026-01-02T11:00:00+00:00",
) -> None:
    """Keep a scheduler's raw answer."""
    line: dict[str, object] = {"at": at, "kind": kind, "scheduler": scheduler}
    line |= {"argv": list(argv), "status": 0, "stdout": stdout, "stderr": ""}
    append_line(run / ACCOUNTING_FILE, json.dumps(line))


def write_begin(run: Path, of: Point, number: int = 1, **fields: object) -> None:
    """Bring the file home that says who runs a try: task K of Slurm's job 77 runs point K."""
    told: dict[str, object] = {"scheduler": "slurm", "job": "77", "task": of.index, "restart": 0, "round": 1}
    told |= {"host": "node1", "pid": 4711, "at": "2026-01-02T10:15:20Z", **fields}
    text = "".join(f"{key}={value}\n" for key, value in told.items())
    write_atomically(try_folder(run, of, number) / BEGIN_FILE, text)


def own_workload(folder: Path, *body: str, name: str = "own") -> str:
    """Write a workload of a user's own, ``count`` with some lines of its own; return what a spec calls it."""
    lines = "\n    ".join(("KNOBS = ('batch_size',)", *body))
    code = f"from jobkit.worker.workloads.count import Count\nclass Own(Count):\n    {lines}\n"
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return f"{name}:Own"


def write_model(folder: Path) -> Path:
    """Write a folder of the form of a Stanza model; return the tagger's file."""
    for name in ("tokenize/t", "ner/n"):
        path = folder / "en" / f"{name}.pt"
        path.parent.mkdir(parents=True)
        path.write_text(name)
    (folder / "resources.json").write_text(
        '{"en": {"packages": {"default": {"tokenize": "t", "ner": "n"}},'
        ' "tokenize": {"t": {}}, "ner": {"n": {}}}}'
    )
    return path
