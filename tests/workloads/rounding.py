"""A workload that offers fp32 and bf16: with bf16 it misses every word of nine letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.core.knobs import PRECISION, Knob, Value
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.function import Count


class Rounding(Count):
    KNOBS = ("batch_size", Knob(name=PRECISION, words=("fp32", "bf16")))
    precision: Value

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        super().load(model, device, params, threads)
        self.precision = params[PRECISION]

    def process(self, paragraphs: Sequence[str]) -> Result:
        result = super().process(paragraphs)
        if self.precision == "fp32":
            return result
        return replace(result, entities=tuple(row for row in result.entities if row.end - row.start != 9))

    def effective(self) -> Mapping[str, Value | None]:
        return {**super().effective(), PRECISION: self.precision}
