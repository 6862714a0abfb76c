from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobkit.core.knobs import PRECISIONS
from jobkit.core.records import ModelRef
from jobkit.planning.sample import SEED, generate
from jobkit.runs.agreement import compare
from jobkit.worker.workloads.base import Entity, as_tsv
from jobkit.worker.workloads.model import set_tf32
from jobkit.worker.workloads.stanza_ner import StanzaNer

pytestmark = pytest.mark.xdist_group("torch")  # one worker imports it, for all tests of this group
PARAGRAPHS = generate(SEED, 12).paragraphs


def tagged(
    model: ModelRef, text: Sequence[str] = PARAGRAPHS, **params: int | str
) -> tuple[StanzaNer, Sequence[Entity]]:
    """Return a workload that has tagged a text, and what it found."""
    workload = StanzaNer()
    workload.load(Path(model.path), "cpu", {"batch_size": 12, **params}, 1)
    return workload, workload.process(text).entities


def types_of(workload: StanzaNer) -> set[str]:
    (trainer,) = workload._pipeline.processors["ner"].trainers
    return {str(weight.dtype).removeprefix("torch.") for weight in trainer.model.parameters()}


def test_a_16_bit_format_finds_nearly_the_same_and_fp32_exactly(tiny_model: ModelRef) -> None:
    plain, without = tagged(tiny_model)
    assert "precision" not in plain.effective()
    fp32, found = tagged(tiny_model, precision="fp32")
    assert as_tsv(found) == as_tsv(without)
    assert (types_of(fp32), fp32.effective()["precision"]) == ({"float32"}, "fp32")
    bf16, other = tagged(tiny_model, precision="bf16")
    assert bf16.effective()["precision"] == "bf16"
    assert types_of(bf16) == {"bfloat16", "float32"}, "the CRF stays as it is"
    agreement = compare(*(frozenset(tuple(map(str, row)) for row in rows) for rows in (other, found)))
    assert agreement.entities > 20
    assert agreement.f1 > 0.95
    bf16.heaviest()[0].again()
    fp16, [name, *_] = tagged(
        tiny_model, ["“Where is Beatrice Kelford?” asked Captain Ashley."], precision="fp16"
    )
    assert (types_of(fp16), name.text) == ({"float16", "float32"}, "Beatrice Kelford")


@pytest.mark.parametrize(
    ("precision", "major", "override", "ran"),
    [
        ("fp32", 9, "", "fp32"),
        ("tf32", 9, "", "tf32"),
        ("tf32", 8, "0", "fp32"),
        ("tf32", 7, "", "fp32"),
        ("fp16", 9, "", "fp16"),
    ],
)
def test_both_switches_of_tf32_are_set_and_what_takes_effect_is_known(
    monkeypatch: pytest.MonkeyPatch, precision: str, major: int, override: str, ran: str
) -> None:
    matmul, cudnn = SimpleNamespace(allow_tf32=False), SimpleNamespace(allow_tf32=True)  # torch's defaults
    backends = SimpleNamespace(cuda=SimpleNamespace(matmul=matmul), cudnn=cudnn)
    torch: Any = SimpleNamespace(
        backends=backends, cuda=SimpleNamespace(get_device_capability=lambda: (major, 0))
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    assert set_tf32(precision, "cuda") == ran
    assert {matmul.allow_tf32, cudnn.allow_tf32} == {precision == "tf32"}
    assert precision in PRECISIONS.words
