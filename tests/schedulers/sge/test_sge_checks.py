from __future__ import annotations

from collections.abc import Callable

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers import sge
from jobkit.schedulers.types import Array, Request

Captured = Callable[[str], Completed]
RequestOf = Callable[..., Request]


def refusals(answers: dict[str, Completed], request: Request, array: Array) -> list[str]:
    asked = sge.checks("job.sh", array, request)
    said = [check.refusal(answers[" ".join(check.argv[:2])]) for check in asked]
    return [text for text in said if text]


@pytest.fixture
def answers(captured: Captured) -> dict[str, Completed]:
    return {
        "qconf -sq": captured("sge/queues"),
        "qconf -sc": captured("sge/complexes"),
        "qsub -w": captured("sge/verify-ok"),
        "qstat -F": captured("sge/lab-instances"),
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "gpus.q"}, "no queue 'gpus.q' (it has: gpu.q, serial.q, short.q); did you mean 'gpu.q'?"),
        (
            {"queue": "short.q", "walltime_s": 3600},
            "01:00:00 is longer than queue 'short.q' allows (h_rt): at most 00:10:00",
        ),
        ({"queue": "gpu.q", "slots": 9}, "queue 'gpu.q' has no node with 9 CPUs: localhost has 8 CPUs"),
        ({"resources": ("ngpu", "h_vmem")}, "did you mean 'ngpus'? (change the site file"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_change(
    changes: dict[str, object], words: str, answers: dict[str, Completed], request_of: RequestOf, array: Array
) -> None:
    (said,) = refusals(answers, request_of(**changes), array)

    assert words in said
    assert "(change " in said


@pytest.mark.parametrize("queue", [None, "gpu.q", "gpu.q@localhost", "*.q", "short.q,serial.q", "@allhosts"])
def test_what_is_right_is_not_refused(
    queue: str | None, answers: dict[str, Completed], request_of: RequestOf, array: Array
) -> None:
    request = request_of(queue=queue, walltime_s=3600, resources=("ngpus", "mf"))

    assert refusals(answers, request, array) == []


def test_where_no_queue_is_long_enough(
    answers: dict[str, Completed], request_of: RequestOf, array: Array
) -> None:
    text = "qname a.q\nh_rt 0:10:0,\\\n     [n1=1:0:0]\nqname b.q\nh_rt 600\n"
    answers["qconf -sq"] = Completed(("qconf",), 0, text, "")

    assert refusals(answers, request_of(walltime_s=3600), array) == []
    (said,) = refusals(answers, request_of(walltime_s=3601), array)
    assert "longer than any queue allows (h_rt): at most 01:00:00" in said


@pytest.mark.parametrize("name", ["queue", "resource", "gpus", "pe", "h-rt", "script"])
def test_what_verification_refuses_is_passed_on(
    name: str, captured: Captured, answers: dict[str, Completed], request_of: RequestOf, array: Array
) -> None:
    answers["qsub -w"] = captured(f"sge/verify-{name}")

    (said,) = refusals(answers, request_of(), array)

    assert said.startswith("qsub refuses the job: ")
    assert "Exiting." not in said


def test_verification_ignores_load_values_and_is_not_believed_about_them(
    captured: Captured, answers: dict[str, Completed], request_of: RequestOf, array: Array
) -> None:
    answers["qsub -w"] = captured("sge/verify-load")
    assert "no suitable queues" in answers["qsub -w"].said

    assert refusals(answers, request_of(resources=("mem_free",)), array) == []
    assert refusals(answers, request_of(resources=("h_vmem",)), array) != []
    answers["qsub -w"] = captured("sge/verify-queue")
    assert refusals(answers, request_of(resources=("mem_free",)), array) != []


def test_where_qconf_does_not_answer_verification_decides(
    captured: Captured, answers: dict[str, Completed], request_of: RequestOf, array: Array
) -> None:
    silent = captured("sge/qstat-unreachable")
    answers |= {"qconf -sq": silent, "qconf -sc": silent}

    assert refusals(answers, request_of(queue="nope.q", resources=("nope",)), array) == []
