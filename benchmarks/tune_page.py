# ruff: noqa: E501 - the page's sentences
"""Write docs/benchmarks-tune.md from the records of six searches, a corpus and some sweeps on H200s.

``python -m benchmarks.tune_page`` reads tune, apply, energy, precision and caps in benchmarks/records and prints
the page; the records are what the commands on the page brought home, entities and logs left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean, stdev

import yaml

from benchmarks.archives import RECORDS, group
from benchmarks.gpu_page import GIB
from jobkit.core.json_codec import from_json
from jobkit.core.knobs import EVERY, PADDED_CHARS, WORKERS, numbers
from jobkit.core.records import Record
from jobkit.core.student import deviation, half_width
from jobkit.fit.tune import Tuning, read_tuning
from jobkit.outcome.timing import worker_s
from jobkit.report.output import render
from jobkit.report.tables import collect
from jobkit.report.tune import as_text

ROOT = Path(__file__).parents[1]
TUNE = group("tune") / "tune-20261123-101748-667c"
"""The search that the page shows, and docs/tune.md too."""
SECOND = TUNE.with_name("tune-20261122-213355-f020")
"""The search whose setting the corpus has, and the finals of the grid."""
MACHINES = {
    "tune-20261122-180438-5f62": "one H200",
    SECOND.name: "half of a machine with two, the other half busy",
    "tune-20261123-042039-9490": "a machine with two, the other GPU idle",
    "tune-20261123-074302-a544": "half of a machine with two, the other half idle",
    "tune-20261123-075119-ff54": "the same, right after search 4",
    TUNE.name: "half of a machine with two, the other half idle",
}
"""Where each search ran."""
ENERGY, PRECISION = (next(group(name).glob(f"{name}-2*")) for name in ("energy", "precision"))
CORPUS = group("apply") / "tagged"
CAPPED = [(workers, mps) for workers in (4, 12) for mps in ("off", "on")]
CAPS_GIB = (8, 16)
"""The memory of the whole GPU under which each of these was tried."""
CLOSE_GIB = 0.01
"""How far below its share the limit of an allocator may lie, which was rounded down to a MiB."""
WIDTH = 118
MOST_WORKERS = 16
"""The most workers of the search on the page."""
TARGET = 10
"""How many times as fast as the plain loop the setting is to be, at the lower end of the interval."""
LEAST_S = 60.0
"""The shortest work over which the two instruments of energy are compared."""
KEYS = (
    *("text", "order", "work_unit", "workers", "mps", "repeats", "sweep"),
    *("model", "device", "scheduler", "resources"),
)
"""The keys of a spec that the page shows, if they are set."""

PAGE = """\
# On a GPU: what jobkit tune finds, a corpus, energy, precision and caps

NVIDIA H200s without other users, the full-size stand-in model, and the 881 paragraphs of the sample text, \
several times over. The records are in [benchmarks/records/tune.tar.xz](../benchmarks/records/tune.tar.xz), [apply](../benchmarks/records/apply.tar.xz), \
[energy](../benchmarks/records/energy.tar.xz), [precision](../benchmarks/records/precision.tar.xz) and [caps](../benchmarks/records/caps.tar.xz), without entities and logs; `tar -xJf` unpacks the run folders. `python -m benchmarks.tune_page` makes this page from them, \
and a test checks that it agrees with them. The lengths of the repeated texts are those of the sample, repeated, \
put into jobkit's cache before each command: this saves a minute of planning and changes no measurement.

Unless a section says otherwise, a GPU of a machine with two has 16 of its 32 cores here, and on the other GPU \
and the other cores another measurement ran at the same time.

## The fastest setting

One command, one H200 and 16 cores of a machine with two, the other half idle. The file has the sample text ten \
times (8,810 paragraphs).

<!-- not run: needs a GPU -->
```sh
jobkit tune sweeps/tune.yaml --set text=./sample10.txt --stand-in --set tune.budget=10m --set tune.repeats=auto --set resources.memory=100GiB --scheduler local
```

```text
{answer}
```

- **The target is met:** at least ten times the plain loop at the lower end of the interval, twelve aimed at; at most \
12 settings besides the points of memory, and ten minutes of held GPU; the finalists on the whole text.
- {settings} settings were measured, {others} of them besides the {memory} points of memory. From the first \
to the last record the search held the GPU for {held:.1f} minutes, loading included. Then the budget of ten minutes \
had no room for a sixth repeat.
- The speeds of the winner are {winner}, those of the plain loop {loop}.
- In this search MPS makes 16 workers {mps:.1f} times as fast as without it. It saves no memory: the context \
of a worker is {context_on:.3f} GiB with it and {context_off:.3f} GiB without.
- With forked workers a point of 16 workers needs {start:.0f} s besides its work (mean of {sixteen} points).

## Six searches

The same search on five machines. `tune.repeats` was 3 in searches 1 and 3, 5 in 2 and 5, 6 in 4 and `auto` in 6; the budget was \
570 s in search 4, 590 s in search 5, and ten minutes in the others.

{searches}

*Minutes* is the time from the first to the last record.

- The target is ten times the plain loop at the lower end of the interval of a search. **{met} meet it.** The other four do \
not: their means are above ten, their lower ends below. Three repeats are few, and a fixed number of five or six left \
the finalists one of two paragraphs in a budget of ten minutes. `auto` began with three repeats, for which the budget holds \
the whole text, and added more while it lasted.
- The repeats of the plain loop differ by {loop_sds} % (standard deviation).
- Each search taken as one measurement, the mean of the six is {together:.1f} times ({together_low:.1f} to \
{together_high:.1f}: Student's t over the logarithms of the six ratios). They are not repeats of one measurement: \
they differ in cores, repeats and the setting that they found.
- Twice the cores help little: in the third search 32 workers are {doubled:.2f} times as fast as 16.
- The size differs from search to search, but no search shows a difference between its two finalists.

[A grid](benchmarks-workers.md#a-grid-of-44-settings) compares the answer of the second search with 44 settings, none \
of them chosen by `jobkit tune`.

## A corpus with that setting

Right after search 2, on the same GPU, with the sweeps of caps on the other: 12 files, each the sample text 50 \
times over, {corpus_paragraphs:,} paragraphs and {corpus_mib:.0f} MiB in total.

<!-- not run: needs a GPU -->
```sh
jobkit apply runs/{tune_run} --corpus big --out tagged --shards 4 --wait --stand-in
```

| | predicted | 95 % interval | measured |
|---|--:|--:|--:|
| seconds on the GPU, loading and staging included | {predicted:.0f} | {predicted_low:.0f} to {predicted_high:.0f} | {took:.0f} |
| joules | {predicted_j:,.0f} | | {joules:,.0f} |

- The time is within the interval, {time_off:+.1f} % off the prediction. {corpus_work:.0f} s of it were work; loading and \
warm-up took {corpus_start:.1f} s a shard, the import of the framework {corpus_import:.1f} s, once.
- From first to last call the shards tag {corpus_speed:,.0f} paragraphs a second, {corpus_share:.1%} of the tuned point's \
{tuned_speed:,.0f}. The target is 95 %.
- Memory does not grow with the text: {rss_tuned:.2f} GiB of the host for all 16 workers at the tuned point (one of \
every two of 8,810 paragraphs), {rss_corpus:.2f} GiB in a shard of {shard_paragraphs:,} paragraphs.
- The merged file has {rows:,} rows. Each paragraph of the sample is in the corpus 600 times, in other batches each \
time: all copies have the same entities.

## The safe bound with several workers

`jobkit recommend RUN --gpu-memory 8GiB` names the largest batch for a GPU of 8 GiB in all: the contexts, \
weights and allocators of all workers. `jobkit verify RUN --gpu-memory`, with the allocators' share of it, runs that \
batch. The sweeps have four small batches (20 to 80) on 12,334 paragraphs; on the other GPU search 2 ran.

{caps}

*Peak* is the most memory of the whole GPU while the batch ran, by NVML. Every cell holds: no batch that jobkit \
named as safe took more than the GPU of that size has, and 12 workers on 8 GiB, whose contexts alone take \
{contexts:.2f} GiB, are refused before anything runs. One worker under caps of 4, 8 and 16 GiB is in \
[the largest batch](find-max.md#seen-on-an-h200).

## Energy

The plain loop and the setting of the earlier search, in turn, on 15,858 paragraphs. One H200 of a machine with two; \
on the other the sweep of precisions ran. The command reached its time limit during the third repeat; the folder \
has the four points that ended.

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
printed there ([collected.json](../benchmarks/records/precision/collected.json)). In fp16 and tf32 no entity changes, in bf16 \
three lines differ. 16 bits save {half_gib:.1f} GiB of activations at batch size 300. Two repeats show no difference \
in speed. Other batch sizes, and several workers, were not measured.

## Profile

`profile: torch` on a point of one worker and batch size 300. The GPU was busy for 9 % of the first second, nearly all \
of it in the tokenizer's LSTM; the rest is Python. This is why more workers help. The twenty largest costs: \
[profile-gpu.txt](../benchmarks/records/profile-gpu.txt).
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
    kept["model"] = {key: value for key, value in whole["model"].items() if value is not None}
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
    if gain is None or best is None:
        raise ValueError(TUNE)
    shared = _with_and_without_mps(records)
    loop = speeds(tuning.records_of(tuning.loop))
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
        "winner": listed(speeds(tuning.records_of(best))),
        "loop": listed(loop),
        "mps": speeds([shared["on"]])[0] / speeds([shared["off"]])[0],
        "context_on": (shared["on"].memory.context_bytes or 0) / GIB,
        "context_off": (shared["off"].memory.context_bytes or 0) / GIB,
        "start": fmean(_span_s(record) - record.summary.work_s for record in sixteen if record.summary),
        "sixteen": len(sixteen),
    }


def _of_searches(searches: Sequence[Tuning]) -> dict[str, object]:
    """Return what the page says of all searches together."""
    loops = [speeds(one.records_of(one.loop)) for one in searches]
    logs = [math.log(one.gain.mean) for one in searches if one.gain]
    mean, half = fmean(logs), half_width(deviation(logs), len(logs)) or 0.0
    last = [speed for workers in (MOST_WORKERS, 2 * MOST_WORKERS) for speed in _doubled(searches[2], workers)]
    gains = [(one.gain, number) for number, one in enumerate(searches, start=1) if one.gain]
    met = [
        f"search {number} ({gain.mean:.2f} times, {gain.low:.2f} to {gain.high:.2f})"
        for gain, number in gains
        if (gain.low or 0) >= TARGET
    ]
    return {
        "searches": "\n".join(_searches(searches)),
        "met": " and ".join(met).capitalize(),
        "loop_sds": listed([100 * stdev(loop) / fmean(loop) for loop in loops]),
        "together": math.exp(mean),
        "together_low": math.exp(mean - half),
        "together_high": math.exp(mean + half),
        "doubled": last[1] / last[0],
    }


def _doubled(tuning: Tuning, workers: int) -> list[float]:
    """Return the speed of the first point of a search with so many workers."""
    return speeds([one for one in tuning.records("search") if one.point.workers == workers])[:1]


def _searches(searches: Sequence[Tuning]) -> Iterator[str]:
    yield "| search | cores | repeats, text | setting found | times | 95 % interval | J/1,000: loop, found | minutes |"
    yield "|---|--:|---|---|--:|--:|--:|--:|"
    for number, (tuning, machine) in enumerate(zip(searches, MACHINES.values(), strict=True), start=1):
        best, gain = tuning.winner, tuning.gain
        if best and gain:
            found, every = numbers(best.params), numbers(best.params).get(EVERY, 1)
            loop_j, best_j = (per_1000(tuning.records_of(one)) for one in (tuning.loop, best))
            yield (
                f"| {number}: {machine} | {tuning.goal.workers} |"
                f" {best.repeats}, {f'one of {every} paragraphs' if every > 1 else 'whole'} |"
                f" {found[WORKERS]} workers, {found[PADDED_CHARS]:,} padded characters |"
                f" {gain.mean:.2f} | {gain.low:.2f} to {gain.high:.2f} | {loop_j:.0f}, {best_j:.0f} |"
                f" {_minutes([result.record for _, result in tuning.results if result.record]):.1f} |"
            )


def _with_and_without_mps(records: Sequence[Record]) -> dict[str | None, Record]:
    """Return of the search the point without MPS and the one of the same setting with it."""
    searched = [one for one in records if one.point.phase == "search" and one.point.workers == MOST_WORKERS]
    [without] = [record for record in searched if record.mps == "off"]
    same = {**without.point.params, "mps": "auto"}
    return {record.mps: record for record in searched if record is without or record.point.params == same}


def _span_s(record: Record) -> float:
    return worker_s(record) or 0.0


def _minutes(records: Sequence[Record]) -> float:
    began = min(record.started_at or "" for record in records)
    ended = max(record.ended_at or "" for record in records)
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds() / 60


def listed(values: Sequence[float], style: str = ",.0f") -> str:
    """Return numbers in a sentence."""
    *first, last = (f"{value:{style}}" for value in values)
    return f"{', '.join(first)} and {last}"


def _of_corpus(tuning: Tuning) -> dict[str, object]:
    """Return what the page says of the corpus."""
    whole = json.loads((CORPUS / "provenance.json").read_text(encoding="utf-8"))
    time, energy, shards = whole["time"], whole["energy"], read(CORPUS)
    starts = [(record.load_s or 0) + (record.warm_up_s or 0) for record in shards]
    best = tuning.winner
    tuned = tuning.records_of(best) if best else []
    speed = sum(one.summary.items for one in shards if one.summary) / time["work_s"]
    return {
        "corpus_paragraphs": whole["corpus"]["paragraphs"],
        "corpus_mib": sum(one["size_bytes"] for one in whole["corpus"]["files"]) / 2**20,
        "tune_run": SECOND.name,
        "predicted": time["predicted_s"],
        "predicted_low": time["predicted_low_s"],
        "predicted_high": time["predicted_high_s"],
        "took": time["took_s"],
        "time_off": 100 * (time["took_s"] / time["predicted_s"] - 1),
        "predicted_j": energy["predicted_j"],
        "joules": energy["joules"],
        "corpus_work": time["work_s"],
        "corpus_start": fmean(starts),
        "corpus_import": max(record.import_s or 0 for record in shards),
        "corpus_speed": speed,
        "tuned_speed": fmean(speeds(tuned)),
        "corpus_share": speed / fmean(speeds(tuned)),
        "rss_tuned": max(one.memory.rss_peak_bytes or 0 for one in tuned) / GIB,
        "rss_corpus": max(one.memory.rss_peak_bytes or 0 for one in shards) / GIB,
        "shard_paragraphs": max(one.summary.items for one in shards if one.summary),
        "rows": whole["rows"],
    }


def _of_caps() -> dict[str, object]:
    """Return the table of the caps, and what the contexts of the most workers take."""
    runs = {(w, mps): next(group("caps").glob(f"caps-{w}-{mps}-2*")) for w, mps in CAPPED}
    lines = [
        "| workers | MPS | GPU | largest safe batch | for each allocator | needed, of each | peak of the GPU |",
        "|--:|---|--:|--:|--:|--:|--:|",
    ]
    contexts = 0.0
    for (workers, mps), run in runs.items():
        context = max(record.memory.context_bytes or 0 for record in read(run)) / GIB
        contexts = max(contexts, workers * context)
        lines.extend(
            f"| {workers} | {mps} | {cap} GiB | {_cell(run, (cap - workers * context) / workers)}"
            for cap in CAPS_GIB
        )
    return {"caps": "\n".join(lines), "contexts": contexts}


def _cell(run: Path, share_gib: float) -> str:
    """Return of a run what was tried within a share of the GPU for each allocator, and what it took."""
    trials = [
        trial
        for trial in map(json.loads, (run / "trials.jsonl").read_text(encoding="utf-8").splitlines())
        if trial["outcome"] and 0 <= share_gib - trial["capacity_bytes"] / GIB < CLOSE_GIB
    ]
    if not trials:
        return "0: refused | | | |"
    [trial] = trials
    [record] = [one for one in read(run) if one.point.index == trial["index"]]
    peak = (record.memory.device_peak_bytes or 0) / GIB
    return (
        f"{trial['batch_size']} | {trial['capacity_bytes'] / GIB:.2f} GiB | {trial['measured_bytes'] / GIB:.2f} GiB"
        f" | {peak:.2f} GiB |"
    )


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
    text = (RECORDS / "precision" / "collected.json").read_text(encoding="utf-8")
    yield "| precision | entities | differ | F1 with fp32 |"
    yield "|---|--:|--:|--:|"
    for size in json.loads(text)["sizes"]:
        yield f"| {size['precision']} | {size['entities']:,.0f} | {size['differ']:.0f} | {size['f1']:.4f} |"


def answer() -> str:
    """Return what ``jobkit tune`` prints of the search, but for its first line and the lines to paste."""
    text = as_text(TUNE, read_tuning(TUNE))
    return text.split("\n\n", maxsplit=1)[1].split("\n\nIn a spec", maxsplit=1)[0]


def page() -> str:
    """Return the page."""
    tuning = read_tuning(TUNE)
    found = {
        **_of_tune(tuning, read(TUNE)),
        **_of_corpus(read_tuning(SECOND)),
        **_of_caps(),
        **_of_energy(read(ENERGY)),
        **_of_precision(read(PRECISION)),
        **_of_searches([read_tuning(TUNE.parent / run) for run in MACHINES]),
    }
    return PAGE.format(answer=answer(), **found)


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - a script prints
