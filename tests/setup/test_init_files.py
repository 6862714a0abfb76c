from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobkit.schedulers.registry import by_name
from jobkit.schedulers.sge_survey import resources
from jobkit.schedulers.survey import AccountingStatus, Consumable, Queue, Resource, Survey
from jobkit.setup.init import InitFiles, choose, line, plain, scalar, site_name, site_text, spec_text, word
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from tests.support.surveys import captured, survey_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_a_scalar_is_read_back_as_the_text_that_it_was(text: str) -> None:
    assert yaml.safe_load(f"key: {scalar(text)}\n") == {"key": text}


def test_quotes_and_what_cannot_be_printed_are_escaped() -> None:
    assert scalar('a"b\\c\t') == r'"a\"b\\c\U00000009"'


def test_words_that_yaml_takes_for_something_else_are_quoted() -> None:
    assert [scalar(text) for text in ("gpu", "no", "12", "Null", "a b", "")] == [
        "gpu",
        '"no"',
        '"12"',
        '"Null"',
        '"a b"',
        '""',
    ]


@given(TEXT)
def test_a_comment_is_one(text: str) -> None:
    assert yaml.safe_load(line("key: 1", text)) == {"key": 1}
    assert "\n" not in plain(text)


def test_a_comment_that_is_too_wide_stands_above() -> None:
    assert line("  key: 1") == "  key: 1"
    assert line("  key: 1", "why").endswith("# why")
    assert line("  key: 1", "w" * 90) == f"  # {'w' * 90}\n  key: 1"


def test_a_queue_that_no_spec_could_name_is_null() -> None:
    assert [word(one) for one in (None, Queue(name="gpu"), Queue(name="a b"), Queue(name="null"))] == [
        "null",
        "gpu",
        "null",
        '"null"',
    ]


SURVEYS = {
    "slurm-lab": survey_of("slurm", "lab"),
    "slurm-other": survey_of("slurm", "other"),
    "sge-lab": survey_of("sge", "lab"),
    "sge-other": survey_of("sge", "other", projects=captured("sge/other-projects")),
}


def written(
    folder: Path, scheduler: str, survey: Survey, cpu_torch: str = ""
) -> tuple[Site, SweepSpec, str, str]:
    """Return the two files, read back as jobkit reads them, and their texts."""
    plan = InitFiles(
        scheduler=by_name(scheduler),
        why="as requested",
        site_file=folder / "site.yaml",
        spec_file=folder / "first.yaml",
        own=False,
        write_site=True,
        date="2026-01-02",
    )
    choice, usual = choose(survey), load_site(f"{scheduler}-default", scheduler)
    texts = site_text(survey, choice, usual, plan), spec_text(survey, choice, plan, cpu_torch)
    for name, text in zip(("site.yaml", "first.yaml"), texts, strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    site = load_site(str(folder / "site.yaml"), scheduler)
    return site, load_spec(folder / "first.yaml"), *texts


@pytest.mark.parametrize("name", SURVEYS)
def test_what_is_written_is_a_site_and_a_spec(name: str, tmp_path: Path) -> None:
    scheduler = name.partition("-")[0]
    site, spec, text, _ = written(tmp_path, scheduler, SURVEYS[name])

    assert (site.scheduler, spec.scheduler) == (scheduler, scheduler)
    assert site.queue == spec.resources.queue
    assert spec.resources.gpus == 1
    assert site.requests.gpus is not None
    assert max(len(line.replace(str(tmp_path), "folder")) for line in text.splitlines()) <= 160


def test_slurm_with_partitions_of_every_kind(tmp_path: Path) -> None:
    site, spec, text, spec_said = written(tmp_path, "slurm", SURVEYS["slurm-other"])

    assert (site.name, site.queue, site.cpu_queue) == ("other", "gpu", "batch")
    assert site.options == ["--nodes=1", "--ntasks=1"]
    assert "it has GPUs; so have: gpu-short" in text
    assert "there are: a100, a100_3g.20gb, v100" in text
    assert "#   secret     (it is hidden from you)" in text
    assert "#   batch*     12 nodes, 64 CPUs, 187.5 GiB, at most 48:00:00" in text
    assert "only for accounts staff,phd" in text
    assert spec.resources.gpu_type == "a100"
    assert "there are also: a100_3g.20gb, v100; points on different GPUs" in spec_said


def test_a_resource_that_gives_a_job_its_host_to_itself(tmp_path: Path) -> None:
    survey = SURVEYS["sge-lab"]
    (site, *_) = written(tmp_path, "sge", survey)
    assert site.requests.exclusive is None
    row = "exclusive excl BOOL EXCL YES YES 0 1000"
    (alone,) = resources(row)
    for most, spelling in (({}, None), ({"gpu.q": 0.0}, "-l exclusive=true")):
        known = (*(survey.resources or ()), replace(alone, most=most))
        (site, *_) = written(tmp_path, "sge", replace(survey, resources=known))
        assert site.requests.exclusive == spelling


def test_grid_engine_with_names_of_its_own(tmp_path: Path) -> None:
    site, spec, text, _ = written(tmp_path, "sge", SURVEYS["sge-other"])

    assert site.name == "grid-engine"
    assert site.requests.gpus == "-l gpu={gpus}"
    assert site.requests.cpus == "-pe threads {cpus}"
    assert (site.requests.memory, site.memory_per) == ("-l h_vmem={memory}", "slot")
    assert site.gpus_per == "job"
    assert "counted for each job; there are also: cuda_arch, gpu_mem" in text
    assert "there are also: whole-node, mpi, mpi-8" in text
    assert spec.resources.account == "nlp"


def test_grid_engine_where_gpus_are_counted_for_each_slot(tmp_path: Path) -> None:
    site, spec, _, said = written(tmp_path, "sge", SURVEYS["sge-lab"])

    assert (site.gpus_per, spec.resources.cpus) == ("slot", 1)
    assert "ngpus is counted for each slot: 2 CPUs would take 2 GPUs" in said


@pytest.mark.parametrize(
    ("gpus", "cpu_torch", "on_cpus"),
    [({"v100": 2}, "whose torch is a CPU build", True), ({"v100": 2}, "", False), ({}, "whose torch", False)],
)
def test_the_trial_is_on_cpus_if_torch_can_use_no_gpu(
    gpus: dict[str, int], cpu_torch: str, *, on_cpus: bool, tmp_path: Path
) -> None:
    survey = Survey(product="Slurm", queues=(Queue(name="batch", gpus=gpus),))
    *_, said = written(tmp_path, "slurm", survey, cpu_torch)

    assert ("--stand-in --set device=cpu --set resources.gpus=0\n" in said) is on_cpus
    assert (cpu_torch in said) is (on_cpus or not cpu_torch)


def test_a_cluster_without_gpus(tmp_path: Path) -> None:
    queues = (Queue(name="batch", default=True, walltime_s=300),)
    site, spec, text, said = written(tmp_path, "slurm", Survey(product="Slurm", queues=queues))

    assert (site.requests.gpus, site.requests.gpu_type) == (None, None)
    assert "no node has GPUs" in text
    assert (spec.resources.gpus, spec.resources.walltime) == (0, 300)
    assert "it runs on CPUs" in said


def test_gpus_without_types(tmp_path: Path) -> None:
    queues = (Queue(name="gpu", gpus={"": 4}),)
    site, spec, text, _ = written(tmp_path, "slurm", Survey(product="Slurm", queues=queues))

    assert site.requests.gpu_type is not None
    assert "no types are reported" in text
    assert (spec.resources.gpus, spec.resources.gpu_type) == (1, None)


def test_a_scheduler_that_reported_next_to_nothing(tmp_path: Path) -> None:
    nothing = replace(SURVEYS["sge-lab"], queues=None, resources=(), gpus=None, memory=(), one_node=())
    site, spec, text, _ = written(tmp_path, "sge", nothing)

    assert (site.queue, site.requests.gpus, site.requests.cpus, site.requests.memory) == (None,) * 4
    assert "did not say which queues there are" in text
    assert "names nothing that counts GPUs" in text
    assert (spec.resources.queue, spec.resources.gpus) == (None, 0)


def test_a_name_for_every_site() -> None:
    assert [site_name(Survey(product=product, cluster=name)) for product, name in NAMES] == [
        "lab.1",
        "grid-engine",
        "slurm",
        "site",
    ]


NAMES = [("Slurm", "lab.1"), ("Grid Engine", ""), ("Slurm", "a b: c"), ("!", "")]

WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True)
POSITIVE = st.integers(1, 10**6)
QUEUE = st.builds(
    Queue,
    name=st.one_of(WORD, TEXT),
    default=st.booleans(),
    walltime_s=st.one_of(st.none(), POSITIVE.map(float)),
    gpus=st.dictionaries(st.one_of(st.just(""), WORD), st.integers(1, 16), max_size=3),
    nodes=st.integers(0, 100),
    cpus=st.one_of(st.none(), POSITIVE),
    memory_bytes=st.one_of(st.none(), st.integers(1, 2**45)),
    closed=st.one_of(st.just(""), TEXT),
    only=st.one_of(st.just(""), TEXT),
    environments=st.lists(WORD, max_size=3).map(tuple),
)
RESOURCE = st.builds(
    Resource,
    name=WORD,
    shortcut=WORD,
    kind=st.sampled_from(["INT", "MEMORY"]),
    counted=st.sampled_from(Consumable),
    most=st.just({}),
)
SURVEY = st.builds(
    Survey,
    product=st.sampled_from(["Slurm", "Grid Engine"]),
    version=TEXT,
    queue_noun=st.sampled_from(["queue", "partition"]),
    walltime_noun=WORD,
    trouble=st.just(""),
    cluster=TEXT,
    queues=st.one_of(st.none(), st.lists(QUEUE, max_size=4).map(tuple)),
    limits=st.just(""),
    keeping=st.just(AccountingStatus()),
    accounts=st.one_of(st.none(), st.lists(st.one_of(WORD, TEXT), max_size=3).map(tuple)),
    account=st.one_of(st.just(""), WORD, TEXT),
    must_charge=st.booleans(),
    resources=st.one_of(st.none(), st.lists(RESOURCE, max_size=4).map(tuple)),
    gpus=st.one_of(st.none(), RESOURCE),
    one_node=st.lists(WORD, max_size=3).map(tuple),
    sources=st.just({}),
    silent=st.just({}),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(survey=SURVEY, scheduler=st.sampled_from(["slurm", "sge"]))
def test_whatever_a_cluster_says_what_is_written_can_be_read(
    tmp_path: Path, survey: Survey, scheduler: str
) -> None:
    site, spec, _, _ = written(tmp_path, scheduler, survey)

    assert site.queue == spec.resources.queue
    if survey.queues is not None:
        assert site.queue in {None, *(queue.name for queue in survey.queues if not queue.closed)}
