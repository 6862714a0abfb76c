"""The section on commands of docs/workloads.md: the file that may be copied is jobkit's own."""

from __future__ import annotations

from pathlib import Path

from jobkit.worker.measure import emit
from tests.pages.test_docs import page


def test_the_file_that_may_be_copied_is_the_one_that_jobkit_uses() -> None:
    source = Path(emit.__file__).read_text(encoding="utf-8")
    assert f"```\n{source}```\n" in page("workloads.md")
    assert len(source.splitlines()) <= 21
