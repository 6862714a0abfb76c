from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers import sge
from jobkit.schedulers.types import JobRequest
from tests.support.surveys import ARRAY, REQUEST, captured

ANSWERS = {
    "qconf_sq": "queues",
    "qconf_sc": "complexes",
    "qsub_w": "verify-ok",
    "qstat_F": "lab-instances",
}


def refusals(request: JobRequest, **others: Completed) -> list[str]:
    answers = {name: captured(f"sge/{file}") for name, file in ANSWERS.items()} | others
    asked = sge.checks("job.sh", ARRAY, request)
    said = [check.refusal(answers["_".join(check.argv[:2]).replace("-", "")]) for check in asked]
    return [text for text in said if text]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "gpus.q"}, "no queue 'gpus.q' (it has: gpu.q, serial.q, short.q); did you mean 'gpu.q'?"),
        (
            {"queue": "short.q", "walltime_s": 3600},
            "01:00:00 is longer than queue 'short.q' allows (h_rt): at most 00:10:00",
        ),
        ({"queue": "gpu.q", "slots": 9}, "queue 'gpu.q' has no node with 9 CPUs: localhost has 8 CPUs"),
        ({"queue": "gpu.q", "exclude": ("local*",)}, "queue 'gpu.q' has no host but localhost, which"),
        ({"resources": ("ngpu", "h_vmem")}, "did you mean 'ngpus'? (change the site file"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_change(changes: dict[str, Any], words: str) -> None:
    (said,) = refusals(replace(REQUEST, **changes))

    assert words in said
    assert "(change " in said


@pytest.mark.parametrize("queue", [None, "gpu.q", "gpu.q@localhost", "*.q", "short.q,serial.q", "@allhosts"])
def test_what_is_right_is_not_refused(queue: str | None) -> None:
    assert refusals(replace(REQUEST, queue=queue, walltime_s=3600, resources=("ngpus", "mf"))) == []


def test_where_no_queue_is_long_enough() -> None:
    text = "qname a.q\nh_rt 0:10:0,\\\n     [n1=1:0:0]\nqname b.q\nh_rt 600\n"
    queues = Completed(("qconf",), 0, text, "")

    assert refusals(replace(REQUEST, walltime_s=3600), qconf_sq=queues) == []
    (said,) = refusals(replace(REQUEST, walltime_s=3601), qconf_sq=queues)
    assert "longer than any queue allows (h_rt): at most 01:00:00" in said


@pytest.mark.parametrize("name", ["queue", "resource", "gpus", "pe", "h-rt", "script"])
def test_what_verification_refuses_is_passed_on(name: str) -> None:
    (said,) = refusals(REQUEST, qsub_w=captured(f"sge/verify-{name}"))

    assert said.startswith("qsub refuses the job: ")
    assert "Exiting." not in said


def test_verification_ignores_load_values_and_is_not_believed_about_them() -> None:
    answer, load = captured("sge/verify-load"), replace(REQUEST, resources=("mem_free",))
    assert "no suitable queues" in answer.said

    assert refusals(load, qsub_w=answer) == []
    assert refusals(replace(REQUEST, resources=("h_vmem",)), qsub_w=answer) != []
    assert refusals(load, qsub_w=captured("sge/verify-queue")) != []


def test_where_qconf_does_not_answer_verification_decides() -> None:
    silent = captured("sge/qstat-unreachable")
    request = replace(REQUEST, queue="nope.q", resources=("nope",))

    assert refusals(request, qconf_sq=silent, qconf_sc=silent) == []
