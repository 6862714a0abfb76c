"""No answer changes unseen. If a change is meant: ``python -m tests.golden --update``; read the diff."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.record import EXPECTED, Case, answer, cases, difference, project


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with project(tmp_path_factory.mktemp("golden")) as here:
        yield here


@pytest.mark.slow
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.file)
def test_an_answer_is_as_before(case: Case, folder: Path) -> None:
    changed = difference(case.file, answer(case, folder))
    assert not changed, f"{changed}\n\nIf it is meant: python -m tests.golden --update"


def test_every_kept_answer_has_its_case() -> None:
    files = {str(path.relative_to(EXPECTED)) for path in EXPECTED.rglob("*.*") if path.is_file()}
    assert files == {case.file for case in cases()}
