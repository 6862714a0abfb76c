"""qhold: holds waiting tasks."""

from __future__ import annotations

from tests.fakes.common.entry import Answer
from tests.fakes.common.store import Store
from tests.fakes.sge import qalter


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qhold: `qalter -h u` by another name."""
    return qalter.main(store, ["-h", "u", *arguments])
