from __future__ import annotations

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import RUN_KNOBS, Knob
from jobkit.planning.resolve import _refuse_other_device
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.worker.workloads.stanza_batches import KNOB

KNOWN = (*RUN_KNOBS, KNOB, Knob(name="batch_size"))


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("gpus: ", {"gpus": 2}),
        ("mps: ", {"mps": "on"}),
        ("sweep.mps: ", {"sweep": {"mps": "auto"}}),
        ("sweep.gpus: ", {"sweep": {"include": [{"gpus": 2}]}}),
        ("precision: tf32 ", {"precision": "tf32"}),
        ("sweep.precision: tf32 ", {"sweep": {"precision": ["fp32", "tf32"]}}),
        (
            "sweep.precision: tf32 ",
            {"sweep": {"zip": {"batch_size": [1, 2], "precision": ["bf16", "tf32"]}}},
        ),
    ],
)
def test_what_only_a_gpu_has_is_refused_on_a_cpu(said: str, given: dict[str, object]) -> None:
    spec = SweepSpec.model_validate({"name": "t", "device": "cpu", **given})
    with pytest.raises(JobkitError, match=f"^{said}means nothing with device: cpu") as caught:
        _refuse_other_device(spec, KNOWN)
    assert caught.value.hint == "leave it out, or set device: cuda"
    _refuse_other_device(spec.model_copy(update={"device": "cuda"}), KNOWN)


def test_what_a_cpu_has_too_is_not_refused() -> None:
    _refuse_other_device(SweepSpec(name="t", device="cpu", mps="auto", precision="bf16"), KNOWN)
