"""docs/reliability.md shows every fault test, and no other."""

from __future__ import annotations

from tests.support.fault_matrix import PAGE, page


def test_the_matrix_on_the_page_is_that_of_the_tests() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "python -m tests.support.fault_matrix"
