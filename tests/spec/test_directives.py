from __future__ import annotations

import pytest
from pydantic import ValidationError

from jobkit.core.errors import JobkitError
from jobkit.spec.site import Site, directives, load_site
from jobkit.spec.sweep_spec import SweepSpec


def spec(**changes: object) -> SweepSpec:
    return SweepSpec.model_validate({"name": "stanza", **changes})


def lines_of(site: Site, **resources: object) -> list[str]:
    return directives(spec(resources=resources).resources, site)


SGE, SLURM = load_site("sge-default", "sge"), load_site("slurm-default", "slurm")
PER_SLOT = SGE.model_copy(update={"gpus_per": "slot"})


def test_memory_per_slot_and_the_type_of_a_gpu() -> None:
    assert "-l h_vmem=2304M" in lines_of(SGE, memory="9GiB", cpus=4), "the share of a slot"
    lines = lines_of(SLURM, gpu_type="a100")
    assert "--gres=gpu:a100:1" in lines
    assert "--gres=gpu:1" not in lines, "the type replaces the plain request"
    bare = SLURM.model_copy(update={"requests": SLURM.requests.model_copy(update={"cpus": None})})
    assert not [line for line in lines_of(bare, cpus=1) if "cpu" in line], "one need not be asked for"


def test_work_without_a_gpu_goes_to_the_queue_for_it() -> None:
    site = SLURM.model_copy(update={"queue": "gpu", "cpu_queue": "cpu"})
    asked: list[dict[str, object]] = [{"gpus": 0}, {"gpus": 1}, {"gpus": 0, "queue": "long"}]
    assert [lines_of(site, **resources)[0] for resources in asked] == [
        f"--partition={queue}" for queue in ("cpu", "gpu", "long")
    ]


def test_gpus_per_slot_are_the_share_of_a_slot() -> None:
    for gpus, cpus, each in ((1, 1, 1), (2, 1, 2), (4, 2, 2), (0, 3, 0)):
        found = [line for line in lines_of(PER_SLOT, gpus=gpus, cpus=cpus) if "ngpus" in line]
        assert found == ([f"-l ngpus={each}"] if each else [])
    with pytest.raises(JobkitError, match="so a job of 2 CPUs cannot have 1 GPU") as caught:
        lines_of(PER_SLOT, gpus=1, cpus=2)
    assert "lower resources.cpus, workers or threads" in caught.value.hint


def test_a_node_to_itself_and_what_a_site_cannot_spell() -> None:
    assert "--exclusive" in lines_of(SLURM, exclusive=True)
    assert "--exclusive" not in lines_of(SLURM)
    assert lines_of(load_site("local-default", "local"), exclusive=True, options={"local": ["-x"]}) == []
    for key in ("constraint", "gpu_type"):
        with pytest.raises(JobkitError, match=f"{key} is set, but site 'sge-default' has no header line"):
            lines_of(SGE, **{key: "a100"})
    with pytest.raises(JobkitError, match="exclusive is set, but site 'sge-default' has") as caught:
        lines_of(SGE, exclusive=True)
    assert "EXCL" in caught.value.hint
    assert "max_parallel: 1" in caught.value.hint
    requests = SGE.requests.model_copy(update={"exclusive": "-l excl=true"})
    assert "-l excl=true" in lines_of(SGE.model_copy(update={"requests": requests}), exclusive=True)


WORDS = ("queue", "gpu_type", "account", "qos", "mail", "constraint", "reservation")
CONTROL = ["x\n#SBATCH --uid=0", "x\n", "x\r", "x\x00", "x\x1b[2J"]


@pytest.mark.parametrize(
    "value", [*CONTROL, "", "a b", "--uid=0", "a'b", 'a"b', "a#b", "a\\b", "$HOME", "`id`"]
)
def test_a_value_is_one_word_of_its_line(value: str) -> None:
    asked: list[dict[str, object]] = [{"exclude": [value]}]
    asked += [{key: value} for key in WORDS]
    asked += [{"options": {"slurm": [value]}}] if value in CONTROL else []
    for resources in asked:
        with pytest.raises(ValidationError, match=r"should match pattern"):
            spec(resources=resources)
    given: list[dict[str, object]] = [{"options": [value]}, {"queue": value}, {"requests": {"gpus": value}}]
    for place in given if value in CONTROL else ():
        with pytest.raises(ValidationError, match=r"should match pattern"):
            Site.model_validate({"name": "x", "scheduler": "slurm", **place})


def test_a_spelling_that_cannot_be_filled_in_is_an_error() -> None:
    for spelling in ("--mail={mial}", "--mail={mail", "--mail={mail.address}", "--mail={}"):
        site = SLURM.model_copy(update={"requests": SLURM.requests.model_copy(update={"mail": spelling})})
        with pytest.raises(JobkitError, match=r"requests\.mail: .* cannot be filled in") as caught:
            lines_of(site, mail="ada")
        assert "exclude_bars" in (caught.value.hint or "")
