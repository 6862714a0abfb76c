from __future__ import annotations

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import RUN_KNOBS, Knob
from jobkit.planning.resolve import _refuse_other_device
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.worker.workloads.stanza_batches import KNOB


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("gpus", {"gpus": 2}),
        ("mps", {"mps": "on"}),
        ("sweep.mps", {"sweep": {"mps": "auto"}}),
        ("sweep.gpus", {"sweep": {"include": [{"gpus": 2}]}}),
    ],
)
def test_what_only_a_gpu_has_is_refused_on_a_cpu(key: str, given: dict[str, object]) -> None:
    spec = SweepSpec.model_validate({"name": "t", "device": "cpu", **given})
    with pytest.raises(JobkitError, match=f"^{key}: means nothing with device: cpu"):
        _refuse_other_device(spec, RUN_KNOBS)
    _refuse_other_device(spec.model_copy(update={"device": "cuda"}), RUN_KNOBS)


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("precision", {"precision": "tf32"}),
        ("sweep.precision", {"sweep": {"precision": ["fp32", "tf32"]}}),
        ("sweep.precision", {"sweep": {"zip": {"batch_size": [1, 2], "precision": ["bf16", "tf32"]}}}),
    ],
)
def test_a_word_that_only_a_gpu_has_is_refused_on_a_cpu(key: str, given: dict[str, object]) -> None:
    known = (KNOB, Knob(name="batch_size"))
    spec = SweepSpec.model_validate({"name": "t", "device": "cpu", **given})
    with pytest.raises(JobkitError, match=f"^{key}: tf32 means nothing with device: cpu") as caught:
        _refuse_other_device(spec, known)
    assert caught.value.hint == "leave it out, or set device: cuda"
    _refuse_other_device(spec.model_copy(update={"device": "cuda"}), known)
    _refuse_other_device(SweepSpec(name="t", device="cpu", precision="bf16"), known)


def test_mps_if_it_can_be_used_is_not_refused() -> None:
    _refuse_other_device(SweepSpec(name="t", device="cpu", mps="auto"), RUN_KNOBS)
