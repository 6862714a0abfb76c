"""A workload with shortcuts, whose check says and does what the test wants."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobkit.core.knobs import EXACT, OFF, SHORTCUTS, Knob, Value
from tests.workloads.told import WORDS, Told

BYTES = 2**28
"""What the check holds at most."""


class Cut(Told):
    """Leaves the paragraphs of its check in the file ``CUT_CHECKED``.

    ``CUT_CHECK`` has what the check does, a word of `Told`, or why it refuses the shortcuts.
    """

    KNOBS = ("batch_size", Knob(name=SHORTCUTS, words=(OFF, EXACT)))
    shortcuts: Value

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        super().load(model, device, params, threads)
        self.shortcuts = params[SHORTCUTS]

    def check_shortcuts(self, paragraphs: Sequence[str]) -> str:
        held = b"\xff" * BYTES
        if file := os.environ.get("CUT_CHECKED"):
            Path(file).write_text("\n\n".join(paragraphs), encoding="utf-8")
        wanted = os.environ.get("CUT_CHECK", "")
        for word in wanted.split():
            WORDS.get(word, lambda: None)()
        return wanted if held else ""

    def effective(self) -> Mapping[str, Value | None]:
        return {**super().effective(), SHORTCUTS: self.shortcuts}


class Silent(Cut):
    """Does not report what takes effect."""

    def effective(self) -> Mapping[str, Value | None]:
        return {}


class Unable(Told):
    """Has shortcuts, and no way to check them."""

    KNOBS = Cut.KNOBS

    def effective(self) -> Mapping[str, Value | None]:
        return {**super().effective(), SHORTCUTS: EXACT}
