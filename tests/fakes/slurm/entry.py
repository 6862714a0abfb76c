"""Where every fake command begins: it is counted, given its faults, and answered."""

from __future__ import annotations

import json
import sys
from typing import NoReturn

from tests.fakes.slurm import commands, trouble
from tests.fakes.slurm.runner import ensure
from tests.fakes.slurm.store import Store
from tests.fakes.slurm.text import Refused


def main() -> NoReturn:
    """Play the command ``sys.argv[3]`` of the cluster in the folder ``sys.argv[2]``."""
    folder, command, arguments = sys.argv[2], sys.argv[3], sys.argv[4:]
    store = Store(folder)
    with store.locked():
        store.state.calls[command] = store.state.calls.get(command, 0) + 1
        with (store.folder / "calls.jsonl").open("a", encoding="utf-8") as calls:
            calls.write(json.dumps([command, *arguments]) + "\n")
        try:
            answer = trouble.refusal(store, command, arguments) or getattr(commands, command)(
                store, arguments
            )
        except Refused as refused:
            answer = refused.answer
        ensure(store)
    sys.stderr.write(answer.err)
    sys.stdout.write(answer.out)
    sys.exit(answer.status)
