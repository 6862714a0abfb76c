"""What is asked of a scheduler, what `jobkit init` chooses and writes; and that it writes over nothing."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.units import GIB
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.sge_survey import resources
from jobkit.schedulers.survey import Consumable, Queue, Resource, Survey
from jobkit.setup.ask import ask_site
from jobkit.setup.first_files import SPEC_NAME, InitFiles, choose, site_text, spec_text
from jobkit.setup.init import begin, plan_for
from jobkit.spec.site import Site, directives, load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec
from tests.fakes.cluster import FakeCluster
from tests.support.surveys import captured, survey_of


@pytest.fixture(autouse=True)
def own_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config" / "site.yaml"


def init(folder: Path, scheduler: str, site: Path | None = None, only: str | None = None) -> list[Path]:
    said: list[str] = []
    return [path for path, _ in begin(plan_for(folder, scheduler, site, only), said.append)]


def test_a_site_file_for_all_users(fake_slurm: FakeCluster, own_site: Path, tmp_path: Path) -> None:
    del fake_slurm
    ours = tmp_path / "shared" / "ours.yaml"
    (site,) = init(tmp_path, "slurm", ours, "site")
    assert (site, own_site.exists()) == (ours, False)
    (spec,) = init(tmp_path, "slurm", ours, "spec")
    assert load_spec(spec).site == str(ours)
    with pytest.raises(JobkitError, match=r"gone\.yaml"):
        init(tmp_path / "other", "slurm", tmp_path / "gone.yaml", "spec")


def test_nothing_is_written_over(fake_slurm: FakeCluster, own_site: Path, tmp_path: Path) -> None:
    site, spec = init(tmp_path, "slurm")
    before = [path.read_bytes() for path in (site, spec)]
    fake_slurm.forget()

    with pytest.raises(JobkitError, match="nothing was written, for there is already") as both:
        init(tmp_path, "slurm")
    with pytest.raises(JobkitError, match="already") as site_only:
        init(tmp_path, "slurm", only="site")
    assert "--site-file FILE" in site_only.value.hint
    assert str(own_site) in site_only.value.hint
    assert str(spec) in both.value.hint
    site.rename(tmp_path / "away.yaml")
    with pytest.raises(JobkitError) as spec_only:
        init(tmp_path, "slurm")
    assert "jobkit init --only site" in spec_only.value.hint
    assert not own_site.exists()
    assert [path.read_bytes() for path in (tmp_path / "away.yaml", spec)] == before
    assert fake_slurm.calls() == [], "nobody is asked for nothing"
    (tmp_path / "away.yaml").rename(site)
    assert init(tmp_path / "other", "slurm") == [tmp_path / "other" / SPEC_NAME], "the site file is used"
    own_site.write_text("name: ours\nscheduler: sge\n", encoding="utf-8")
    with pytest.raises(JobkitError) as of_another:
        init(tmp_path / "third", "slurm")
    assert f"jobkit init {tmp_path / 'third'} --only spec" in of_another.value.hint


def test_a_spec_keeps_to_the_site_file_and_sets_nothing_that_it_has_no_header_line_for(
    fake_slurm: FakeCluster, own_site: Path, tmp_path: Path
) -> None:
    del fake_slurm
    init(tmp_path, "slurm", only="site")
    text = own_site.read_text(encoding="utf-8")
    own_site.write_text(text.replace("\nqueue: cpu", "\nqueue: gpu"), encoding="utf-8")
    (spec,) = init(tmp_path, "slurm", only="spec")
    assert load_spec(spec).resources.queue == "gpu"

    kept = re.sub(r"(?m)^  (gpus|gpu_type|cpus|account|queue): .*$", r"  \1: null", text)
    own_site.write_text(re.sub(r"(?m)^queue: .*$", "queue: null", kept), encoding="utf-8")
    (spec,) = init(tmp_path / "bare", "slurm", only="spec")
    resources = load_spec(spec).resources
    assert (resources.gpus, resources.gpu_type, resources.cpus, resources.account) == (0, None, 1, None)
    assert directives(resources, load_site("auto", "slurm"))


def test_where_one_file_cannot_be_made_none_stays(
    fake_slurm: FakeCluster, own_site: Path, tmp_path: Path
) -> None:
    fake_slurm.fault("controller_away")
    with pytest.raises(JobkitError, match="Slurm does not answer; nothing was written") as caught:
        init(tmp_path, "slurm")
    assert caught.value.exit_code == 3
    assert len(fake_slurm.calls()) <= 2, "it is asked once"
    fake_slurm.fix("controller_away")
    (tmp_path / "file").touch()
    for folder in ("/proc/project", "file"):
        with pytest.raises(JobkitError, match="nothing was written"):
            init(tmp_path / folder, "slurm")
    assert not own_site.exists()
    assert not (tmp_path / "first.yaml").exists()


@pytest.mark.slow
def test_without_a_scheduler_a_spec_for_this_machine(
    own_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (spec,) = init(tmp_path, "auto")

    assert load_spec(spec).scheduler == "local"
    assert "this machine" in spec.read_text(encoding="utf-8")
    assert not own_site.exists()
    with pytest.raises(JobkitError, match="no scheduler here to ask"):
        init(tmp_path / "other", "auto", only="site")
    for name, program in (("slurm", "scontrol"), ("sge", "qconf")):
        assert ask_site(by_name(name)).trouble == f"{program}: command not found"


@pytest.mark.slow
def test_after_a_command_that_hangs_no_other_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    for name in ("sinfo", "sacct", "sacctmgr", "scontrol"):
        hangs = '[ "$1" = ping ] || sleep 300' if name == "scontrol" else ""
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{calls}\n{hangs}\n', encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("jobkit.setup.ask.TIMEOUT_S", 2.0)
    began = time.monotonic()
    said = ask_site(by_name("slurm"))

    assert time.monotonic() - began < 60
    assert said.queues is None
    assert said.silent["config"] == "scontrol: no answer within 2 s"
    assert said.silent["nodes"].startswith("not asked: scontrol: no answer")
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 3


LAB, OTHER = survey_of("slurm", "lab"), survey_of("slurm", "other")
GRID = survey_of("sge", "lab")
GRID_OTHER = survey_of("sge", "other", projects=captured("sge/other-projects"))


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def written(folder: Path, scheduler: str, survey: Survey) -> tuple[Site, SweepSpec]:
    """Return the two files, read back as jobkit reads them."""
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
    texts = site_text(survey, choice, usual, plan), spec_text(survey, choice, plan, "")
    for name, text in zip(("site.yaml", "first.yaml"), texts, strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    site = load_site(str(folder / "site.yaml"), scheduler)
    return site, load_spec(folder / "first.yaml")


def test_slurm_with_partitions_of_every_kind(tmp_path: Path) -> None:
    site, spec = written(tmp_path, "slurm", OTHER)

    assert (site.name, site.queue, site.cpu_queue) == ("other", "gpu", "batch")
    assert site.options == ["--nodes=1", "--ntasks=1"]
    assert (spec.resources.gpus, spec.resources.gpu_type, spec.resources.memory) == (1, "a100", 8 * GIB)
    site, spec = written(tmp_path, "slurm", replace(LAB, must_charge=True))
    assert (site.name, site.queue, site.cpu_queue) == ("lab", "cpu", "cpu")
    asked = spec.resources
    assert (asked.gpus, asked.cpus, asked.account) == (1, 2, "root")
    assert (asked.memory, asked.walltime) == (4 * GIB, 600)


def test_small_nodes_short_queues_and_none(tmp_path: Path) -> None:
    small = Queue(name="tiny", cpus=1, memory_bytes=2 * GIB + 5, walltime_s=120)
    for queues, *expected in (
        ((small,), "tiny", 1, 2 * GIB, 120, 0),
        ((replace(small, memory_bytes=1000),), "tiny", 1, GIB, 120, 0),
        (None, None, 2, 8 * GIB, 600, 0),
        ((Queue(name="shut", closed="it is down"),), None, 2, 8 * GIB, 600, 0),
    ):
        asked = written(tmp_path, "slurm", Survey(product="Slurm", queues=queues))[1].resources
        assert [asked.queue, asked.cpus, asked.memory, asked.walltime, asked.gpus] == expected


def test_the_order_of_queues(tmp_path: Path) -> None:
    queues = [
        Queue(name="bought", gpus={"": 8}, only="groups nlp"),
        Queue(name="all", gpus={"": 2}, nodes=50),
        Queue(name="gpu-small", gpus={"": 1}, nodes=2),
        Queue(name="gpu-large", gpus={"": 1}, nodes=9),
        Queue(name="cpu"),
    ]
    names = []
    while len(queues) > 1:
        site, spec = written(tmp_path, "slurm", Survey(product="Slurm", queues=tuple(queues)))
        assert (site.cpu_queue, spec.resources.gpus, spec.resources.gpu_type) == ("cpu", 1, None)
        names.append(site.queue)
        queues = [queue for queue in queues if queue.name != site.queue]
    assert names == ["gpu-large", "gpu-small", "all", "bought"]


def test_a_resource_that_gives_a_job_its_host_to_itself(tmp_path: Path) -> None:
    assert written(tmp_path, "sge", GRID)[0].requests.exclusive is None
    (alone,) = resources("exclusive excl BOOL EXCL YES YES 0 1000")
    for most, spelling in (({}, None), ({"gpu.q": 0.0}, "-l exclusive=true")):
        known = (*(GRID.resources or ()), replace(alone, most=most))
        site = written(tmp_path, "sge", replace(GRID, resources=known))[0]
        assert site.requests.exclusive == spelling


def test_what_was_not_reported_and_what_there_is_not(tmp_path: Path) -> None:
    nothing = replace(GRID, queues=None, resources=(), gpus=None, memory=(), one_node=())
    site, spec = written(tmp_path, "sge", nothing)
    assert (site.queue, site.requests.gpus, site.requests.cpus, site.requests.memory) == (None,) * 4
    assert (spec.resources.queue, spec.resources.gpus) == (None, 0)

    queues = (Queue(name="null", default=True, walltime_s=300),)
    bare = Survey(product="Slurm", cluster="a b: c", queues=queues)
    site, spec = written(tmp_path, "slurm", bare)
    assert (site.name, site.queue) == ("slurm", "null")
    assert (site.requests.gpus, site.requests.gpu_type) == (None, None)
    assert (spec.resources.gpus, spec.resources.walltime) == (0, 300)


def test_grid_engine_with_names_of_its_own(tmp_path: Path) -> None:
    site, spec = written(tmp_path, "sge", GRID_OTHER)

    assert site.name == "grid-engine"
    assert site.requests.gpus == "-l gpu={gpus}"
    assert site.requests.cpus == "-pe threads {cpus}"
    assert (site.requests.memory, site.memory_per, site.gpus_per) == ("-l h_vmem={memory}", "slot", "job")
    assert (site.queue, spec.resources.cpus, spec.resources.account) == ("gpu.q", 2, "nlp")
    _, spec = written(tmp_path, "sge", replace(GRID_OTHER, one_node=()))
    assert spec.resources.cpus == 1, "without an environment of one node"


def test_grid_engine_where_gpus_are_counted_for_each_slot(tmp_path: Path) -> None:
    site, spec = written(tmp_path, "sge", GRID)

    assert (site.queue, site.cpu_queue) == ("gpu.q", "serial.q")
    assert (site.gpus_per, site.requests.cpus) == ("slot", "-pe smp {cpus}")
    assert (spec.resources.cpus, spec.resources.gpu_type) == (1, None)


WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True)
QUEUE = st.builds(
    Queue,
    name=st.one_of(WORD, TEXT),
    default=st.booleans(),
    walltime_s=st.none() | st.floats(1, 10**6),
    gpus=st.dictionaries(st.just("") | WORD, st.integers(1, 16), max_size=3),
    nodes=st.integers(0, 100),
    cpus=st.none() | st.integers(1, 10**6),
    memory_bytes=st.none() | st.integers(1, 2**45),
    closed=st.just("") | TEXT,
    only=st.just("") | TEXT,
    environments=st.lists(WORD, max_size=3).map(tuple),
)
KINDS = st.sampled_from(["INT", "MEMORY"])
RESOURCE = st.builds(Resource, name=WORD, shortcut=WORD, kind=KINDS, counted=st.sampled_from(Consumable))
SURVEY = st.builds(
    Survey,
    product=st.sampled_from(["Slurm", "Grid Engine", "!"]),
    version=TEXT,
    queue_noun=st.sampled_from(["queue", "partition"]),
    cluster=TEXT,
    queues=st.none() | st.lists(QUEUE, max_size=4).map(tuple),
    accounts=st.none() | st.lists(WORD | TEXT, max_size=3).map(tuple),
    account=st.just("") | WORD | TEXT,
    must_charge=st.booleans(),
    resources=st.none() | st.lists(RESOURCE, max_size=4).map(tuple),
    gpus=st.none() | RESOURCE,
    one_node=st.lists(WORD, max_size=3).map(tuple),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(survey=SURVEY, scheduler=st.sampled_from(["slurm", "sge"]))
def test_whatever_a_cluster_says_what_is_written_can_be_read(
    tmp_path: Path, survey: Survey, scheduler: str
) -> None:
    site, spec = written(tmp_path, scheduler, survey)

    assert site.queue == spec.resources.queue
    if survey.queues is not None:
        assert site.queue in {None, *(queue.name for queue in survey.queues if not queue.closed)}
