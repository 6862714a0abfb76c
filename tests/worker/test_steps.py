from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from jobkit.worker import steps
from tests.support.builders import point

COUNT = replace(point(device="cpu"), workload="count", model=None, fork=True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"fork": False}, "the spec has fork: false"),
        ({"workload": "tests.workloads.framework:Without"}, "has no preload()"),
        (
            {"workload": "tests.workloads.framework:Missing"},
            "ModuleNotFoundError: No module named 'framework'",
        ),
        ({"workload": "nowhere:Own"}, "cannot import the framework: workload 'nowhere:Own'"),
    ],
)
def test_why_processes_must_not_be_forked(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(steps, "touched_cuda", lambda: False)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    found = steps.preload(replace(COUNT, **changes))
    assert reason in found
    assert bool(found) == bool(reason)


def test_nor_if_cuda_was_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "touched_cuda", lambda: True)
    assert "has touched CUDA" in steps.preload(COUNT)
