from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.planning.prepare import Options
from jobkit.schedulers.survey import Survey
from jobkit.setup.doctor import Case, inputs_of, open_case, with_gpus
from jobkit.setup.findings import Status
from tests.support.surveys import survey_of

SPEC = "name: mine\nworkload: count\ntext: a.txt\nscheduler: slurm\nresources: {gpus: 2, queue: gpu}\n"
pytestmark = pytest.mark.usefixtures("here")


def opened(path: Path | None = None, **options: str) -> Case:
    return open_case(path, Options(**options))  # type: ignore[arg-type]  # names and values of a test


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_spec_a_small_one_is_looked_at(here: Path) -> None:
    case = opened(scheduler="slurm")
    assert (case.given, case.local, case.device, case.spec.resources.gpus) == (False, False, "cpu", 0)
    (found,) = case.opening
    assert (found.name, found.status) == ("site file", Status.WARNING)
    assert found.hint.startswith("jobkit init")
    at_lab = with_gpus(case, survey_of("slurm", "lab"))
    assert (at_lab.spec.resources.gpus, at_lab.device) == (1, "cuda"), "the site has some"
    assert with_gpus(case, Survey(product="Slurm", queues=())) == case
    own = write(here / "config" / "site.yaml", "name: ours\nscheduler: slurm\n")
    case = opened(scheduler="slurm")
    assert (case.site_file, case.opening[0].status) == (own, Status.OK)
    of_site = opened(scheduler="slurm", site=str(own))
    assert of_site.importable == "count", "a check of a site is not about the packages of a workload"
    alone = opened(scheduler="local")
    assert (alone.local, [one.status for one in alone.opening]) == (True, [Status.OK]), "needs no site file"
    assert with_gpus(alone, Survey(product="this machine")).spec.resources.gpus == 1


@pytest.mark.slow
def test_a_spec_is_taken_as_it_is(here: Path) -> None:
    case = opened(write(here / "spec.yaml", SPEC))

    assert (case.given, case.spec.name, case.base) == (True, "mine", here)
    assert with_gpus(case, survey_of("slurm", "lab")) == case
    assert [one.name for one in case.opening] == ["spec", "site file"]
    assert list(inputs_of(case)) == [here / "a.txt"]
    assert case.request().queue == "gpu"
    lost = opened(write(here / "spec.yaml", SPEC.replace("a.txt", "b.txt").replace("count", "x.y:Z")))
    assert list(inputs_of(lost)) == []


def test_a_spec_with_faults_is_reported_and_a_small_one_takes_its_place(here: Path) -> None:
    case = opened(write(here / "spec.yaml", SPEC + "reources: {}\n"), scheduler="slurm")

    assert not case.given
    assert case.opening[0].status is Status.MISSING
    assert "did you mean 'resources'?" in case.opening[0].said
    assert list(inputs_of(case)) == []


def test_a_site_file_with_faults_is_reported_and_the_default_takes_its_place(here: Path) -> None:
    path = write(here / "ours.yaml", "name: ours\nscheduler: slurm\nqueu: gpu\n")
    case = opened(scheduler="slurm", site=str(path))

    (found,) = case.opening
    assert (found.name, found.status) == ("site file", Status.MISSING)
    assert "did you mean 'queue'?" in found.said
    assert case.site.name == "slurm-default"
