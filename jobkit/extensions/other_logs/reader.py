"""How the report reads logs of other programs: the hook ``files``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.units import format_list
from jobkit.extensions.other_logs.dcgm import (
    SUFFIX,
    JobFigures,
    belongs,
    is_gpu_report,
    parse_report,
    points_of,
    side_by_side,
)
from jobkit.extensions.other_logs.tagger_log import parse_log, rows_of_log
from jobkit.report.rows import LOG_LIMIT_BYTES, MOST_NAMED, Row, Sources


class OtherLogs:
    """Logs of the taggers before jobkit, and DCGM's reports: a `jobkit.report.rows.FileReader`."""

    key: ClassVar[str] = JobFigures.key

    def read(self, path: Path, text: str) -> Sources | None:
        """Return the rows of a tagger's log, or the place where a report of DCGM is shown."""
        runs, left_out = parse_log(text)
        of_job = not runs and is_gpu_report(text)
        if not (runs or left_out or of_job):
            return None
        notes = [f"{path}: {left_out} of its runs cut short: left out"] if left_out else []
        notes += [f"{path}: a DCGM report of a whole job: {_where(path)}"] if of_job else []
        rows, near = rows_of_log(str(path), runs), path.parent.glob(f"*{SUFFIX}") if runs else ()
        reports = sorted(report for report in near if belongs(report.name, path.name))
        return Sources(rows, notes, jobs=list(self.more_figures(reports, rows, notes)))

    def more_figures(
        self, logs: Iterable[Path], rows: Sequence[Row], notes: list[str]
    ) -> Iterator[JobFigures]:
        """Yield the reports of DCGM that can be read; add to the notes why others cannot."""
        for path in logs:
            try:
                yield _read_report(path, rows)
            except JobkitError as error:
                notes.append(f"{error.message}: skipped")


OTHER_LOGS = OtherLogs()


def dcgm_reports(paths: Iterable[Path], rows: Sequence[Row]) -> list[JobFigures]:
    """Return reports of DCGM that a person names, each next to its points."""
    return [_read_report(path, rows) for path in paths]


def _read_report(path: Path, rows: Sequence[Row]) -> JobFigures:
    try:
        text = read_text(path) if path.stat().st_size <= LOG_LIMIT_BYTES else ""
    except OSError as error:
        raise JobkitError(f"{path}: cannot be read: {error.strerror}") from error
    if not is_gpu_report(text):
        hint = "such a report is what `dcgmi stats --verbose --job ID` prints"
        raise JobkitError(f"{path}: not a DCGM report of a job", hint=hint)
    points, how = points_of(path.name, rows)
    return side_by_side(str(path), parse_report(text), points, how)


def _where(report: Path) -> str:
    logs = [path for path in report.parent.iterdir() if path != report and belongs(report.name, path.name)]
    if not logs:
        return "the report names no batch size, and no log of its name is next to it: skipped"
    return f"the report is shown next to {format_list([path.name for path in sorted(logs)], MOST_NAMED)}"
