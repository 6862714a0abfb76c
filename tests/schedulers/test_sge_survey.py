from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers.sge_survey import gpu_resource, memory_resources, parse_survey, survey_argvs
from jobkit.schedulers.survey import Consumable, Resource
from tests.support import surveys
from tests.support.surveys import captured

FILES = surveys.FILES["sge"]
answers = partial(surveys.answers_of, "sge")


def test_what_is_asked_is_what_was_captured() -> None:
    up = answers("other") | {"projects": captured("sge/other-projects")}
    assert {name: answer.argv for name, answer in up.items()} == survey_argvs(up)
    up = answers("lab")
    assert set(survey_argvs({})) == {"version", "controller"}
    second = survey_argvs({name: up[name] for name in ("version", "controller")})
    assert set(second) == set(FILES)
    assert set(survey_argvs(up)) == {*FILES, "environment smp"}, "one answer leads to another question"


def test_a_qmaster_that_is_down_is_asked_no_more() -> None:
    down = {"controller": captured("sge/down-config")}
    assert set(survey_argvs(down)) == {"version", "controller"}

    survey = parse_survey(down)
    assert "unable to send message to qmaster" in survey.trouble
    assert (survey.queues, survey.resources, survey.accounts, survey.version) == (None, None, None, "")
    assert survey.keeping.works is None


def test_a_site_with_queues_of_every_kind() -> None:
    survey = parse_survey(answers("other") | {"projects": captured("sge/other-projects")})

    known = {queue.name: queue for queue in survey.queues or ()}
    assert {name: queue.closed for name, queue in known.items() if queue.closed} == {
        "inter.q": "it takes no batch jobs",
        "off.q": "it has no hosts",
        "shut.q": "all of it is disabled",
    }
    assert known["staff.q"].only == "user lists staff"
    assert (known["gpu.q"].walltime_s, known["gpu.q"].gpus) == (48 * 3600, {"": 4})
    assert known["all.q"].gpus == {}, "none is left there, or none is there"
    assert known["all.q"].environments == ("mpi", "mpi-8", "threads")
    assert set(survey.one_node) == {"threads", "whole-node"}
    assert (survey.must_charge, survey.accounts) == (True, ("nlp", "physics"))
    assert survey.keeping.works is None, "no job has ended there yet"
    kinds = {resource.name: resource for resource in survey.resources or ()}
    assert (kinds["h_vmem"].counted, kinds["h_vmem"].most["gpu.q"]) == (Consumable.SLOT, 180 * 2**30)
    assert "gpu_idle" not in kinds, "nobody may ask for it"
    gpu = gpu_resource(kinds.values())
    assert gpu is not None
    assert (gpu.name, gpu.counted) == ("gpu", Consumable.JOB)


def test_how_qacct_answers() -> None:
    for answer, works, said in (
        (Completed(("qacct",), 124, "", "qacct: no answer within 20 s"), False, "no answer within 20 s"),
        (Completed(("qacct",), 1, "", ""), False, "no message"),
        (Completed(("qacct",), 0, "=====\n", ""), True, "on"),
    ):
        keeping = parse_survey(answers("lab") | {"qacct": answer}).keeping
        assert (keeping.works, said in keeping.said) == (works, True)
    off = answers("lab")
    text = off["controller"].stdout.replace("accounting=true", "joblog=false \\\n   accounting=false")
    keeping = parse_survey(off | {"controller": Completed(("qconf",), 0, text, "")}).keeping
    assert (keeping.works, "accounting=false" in keeping.said) == (False, True)


def test_without_qstat_nothing_is_known_of_hosts() -> None:
    some = answers("other")
    del some["instances"]
    survey = parse_survey(some)

    assert [queue.name for queue in survey.queues or () if queue.closed] == ["inter.q"]
    assert [resource.most for resource in survey.resources or ()] == [{}] * len(survey.resources or ())


HERE = {"gpu.q": 2.0}


def resource(name: str, kind: str = "INT", counted: Consumable = Consumable.SLOT, **more: Any) -> Resource:
    return Resource(name=name, kind=kind, counted=counted, **more)


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        ([resource("gpu_mem"), resource("gpu"), resource("ngpus")], "ngpus"),
        ([resource("coproc_v100"), resource("slots")], "coproc_v100"),
        ([resource("num_GPUs"), resource("gpu_temp")], "num_GPUs"),
        ([resource("slots")], None),
        ([resource("gpu", counted=Consumable.NOT), resource("my_gpus", most=HERE)], "my_gpus"),
        ([resource("cuda"), resource("gpu_ram", "MEMORY", most=HERE)], "cuda"),
    ],
)
def test_the_resource_that_counts_gpus(known: list[Resource], chosen: str | None) -> None:
    found = gpu_resource(known)
    assert (found.name if found else None) == chosen


def test_a_queue_on_several_hosts_that_differ() -> None:
    said = {
        "controller": "max_aj_tasks 75000\n",
        "queues": "qname a.q\npe_list NONE\nh_rt 0:10:0,\\\n     [n1=1:0:0]\nqtype BATCH\n",
        "resources": "gpu gpu INT <= YES YES 0 0\nload l DOUBLE <= NO NO 0 0\nshort row\n",
        "instances": "a.q@n1   BIP   0/1/4   0.1   lx-amd64   d\n\thl:mem_total=8.000G\n\thc:gpu=1\n"
        "a.q@n2   BIP   0/0/16  -NA-  lx-amd64   au\n",
    }
    survey = parse_survey({name: Completed((name,), 0, text, "") for name, text in said.items()})

    (queue,) = survey.queues or ()
    assert (queue.walltime_s, queue.nodes, queue.cpus, queue.memory_bytes) == (3600, 2, 16, 8 * 2**30)
    assert queue.closed == "all of it is disabled or unreachable"
    assert queue.gpus == {"": 1}


@pytest.mark.parametrize(
    ("known", "names"),
    [
        ({"mem_free": Consumable.NOT, "h_vmem": Consumable.SLOT}, ["h_vmem", "mem_free"]),
        ({"m_mem_free": Consumable.JOB, "h_vmem": Consumable.NOT}, ["m_mem_free", "h_vmem"]),
        ({"mem_free": Consumable.NOT, "h_vmem": Consumable.NOT}, ["h_vmem", "mem_free"]),
        ({"mem_total": Consumable.NOT}, []),
    ],
)
def test_what_memory_is_asked_for_by(known: dict[str, Consumable], names: list[str]) -> None:
    found = memory_resources(resource(name, "MEMORY", how) for name, how in known.items())
    assert [one.name for one in found] == names
