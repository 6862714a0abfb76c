# ruff: noqa: E501 - the page's sentences
"""Write docs/benchmarks-tune.md from the records of a search, and of three sweeps, on H200s.

``python -m benchmarks.tune_page`` reads docs/benchmarks/tune/, energy/, precision/ and gpus/ and prints the
page; the records are what the commands on the page brought home, entities and logs left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean

import yaml

from benchmarks.gpu_page import GIB
from jobkit.core.json_codec import from_json
from jobkit.core.records import Record
from jobkit.fit.tune import Tuning, read_tuning
from jobkit.outcome.timing import worker_s
from jobkit.report.output import render
from jobkit.report.tables import collect
from jobkit.report.tune import as_text

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "docs" / "benchmarks"
TUNE, ENERGY, PRECISION, GPUS = (
    next((RUNS / name).glob(f"{name}-2*")) for name in ("tune", "energy", "precision", "gpus")
)
WIDTH = 118
FIRST_SIZE, MOST_WORKERS, BOTH = 15_000, 16, 2
"""Of the search the size with which workers were added, and the most workers; the GPUs of the last sweep."""
LEAST_S = 60.0
"""The shortest work over which the two instruments of energy are compared."""
KEYS = (
    *("text", "order", "work_unit", "workers", "mps", "repeats", "sweep"),
    *("model", "device", "scheduler", "resources"),
)
"""The keys of a spec that the page shows, if they are set."""

PAGE = """\
# On a GPU: what jobkit tune finds, energy and precision

NVIDIA H200s without other users, the full-size stand-in model, and the 881 paragraphs of the sample text, \
10, 18 or 24 times over. The records are in [benchmarks/tune](benchmarks/tune), \
[energy](benchmarks/energy), [precision](benchmarks/precision) and [gpus](benchmarks/gpus), without \
entities and logs. `python -m benchmarks.tune_page` makes this page from them, and a test checks that it \
agrees with them. The lengths of the repeated texts are those of the sample, repeated, put into jobkit's cache \
before each command: this saves a minute of planning and changes no measurement.

## The fastest setting

One command on one H200 with 16 CPU cores. The file has the sample text ten times (8,810 paragraphs).

<!-- not run: needs a GPU -->
```sh
jobkit tune sweeps/tune.yaml --set text=./sample10.txt --set tune.budget=10m --set resources.memory=100GiB --scheduler local
```

```text
{answer}
```

- {settings} settings were measured, {others} of them besides the {memory} points of memory. From the first \
to the last record the search held the GPU for {held:.1f} minutes, loading included.
- The target is ten times the plain loop at the lower end of the interval. **It is not met**: the mean is \
{mean:.1f} times, the lower end {low:.1f}. Three repeats give a wide interval: the speeds of the winner are \
{winner}, those of the plain loop {loop}.
- In this search MPS makes 16 workers {mps:.1f} times as fast as without it. It saves no memory: the context \
of a worker is {context_on:.3f} GiB with it and {context_off:.3f} GiB without.
- With forked workers a point of 16 workers needs {start:.0f} s besides its work (mean of {sixteen} points).

## Energy

The plain loop and the setting that `tune` found, in turn, on 15,858 paragraphs. One H200 of a machine with two, \
with 16 of its 32 cores; on the other GPU and the other cores the sweep of precisions ran at the same time. The \
command reached its time limit during the third repeat; the folder has the four points that ended.

```yaml spec
{energy_spec}
```

{energy}

*Difference* is that of the integral of the sampled power from the counter. Over at least 60 s, the two \
points of the plain loop, it is {worst:.2f} % at most (the target is 5 %). In a few seconds the integral lags behind \
([why](what-is-measured.md#energy)). The processes on the GPU were the job's own in all four points, with and \
without MPS. The idle power of this GPU was {idle:.1f} W.

The setting takes {winner_j:.0f} J for 1,000 paragraphs and the loop {loop_j:.0f} J, {saved:.1f} times as much. This is the \
energy of the GPU alone, idle power included.

## Precision

The sample text (881 paragraphs), two repeats, on the other GPU of that machine at the same time:

```yaml spec
{precision_spec}
```

```text
{precision}
```

{agreement}

The entities were compared on that machine and are not in the folder; this is what `jobkit collect --json` \
printed there ([collected.json](benchmarks/precision/collected.json)). In fp16 and tf32 no entity changes, in bf16 \
three lines differ. 16 bits save {half_gib:.1f} GiB of activations at batch size 300. Two repeats show no difference \
in speed. Other batch sizes, and several workers, were not measured.

## Two GPUs

One command on a machine with two H200s and 32 cores, 21,144 paragraphs, the setting that `tune` found:

```yaml spec
{gpus_spec}
```

```text
{gpus}
```

The target is 1.9 times one GPU. **The mean misses it**: {gpus_ratio:.2f} times ({gpus_low:.2f} to {gpus_high:.2f}); repeat \
by repeat {gpus_pairs}. With 16 workers half of the cores are free, with 32 workers none. The workers had no work for \
{gpus_idle:.2f} s at the end on average, so the text was long enough.

## Not measured

- A search whose interval lies above ten times the plain loop; `--set tune.repeats=5` makes the interval shorter.
- All 44 settings of a grid, against which to compare the answer of `tune`.
- The safe bound under caps of 8 and 16 GiB on the whole GPU with 1, 4 and 12 workers: no cell was completed.
- Unequal GPUs in one point, workers on the CPU next to the GPU, and a profile of a point.
"""


def read(run: Path) -> list[Record]:
    """Return the records of a run, in the order in which they began."""
    paths = run.glob("results/*/try-*/record.json")
    found = [from_json(Record, path.read_text(encoding="utf-8"), where=str(path)) for path in paths]
    return sorted(found, key=lambda record: record.started_at or "")


def speeds(records: Sequence[Record]) -> list[float]:
    """Return the paragraphs a second of some points."""
    return [record.summary.items_per_s or 0.0 for record in records if record.summary]


def spec(run: Path) -> str:
    """Return of the spec of a run what a reader would write."""
    whole = yaml.safe_load((run / "sweep.yaml").read_text(encoding="utf-8"))
    kept = {"name": whole["name"]} | {key: whole[key] for key in KEYS if whole.get(key) is not None}
    kept["text"] = Path(kept["text"]).name
    kept["sweep"] = {key: value for key, value in whole["sweep"].items() if value}
    kept["resources"] = {key: whole["resources"][key] for key in ("gpus", "cpus", "memory", "walltime")}
    return yaml.safe_dump(kept, sort_keys=False, default_flow_style=None, width=WIDTH).rstrip()


def table(run: Path) -> str:
    """Return the table of a run, without what follows it."""
    text = render(collect([run]), "table", width=WIDTH, gpu_memory_bytes=None)
    return text.split("\n\nFastest", maxsplit=1)[0].rstrip()


def difference(record: Record) -> float:
    """Return by how many percent the integral of the power differs from the counter."""
    found = record.energy
    if not found or not found.counter_j or found.power_j is None:
        raise ValueError(record.point.point_id)
    return 100 * (found.power_j / found.counter_j - 1)


def per_1000(records: Sequence[Record]) -> float:
    """Return the mean joules for 1,000 paragraphs."""
    return fmean(
        1000 * (record.energy.counter_j or 0) / record.summary.items
        for record in records
        if record.energy and record.summary
    )


def _energy(records: Sequence[Record]) -> Iterator[str]:
    yield "| point | paragraphs/s | work s | counter J | integral J | difference | attribution |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for record in records:
        found, done = record.energy, record.summary
        if found and done:
            yield (
                f"| {record.point.point_id} | {done.items_per_s:,.0f} | {done.work_s:.1f} | {found.counter_j:,.0f} |"
                f" {found.power_j:,.0f} | {difference(record):+.2f} % | {found.attribution} |"
            )


def _of_tune(tuning: Tuning, records: Sequence[Record]) -> dict[str, object]:
    """Return what the page says of the search."""
    gain, best = tuning.gain, tuning.winner
    if gain is None or best is None or gain.low is None:
        raise ValueError(TUNE)
    shared = {
        record.mps: record
        for record in records
        if record.point.phase == "search" and record.point.params["padded_chars"] == FIRST_SIZE
    }
    sixteen = [record for record in records if record.point.workers == MOST_WORKERS and record.mps == "on"]
    spans = [result.record for _, result in tuning.results if result.record]
    knobs = {
        str(sorted((key, value) for key, value in one.params.items() if key != "every"))
        for one, _ in tuning.results
    }
    return {
        "settings": len(knobs),
        "others": len(knobs) - len(tuning.goal.sizes),
        "memory": len(tuning.goal.sizes),
        "held": _minutes(spans),
        "mean": gain.mean,
        "low": gain.low,
        "winner": _listed(speeds(tuning.records_of(best))),
        "loop": _listed(speeds(tuning.records_of(tuning.loop))),
        "mps": speeds([shared["on"]])[0] / speeds([shared["off"]])[0],
        "context_on": (shared["on"].memory.context_bytes or 0) / GIB,
        "context_off": (shared["off"].memory.context_bytes or 0) / GIB,
        "start": fmean(_span_s(record) - record.summary.work_s for record in sixteen if record.summary),
        "sixteen": len(sixteen),
    }


def _span_s(record: Record) -> float:
    return worker_s(record) or 0.0


def _minutes(records: Sequence[Record]) -> float:
    began = min(record.started_at or "" for record in records)
    ended = max(record.ended_at or "" for record in records)
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds() / 60


def _listed(values: Sequence[float]) -> str:
    *first, last = (f"{value:,.0f}" for value in values)
    return f"{', '.join(first)} and {last}"


def _of_energy(records: Sequence[Record]) -> dict[str, object]:
    loop, winner = ([one for one in records if one.point.workers == workers] for workers in (1, MOST_WORKERS))
    long = [record for record in records if record.energy and (record.energy.span_s or 0) >= LEAST_S]
    idle = {record.energy.idle_w for record in records if record.energy}
    return {
        "energy_spec": spec(ENERGY),
        "energy": "\n".join(_energy(records)),
        "worst": max(abs(difference(record)) for record in long),
        "idle": next(iter(idle)),
        "loop_j": per_1000(loop),
        "winner_j": per_1000(winner),
        "saved": per_1000(loop) / per_1000(winner),
    }


def _of_gpus(records: Sequence[Record]) -> dict[str, object]:
    one, two = ([record for record in records if record.point.gpus == gpus] for gpus in (1, BOTH))
    [size] = [size for size in collect([GPUS]).sizes.to_dict("records") if size["gpus"] == BOTH]
    pairs = [after / before for before, after in zip(speeds(one), speeds(two), strict=True)]
    return {
        "gpus_spec": spec(GPUS),
        "gpus": table(GPUS),
        "gpus_ratio": size["speedup"],
        "gpus_low": size["speedup_low"],
        "gpus_high": size["speedup_high"],
        "gpus_pairs": ", ".join(f"{pair:.2f}" for pair in pairs),
        "gpus_idle": fmean(share.idle_s for record in two for share in record.workers),
    }


def _of_precision(records: Sequence[Record]) -> Mapping[str, object]:
    activations = {
        str(record.point.params["precision"]): record.memory.activations_bytes or 0 for record in records
    }
    return {
        "precision_spec": spec(PRECISION),
        "precision": table(PRECISION),
        "agreement": "\n".join(_agreement()),
        "half_gib": (activations["fp32"] - activations["fp16"]) / GIB,
    }


def _agreement() -> Iterator[str]:
    text = (PRECISION.parent / "collected.json").read_text(encoding="utf-8")
    yield "| precision | entities | differ | F1 with fp32 |"
    yield "|---|--:|--:|--:|"
    for size in json.loads(text)["sizes"]:
        yield f"| {size['precision']} | {size['entities']:,.0f} | {size['differ']:.0f} | {size['f1']:.4f} |"


def answer() -> str:
    """Return what ``jobkit tune`` prints of the search, but for its first line and the lines to paste."""
    text = as_text(TUNE.relative_to(ROOT), read_tuning(TUNE))
    return text.split("\n\n", maxsplit=1)[1].split("\n\nIn a spec", maxsplit=1)[0]


def page() -> str:
    """Return the page."""
    tuning = read_tuning(TUNE)
    told = {
        **_of_tune(tuning, read(TUNE)),
        **_of_energy(read(ENERGY)),
        **_of_precision(read(PRECISION)),
        **_of_gpus(read(GPUS)),
    }
    return PAGE.format(answer=answer(), **told)


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - a script prints
