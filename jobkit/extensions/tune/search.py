"""Search for the fastest setting by running it: ``python -m jobkit.extensions.tune.search RUN``.

It prints the number of the next point to run, or nothing once it has written ``setting.yaml``. All that
it knows is in the run folder, so a search that was killed goes on where it stood. No package beyond
jobkit's own and the standard library is imported, for the node may have no more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from jobkit.core.files import write_atomically
from jobkit.core.layout import SETTING_FILE
from jobkit.core.records import Point
from jobkit.core.units import format_setting
from jobkit.extensions.tune.steps import TuneAnswer
from jobkit.extensions.tune.tuning import Tuning, spec_lines
from jobkit.runs import search_loop


def propose_point(run_dir: Path) -> Point | None:
    """Return the next point; ``None`` once ``setting.yaml`` is there. A point without a result runs again."""
    if (run_dir / SETTING_FILE).is_file():
        return None
    tuning = Tuning.read(run_dir)
    if isinstance(tuning.next, TuneAnswer):
        write_atomically(run_dir / SETTING_FILE, setting_text(run_dir.name, tuning))
        return None
    return tuning.point(tuning.next)


def setting_text(name: str, tuning: Tuning) -> str:
    """Return ``setting.yaml``: the winner as a part of a spec, or in a comment why there is none."""
    answer = tuning.next
    if tuning.winner is None:
        why = answer.why if isinstance(answer, TuneAnswer) else "the search goes on"
        return f"# jobkit tune found no setting in {name}: {why}\n"
    if tuning.is_loop:
        head = f"# The plain loop: in {name} no setting is shown to be {tuning.better_words}."
    else:
        times = f": {tuning.gain.mean:.1f} times the plain loop" if tuning.gain else ""
        head = f"# Found by jobkit tune in {name}{times}."
    return "".join(f"{line}\n" for line in [head, *spec_lines(tuning)])


def main() -> int:
    def notes(_: Path, point: Point | None) -> Iterator[str]:
        if point:
            yield f"point {point.index}, {point.phase}: {format_setting(point.params)}"

    return search_loop.main("tune", propose_point, notes)


if __name__ == "__main__":
    sys.exit(main())
