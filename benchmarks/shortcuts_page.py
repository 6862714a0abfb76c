# ruff: noqa: E501 - the page's sentences
"""Write docs/benchmarks-shortcuts.md from the records in benchmarks/records/shortcuts.

``python -m benchmarks.shortcuts_page`` prints the page; a test checks that it agrees with the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.archives import RECORDS, group
from benchmarks.gpu_page import GIB
from jobkit.core.json_codec import from_json
from jobkit.core.knobs import EXACT, SHORTCUTS
from jobkit.core.records import Record
from jobkit.fit.tune import read_tuning
from jobkit.report.tune import as_text

ROOT = Path(__file__).parents[1]
RAW = RECORDS / "shortcuts"
RUNS = group("shortcuts")
SEARCH, BEFORE = RUNS / "tune-20261125-020320-8e68", RUNS / "tune-20261125-015158-5925"
"""The search that the page shows, and the one before it on another machine."""
WIDTH = 118
MOST = 16
"""The most workers."""

PAGE = """\
# On a GPU: Stanza without what inference does not need

`shortcuts: exact` of `stanza-ner` leaves out what Stanza computes and does not use ([what and why](stanza-shortcuts.md)). \
This page has what that gives, on H200s with 16 cores without other users, and on two CPU cores. The models are stand-ins: \
the full-size one on a GPU, the tiny one on a CPU. The text is the sample (881 paragraphs), several times over. Raw figures: \
[benchmarks/records/shortcuts](../benchmarks/records/shortcuts) and the run folders in [shortcuts.tar.xz](../benchmarks/records/shortcuts.tar.xz); \
`python -m benchmarks.shortcuts_page` makes the page from them.

## The fastest setting

One command, one H200, the sample 80 times over (70,480 paragraphs). `precision: null` leaves TF32 as PyTorch sets it, for the plain loop too.

<!-- not run: needs a GPU -->
```sh
jobkit tune sweeps/tune.yaml --set text=./sample80.txt --set precision=null --stand-in --set tune.budget=00:06:40 --set resources.memory=110GiB --scheduler local
```

```text
{answer}
```

- {points} points of {settings} settings held the GPU for {minutes:.1f} minutes, loading and the checks of the shortcuts included (about 4 s a point).
- The plain loop is stock Stanza with the garbage collector between calls, in this command {loop:.0f} paragraphs a second. In [earlier searches](benchmarks-tune.md), without TF32 and with Python's own collector, it was for instance 223 to 246. The two were not measured in one command.
- A search of seven minutes just before, on another machine, found {before}. It measured one of three paragraphs: calls of 300 leave few for each of 16 workers.
- Without MPS, 16 workers reach {without:,.0f} paragraphs a second, {share:.0%} of those with it.

## A corpus

With that setting on the same GPU, `jobkit apply` worked through 528,600 paragraphs (97 MiB, one shard, fresh processes): {promised:.0f} s of jobs were predicted (95 %: {low:.0f} to {high:.0f}), \
it took {took:.0f} s. The work itself took {work:.1f} s, {rate:,.0f} paragraphs a second. The 16 workers and their supervisor held {ram:.2f} GiB of RAM at most.

## Each shortcut

`python -m benchmarks.shortcuts gains` on an H200: calls of 100 paragraphs, sorted by length, NER batches of 150 sentences, fp32 without TF32; once each. \
*Added* is with all shortcuts above it, *alone* with this one only. Sixteen processes share the GPU through MPS.

{gains}

All rows of a number of processes found the same entities (SHA-256). With 16 processes and fp32 the speed ends at about 5,100 paragraphs a second. A paragraph takes 3.1 ms of CPU there and 1.4 ms in one process: \
the processes wait for the GPU, with busy cores. With TF32, in the search above, NVML reported a use of {use} at 16 workers. The records were taken before the words of a batch were picked without a copy of the padded states, which costs memory in the rows from *words of a batch at once* on.

## The same entities

`python -m benchmarks.shortcuts equal`: stock Stanza and `exact` in the same processes, fp32, the SHA-256 of all entities.

{equal}

Not measured, because the time on the GPU was over: the sizes 10 and 100 on 10,000 paragraphs, and on the GPU other sizes with 16 processes than in the table of the shortcuts. The CPU had two cores, on which tests ran at the same time: its speeds say little.

## Memory

The line of one worker was fitted to what four budgets need, from {smallest:,} to {largest:,} padded characters. The need for each padded character falls from 17 to 8 kB, because small budgets of sorted text have no padding, \
and the LSTMs need memory for real characters. So the line is up to 9 % off here, and its bound is wide. No need is above the bound. With 16 workers and no cap, the processes took {least:.1f} to {most:.1f} GiB; \
the bound for their needs is {bounds}. In one point they reserved more than that, by {above:.1%}: an allocator without a cap keeps what it has.

## The garbage collector

{garbage}
"""


def page() -> str:
    """Return the page."""
    tuning, before = read_tuning(SEARCH), read_tuning(BEFORE)
    records = [result.record for _, result in tuning.results if result.record]
    loop, gain = tuning.loop, before.gain
    if loop is None or gain is None:
        raise AssertionError
    many = [one for one in records if one.params.get("workers") == MOST and one.point.phase == "search"]
    alone = next(record for record in many if record.mps == "off")
    size = alone.params["padded_chars"]
    shared = next(record for record in many if record.mps == "on" and record.params["padded_chars"] == size)
    use = [one.sampler.utilisation_mean_percent or 0 for one in many if one.mps == "on" and one.sampler]
    text = PAGE.format(
        answer=answer(),
        points=len(tuning.results),
        settings=len(
            {
                str(sorted(one.params.items() - {("every", one.params.get("every"))}))
                for one, _ in tuning.results
            }
        ),
        minutes=tuning.held_s / 60,
        loop=loop.items_per_s or 0,
        before=f"{gain.mean:.1f} times ({gain.low:.1f} to {gain.high:.1f})",
        without=_speed(alone),
        share=_speed(alone) / _speed(shared),
        use=f"{min(use):.0f} to {max(use):.0f} %",
        gains="\n".join(_gains()),
        equal="\n".join(_equal()),
        garbage="\n".join(_garbage()),
        **_corpus(),
        **_memory(),
    )
    return text.replace("%", " %").replace("  %", " %")


def answer() -> str:
    """Return what `jobkit tune` prints of the search."""
    lines = as_text(SEARCH, read_tuning(SEARCH), WIDTH).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("phase"))
    last = next(number for number, line in enumerate(lines) if line.startswith("In a spec"))
    return "\n".join(lines[first:last]).rstrip()


def _speed(record: Record) -> float:
    summary = record.summary
    return summary.items / summary.work_s if summary else 0.0


def _raw(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RAW / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _gains() -> Iterator[str]:
    rows = {(row["processes"], tuple(row["shortcuts"])): row for row in _raw("gains-gpu")}
    added = max((parts for _, parts in rows), key=len)
    yield "| shortcut | 1 process, alone | added | CPU ms | GiB | 16, alone | added | CPU ms | GiB |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for number in range(len(added) + 1):
        parts = added[:number]
        alone = () if not parts else parts[-1:]
        cells = [parts[-1] if parts else "none: stock Stanza"]
        for processes in (1, MOST):
            row = rows[processes, parts]
            own = rows.get((processes, alone))  # the time on the GPU ended before the last one
            cells += [f"{own['paragraphs_per_s']:,.0f}" if own else "", f"{row['paragraphs_per_s']:,.0f}"]
            cells += [f"{row['cpu_ms_per_paragraph']:.2f}", f"{row['reserved_bytes'] / GIB:.1f}"]
        yield f"| {' | '.join(cells)} |"


def _equal() -> Iterator[str]:
    yield "| device | processes | batch size | paragraphs | entities | same | stock, paragraphs/s | exact |"
    yield "|---|--:|--:|--:|--:|---|--:|--:|"
    for device in ("gpu", "cpu"):
        rows = _raw(f"equal-{device}")
        for stock, exact in zip(rows[::2], rows[1::2], strict=True):
            same = "yes" if stock["sha256"] == exact["sha256"] else "NO"
            cells = [
                device.upper(),
                stock["processes"],
                stock["batch_size"],
                f"{stock['paragraphs']:,}",
                f"{stock['entities']:,}",
            ]
            cells += [same, *(f"{row['paragraphs_per_s']:,.0f}" for row in (stock, exact))]
            yield f"| {' | '.join(map(str, cells))} |"


def _garbage() -> Iterator[str]:
    rows = _raw("garbage")
    yield "`python -m benchmarks.garbage`: the collector of Python, and one that runs between calls, in fresh processes; `count` three times each (means), the tagger once."
    yield ""
    yield "| work | seconds: Python's | between calls | peak RSS, MiB: Python's | between calls |"
    yield "|---|--:|--:|--:|--:|"
    for row in rows:
        (was_s, is_s), (was, is_) = row["seconds"], row["peak_bytes"]
        yield f"| {row['work']} | {was_s:.1f} | {is_s:.1f} | {was / 2**20:,.0f} | {is_ / 2**20:,.0f} |"


def _corpus() -> dict[str, float]:
    tagged = RUNS / "tagged"
    (path,) = tagged.glob("results/*/try-1/record.json")
    record = from_json(Record, path.read_text(encoding="utf-8"), where=str(path))
    time = json.loads((tagged / "provenance.json").read_text(encoding="utf-8"))["time"]
    return {
        "promised": time["predicted_s"],
        "low": time["predicted_low_s"],
        "high": time["predicted_high_s"],
        "took": time["took_s"],
        "work": record.summary.work_s if record.summary else 0.0,
        "rate": _speed(record),
        "ram": (record.memory.rss_peak_bytes or 0) / GIB,
    }


def _memory() -> dict[str, Any]:
    tuning = read_tuning(SEARCH)
    memory = tuning.search.memory
    if isinstance(memory, str) or isinstance(memory.line, str):
        raise TypeError
    exact = [(one, r.record) for one, r in tuning.results if r.record and one.params[SHORTCUTS] == EXACT]
    needs = [record.needs[0] for _, record in exact if record.needs]
    if any(need.passed_bytes > memory.line.upper(need.load) for need in needs):
        raise AssertionError
    many = [(one, record) for one, record in exact if one.workers == MOST]
    bounds: dict[int, float] = {}
    shares = []
    for one, record in many:
        load = record.summary.load_max if record.summary else 0
        bound = one.workers * (memory.context_bytes + memory.line.upper(load or 0))
        bounds[int(str(one.params["padded_chars"]))] = bound / GIB
        shares.append((record.memory.process_peak_bytes or 0) / bound)
    peaks = [(record.memory.process_peak_bytes or 0) / GIB for _, record in many]
    return {
        "smallest": min(need.load for need in needs),
        "largest": max(need.load for need in needs),
        "least": min(peaks),
        "most": max(peaks),
        "bounds": " and ".join(
            f"{bound:.1f} GiB (budget {size:,})" for size, bound in sorted(bounds.items())
        ),
        "above": max(shares) - 1,
    }


def main() -> None:
    """Print the page."""
    print(page(), end="")  # noqa: T201 - it is the output


if __name__ == "__main__":
    main()
