from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.answers.speed import CorpusVolume
from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.layout import Exit
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import Outcome
from jobkit.core.units import GIB
from jobkit.report.recommend.advice import Advice, recommend
from jobkit.report.recommend.material import lines, read_material
from jobkit.report.recommend.output import answer
from jobkit.schedulers.survey import Queue, asked_for
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import try_folder, write_exit, write_record
from tests.support.machines import GOAL, Machine, search
from tests.support.recommendations import SPEC, material, records, write_run

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return search(tmp_path_factory.mktemp("search"), Machine())


def test_a_search_under_way_and_one_without_a_setting_have_no_recommendation(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="the search has not ended"):
        recommend(read_material(search(tmp_path, Machine(), most=5)))
    none = replace(GOAL, objective=Objective(bounds={"batch_p95": Bound(max=1e-9)}))
    with pytest.raises(JobkitError, match="the search found no setting"):
        recommend(read_material(search(tmp_path / "none", Machine(), none)))


def test_a_setting_of_a_search_is_charged_with_its_own_memory_only(run: Path) -> None:
    material = read_material(run)
    assert material.search
    held = [replace(one, accounted_rss_bytes=64 * GIB) for one in material.records]
    advice = recommend(replace(material, records=held, resources=Resources())).request
    assert advice
    assert advice.used_memory_bytes is None, "the records of its answer have no RAM"


def test_finals_that_differ_have_no_largest_batch_for_the_reason_of_their_memory(run: Path) -> None:
    material = read_material(run)
    assert material.search
    *_, last = material.search.finals.winner_records
    other = replace(last, versions={**last.versions, "torch": "0.1"})
    told = [other if record == last else record for record in material.records]
    largest = recommend(replace(material, records=told)).memory.largest
    assert largest.reason.startswith("the points differ in version of torch: ")


def test_elsewhere_names_of_a_site_are_left_out() -> None:
    resources = Resources(
        gpu_type="a100", account="nlp", qos="high", queue="gpu", options={"sge": ["-p -10"]}
    )
    found = lines(resources, load_site("sge-default", "sge"), own=False)
    assert found.lines == ("#$ -l ngpus=1", "#$ -pe smp 2", "#$ -l h_vmem=4G", "#$ -l h_rt=00:10:00")


def test_a_request_that_no_queue_allows_is_that_of_a_job_of_apply() -> None:
    of, corpus, hour_s = material(records()), CorpusVolume(paragraphs=20_000_000), 3600

    def asked(limit_s: float | None) -> Advice:
        queues = asked_for("gpu", [Queue(name="gpu", walltime_s=limit_s)], "partition")
        return recommend(of, corpus=corpus, queues=lambda: queues)

    whole, allowed, cut = (asked(limit_s).request for limit_s in (None, 1000 * hour_s, hour_s))
    assert whole
    assert whole == allowed
    assert cut
    assert cut.walltime_s <= hour_s < whole.walltime_s
    assert asked(hour_s).time.expected_s / cut.jobs < cut.walltime_s
    said = [line for block in answer(asked(hour_s)) for line in block.before]
    assert f"  #SBATCH --time={cut.walltime_s // 3600:02}:{cut.walltime_s // 60 % 60:02}:00" in map(str, said)
    assert any("is longer than partition 'gpu' allows (01:00:00)" in str(line) for line in said)
