"""A sweep of two precisions, from the spec to the recommendation."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from jobkit.core.json_codec import from_json
from jobkit.core.records import Record
from tests.support.commands import jobkit

SPEC = """\
name: precise
workload: rounding:Rounding
text: text.txt
device: cpu
resources: {gpus: 0, cpus: 1, memory: 500MiB, walltime: "00:01:00"}
repeats: 1
scheduler: local
"""
TEXT = "Beautiful weather.\n\nNothing.\n\nA dangerous road.\n"
WORKLOAD = Path(__file__).parents[1] / "workloads" / "rounding.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a spec, its text and its workload."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "text.txt").write_text(TEXT)
    shutil.copy(WORKLOAD, tmp_path)
    return tmp_path


def swept(folder: Path, *options: str) -> Path:
    """Run a sweep here, and return its run folder."""
    done = jobkit("sweep", "spec.yaml", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    return run


def test_entities_of_each_precision_are_compared_with_fp32(folder: Path) -> None:
    run = swept(folder, "--set", "sweep={batch_size: 2, precision: [fp32, bf16]}")
    rows = {row["precision"]: row for row in csv.DictReader(io.StringIO(collected(run, "--format", "csv")))}
    assert [rows["fp32"][name] for name in ("entities", "differ", "f1")] == ["3", "0", "1"]
    assert [rows["bf16"][name] for name in ("entities", "differ", "f1")] == ["1", "2", "0.5"]
    report = json.loads(collected(run, "--json"))
    assert [(size["precision"], size["differ"], size["f1"]) for size in report["sizes"]] == [
        ("fp32", 0, 1),
        ("bf16", 2, 0.5),
    ]
    assert "2 entities of precision bf16 or of fp32 are not in the other (F1 0.5000)" in report["notes"][0]
    table = collected(run, "--format", "md")
    assert "| entities found | entities differ | F1 with fp32 |" in table
    assert "entities differ: in one of this setting and fp32, not in both" in table
    answer = json.loads(jobkit("recommend", run, "--json").stdout)["batch"]
    assert answer["recommended"]["params"]["precision"] == "fp32"
    assert [one["agreement"]["f1"] for one in answer["precisions"]] == [0.5]


def test_without_a_choice_of_precision_nothing_is_compared(folder: Path) -> None:
    run = swept(folder, "--set", "precision=bf16", "--set", "sweep.batch_size=2")
    record = from_json(Record, next(run.glob("results/*/try-1/record.json")).read_text(), where="record")
    assert (record.point.precision, record.precision) == ("bf16", "bf16")
    report = json.loads(collected(run, "--json"))
    assert not {"entities", "differ", "f1"} & {*report["points"][0], *report["sizes"][0]}
    assert (report["groups"][0]["precision"], report["notes"]) == ("bf16", [])
    assert "precision: bf16" in collected(run)
    said = " ".join(jobkit("recommend", run).stdout.split())
    assert "so the entities of bf16 were compared with nothing" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("precision=fp16", "precision: 'fp16': rounding:Rounding offers fp32, bf16"),
        ("sweep.precision=[fp16]", "sweep.precision.0: 'fp16': should be one of fp32, bf16"),
        ("workload=count", ""),
    ],
)
def test_what_the_workload_does_not_offer_is_an_error(folder: Path, given: str, said: str) -> None:
    done = jobkit("sweep", "spec.yaml", "--dry-run", "--set", given, cwd=folder)
    assert done.returncode == (2 if said else 0)
    assert said in done.stderr


def collected(run: Path, *options: str) -> str:
    return jobkit("collect", run, *options).stdout
