from __future__ import annotations

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import RUN_KNOBS, declared
from jobkit.worker.workloads.base import SHIPPED, knobs, workload_class


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_workload_is_found_without_its_framework(name: str) -> None:
    found = workload_class(name)
    assert knobs(name) == (*declared(found.KNOBS), *RUN_KNOBS)
    assert knobs("package.module:Class") is None, "it is not imported"
    assert "batch_size" in {knob.name for knob in declared(found.KNOBS)}


@pytest.mark.parametrize(
    "name", ["no.such.module:Class", "jobkit.worker.workloads.function:Nothing", "jobkit", ":"]
)
def test_what_is_no_workload_is_named(name: str) -> None:
    with pytest.raises(JobkitError, match="workload '") as caught:
        workload_class(name)
    assert "stanza-ner" in caught.value.hint
