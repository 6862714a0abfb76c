from __future__ import annotations

import pytest

from jobkit.extensions.profile.work import ProfileCost, costs_of_trace

NER = "forward NERTagger stanza/models/ner/model.py:151"
LSTM = "forward LSTM torch/nn/modules/rnn.py:1081"


def event(cat: str, name: str, ts: float, dur: float, external: int | None = None) -> dict[str, object]:
    """Return an event of one thread, in microseconds."""
    args = {} if external is None else {"External id": external}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


CPU: list[dict[str, object]] = [
    {"ph": "M", "name": "process_name"},
    event("user_annotation", NER, 0, 100),
    event("user_annotation", LSTM, 10, 50),
    event("cpu_op", "aten::lstm", 20, 30, 1),
    event("cpu_op", "aten::addmm", 25, 10, 2),
    event("cpu_op", "aten::mm", 70, 20, 3),
    event("cpu_op", "aten::to", 200, 5, 4),
    event("cuda_runtime", "cudaLaunchKernel", 26, 1, 2),
]


def by_name(costs: list[ProfileCost]) -> dict[str, tuple[str, float]]:
    return {cost.what: (cost.where, round(1e6 * cost.seconds)) for cost in costs}


def test_an_operation_costs_its_own_time_at_the_place_of_its_module() -> None:
    costs, on_gpu = costs_of_trace(CPU)
    place = "stanza/models/ner/model.py:151"
    assert not on_gpu
    assert by_name(costs) == {
        "aten::lstm in LSTM": (place, 20),
        "aten::addmm in LSTM": (place, 10),
        "aten::mm in NERTagger": (place, 20),
        "aten::to": ("", 5),
    }


def test_a_module_of_torch_alone_is_its_own_place() -> None:
    costs, _ = costs_of_trace([event("user_annotation", LSTM, 0, 9), event("cpu_op", "aten::lstm", 1, 2, 1)])
    assert by_name(costs) == {"aten::lstm in LSTM": ("torch/nn/modules/rnn.py:1081", 2)}


def test_on_a_gpu_the_kernels_count_at_the_operation_that_launched_them() -> None:
    kernels = [
        event("kernel", "gemm", 40, 60, 2),
        event("kernel", "gemm", 100, 40, 2),
        event("gpu_memcpy", "Memcpy HtoD", 205, 7, 4),
        event("gpu_memset", "Memset", 300, 3, 99),
        event("gpu_user_annotation", NER, 40, 400),
    ]
    costs, on_gpu = costs_of_trace([*CPU, *kernels])
    assert on_gpu
    assert [(cost.what, round(1e6 * cost.seconds)) for cost in costs] == [
        ("aten::addmm in LSTM", 60),
        ("aten::addmm in LSTM", 40),
        ("aten::to", 7),
        ("Memset", 3),
    ]


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_no_cost_is_negative(overlap: float) -> None:
    costs, _ = costs_of_trace([event("cpu_op", "a", 0, 1), event("cpu_op", "b", overlap, 2)])
    assert all(cost.seconds >= 0 for cost in costs)
