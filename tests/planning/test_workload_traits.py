from __future__ import annotations

from pathlib import Path

from jobkit.planning.workload_traits import traits
from jobkit.worker.workloads.base import ENTITY_COLUMNS
from tests.support.builders import own_workload


def test_the_columns_of_the_rows_are_known_before_anything_runs(tmp_path: Path) -> None:
    assert traits("count").columns == ("words",)
    assert traits("stanza-ner").columns == ENTITY_COLUMNS
    name = own_workload(tmp_path, "COLUMNS = ('letters', 'words')", name="own_columns")
    assert traits(name, str(tmp_path)).columns == ("letters", "words")
