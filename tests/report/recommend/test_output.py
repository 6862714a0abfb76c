"""What is printed: the page is held to it, and each sentence to its case."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.gpus import GpuKind
from jobkit.answers.speed import CorpusVolume, Duration
from jobkit.commands.recommend import recommend as command
from jobkit.core.blocks import as_text
from jobkit.core.records import Record
from jobkit.core.units import GIB
from jobkit.report.recommend.advice import recommend
from jobkit.report.recommend.output import as_json, blocks
from jobkit.report.recommend.types import KnobLargestBatch, Recommendation, RecommendOptions, RunData
from jobkit.spec.site import Site
from tests.report.recommend.test_recommend import on_cpu
from tests.support.builders import GPU, ITEMS, grid
from tests.support.recommendations import material, measured, records

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "recommend.md").read_text(encoding="utf-8")


def text(of: RunData | None = None, wishes: RecommendOptions | None = None) -> str:
    return as_text(blocks(found(of, wishes)))


def found(of: RunData | None = None, wishes: RecommendOptions | None = None) -> Recommendation:
    return recommend(of or material(records()), wishes or RecommendOptions(gpus=()))


def words() -> list[str]:
    """Return the words of the command on the page."""
    (line,) = re.findall(r"^jobkit recommend (.*) \| head -n", PAGE, re.MULTILINE)
    return shlex.split(line)


def head(output: str) -> str:
    """Return the lines of an output that the page shows."""
    (lines,) = re.findall(r"^jobkit recommend .* \| head -n (\d+)$", PAGE, re.MULTILINE)
    return "".join(output.splitlines(keepends=True)[: int(lines)])


def shown() -> str:
    """Return what the page says that it prints."""
    (block,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(block)


def write_page() -> None:
    """Write the block of the page again; run in an environment like the test's."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as out:
        os.environ |= {f"JOBKIT_{name}": f"{folder}/{name}" for name in ("CACHE", "CONFIG", "LEDGER")}
        os.chdir(ROOT)
        command.main(words(), standalone_mode=False)
    (ROOT / "docs" / "recommend.md").write_text(PAGE.replace(shown(), head(out.getvalue())), encoding="utf-8")


def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("JOBKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    command.main(words(), standalone_mode=False)
    printed = head(capsys.readouterr().out)
    assert printed == shown(), "python -m tests.report.recommend.test_output writes it anew"


def test_the_page_has_every_key() -> None:
    told = json.loads(as_json(found()))
    assert re.findall(r"^\| `(\w+)` \| (?!\d)", PAGE.partition("## For programs")[2], re.MULTILINE) == list(
        told
    )
    of_programs = PAGE.partition("## For programs")[2]
    deep = {key for part in ("measured", "batch", "corpus", "time", "cost") for key in told[part]}
    deep |= set(told["batch"]["largest"])
    assert deep <= set(re.findall(r"`(\w+)`", of_programs))


def test_a_difference_may_be_within_the_scatter_or_more_or_unknown() -> None:
    assert re.search(r"1\.7 % faster \(-.* % with 95 % confidence\): no difference is shown\.\n", text())
    exact = [
        replace(one, summary=replace(one.summary, work_s=one.summary.work_s + one.point.repeat / 1e4))
        for one in records(repeats=3)
        if one.summary and one.point.repeat == 2
        for one in [one, replace(one, point=replace(one.point, repeat=3))]
        if one.summary
    ]
    assert re.search(
        r"1\.7 % faster \(1\.\d to 1\.\d % with 95 % confidence\)\.$", text(material(exact)), re.MULTILINE
    )
    assert "single repeats cannot show" in text(material(records(repeats=1)))


def test_a_smaller_setting_that_only_scatter_left_out_is_named() -> None:
    assert "The next smaller" not in text()
    assert "The next smaller" not in text(material(records(sizes=(220,))))
    wide = {85: (258.0, 318.0), 130: (302.0, 306.0)}
    told = [measured(one, wide[one.numbers["batch_size"]][one.repeat - 1]) for one in grid((85, 130), 2)]
    said = text(material(told))
    assert "The next smaller, batch_size 85, is 5.3 % slower than the fastest, which is within the" in said


def test_how_many_workers_fit_is_said() -> None:
    shared = [
        replace(one, point=replace(one.point, workers=4, params={**one.point.params, "workers": 4}))
        for one in records()
    ]
    said = text(material(shared))
    assert re.search(r"At most \d+ workers fit this GPU", said)
    assert "The contexts of the 4 workers are" in said
    kept = found(material(shared), RecommendOptions(gpus=(), margin=0.2))
    together = int(4 * 0.8 * kept.batch.largest.capacity_bytes / 2**20)
    assert f"jobkit verify runs/demo --gpu-memory {together}MiB" in as_text(blocks(kept)), (
        "of all workers together"
    )


def test_the_proof_is_of_what_was_asked() -> None:
    small = [replace(record, gpu=replace(GPU, total_bytes=4 * GIB)) for record in records()]
    kept = 4 * GIB - 719_323_136
    said = text(material(small), RecommendOptions(gpus=(), margin=0.5))
    assert f"jobkit verify runs/demo --gpu-memory {kept // 2**21}MiB\n" in said
    card = GpuKind(name="3GiB", usable_bytes=3 * GIB)
    said = text(wishes=RecommendOptions(gpus=(card,)))
    assert f"    jobkit verify runs/demo --gpu-memory {(kept - GIB) // 2**20}MiB\n" in said
    assert "can be proved on the card" not in text(wishes=RecommendOptions(gpus=(card, card)))
    tiny = GpuKind(name="1MiB", usable_bytes=2**20)
    assert "can be proved on the card" not in text(wishes=RecommendOptions(gpus=(tiny,)))


def test_what_verify_cannot_prove_is_not_sent_there() -> None:
    said = text(material(records(), lengths=None))
    assert "jobkit verify cannot test it on so short a text (881 paragraphs)." in said
    assert "Prove it" not in said
    several = []
    for one in records():
        params = {**one.point.params, "tokenizer_batch": one.point.repeat}
        several.append(replace(one, point=replace(one.point, params=params)))
    said = text(material(several))
    assert "jobkit verify cannot test it" in said
    safe = re.findall(r"(?:Largest safe: batch_size [\d,]+ with|With) (tokenizer_batch \d)", said)
    assert sorted(safe) == ["tokenizer_batch 1", "tokenizer_batch 2", "tokenizer_batch 3"]
    tiny = [replace(record, gpu=replace(GPU, total_bytes=2**28)) for record in records()]
    assert "jobkit verify" not in text(material(tiny))


NONE = RecommendOptions(gpus=())
GROWING = [measured(one, one.numbers["batch_size"]) for one in grid((40, 85, 130, 175, 220))]
SLOW = [measured(one, one.numbers["batch_size"] / 1_000) for one in grid((40, 85))]
BARE = [replace(one, gpu=None, point=replace(one.point, model=None)) for one in records()]
BLIND = [
    replace(one, memory=replace(one.memory, maxrss_bytes=None, rss_peak_bytes=None)) for one in records()
]
WHOLE = [*records(), *(measured(replace(one, index=99), 306) for one in grid((ITEMS,)))]
VAGUE = Duration(expected_s=7_200, low_s=6.6, high_s=10**6, start_s=6.6, repeats=2)


def on_gpu_of(size_bytes: int, told: Sequence[Record]) -> RunData:
    return material([replace(one, gpu=replace(GPU, total_bytes=size_bytes)) for one in told])


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (material(records()), "Test it before you rely on it: jobkit verify runs/demo\n"),
        (material(records(repeats=1)), "the mean (no upper end is known) of the time above x 1.25"),
        (material(records(sizes=(40, 130, 220))), "not known, because 3 distinct loads measured"),
        (material(WHOLE), "This run has measured it: no test is needed."),
        (material(BARE), "Measured: stanza-ner: sample, on a GPU of unknown name.\n"),
        (replace(material(BLIND), seconds=[None]), "(1 try, 1 of which left no times)"),
        (material(on_cpu()), "10.0 CPU-minutes (5 tries)"),
        (material(GROWING), "Larger ones, up to 881, were not measured: they may be faster still."),
        (on_gpu_of(3 * GIB, GROWING), "The limit is memory: larger batches than this are not safe."),
        (on_gpu_of(GIB, GROWING), "40.0 paragraphs/s (n=1), the smallest that was measured, though none"),
        (on_gpu_of(4 * GIB, records()), "of 4.00 GiB. The context is 0.67 GiB of it."),
        (material(SLOW), "Take batch_size 85: 0.0850 paragraphs/s (n=1)"),
        (replace(material(records()), resources=None), "Take batch_size 175"),
        (replace(material(records()), site=None), "sge, site sge-default (a plain one: queue, account"),
        (
            replace(material(records()), site=Site(name="bare", scheduler="slurm")),
            "no lines: resources.gpu_type is set, but site 'bare' has no header line for it",
        ),
        (
            replace(material(records()), trials=("the largest batch was not tested: x",)),
            "  The largest batch",
        ),
        (replace(material(records()), trials=("it held",), ledger="14 predictions"), "  Tried: it held.\n"),
    ],
)
def test_every_answer_can_be_printed(of: RunData, said: str) -> None:
    shown = text(of, RecommendOptions())
    assert said in shown
    assert not re.search(r"None|nan|\{|\[", shown)


def test_what_the_run_did_not_use_is_a_share_of_what_it_requested() -> None:
    said = text()
    assert "Request 3 GiB and 00:05:00 from the scheduler:" in said
    assert "2.00 GiB was used at most, x 1.2, in whole GiB." in said
    assert "The sweep did not use 75 % of 8.00 GiB of memory and 90 % of 00:10:00 of walltime" in said
    assert "sge-default" not in said, "the site is known"


def test_time_has_its_interval_unless_that_is_unknown() -> None:
    corpus = CorpusVolume(name="a.txt", paragraphs=2, characters=50)
    of = "Time for a.txt (2 paragraphs, 50 characters): 5.5 s (95 % of runs: 5.5 s to 5.5 s).\n"
    assert of in text(wishes=replace(NONE, corpus=corpus))
    told = found(wishes=replace(NONE, corpus=CorpusVolume(paragraphs=1)))
    vague = as_text(blocks(replace(told, time=VAGUE)))
    assert "Time for 1 paragraph: 02:00:00.\n  6.6 s of it once" in vague
    assert "spread unknown (n=2)." in vague
    bare = replace(told.batch, times=None, leave_largest_out=None)
    assert ": just as fast." in as_text(blocks(replace(told, batch=bare)))


def test_the_largest_for_other_values_of_the_other_knobs() -> None:
    advice = found()
    safe = advice.batch.largest
    unknown = [replace(safe, reason=reason) for reason in ("two sizes ran", "two sizes ran", safe.reason)]
    lines = [
        KnobLargestBatch(others="precision bf16", largest=safe),
        *(KnobLargestBatch(others="", largest=one) for one in unknown[:2]),
    ]
    shown = as_text(blocks(replace(advice, batch=replace(advice.batch, lines=tuple(lines)))))
    assert f"  With precision bf16: {safe.knob} {safe.safe_batch:,}, " in shown
    assert "  With 2 other values of the other knobs: not known, because two sizes ran.\n" in shown
    none = replace(advice.batch, largest=unknown[0], lines=(KnobLargestBatch(others="", largest=unknown[1]),))
    shown = as_text(blocks(replace(advice, batch=none)))
    assert "  With 1 other value of the other knobs: not known either.\n" in shown


if __name__ == "__main__":
    write_page()
