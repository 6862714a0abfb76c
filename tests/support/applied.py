"""A run that measured a setting of ``count``, a corpus, and what `jobkit apply` makes of both."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from jobkit.core.layout import SPEC_FILE
from jobkit.core.records import Point, Record
from jobkit.extensions.corpus import apply
from jobkit.extensions.corpus.setting import find_setting
from jobkit.extensions.corpus.shards import CorpusSummary
from jobkit.extensions.corpus.standing import CorpusState
from jobkit.extensions.corpus.winners import claim
from jobkit.planning.prepare import Prepared
from tests.support.builders import grid, record, write_record, write_records
from tests.support.corpora import work

SPEC = """\
name: demo
workload: count
text: text.txt
sweep: {batch_size: [10, 50]}
repeats: 3
scheduler: local
site: local-default
device: cpu
precision: null
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:02:00"}
"""
CHARACTERS = 170_000
"""Of the text that was measured; the setting takes 8.1 s for them, 8.0 of these the work."""


def counted(point: Point) -> Point:
    return replace(point, workload="count", model=None, precision=None, threads=1)


def measured_record(point: Point, work_s: float) -> Record:
    told = record(point, work_s=work_s)
    began = datetime.fromisoformat(told.started_at)
    ended = (began + timedelta(seconds=work_s + 0.1)).isoformat()
    return replace(told, load_s=0.1, warm_up_s=0.0, import_s=0.0, gpu=None, ended_at=ended)


def measured_run(run: Path, *, sizes: Sequence[int] = (10, 50)) -> Path:
    """Write the folder of a finished sweep, in which the larger batch is 1.6 times as fast."""
    points = [counted(one) for one in grid(sizes, 3, device="cpu")]
    times = [(8.0 if one.params["batch_size"] == sizes[-1] else 13.0) + 0.05 * one.repeat for one in points]
    write_records(run, [measured_record(one, time) for one, time in zip(points, times, strict=True)])
    (run / SPEC_FILE).write_text(SPEC, encoding="utf-8")
    (run / "job.sh").write_text(f"run={run}\n", encoding="utf-8")
    return run


def write_corpus(path: Path, paragraphs: int = 60) -> list[str]:
    """Write a text of paragraphs of several lengths, and return them."""
    texts = [f"{'word ' * (number % 9 + 1)}{number}.\n" for number in range(paragraphs)]
    path.write_text("\n".join(texts), encoding="utf-8")
    return texts


def expected_rows(name: str, paragraphs: Sequence[str]) -> list[dict[str, object]]:
    """Return what ``count`` yields of a text."""
    return [
        {"document": name, "paragraph": number, "words": len(re.findall(r"\w+", text))}
        for number, text in enumerate(paragraphs)
    ]


OUT = Path("tagged")
"""The run folder that tests name: below the folder in which they work."""


def request(
    run: Path, corpus: Sequence[str], *overrides: str, shards: int | None = 3, **more: object
) -> apply.ApplyRequest:
    """Return what a person asks for."""
    made = apply.ApplyRequest(
        word=str(run), paths=tuple(corpus), overrides=overrides, number=shards, stand_in=False
    )
    return replace(made, **more)  # type: ignore[arg-type]


def plan(asked: apply.ApplyRequest, out: Path = OUT) -> tuple[Prepared, CorpusSummary]:
    """Return what is planned of a corpus; nothing is written."""
    setting = find_setting(Path(asked.word), asked.options, build=False)
    return apply.prepare(out.absolute(), asked, setting, *apply.read(asked, setting))


def write_planned(asked: apply.ApplyRequest, out: Path = OUT) -> Prepared:
    """Write the folder of a corpus, and run nothing."""
    prepared, prospect = plan(asked, out)
    apply.write_planned(prepared, prospect)
    return prepared


def win(run: Path, *indices: int) -> None:
    """Let shards be done: their rows and records are home, and claimed."""
    for point in CorpusState(run).points:
        if point.index in indices:
            work(run, point.index)
            write_record(run, measured_record(point, 1.0))
            assert claim(run, point, 1)


def merged(path: Path) -> list[dict[str, object]]:
    """Return the rows of a merge."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
