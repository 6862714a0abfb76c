"""Where every fake command begins: it is counted, given its faults, and answered."""

from __future__ import annotations

import importlib
import json
import sys
from typing import NamedTuple, NoReturn

from tests.fakes.common.runner import ensure
from tests.fakes.common.store import Store


class Answer(NamedTuple):
    """What a command prints, and its exit status."""

    out: str = ""
    err: str = ""
    status: int = 0


class Refused(Exception):  # noqa: N818 - what the scheduler did, not an error of the fake
    """The command ends here, with these words on stderr."""

    def __init__(self, err: str, status: int = 1, out: str = "") -> None:
        super().__init__(err)
        self.answer = Answer(out, err, status)


def main() -> NoReturn:
    """Play the command ``sys.argv[3]`` of the cluster in the folder ``sys.argv[2]``."""
    folder, command, arguments = sys.argv[2], sys.argv[3], sys.argv[4:]
    store = Store(folder)
    package = f"tests.fakes.{store.settings['scheduler']}"
    with store.locked():
        store.state.calls[command] = store.state.calls.get(command, 0) + 1
        with (store.folder / "calls.jsonl").open("a", encoding="utf-8") as calls:
            calls.write(json.dumps([command, *arguments]) + "\n")
        answer = importlib.import_module(f"{package}.trouble").refusal(store, command, arguments)
        try:
            play = getattr(importlib.import_module(f"{package}.commands"), command)
            answer = answer or play(store, arguments)
        except Refused as refused:
            answer = refused.answer
        ensure(store)
    sys.stderr.write(answer.err)
    sys.stdout.write(answer.out)
    sys.exit(answer.status)
