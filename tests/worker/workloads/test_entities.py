from __future__ import annotations

import csv
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.files import write_atomically
from jobkit.worker.workloads.base import Entity, as_tsv

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1)
rows = st.lists(
    st.builds(Entity, st.integers(0, 99), text, st.just("PERSON"), st.integers(0, 9), st.integers(10, 99))
)


@given(rows)
def test_what_is_written_reads_back_in_text_order(tmp_path_factory: object, found: list[Entity]) -> None:
    path = Path(tmp_path_factory.mktemp("e")) / "entities.tsv"  # type: ignore[attr-defined]
    write_atomically(path, as_tsv(found))
    with path.open(encoding="utf-8", newline="") as stream:
        _, *written = csv.reader(stream, dialect="excel-tab")
    in_order = sorted(found, key=lambda row: (row.paragraph, row.start, row.end))
    assert written == [[str(value) for value in row] for row in in_order]


def test_the_file_as_a_person_sees_it() -> None:
    found = [Entity(2, "Ada\nMarsh", "PERSON", 4, 13), Entity(0, "Leeds", "GPE", 0, 5)]
    assert as_tsv(found) == (
        'paragraph\ttext\tlabel\tstart\tend\n0\tLeeds\tGPE\t0\t5\n2\t"Ada\nMarsh"\tPERSON\t4\t13\n'
    )
