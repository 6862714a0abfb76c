"""Run folders of real records, and the tables made from them."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from jobkit.answers.setting import Ratio
from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, Exit
from jobkit.core.records import JobFacts, Outcome, Point, Record
from jobkit.core.units import GIB, MIB
from jobkit.report.output import heading
from jobkit.report.tables import Collected, collect
from jobkit.worker.workloads.base import Entity
from tests.support.builders import (
    GPU,
    MODEL,
    TEXT,
    batch,
    grid,
    of_precision,
    record,
    with_shortcuts,
    write_batches,
    write_exit,
    write_points,
    write_record,
    write_records,
    write_submitted,
    write_tagged,
)


def whole_run(folder: Path, points: list[Point]) -> Path:
    records = [record(p, work_s=400 / p.numbers["batch_size"] + p.repeat - 1) for p in points]
    return write_records(folder, records)


LAST = grid([50], repeats=2)[-1]


def outcomes(collected: Collected) -> list[str | None]:
    return [value if isinstance(value, str) else None for value in collected.points["outcome"]]


def test_a_row_for_each_point_and_one_for_each_size_with_the_ends_of_its_intervals(tmp_path: Path) -> None:
    found = collect([whole_run(tmp_path / "run", grid([50, 100], repeats=3))])
    assert (len(found.points), len(found.sizes), len(found.groups)) == (6, 2, 1)
    assert (found.failed, found.to_come, found.exit_code, found.notes) == (0, 0, 0, ())
    assert not {"entities", "differ", "f1", "f1_sd"} & {*found.points, *found.sizes}, "of no precision"
    first, other = found.size_records()
    assert (first["batch_size"], first["n"]) == (50, 3)
    assert [size["work_s"] for size in (first, other)] == [9, 5]
    assert [size["work_s_sd"] for size in (first, other)] == pytest.approx([1, 1])
    half = 4.302653 / 3**0.5
    assert (first["work_s_low"], first["work_s_high"]) == pytest.approx((9 - half, 9 + half))
    assert (first["speedup"], first["speedup_low"]) == (1, None), "it is compared with itself"
    assert other["speedup"] == pytest.approx((1 / 4 + 1 / 5 + 1 / 6) / (1 / 8 + 1 / 9 + 1 / 10))
    assert other["items_per_s_low"] < other["items_per_s"] < other["items_per_s_high"]  # type: ignore[operator]
    assert 1 < other["speedup_low"] < other["speedup"] < other["speedup_high"]  # type: ignore[operator]
    assert found.sizes["gpu_peak_bytes"].tolist() == pytest.approx([1.5 * GIB, 2 * GIB], abs=1)
    assert found.sizes["model_bytes"].tolist() == [GIB, GIB]
    assert found.sizes["ram_peak_bytes"].tolist() == [2 * GIB + 1024] * 2


def test_one_repeat_has_no_interval_and_a_size_without_a_success_is_no_base(tmp_path: Path) -> None:
    points = grid([25, 50, 100])
    run = whole_run(tmp_path / "run", points)
    write_record(run, replace(record(points[0]), outcome=Outcome.GPU_OOM, summary=None))
    found = collect([run])
    assert [size.times for size in found.by_size] == [None, Ratio(1, None, None), Ratio(2, None, None)]
    assert found.sizes["speedup"].tolist()[1:] == [1, 2]
    assert found.sizes[["speedup_high", "items_per_s_low", "work_s_low"]].isna().all(axis=None)


@pytest.mark.parametrize(
    "change",
    [
        {"gpu": replace(GPU, name="NVIDIA A100")},
        {"gpu": replace(GPU, total_bytes=70 * GIB)},
        {"gpu": replace(GPU, driver="560.2")},
        {"versions": {"stanza": "1.10.1", "torch": "2.6.0"}},
        {"point": replace(LAST, model=replace(MODEL, fingerprint="other"))},
        {"point": replace(LAST, text=replace(TEXT, sha256="other"))},
        {"point": replace(LAST, order="text")},
        {"point": replace(LAST, precision="tf32"), "effective": {"precision": "tf32"}},
        {"point": replace(LAST, allocator="expandable_segments:True")},
    ],
)
def test_what_ran_on_something_else_never_shares_a_row(tmp_path: Path, change: dict[str, object]) -> None:
    first = record(grid([50])[0])
    second = replace(record(LAST), **change)  # type: ignore[arg-type]
    found = collect([write_records(tmp_path / "run", [first, second])])
    assert found.sizes["n"].tolist() == [1, 1]
    assert found.notes[-1].startswith("2 tables, never mixed: they differ in ")


def test_only_on_a_cpu_the_host_is_what_is_measured(tmp_path: Path) -> None:
    for device, n in (("cpu", [1, 1]), ("cuda", [2])):
        first, second = map(record, grid([50], repeats=2, device=device))
        run = write_records(tmp_path / device, [first, replace(second, host="node2")])
        assert collect([run]).sizes["n"].tolist() == n


def test_an_order_that_is_swept_is_compared_within_one_table(tmp_path: Path) -> None:
    points = [
        replace(of, params={"batch_size": 50, "padded_chars": 9, "order": order, "mode": order}, order=order)
        for of, order in zip(grid([50, 50]), ("load", "text"), strict=True)
    ]
    found = collect([write_records(tmp_path / "run", [record(p, work_s=8 / p.index) for p in points])])
    assert found.knobs == ("batch_size", "padded", "order", "mode"), "by the names of today"
    assert (len(found.groups), found.sizes["order"].tolist()) == (1, ["load", "text"])
    assert found.sizes["speedup"].tolist() == [1, 2]
    assert found.points["mode"].tolist() == ["load", "text"], "a knob of the user's own may have words"


def test_mps_where_it_can_be_used_is_one_table_and_a_refusal_another(tmp_path: Path) -> None:
    ran = {1: "off: one worker on each GPU", 2: "on", 4: "on", 8: "off: no command"}
    first = replace(grid([50])[0], mps="auto")
    tries = []
    for n, mps in ran.items():
        params = {"batch_size": 50, "workers": n}
        planned = replace(first, index=n, point_id=str(n), params=params, workers=n)
        tries.append(replace(record(planned), mps=mps))
    found = collect([write_records(tmp_path / "run", tries)])
    assert found.sizes["workers"].tolist() == [1, 2, 4, 8]
    assert len(set(found.sizes["group"][:3])) == 1
    assert [(group.sharing, len(found.groups)) for group in found.by_group] == [("auto", 2), (ran[8], 2)]
    assert found.points["mps"].tolist() == list(ran.values())
    assert any("MPS: off: no command" in line for line in heading(found, 1))


BATH, YORK = Entity(0, "Bath", "PLACE", 0, 4), Entity(1, "York", "PLACE", 9, 13)


def test_a_sweep_of_precisions_is_compared_with_fp32(tmp_path: Path) -> None:
    points = [of_precision(n, p, repeat=r) for n, p, r in ((1, "fp32", 1), (2, "bf16", 1), (3, "bf16", 2))]
    found = collect([write_tagged(tmp_path / "run", zip(points, [[BATH], [YORK], [BATH]], strict=True))])
    assert found.points[["entities", "differ", "f1"]].to_numpy().tolist() == [[1, 0, 1], [1, 2, 0], [1, 0, 1]]
    assert found.sizes["precision"].tolist() == ["fp32", "bf16"]
    assert found.sizes[["differ", "f1"]].to_numpy().tolist() == [[0, 1], [1, 0.5]]
    (note,) = found.notes
    assert "2 entities of precision bf16 or of fp32 are not in the other (F1 0.0000)" in note


def test_points_without_the_shortcuts_of_their_setting_are_rows_of_their_own(tmp_path: Path) -> None:
    exact, refused = grid([50], 2)
    told = [with_shortcuts(record(exact)), with_shortcuts(record(refused), "why")]
    found = collect([write_records(tmp_path / "run", told)])
    assert found.points["shortcuts"].tolist() == ["exact", "off: why"]
    assert found.sizes["shortcuts"].tolist()[1] == "refused"


def test_what_became_of_each_point_is_in_its_row_with_the_evidence(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", points := grid([50, 100, 200, 600, 600, 700]))
    well, failed, large, out = points[0], points[1], points[3], points[4]
    cut = replace(record(well), outcome=Outcome.PREEMPTED)
    for number, told in ((1, cut), (2, record(well, work_s=5)), (10, cut)):
        write_record(run, replace(told, try_number=number))
    write_exit(run, failed, Exit(status=1, stage="environment", message="module: no such module"))
    write_batches(run, points[2], [batch(0), batch(1)], half='{"index": 2, "first')
    write_record(run, record(large))
    write_record(run, replace(record(out), outcome=Outcome.GPU_OOM, summary=None))
    write_submitted(run, "slurm", "77", first=1, last=6)
    found = collect([run])
    assert outcomes(found) == ["ok", "environment", None, "ok", "gpu_oom", None]
    assert (found.to_come, found.failed, found.exit_code, found.notes) == (2, 1, 5, ())
    first, second, third, *_, last = found.point_records()
    assert (first["tries"], first["work_s"]) == (3, 5), "the try that went well counts"
    assert second["evidence"] == "exit file: module: no such module"
    assert [third[name] for name in ("items", "work_s", "items_per_s")] == [100, 1, 100], "as far as it came"
    assert str(last["evidence"]).startswith("slurm job 77, task 6: ")
    of_600 = [*found.size_records()][-1]
    assert (of_600["outcomes"], of_600["n"]) == ("1 ok, 1 gpu_oom", 1)
    for one in (points[2], points[5]):
        write_record(run, record(one))
    assert collect([run]).exit_code == 4, "nothing is to come"


def test_foreign_things_are_named_and_skipped(tmp_path: Path) -> None:
    whole_run(tmp_path / "run", grid([50]))
    (tmp_path / "run" / "results" / "stray").mkdir()
    (tmp_path / "empty.o1").touch()
    (tmp_path / "core").write_bytes(b"\x7fELF\xff\xfe" * 100)
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow" / "points.jsonl").touch()
    with (tmp_path / "run" / "points.jsonl").open("a") as stream:
        stream.write('{"params": {}}\n{"schema": 99}\n')
    found = collect([tmp_path])
    (spoilt,) = (note for note in found.notes if "lacks " in note)
    assert [note.removeprefix(f"{tmp_path}/") for note in found.notes if note is not spoilt] == [
        "core: neither a run folder nor a log that jobkit knows: skipped",
        "empty.o1: empty: skipped",
        "hollow: not a run folder (no points in points.jsonl): skipped",
        "run/results/stray: of no point of this run: skipped",
    ]
    assert len(found.points) == 1


def test_a_run_named_twice_counts_once_and_one_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="no such file or folder"):
        collect([tmp_path / "nowhere"])
    assert collect([tmp_path]).exit_code == 2, "nothing is there"
    run = whole_run(tmp_path / "run", grid([50]))
    assert len(collect([tmp_path, run, run]).points) == 1
    whole_run(tmp_path / "copy", grid([50]))
    found = collect([tmp_path])
    assert len(found.points) == 1
    assert f"{run}: the same run as {tmp_path / 'copy'}: skipped" in found.notes


def test_what_a_reader_must_know_is_remarked_once(tmp_path: Path) -> None:
    def odd(one: Record, idle: int) -> Record:
        said = replace(one.memory, device_idle_bytes=idle, device_baseline_bytes=GIB)
        said = replace(said, disagreement="torch holds more than NVML saw")
        one = replace(one, inert=("tokenize_batch_size",), effective={"tokenize_batch_size": 32})
        return replace(one, gpu=replace(GPU, foreign_processes=1), memory=said)

    points = [replace(one, params={"batch_size": 50, "repeat": 7}) for one in grid([50], repeats=3)]
    idle = (GIB, GIB + 16 * MIB, 3 * GIB)
    found = collect([write_records(tmp_path / "run", map(odd, map(record, points), idle))])
    starts = (
        "tokenize_batch_size did not take effect; in effect: tokenize_batch_size=32",
        "instruments disagree (3 points): torch holds more than NVML saw",
        "1 point began with up to 2.00 GiB more",
        "3 points ran next to other processes on the GPU: ",
    )
    assert [note[: len(start)] for note, start in zip(found.notes, starts, strict=True)] == list(starts)
    assert found.knobs == ("batch_size", "knob_repeat"), "a knob does not hide a column"
    assert found.points["repeat"].tolist() == [1, 2, 3]


def test_the_jobs_that_hold_points_to_come_are_asked_for_by_name(tmp_path: Path) -> None:
    run = write_points(tmp_path / "demo", points := grid([50, 100, 200, 300]))
    write_submitted(run, "slurm", "7", first=1, last=2)
    write_submitted(run, "slurm", "8", first=1, last=2, offset=2)
    write_record(run, record(points[0]))
    write_submitted(run, "slurm", "9", first=2, last=2)
    for number, scheduler in enumerate(("sge", "local", "pbs"), 2):
        points = [replace(one, run_id=f"demo-{number}") for one in grid([50])]
        write_submitted(write_points(tmp_path / f"demo-{number}", points), scheduler, "7", first=1, last=1)
    of_slurm, *others = collect([tmp_path]).questions
    assert (of_slurm, others) == ("squeue -j 9,8; sacct -j 9,8", ["qstat -j 7; qacct -j demo-2", "ps -p 7"])


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """What cannot be seen is not merely to come; root reads any folder, so files stand in the way."""
    run = write_points(tmp_path / "run", grid([50], repeats=2))
    (run / "results" / "p001").write_text("a file", encoding="utf-8")
    found = collect([run])
    assert found.to_come == 2
    assert found.notes[0] == (f"{run}/results/p001: cannot be read: Not a directory: its results are unknown")
    (run / "results" / "p001").unlink()
    (run / "results").rmdir()
    assert not any("cannot be read" in note for note in collect([run]).notes)
    (run / "results").write_text("a file", encoding="utf-8")
    assert any("results: cannot be read: Not a directory" in note for note in collect([run]).notes)


def tables(run: Path) -> list[object]:
    """Return what is collected of the sweep, less the rows of trials: what nothing later may change."""
    found = collect([run])
    points = found.points[~found.points["trial"].astype(bool)].astype(object)
    frames = (points, found.sizes.astype(object), found.groups.astype(object))
    return [frame.where(frame.notna(), None).to_dict("records") for frame in frames]


@pytest.mark.fault
def test_a_try_by_hand_changes_no_figure(tmp_path: Path) -> None:
    """FAULT: a point that a scheduler has run is run again by hand.

    HOW: real records.
    REPORTED: the scheduler's try counts in every table, plot and recommendation; a note names the try by
    hand. If no other try of a point has begun, the try by hand counts, and the note says that.
    LOST: nothing.
    """
    run = whole_run(tmp_path / "run", points := grid([50, 100], repeats=2))
    before, by_hand = tables(run), JobFacts(scheduler="hand", job_id="9")
    for number in (2, 3):
        write_record(run, replace(record(points[0], work_s=1.0), job=by_hand, try_number=number))
    assert tables(run) == before
    assert collect([run]).notes == (f"{run}: also run by hand, which no figure includes: p001 (try 2, 3)",)
    only = write_points(tmp_path / "only", points)
    write_record(only, replace(record(points[0]), job=by_hand))
    found = collect([only])
    assert found.points[["outcome", "tries"]].to_numpy().tolist()[0] == ["ok", 0]
    (note,) = found.notes
    assert note.endswith("run only by hand, so that try counts until another try begins: p001 (try 1)")


@pytest.mark.fault
@pytest.mark.parametrize("old", [False, True], ids=["this version", "the version before"])
def test_a_trial_changes_no_figure_of_the_sweep(tmp_path: Path, *, old: bool) -> None:
    """FAULT: `jobkit verify` runs a batch size that the sweep has measured, at another speed.

    HOW: real records of this version, and of the version before, which marked trials only by their id.
    REPORTED: the trial is a separate row with `trial` set; means, speed-ups and the line do not change.
    LOST: nothing.
    """
    run = whole_run(tmp_path / "run", points := grid([50, 100], repeats=2))
    before = tables(run)
    last = replace(points[-1], index=5, point_id="batch_size-100-verify", repeat=1, trial=not old)
    append_line(run / POINTS_FILE, to_json(last))
    assert tables(run) == before
    for versions in ({"torch": "9"}, record(last).versions):
        write_record(run, replace(record(last, work_s=900.0), versions=versions))
        assert tables(run) == before
    trial = collect([run]).points.iloc[-1]
    assert (bool(trial["trial"]), trial["group"], isnan(trial["size"])) == (True, 0, True)


def test_a_run_of_profiles_alone_has_no_table(tmp_path: Path) -> None:
    points = [replace(point, profile="torch") for point in grid([50, 100])]
    found = collect([write_records(tmp_path / "run", map(record, points))])
    assert (found.rows, found.sources.profiled, found.exit_code) == ([], [Outcome.OK, Outcome.OK], 0)
    assert "profiled, and in no table: p001 (ok), p002 (ok)" in found.notes[0]
