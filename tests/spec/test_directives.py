from __future__ import annotations

import pytest
from pydantic import ValidationError

from jobkit.core.errors import JobkitError
from jobkit.spec.directives import directives
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import SweepSpec

SLURM_SITES = ("slurm-default", "edinburgh-ilcc")


def spec(**changes: object) -> SweepSpec:
    return SweepSpec.model_validate({"name": "stanza", **changes})


def test_memory_per_slot_is_the_share_of_a_slot() -> None:
    lines = directives(
        spec(resources={"memory": "9GiB", "cpus": 4}).resources, load_site("sge-default", "sge")
    )
    assert "-l h_vmem=2304M" in lines


@pytest.mark.parametrize(("gpus", "cpus", "each"), [(1, 1, 1), (2, 1, 2), (2, 2, 1), (4, 2, 2), (0, 3, 0)])
def test_gpus_per_slot_are_the_share_of_a_slot(gpus: int, cpus: int, each: int) -> None:
    site = load_site("sge-default", "sge").model_copy(update={"gpus_per": "slot"})
    lines = directives(spec(resources={"gpus": gpus, "cpus": cpus}).resources, site)
    assert [line for line in lines if "ngpus" in line] == ([f"-l ngpus={each}"] if each else [])


def test_gpus_that_the_slots_cannot_share_are_refused() -> None:
    site = load_site("sge-default", "sge").model_copy(update={"gpus_per": "slot"})
    with pytest.raises(JobkitError, match="so a job of 2 CPUs cannot have 1 GPU") as caught:
        directives(spec(resources={"gpus": 1, "cpus": 2}).resources, site)
    assert "lower resources.cpus, workers or threads" in caught.value.hint


def test_a_gpu_type_replaces_the_plain_request() -> None:
    lines = directives(spec(resources={"gpu_type": "a100"}).resources, load_site("slurm-default", "slurm"))
    assert "--gres=gpu:a100:1" in lines
    assert "--gres=gpu:1" not in lines


PLAIN = {
    "account": "nlp",
    "mail": "ada@example.org",
    "exclude": ["node07", "n[1-3]"],
    "reservation": "42",
}


@pytest.mark.parametrize("site", SLURM_SITES)
def test_plain_keys_on_slurm(site: str) -> None:
    asked = spec(resources={**PLAIN, "qos": "long", "constraint": "a100&(ib|opa)"}).resources
    assert directives(asked, load_site(site, "slurm"))[-8:-2] == [
        "--account=nlp",
        "--qos=long",
        "--mail-type=END,FAIL --mail-user=ada@example.org",
        "--constraint=a100&(ib|opa)",
        "--exclude=node07,n[1-3]",
        "--reservation=42",
    ]


def test_plain_keys_on_grid_engine() -> None:
    lines = directives(spec(resources=PLAIN).resources, load_site("sge-default", "sge"))
    assert lines[-4:] == ["-P nlp", "-m ea -M ada@example.org", "-l h=!(node07|n[1-3])", "-ar 42"]


def test_a_node_to_itself() -> None:
    asked = spec(resources={"exclusive": True}).resources
    assert "--exclusive" in directives(asked, load_site("slurm-default", "slurm"))
    assert directives(asked, load_site("local-default", "local")) == []
    site = load_site("sge-default", "sge")
    with pytest.raises(JobkitError, match="exclusive is set, but site 'sge-default' has") as caught:
        directives(asked, site)
    assert "EXCL" in caught.value.hint
    assert "max_parallel: 1" in caught.value.hint
    requests = site.requests.model_copy(update={"exclusive": "-l excl=true"})
    assert "-l excl=true" in directives(asked, site.model_copy(update={"requests": requests}))
    assert "--exclusive" not in directives(spec().resources, load_site("slurm-default", "slurm"))


@pytest.mark.parametrize("key", ["constraint", "gpu_type"])
def test_what_a_site_cannot_spell_is_an_error(key: str) -> None:
    with pytest.raises(JobkitError, match=f"{key} is set, but site 'sge-default' has no header line for it"):
        directives(spec(resources={key: "a100"}).resources, load_site("sge-default", "sge"))


WORDS = ("queue", "gpu_type", "account", "qos", "mail", "constraint", "reservation")


@pytest.mark.parametrize("key", [*WORDS, "exclude", "options"])
@pytest.mark.parametrize("value", ["x\n#SBATCH --uid=0", "x\nrm -rf ~", "x\n", "x\r", "x\x00", "x\x1b[2J"])
def test_no_value_becomes_a_header_line_of_its_own(key: str, value: str) -> None:
    given = {"exclude": [value], "options": {"slurm": [value]}}.get(key, value)
    with pytest.raises(ValidationError, match=r"should match pattern"):
        spec(resources={key: given})


@pytest.mark.parametrize("key", [*WORDS, "exclude"])
@pytest.mark.parametrize("value", ["", "a b", "--uid=0", "a'b", 'a"b', "a#b", "a\\b", "$HOME", "`id`"])
def test_a_value_is_one_word_of_its_line(key: str, value: str) -> None:
    with pytest.raises(ValidationError, match=r"should match pattern"):
        spec(resources={key: [value] if key == "exclude" else value})


@pytest.mark.parametrize("place", [{"options": ["a\nb"]}, {"queue": "a\nb"}, {"requests": {"gpus": "a\nb"}}])
def test_a_site_file_holds_one_line_a_line(place: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"should match pattern"):
        Site.model_validate({"name": "x", "scheduler": "slurm", **place})


@pytest.mark.parametrize("spelling", ["--mail={mial}", "--mail={mail", "--mail={mail.address}", "--mail={}"])
def test_a_spelling_that_cannot_be_filled_in_is_an_error(spelling: str) -> None:
    site = Site.model_validate({"name": "x", "scheduler": "slurm", "requests": {"mail": spelling}})
    requests = load_site("slurm-default", "slurm").requests.model_copy(update={"mail": spelling})
    asked = spec(resources={"mail": "ada"}).resources
    with pytest.raises(JobkitError, match=r"site 'x': requests\.mail: .* cannot be filled in") as caught:
        directives(asked, site.model_copy(update={"requests": requests}))
    assert "exclude_bars" in (caught.value.hint or "")


def test_nothing_is_asked_of_this_machine() -> None:
    asked = spec(resources={**PLAIN, "options": {"local": ["-x"]}}).resources
    assert directives(asked, load_site("local-default", "local")) == []


def test_one_cpu_need_not_be_asked_for() -> None:
    site = load_site("slurm-default", "slurm")
    bare = site.model_copy(update={"requests": site.requests.model_copy(update={"cpus": None})})
    assert not [line for line in directives(spec(resources={"cpus": 1}).resources, bare) if "cpu" in line]
