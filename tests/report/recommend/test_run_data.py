from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.layout import Exit
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import Outcome
from jobkit.report.recommend.material import read_material
from tests.support.builders import try_folder, write_exit, write_record
from tests.support.recommendations import SPEC, records, write_run

OLD_LOG = Path(__file__).parents[2] / "data" / "predecessors" / "gpu-stanza-tagging.o2650"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    return tmp_path / "cache"


def test_every_try_is_counted_also_one_without_a_record_and_a_skipped_point_costs_nothing(
    tmp_path: Path,
) -> None:
    told = records(repeats=1)
    folder = write_run(tmp_path / "demo", told)
    write_record(folder, replace(told[0], try_number=2, outcome=Outcome.BUG))
    try_folder(folder, told[1].point, 2)
    (folder / "results" / "stray.txt").touch()
    assert read_material(folder).seconds == (60.0, 60.0, 60.0, None, 60.0, 60.0, 60.0)
    for point in (told[2].point, told[3].point):
        (try_folder(folder, point) / "record.json").unlink()
    write_exit(folder, told[2].point, Exit(status=0, stage="gate", outcome=Outcome.PRUNED))
    write_record(folder, replace(told[4], outcome=Outcome.TIMEOUT))
    found = read_material(folder)
    assert found.seconds == (60.0, 60.0, 60.0, None, None, 60.0)
    assert (found.to_come, found.failed, len(found.records)) == (1, 1, 3)


def test_a_log_is_refused_with_what_reads_it() -> None:
    with pytest.raises(JobkitError, match="not a run folder") as caught:
        read_material(OLD_LOG)
    assert f"jobkit collect {OLD_LOG}" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("nmae: demo\n", "jobkit cannot compute a request without the spec"),
        (SPEC.replace("site: slurm-default", "site: gone"), "no site 'gone'"),
    ],
)
def test_a_spec_or_a_site_that_is_gone_is_a_note(spec: str, told: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "demo", records())
    (folder / "sweep.yaml").write_text(spec, encoding="utf-8")
    found = read_material(folder)
    assert found.site is None
    assert told in found.notes[0]
    assert "\n" not in found.notes[0]


def test_the_objective_and_the_constraints_are_those_of_the_spec_or_of_the_command(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "demo", records())
    assert read_material(folder).objective == Objective()
    append_line(folder / "sweep.yaml", "constraints: {batch_p95: 2s, f1: {min: 0.9}}")
    bounds = {"batch_p95": Bound(max=2.0), "f1": Bound(min=0.9)}
    assert read_material(folder).objective == Objective(bounds=bounds)
    asked = ["objective.metric=f1", "objective.direction=max", "constraints.f1.min=0.8"]
    found = read_material(folder, asked).objective
    assert found == Objective(metric="f1", direction="max", bounds={**bounds, "f1": Bound(min=0.8)})


@pytest.mark.parametrize("override", ["resources.cpus=4", "objectives.metric=f1", "objective.metric=f1"])
def test_what_a_recommendation_cannot_change_is_refused(tmp_path: Path, override: str) -> None:
    folder = write_run(tmp_path / "demo", records())
    with pytest.raises(JobkitError, match=f"--set {override.partition('=')[0]}="):
        read_material(folder, [override])
