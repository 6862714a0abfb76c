"""Search for the fastest setting by running it: ``python -m jobkit.extensions.tune.search RUN``.

It prints the number of the next point to run, or nothing once it has written ``setting.yaml``. All that
it knows is in the run folder, so a search that was killed goes on where it stood. No package beyond
jobkit's own and the standard library is imported, for the node may have no more.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line, exclusive_lock, write_atomically
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, SEARCH_LOCK, SETTING_FILE
from jobkit.core.records import Point
from jobkit.core.units import format_setting
from jobkit.extensions.tune.steps import TuneAnswer
from jobkit.extensions.tune.tuning import Tuning, spec_lines


def next_point(run_dir: Path) -> Point | None:
    """Return the next point to run, appended to ``points.jsonl`` if it is new; ``None`` if all is done.

    The caller has run the point before to its end: a point without a result was killed, and runs again.
    """
    with exclusive_lock(run_dir / SEARCH_LOCK, lambda: None):
        if (run_dir / SETTING_FILE).is_file():
            return None
        tuning = Tuning.read(run_dir)
        if isinstance(tuning.next, TuneAnswer):
            write_atomically(run_dir / SETTING_FILE, setting_text(run_dir.name, tuning))
            return None
        point = tuning.point(tuning.next)
        if point.index > len(tuning.results):
            append_line(run_dir / POINTS_FILE, to_json(point))
        return point


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
    try:
        point = next_point(Path(sys.argv[1]))
    except (JobkitError, OSError) as error:
        sys.stderr.write(f"tune: {error}\n")
        return 1
    if point:
        sys.stderr.write(f"tune: point {point.index}, {point.phase}: {format_setting(point.params)}\n")
        sys.stdout.write(f"{point.index}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
