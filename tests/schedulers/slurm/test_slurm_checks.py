from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers import slurm
from jobkit.schedulers.types import JobRequest
from tests.support.surveys import ARRAY, REQUEST, captured

ANSWERS = {"sinfo": "sinfo", "sbatch": "test-only-ok", "assoc": "associations", "qos": "qos"}


def refusals(request: JobRequest, **others: Completed) -> list[str]:
    answers = {name: captured(f"slurm/{file}") for name, file in ANSWERS.items()} | others
    asked = slurm.checks("job.sh", ARRAY, request)
    said = [check.refusal(answers[check.argv[4 if check.argv[0] == "sacctmgr" else 0]]) for check in asked]
    return [text for text in said if text]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "gqu"}, "no partition 'gqu' (it has: cpu, gpu, high, low); did you mean 'gpu'?"),
        ({"walltime_s": 7200}, "walltime 02:00:00 is longer than partition 'cpu' allows: at most 01:00:00"),
        (
            {"cpus": 64},
            "partition 'cpu' has no node with 64 CPUs: 2 nodes have 8 CPUs, 7.81 GiB, 2 x v100",
        ),
        ({"memory_bytes": 64 * 2**30}, "no node with 64.00 GiB of memory: 2 nodes have 8 CPUs, 7.81 GiB"),
        ({"queue": "gpu", "gpus": 5}, "partition 'gpu' has at most 2 GPUs a node; requested: 5"),
        (
            {"gpus": 1, "gpu_type": "v10"},
            "no GPU type in partition 'cpu' 'v10' (it has: v100); did you mean 'v100'?",
        ),
        ({"account": "rot"}, "no account of yours 'rot' (it has: root); did you mean 'root'?"),
        ({"qos": "norml"}, "no QOS 'norml' (it has: normal); did you mean 'normal'?"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_change(changes: dict[str, Any], words: str) -> None:
    (said,) = refusals(replace(REQUEST, **changes))

    assert words in said
    assert "(change " in said


def test_what_sinfo_cannot_answer_is_left_to_sbatch() -> None:
    assert refusals(replace(REQUEST, queue="gqu"), sinfo=Completed(("sinfo",), 1, "", "")) == []


def test_when_the_first_would_start_is_reported() -> None:
    tested = slurm.checks("job.sh", ARRAY, REQUEST)[1]
    assert re.fullmatch(
        r"Slurm estimates a start at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: earlier if .*, later if .*",
        tested.outlook(captured("slurm/test-only-ok")),
    )
    assert tested.outlook(captured("slurm/test-only-partition")) == ""


def test_what_is_right_is_not_refused() -> None:
    request = replace(REQUEST, queue="gpu,cpu", gpus=2, gpu_type="v100", walltime_s=3600, account="root")

    assert refusals(replace(request, qos="normal")) == []


def test_a_partition_without_gpus() -> None:
    sinfo = Completed(
        ("sinfo",), 0, "cpu*|2-00:00:00|(null)|up|1|8|8000\nbig|infinite|gpu:2(S:0-1)|up|1|8|8000\n", ""
    )

    (said,) = refusals(replace(REQUEST, gpus=1), sinfo=sinfo)
    assert "partition 'cpu' has no GPUs" in said
    assert refusals(replace(REQUEST, gpus=2, queue="big", walltime_s=10**7), sinfo=sinfo) == []


def test_lines_of_a_wrapper_around_sinfo_are_passed_over() -> None:
    plain = captured("slurm/sinfo")
    noisy = replace(plain, stdout=f"Welcome to the cluster | news: none\n{plain.stdout}\n")

    assert refusals(replace(REQUEST, queue="cpu"), sinfo=noisy) == []
    (said,) = refusals(replace(REQUEST, queue="gqu"), sinfo=noisy)
    assert "(it has: cpu, gpu, high, low)" in said


@pytest.mark.parametrize("name", ["partition", "gres", "gpus", "memory", "array", "script"])
def test_what_test_only_refuses_is_passed_on(name: str) -> None:
    (said,) = refusals(REQUEST, sbatch=captured(f"slurm/test-only-{name}"))

    assert said.startswith("sbatch refuses the job: ")


def test_where_accounting_is_off_no_account_is_refused() -> None:
    for name in ("associations-none", "sacctmgr-off"):
        assert refusals(replace(REQUEST, account="nobody"), assoc=captured(f"slurm/{name}")) == []
