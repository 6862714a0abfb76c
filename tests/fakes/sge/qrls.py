"""qrls: takes the hold off waiting tasks."""

from __future__ import annotations

from tests.fakes.common.entry import Answer
from tests.fakes.common.store import Store
from tests.fakes.sge import qalter


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qrls: `qalter -h U` by another name."""
    return qalter.main(store, ["-h", "U", *arguments])
