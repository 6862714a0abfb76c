"""What real schedulers said of their sites, held against requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers import sge, slurm
from jobkit.schedulers.survey import AccountingStatus, Survey
from jobkit.setup.findings import Finding, Status
from jobkit.setup.machine import SiteRequest, check_site, controller
from jobkit.spec.site import Requests, Site, load_site
from tests.support.surveys import REQUEST, captured, survey_of

LAB, OTHER = survey_of("slurm", "lab"), survey_of("slurm", "other")
GRID = survey_of("sge", "lab")
GRID_OTHER = survey_of("sge", "other", projects=captured("sge/other-projects"))
SGE = load_site("sge-default", "sge").requests


def asking(requests: Requests | None = None, memory_per: Any = "job", **changes: Any) -> SiteRequest:
    own = {key: changes.pop(key) for key in ("limit", "points", "queue_key") if key in changes}
    site = Site(name="lab", scheduler="sge", requests=requests or Requests(), memory_per=memory_per)
    return SiteRequest(request=replace(REQUEST, **changes), site=site, **own)


def looked(survey: Survey, asked: SiteRequest) -> dict[str, Finding]:
    return {one.name: one for one in check_site(survey, asked)}


def test_a_request_that_the_cluster_grants() -> None:
    found = looked(LAB, asking(queue="gpu", gpus=1, gpu_type="v100", limit=10000))
    assert {one.status for one in found.values()} == {Status.OK}
    assert list(found) == ["partition", "GPUs", "walltime", "array jobs", "account", "accounting"]
    assert "2,500 points become 3" in looked(LAB, asking(limit=1000, points=2500))["array jobs"].said

    found = looked(GRID, grid())
    assert {one.status for one in found.values()} == {Status.OK}
    assert "account" not in found, "nobody is charged"
    assert "resources" not in looked(GRID, asking()), "none is asked for"


def test_a_partition_without_a_node_that_is_up_has_sinfos_reason() -> None:
    down = captured("slurm/sinfo-down")
    found = looked(survey_of("slurm", "lab", states=down), asking(queue="gpu"))["nodes"]
    assert found.status is Status.MISSING
    assert found.said == "no node of partition 'gpu' is up: n[1-2] drained: fan broken"
    some = replace(down, stdout=down.stdout.replace("gpu|2", "gpu|1|idle|n1|none\ngpu|1"))
    survey = survey_of("slurm", "lab", states=some)
    assert "nodes" not in looked(survey, asking(queue="gpu"))
    hint = looked(survey, asking(queue="cpu"))["nodes"].hint
    assert hint.endswith("or change `queue` in the site file (nodes are up of: gpu)")


@pytest.mark.parametrize("survey", [LAB, GRID])
def test_whether_a_scheduler_answers(survey: Survey) -> None:
    found = controller(survey)
    assert found.status is Status.OK
    assert found.said.startswith(f"{survey.product} {survey.version} answers")
    module, name, words = {
        "Slurm": (slurm, "slurm/down-ping", "is DOWN"),
        "Grid Engine": (sge, "sge/down-config", "unable to send message to qmaster"),
    }[survey.product]
    down = controller(module.parse_survey({"controller": captured(name)}))
    assert (down.status, words in down.said) == (Status.MISSING, True)


@pytest.mark.parametrize(
    ("changes", "name", "said", "hint"),
    [
        ({"queue": "gqu"}, "partition", "did you mean 'gpu'?", "change `queue` in the site file"),
        ({"queue": "gpu", "gpus": 1, "gpu_type": "v10"}, "GPUs", "mean 'v100'?", "resources.gpu_type"),
        ({"queue": "gpu-short", "walltime_s": 1801}, "walltime", "(MaxTime): at most 00:30:00", "walltime"),
        ({"queue": "old"}, "partition", "'old' takes no jobs of yours: it is down", "jobs go to: batch"),
        ({"limit": 0}, "array jobs", "takes none", "support"),
    ],
)
def test_what_the_cluster_does_not_have(changes: dict[str, Any], name: str, said: str, hint: str) -> None:
    found = looked(OTHER, asking(**changes))
    assert found[name].status is Status.MISSING
    assert said in found[name].said
    assert hint in found[name].hint
    assert changes != {"queue": "gqu"} or not {"GPUs", "walltime"} & set(found), "no more is said"


def test_partitions_that_take_some_jobs() -> None:
    several = looked(OTHER, asking(queue="old,gpu"))["partition"]
    assert several.status is Status.OK
    some_only = looked(OTHER, asking(queue="long"))["partition"]
    assert some_only.status is Status.WARNING
    none = looked(replace(LAB, queues=()), asking())
    assert (none["partition"].status, none["GPUs"].said) == (Status.MISSING, "the spec requests none")


def test_what_was_not_reported_is_unknown() -> None:
    dumb = replace(LAB, queues=None, limits="", silent={"nodes": "slurm_load_partitions:\nerror"})
    found = looked(dumb, asking())

    assert found["partition"].status is found["array jobs"].status is Status.UNKNOWN
    assert found["partition"].said == "Slurm gave no answer: slurm_load_partitions: error"
    assert {"GPUs", "walltime"}.isdisjoint(found)
    deaf = survey_of("sge", "lab", instances=Completed(("qstat",), 1, "", ""))
    assert "GPUs" not in looked(deaf, grid()), "no host tells what it has"
    for works, status in ((True, Status.OK), (False, Status.WARNING), (None, Status.UNKNOWN)):
        kept = replace(LAB, keeping=AccountingStatus(works=works, said="so it is"))
        accounting = looked(kept, asking())["accounting"]
        assert (accounting.status, accounting.said[:8]) == (status, "so it is")


def test_whom_jobs_are_charged_to() -> None:
    for survey, account, status, said in (
        (LAB, "rot", Status.MISSING, "no account of yours 'rot' (it has: root); did you mean 'root'?"),
        (GRID_OTHER, None, Status.MISSING, "must name an account or project (there are: nlp, physics)"),
        (GRID_OTHER, "nlp", Status.OK, "charged to nlp"),
        (replace(GRID_OTHER, accounts=()), None, Status.MISSING, "and you have none"),
    ):
        found = looked(survey, asking(account=account))["account"]
        assert (found.status, said in found.said) == (status, True)


def grid(**changes: Any) -> SiteRequest:
    usual = {"resources": ("ngpus", "h_vmem", "h_rt"), "gpus": 1, "queue": "gpu.q"}
    return asking(changes.pop("requests", SGE), **usual | changes)


def test_what_no_node_has() -> None:
    many = looked(LAB, asking(cpus=99))["nodes"]
    assert many.status is Status.MISSING
    assert "partition 'cpu' has no node with 99 CPUs: 2 nodes have 8 CPUs" in many.said
    slots = looked(GRID, grid(cpus=99, slots=99))["nodes"]
    assert slots.status is Status.WARNING
    assert "no node with 99 CPUs: localhost has 8 CPUs" in slots.said
    assert "nodes" not in looked(GRID, grid(cpus=99)), "asked for by a resource, not by slots"


def test_a_resource_that_the_cluster_does_not_have() -> None:
    found = looked(GRID, grid(resources=("ngpu", "h_vmen", "h_rt", "h_rt")))

    assert found["resources"].status is Status.MISSING
    assert found["resources"].said.splitlines()[0].endswith("did you mean 'ngpus'?")
    assert "GPUs" not in found, "told with the resources"


def test_gpus_that_are_counted_for_each_slot() -> None:
    found = looked(GRID, grid(cpus=4, slots=4))["GPUs"]

    assert found.status is Status.WARNING
    assert "4 CPUs and 1 GPU would take 4 GPUs" in found.said
    assert found.hint == "set gpus_per: slot in the site file, and resources.cpus: 1 in the spec"
    assert looked(GRID, grid(cpus=4, requests=Requests(gpus=SGE.gpus)))["GPUs"].status is Status.OK


OTHER_SGE = Requests(gpus="-l gpu={gpus}", memory="-l h_vmem={memory}")


def other(**changes: Any) -> dict[str, Finding]:
    return looked(GRID_OTHER, grid(requests=OTHER_SGE, resources=("gpu",), **changes))


def test_a_queue_that_has_no_such_gpus() -> None:
    there, none_left = (other(queue=name)["GPUs"] for name in ("off.q", "all.q"))
    assert there.status is Status.MISSING
    assert "queue 'off.q' has no 'gpu'; those that have: " in there.said
    assert none_left.status is Status.WARNING


def test_a_site_file_that_counts_memory_otherwise_than_the_cluster() -> None:
    per_job = other(memory_per="job")["memory"]
    assert (per_job.status, per_job.hint) == (Status.WARNING, "set memory_per: slot in the site file")
    assert "memory" not in other(memory_per="slot")
    assert "memory" not in looked(GRID, grid(requests=OTHER_SGE))
    free = looked(GRID, grid(requests=Requests(memory="-l mem_free={memory}")))["memory"]
    assert "nothing reserves or limits memory" in free.said
    assert "'h_vmem'" in free.hint
