from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from jobkit.setup.check_node import PYTHON, NodeRequest, check_node
from jobkit.setup.facts import Facts
from jobkit.setup.findings import Finding, Status

WANTED = NodeRequest(
    device="cuda",
    workload="stanza-ner",
    gpus=1,
    scratch_bytes=0,
    seen=(),
    python="python",
    on_node=True,
    jobkit="0.1.0",
)
HERE = replace(WANTED, on_node=False)
SAID = {"activation": "0", "python": "/env/bin/python", "worker": "0", "examine": "0"}
TORCH = {
    "version": "2.5.0",
    "error": None,
    "import_s": 2.0,
    "built_for": "12.4",
    "works": True,
    "devices": 1,
    "name": "NVIDIA H200",
    "total_bytes": 140 * 2**30,
}
CARD = {"name": "NVIDIA H200", "driver": "570.1", "processes": 0, "accounting": False}
FOUND = {
    "python": "3.11.7",
    "jobkit": "0.1.0",
    "stanza": "1.10.1",
    "workload_error": None,
    "torch": TORCH,
    "gpus": [CARD],
}


def probed(
    said: dict[str, str] | None = None, wanted: NodeRequest = WANTED, **python: Any
) -> dict[str, Finding]:
    facts = Facts(said=SAID | (said or {}), python=FOUND | python)
    return {one.name: one for one in check_node(facts, wanted, PYTHON)}


def test_an_environment_in_which_all_works() -> None:
    found = probed()

    assert list(found) == ["environment", "jobkit", "torch", "CUDA", "NVML", "GPU accounting"]
    assert {one.status for one in found.values()} == {Status.OK}
    assert found["environment"].said == "Python 3.11.7 at /env/bin/python"
    assert found["jobkit"].said == "jobkit 0.1.0, stanza 1.10.1; it can run stanza-ner"
    assert found["torch"].said == "torch 2.5.0, for CUDA 12.4, imported in 2.0 s"
    assert found["CUDA"].said == "1 x NVIDIA H200, 140.00 GiB"


def test_a_cpu_sweep_asks_for_no_gpu() -> None:
    found = probed(wanted=replace(WANTED, device="cpu", workload="count"), torch=None, stanza=None)

    assert list(found) == ["environment", "jobkit"]
    assert found["jobkit"].said == "jobkit 0.1.0; it can run count"


@pytest.mark.parametrize(
    ("said", "words", "mend"),
    [
        ({"activation": "1", "activation.said": "no module gcc"}, "activated: no module gcc", "environment"),
        ({"activation": "3"}, "activated: status 3", "setup"),
        ({"python": ""}, "there is no python here", "environment.venv"),
    ],
)
def test_an_environment_that_cannot_be_made_ready(said: dict[str, str], words: str, mend: str) -> None:
    found = probed(said)["environment"]

    assert found.status is Status.MISSING
    assert words in found.said
    assert mend in found.mend


def test_a_look_that_ended_early_says_so_and_no_more() -> None:
    found = {one.name: one for one in check_node(Facts(), WANTED, PYTHON)}

    assert list(found) == ["environment"]
    assert found["environment"].status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"worker": "1", "worker.said": "No module named 'jobkit'"}, "worker: No module named 'jobkit'"),
        ({"worker": "139"}, "worker: status 139"),
        ({"worker": "124"}, "it took too long"),
    ],
)
def test_a_python_that_cannot_run_the_worker(said: dict[str, str], words: str) -> None:
    found = probed(said)["jobkit"]

    assert found.status is Status.MISSING
    assert words in found.said
    assert found.mend == "/env/bin/python -m pip install jobkit"


def test_a_look_at_packages_that_failed_or_hung() -> None:
    failed = Facts(said=SAID | {"examine": "1", "examine.said": "ImportError: x"})
    hung = Facts(said=SAID | {"examine": "124"})
    found = [
        next(one for one in check_node(facts, WANTED, PYTHON) if one.name == "jobkit")
        for facts in (failed, hung)
    ]

    assert [one.status for one in found] == [Status.MISSING, Status.WARNING]
    assert found[0].said.endswith("failed: ImportError: x")


def test_a_workload_that_cannot_be_imported() -> None:
    found = probed(workload_error="workload 'my:W': No module named 'my'")["jobkit"]

    assert found.status is Status.MISSING
    assert "No module named 'my'" in found.said


def test_another_jobkit_than_here() -> None:
    found = probed(jobkit="0.0.9")["jobkit"]

    assert found.status is Status.WARNING
    assert found.mend == "/env/bin/python -m pip install jobkit==0.1.0"


def test_torch_that_cannot_be_imported() -> None:
    broken = {"version": None, "error": "OSError: libcudart.so.12: cannot open"}
    found = probed(torch=broken)

    assert found["torch"].status is Status.MISSING
    assert "libcudart" in found["torch"].said
    assert "CUDA" not in found


def test_torch_without_cuda_is_missing_where_a_spec_asks_and_a_warning_where_none_does() -> None:
    cpu = TORCH | {"built_for": None, "works": False, "why": "is a CPU build"}
    asked, looked = probed(torch=cpu), probed(torch=cpu, wanted=replace(WANTED, given=False))

    assert asked["torch"].status is Status.MISSING
    assert "the sweep asks for one" in asked["torch"].said
    assert looked["torch"].status is Status.WARNING
    assert "CUDA" not in asked, "told already"
    assert probed(torch=cpu, wanted=replace(WANTED, device="cpu"))["torch"].status is Status.OK


def test_what_brings_a_torch_for_cuda_can_be_pasted() -> None:
    cpu = TORCH | {"built_for": None, "works": False, "why": "is a CPU build"}
    words, command = probed({"python": "/my env/bin/python"}, torch=cpu)["torch"].mend.splitlines()

    assert words.endswith("(jobkit help dependencies):")
    assert subprocess.run(["bash", "-n"], input=command, text=True, check=False).returncode == 0
    assert shlex.split(command)[:4] == ["/my env/bin/python", "-m", "pip", "install"]
    assert "--force-reinstall" in command, "pip says else that torch is there already"
    assert "--index-url" in command


def test_torch_from_a_slow_disk() -> None:
    assert probed(torch=TORCH | {"import_s": 45.0})["torch"].status is Status.WARNING


def test_a_gpu_that_does_not_work_is_missing_on_a_node_and_unknown_elsewhere() -> None:
    broken = TORCH | {"works": False, "why": "the point requests CUDA, but torch sees no device"}
    on_node, here = probed(torch=broken), probed(torch=broken, wanted=HERE)

    assert on_node["CUDA"].status is Status.MISSING
    assert "sees no device" in on_node["CUDA"].said
    assert here["CUDA"].status is Status.UNKNOWN
    assert "--submit" in here["CUDA"].mend


def test_fewer_gpus_than_were_asked_for() -> None:
    found = probed(wanted=replace(WANTED, gpus=2))["CUDA"]

    assert found.status is Status.WARNING
    assert "asked for: 2" in found.said


def test_no_driver_library() -> None:
    assert probed(gpus=[])["NVML"].status is Status.WARNING
    assert probed(gpus=[], wanted=HERE)["NVML"].status is Status.UNKNOWN
    assert "GPU accounting" not in probed(gpus=[])
    assert "GPU accounting" not in probed(gpus=None)


def test_a_card_that_others_compute_on() -> None:
    found = probed(gpus=[CARD, CARD | {"processes": 2}])["NVML"]

    assert found.status is Status.WARNING
    assert "1 of them" in found.said


@pytest.mark.parametrize(("mode", "words"), [(True, "on: "), (False, "off: "), (None, "have none")])
def test_the_drivers_own_accounting(mode: bool | None, words: str) -> None:  # noqa: FBT001 - a parameter
    found = probed(gpus=[CARD | {"accounting": mode}])["GPU accounting"]

    assert found.status is Status.OK
    assert words in found.said
