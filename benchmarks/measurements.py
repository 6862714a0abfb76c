"""The tables of docs/measurements.md, made from benchmarks/records.

``python -m benchmarks.measurements`` writes each table into the page: between a line that names it,
``<!-- table: NAME -->``, and the next ``<!-- to here -->``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from benchmarks.archives import RECORDS, group
from benchmarks.raw import table
from jobkit.answers.setting import Mean, Ratio, key_of
from jobkit.core.blocks import as_text
from jobkit.core.json_codec import from_json
from jobkit.core.knobs import BATCH_SIZE, EXACT, ORDER, PADDED, WORKERS, numbers
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Record
from jobkit.core.student import deviation, half_width
from jobkit.core.terminal import shell_path
from jobkit.core.units import GIB, MIB
from jobkit.extensions.tune.answer import blocks
from jobkit.extensions.tune.goal import whole
from jobkit.extensions.tune.search import Tuning
from jobkit.runs.results import read_run
from jobkit.runs.trials import Trial, trials
from jobkit.setup.check_workload import line_of

PAGE = Path(__file__).parents[1] / "docs" / "measurements.md"
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- to here -->\n)", re.DOTALL)


def read(run: Path) -> list[Record]:
    """Return the records of a run, in the order in which they began."""
    paths = run.glob("results/*/try-*/record.json")
    found = [from_json(Record, path.read_text(encoding="utf-8"), where=str(path)) for path in paths]
    return sorted(found, key=lambda record: record.started_at or "")


def read_json(name: str) -> Any:  # noqa: ANN401 - of a file
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def speeds(records: Iterable[Record]) -> list[float]:
    """Return the paragraphs a second of some points."""
    return [record.summary.items_per_s or 0.0 for record in records if record.summary]


def seconds_between(began: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


def ends(values: Iterable[float], style: str) -> str:
    """Return the least and the largest value, or one value if both print the same."""
    found = sorted(values)
    return " to ".join(dict.fromkeys(f"{value:{style}}" for value in (found[0], found[-1]))) if found else ""


# -- searches

TUNE, SHORTCUTS = group("tune"), group("shortcuts")
SEARCHES = {
    "tune-20261122-180438-5f62": "one H200",
    "tune-20261122-213355-f020": "half of two H200s, other busy",
    "tune-20261123-042039-9490": "two H200s, one idle",
    "tune-20261123-074302-a544": "half of two H200s, other idle",
    "tune-20261123-075119-ff54": "the same",
    "tune-20261123-101748-667c": "half of two H200s, other idle",
}
"""Where each search without shortcuts ran."""
SEARCH = SHORTCUTS / "tune-20261125-020320-8e68"
"""The search that docs/tune.md shows."""
SHORTCUT_SEARCHES = {
    SHORTCUTS / "tune-20261125-015158-5925": "one H200, shortcuts",
    SEARCH: "another H200, shortcuts",
}
"""Where each search with shortcuts ran: a new one is a line here."""
SHORT = ("newest-150s", "next-to-newest-320s", "vectors-last-90s", "entities-fp32-90s", "entities-bf16-90s")
"""The latest searches with short budgets, and the long one next to the first."""


def searches() -> str:
    """Return the table of all searches, without shortcuts and with them."""
    heads = ("search on", "CPUs", "workers, size", "times the loop", "J: loop, found", "minutes")
    logs = [math.log(_gain(Tuning.read(TUNE / run)).mean) for run in SEARCHES]
    mean, half = fmean(logs), half_width(deviation(logs), len(logs)) or 0.0
    low, high = math.exp(mean - half), math.exp(mean + half)
    return table(
        heads,
        [
            *(_search(machine, TUNE / run) for run, machine in SEARCHES.items()),
            ("mean", "", "", f"{math.exp(mean):.1f} ({low:.1f} to {high:.1f})", "", ""),
            *shortcut_searches(),
        ],
    )


def shortcut_searches() -> list[tuple[str, ...]]:
    """Return a row for each search with shortcuts."""
    return [_search(machine, run) for run, machine in SHORTCUT_SEARCHES.items()]


def _search(machine: str, run: Path) -> tuple[str, ...]:
    tuning = Tuning.read(run)
    both = [speed for speed in (tuning.finals.plain, tuning.winner) if speed]
    joules = [_per_1000(tuning.finals.setting(speed).points) for speed in both]
    records = [result.record for _, result in tuning.results if result.record]
    began = min(record.started_at or "" for record in records)
    ended = max(record.ended_at or "" for record in records)
    return (
        machine,
        str(tuning.goal.workers),
        _setting(tuning),
        _times(_gain(tuning), ".1f"),
        ", ".join(f"{one:.0f}" for one in joules),
        f"{seconds_between(began, ended) / 60:.1f}",
    )


def short_searches() -> str:
    """Return the table of searches with short budgets; seconds are those from the submission to the end."""
    rows = []
    for run in (group("tune-short") / name for name in SHORT):
        tuning = Tuning.read(run)
        sent = min(line["at"] for line in read_lines(run / "journal.jsonl") if line["event"] == "submitted")
        ended = max(one.record.ended_at or "" for _, one in tuning.results if one.record)
        settings = {key_of(whole(one.params)) for one, _ in tuning.results}
        rate = tuning.winner.rate if tuning.winner else 0.0
        rows.append(
            (
                f"{tuning.goal.budget_s:.0f}",
                f"{seconds_between(sent, ended):.0f}",
                len(settings),
                _setting(tuning),
                f"{rate:,.0f}",
                _times(_gain(tuning), ".1f"),
            )
        )
    heads = ("`tune.budget`", "seconds", "settings", "workers, size", "paragraphs/s", "times the loop")
    return table(heads, rows)


def _setting(tuning: Tuning) -> str:
    """Return the workers and the padded characters that a search found."""
    found = numbers(tuning.winner.params) if tuning.winner else {}
    return f"{found[WORKERS]}, {found[PADDED]:,}"


def _gain(tuning: Tuning) -> Ratio:
    if tuning.gain is None:
        raise ValueError(tuning.goal)
    return tuning.gain


def _times(ratio: Ratio, style: str) -> str:
    return f"{ratio.mean:{style}} ({ratio.low:{style}} to {ratio.high:{style}})"


def _per_1000(records: Sequence[Record]) -> float:
    """Return the mean joules for 1,000 paragraphs."""
    return fmean(
        1000 * (record.energy.counter_j or 0) / record.summary.items
        for record in records
        if record.energy and record.summary
    )


def answer() -> str:
    """Return what `jobkit tune` prints of the search of docs/tune.md."""
    lines = as_text(blocks(SEARCH, Tuning.read(SEARCH)), 118).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("phase"))
    last = next(number for number, line in enumerate(lines) if line.startswith("In a spec"))
    return "\n".join(lines[first:last]).rstrip().replace(shell_path(SEARCH.parent), "runs")


def corpora() -> str:
    """Return the table of corpora: the time that was predicted, and the time that it took."""
    rows = []
    tagged = {"16 workers": group("apply"), "16 workers, shortcuts": SHORTCUTS}
    for setting, run in ((setting, folder / "tagged") for setting, folder in tagged.items()):
        provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
        time = provenance["time"]
        items = sum(one.summary.items for one in read(run) if one.summary)
        rows.append(
            (
                setting,
                f"{provenance['corpus']['paragraphs']:,}",
                f"{time['predicted_s']:.0f} s",
                f"{time['predicted_low_s']:.0f} to {time['predicted_high_s']:.0f} s",
                f"{time['took_s']:.0f} s",
                f"{items / time['work_s']:,.0f}",
            )
        )
    return table(("setting", "paragraphs", "predicted", "95 % interval", "took", "paragraphs/s"), rows)


# -- workers and GPUs


def grid() -> str:
    """Return the table of 44 settings: a row for each number of workers, a column for each other knob."""
    records = {
        (point.workers, record.mps or "", str(point.params[ORDER]), numbers(point.params)[PADDED]): record
        for run in group("grid").glob("grid-*")
        for record in read(run)
        for point in (record.point,)
    }
    cuts = (("sorted", 15_000), ("sorted", 60_000), ("sorted", 240_000), ("text", 60_000))
    columns = [(mps, order, size) for mps in ("off", "on") for order, size in cuts]
    heads = [f"{mps}, {size:,}{', text' * (order == 'text')}" for mps, order, size in columns]
    rows = []
    for workers in sorted({cell[0] for cell in records}):
        cells = (records.get((workers, *column)) for column in columns)
        rows.append((workers, *(f"{speeds([record])[0]:,.0f}" if record else "" for record in cells)))
    return table(("workers", *heads), rows)


def two_gpus() -> str:
    """Return the table of points with two GPUs, compared with one."""
    both_of = {"12": "gpus", "16, half of the cores": "20261122", "8": "gpus8", "12, twice the text": "long"}
    both_of |= {"12, half of the cores": "20261123", "12, the same text": "exp", "12, again": "cores"}
    ratios, rows = [], list[tuple[object, ...]]()
    for what, name in both_of.items():
        if name.isdecimal():  # the day on which points with one GPU had half of the cores
            one, two = _of_day("one", name), _of_day("two", name)
        else:
            one, two = _by_gpus(next(group("gpus").glob(f"{name}-2*")))
        ratios.append(Mean.of(speeds(two)).over(Mean.of(speeds(one))))
        rows.append((what, len(two), _times(ratios[-1], ".2f")))
    rows.append(("mean", "", f"{geometric_mean(ratio.mean for ratio in ratios):.2f}"))
    apart = [speed for name in ("left", "right") for speed in speeds(_of_day(name, "20261123"))]
    together = sum(apart) / fmean(speeds(_of_day("one", "20261123")))
    rows.append(("12, two points at once", 1, f"{together:.2f}"))
    return table(("workers on each GPU", "repeats", "times one GPU, 95 % interval"), rows)


def _by_gpus(run: Path) -> tuple[list[Record], list[Record]]:
    """Return the records of a run with one GPU and with two, all with calls of one size."""
    usual = (68, 120_000)
    records = [one for one in read(run) if (one.point.work_unit, one.point.params[PADDED]) == usual]
    one, two = ([record for record in records if record.point.gpus == gpus] for gpus in (1, 2))
    return one, two


def _of_day(name: str, day: str) -> list[Record]:
    """Return the records of the runs of this name and a number, of a day."""
    runs = sorted(group("gpus").glob(f"{name}?-{day}*"))
    return [record for run in runs for record in read(run)]


def cpu() -> str:
    """Return the table of workers and threads on a CPU, compared with as many workers on a GPU."""
    on_cpu, on_gpu = (
        {
            (record.point.workers, record.point.threads): speeds([record])[0]
            for record in read(next(group("cpu").glob(f"{name}-2*")))
        }
        for name in ("cpu", "gpu")
    )
    rows = []
    for setting, speed in sorted(on_cpu.items()):
        other = on_gpu.get(setting)
        compared = (f"{other:,.0f}", f"{other / speed:.1f}") if other else ("", "")
        rows.append((*setting, f"{speed:.1f}", *compared))
    heads = ("workers", "threads of each", "CPU: paragraphs/s", "GPU: paragraphs/s", "GPU, times the CPU")
    return table(heads, rows)


# -- shortcuts, encoders, precision

STAGES = {
    "the text, and its features": (
        "tokenization/data.py",
        "Features",
        "ArrayTokenizer.cut",
        "ArrayTokenizer._predict",
    ),
    "tokens and sentences": (
        "tokenization/utils",
        "tokenization/vocab",
        "tokenize_processor",
        "ArrayTokenizer",
        "pieces",
    ),
    "objects for them": ("common/doc.py", "stanza_ner.py"),
    "batches of the tagger": (
        "common/data.py",
        "ner/data.py",
        "common/vocab.py",
        "get_repr",
        "_ids",
        "_batch",
        "ranges",
    ),
    "tags and entities": ("_on_gpu", "best_paths", "decode", "predict", "entities", "ArrayTagger"),
}
"""The parts of a paragraph's time in Python, and what the place of a line has in it; the first one counts."""


def where() -> str:
    """Return the table of where the CPU time of a paragraph goes, before and now."""
    both = read_json("shortcuts/where.json")["profile"]
    columns = [_stages(one["where_ms"]) for one in both]
    for one, column in zip(both, columns, strict=True):
        column["the networks' launches, waiting, all else"] = one["cpu_ms"] - sum(column.values())
        column["all"] = one["cpu_ms"]
    rows = [(stage, *(f"{column[stage]:.3f}" for column in columns)) for stage in columns[0]]
    return table(("ms of CPU a paragraph", "4e7b24bd", "now"), rows)


def _stages(lines: dict[str, float]) -> dict[str, float]:
    found = dict.fromkeys(STAGES, 0.0)
    for line, spent in lines.items():
        stage = next((name for name, parts in STAGES.items() if any(part in line for part in parts)), None)
        if stage:
            found[stage] += spent
    return found


def sides() -> str:
    """Return the table of two builds in one command on one card, of several machines: least to most."""
    rows, found = [], read_json("shortcuts/where.json")["sides"]
    for cores in sorted({one["cores"] for one in found}):
        machines = sorted({one["machine"] for one in found})
        loops, olds, news = (
            [_side(found, machine, cores, way) for machine in machines]
            for way in ("loop", "4e7b24bd", "arrays")
        )
        ratios = [after / before for before, after in zip(chain(*olds), chain(*news), strict=True)]
        times = [fmean(new) / fmean(loop) for loop, new in zip(loops, news, strict=True) if loop]
        shown = (ends(chain(*values), ",.0f") for values in (loops, olds, news))
        rows.append((cores, *shown, ends(ratios, ".2f"), ends(times, ".0f")))
    return table(("CPUs, workers", "the loop", "4e7b24bd", "now", "ratio", "times the loop"), rows)


def _side(found: Iterable[dict[str, Any]], *key: object) -> list[float]:
    """Return the speeds of a build on a machine with so many cores."""
    return [one["paragraphs_per_s"] for one in found if (one["machine"], one["cores"], one["way"]) == key]


def garbage() -> str:
    """Return the table of seconds and memory with Python's collector, and with one between calls."""
    rows = [
        (
            row["work"],
            *(f"{one:.0f} s" for one in row["seconds"]),
            *(f"{one / MIB:,.0f} MiB" for one in row["peak_bytes"]),
        )
        for row in read_json("shortcuts/garbage.json")
    ]
    return table(("work", "Python's collector", "between calls", "peak memory", "between calls"), rows)


def encoders() -> str:
    """Return the speeds on an H100: of the library the fastest in fp32, of a script its best budget."""
    names = {"hf-token-classification": "bert-base", "sentence-embedding": "MiniLM-L6"}
    rows, library = [], dict[str, float]()
    for cell in read_json("encoders-h100.json")["cells"]:
        if cell["precision"] == "tf32":
            continue
        best = {row["way"]: row for row in sorted(cell["rows"], key=lambda row: row["paragraphs_per_s"])}
        name = names[cell["workload"]]
        if "library" in best:
            library[name] = best["library"]["paragraphs_per_s"]
        found = (library[name], best["hand"]["paragraphs_per_s"], best["jobkit"]["paragraphs_per_s"])
        figures = (*found, best["jobkit"]["tokens_per_s"])
        rows.append((f"{name} {cell['precision']}", *(f"{one:,.0f}" for one in figures)))
    return table(("a second", "library, fp32", "by hand", "jobkit", "tokens"), rows)


def embedders() -> str:
    """Return the speeds of embedders of 2026 on an H200: of ``encode`` and of jobkit at their best sizes."""
    rows, found = [], read_json("embedders-h200.json")["rows"]
    for name in dict.fromkeys(row["model"] for row in found):
        mine = [row for row in found if row["model"] == name]
        usual = next(row["paragraphs_per_s"] for row in mine if row.get("batch_size") == 32)
        library, jobkit = (
            max(row["paragraphs_per_s"] for row in mine if row["way"] == way) for way in ("library", "jobkit")
        )
        speeds = (f"{speed:,.0f}" for speed in (usual, library, jobkit))
        rows.append((name, *speeds, f"{jobkit / library:.2f}"))
    return table(("a second, bf16", "encode at 32", "at its best", "jobkit", "times"), rows)


def precision() -> str:
    """Return the table of speed, memory, energy and entities for each precision."""
    rows = [
        (
            size["precision"],
            f"{size['items_per_s']:.0f}",
            f"{size['activations_bytes'] / GIB:.2f} GiB",
            f"{size['net_energy_per_1000_j']:.0f}",
            f"{size['differ']:.0f} of {size['entities']:,.0f}",
        )
        for size in read_json("precision/collected.json")["sizes"]
    ]
    heads = ("precision", "paragraphs/s", "activations", "net J for 1,000", "entities that differ")
    return table(heads, rows)


# -- memory


def memory_parts() -> str:
    """Return the table: the parts of the smallest and the largest batch, with each allocator."""
    rows = []
    for run in sorted((RECORDS / "gpu").iterdir()):
        records = read(run)
        sizes = [numbers(record.point.params)[BATCH_SIZE] for record in records]
        for size in (min(sizes), max(sizes)):
            same = [_parts(one.memory) for one, its in zip(records, sizes, strict=True) if its == size]
            means = (f"{fmean(column) / GIB:.2f} GiB" for column in zip(*same, strict=True))
            rows.append(("expandable" if records[0].point.allocator else "default", size, *means))
    heads = ("allocator", "batch size", "context", "weights", "activations", "slack", "process, by NVML")
    return table(heads, rows)


def _parts(memory: MemoryReadings) -> tuple[int, ...]:
    """Return context, weights, activations, what torch reserved beyond its tensors, and all by NVML."""
    slack = (memory.reserved_peak_bytes or 0) - (memory.allocated_peak_bytes or 0)
    known = (memory.context_bytes, memory.weights_bytes, memory.activations_bytes)
    return (*(size or 0 for size in known), slack, memory.process_peak_bytes or 0)


def largest() -> str:
    """Return a line for each batch that was predicted and tried."""
    runs = (*sorted((RECORDS / "find-max").iterdir()), *sorted(SHORTCUTS.glob("largest-*")))
    return "\n".join(
        f"- {trial.capacity_bytes / GIB:g} GiB: {trial.size:,}, {_end(trial)}{_condition(run)}"
        for run in runs
        for trial in trials(run)
    )


def _end(trial: Trial) -> str:
    if trial.measured_bytes is None or trial.error is None:
        return "out of memory"
    needed, expected = trial.measured_bytes / GIB, trial.expected_bytes / GIB
    return f"needed {needed:.2f}, predicted {expected:.2f} ({100 * trial.error:+.1f} %)"


def _condition(run: Path) -> str:
    """Return what a reader must know of a run besides: workers and shortcuts, if it had them."""
    point = read_run(run).points[0].point
    workers = f", each of {point.workers} workers" if point.workers > 1 else ""
    return workers + (", with shortcuts" if point.shortcuts == EXACT else "")


def edge() -> list[dict[str, Any]]:
    """Return the cells of records/edge in which memory limits the batch, with the largest load first."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in (RECORDS / "edge").glob("*.json")]
    reports.sort(key=lambda one: (one["allocator"] == "default", -one["paragraphs"]))
    return [
        {"allocator": report["allocator"], "paragraphs": report["paragraphs"], **cell}
        for report in reports
        for cell in report["cells"]
        if report["order"] == "load" and not cell["saturated"]
    ]


def answers() -> str:
    """Return the table of the largest batch that passes and of jobkit's safe bound, in the longer text."""
    rows = []
    for cell in (cell for cell in edge() if cell["paragraphs"] == 9_999):
        truth, safe = cell["truth"], cell["prediction"]["safe_batch"]
        allocator = "default" if cell["allocator"] == "default" else "expandable"
        rows.append(
            (allocator, f"{cell['cap_gib']:g} GiB", f"{truth:,}", f"{safe:,}", f"{100 * safe / truth:.1f} %")
        )
    return table(("allocator", "limit", "largest that fits", "jobkit's bound", "share"), rows)


def cost() -> str:
    """Return the table of what each search needs: trials, and seconds on the GPU."""
    rows, cells = [], edge()
    for name in ("jobkit", "bisection", "Lightning, binsearch", "Lightning, power"):
        done = [one for cell in cells for one in cell["contenders"] if one["name"] == name]
        counts = (ends((one[key] for one in done), ".0f") for key in ("trials", "out_of_memory"))
        times = (f"{ends((one[key] for one in done), '.0f')} s" for key in ("work_s", "with_starts_s"))
        rows.append((name, *counts, *times))
    return table(("search", "trials", "out of memory", "work", "with a start for each trial"), rows)


def caps() -> str:
    """Return the table of the batches that jobkit named as safe for several workers, and what they needed."""
    rows = []
    for workers in (4, 12):
        run = next(group("caps").glob(f"caps-{workers}-on-2*"))
        records = read(run)
        context = max(record.memory.context_bytes or 0 for record in records) / GIB
        for cap_gib in (8, 16):
            share = (cap_gib - workers * context) / workers
            found = "none: refused", ""
            for trial in read_lines(run / "trials.jsonl"):
                # the limit of an allocator was rounded down to a MiB
                if trial["outcome"] and 0 <= share - trial["capacity_bytes"] / GIB < 0.01:
                    (record,) = (one for one in records if one.point.index == trial["index"])
                    peak = (record.memory.device_peak_bytes or 0) / GIB
                    found = str(trial["batch_size"]), f"{peak:.2f} GiB"
            rows.append((workers, f"{cap_gib} GiB", *found))
    return table(("workers", "GPU", "largest safe batch", "peak of the GPU"), rows)


def workloads() -> str:
    """Return the table of five batch sizes of each workload, and the largest that ``find_max`` then ran."""
    rows = []
    for run in sorted(group("workloads").glob("*-2*")):
        records = [record for record in read(run) if record.summary]
        r2, _ = line_of(*zip(*(_load_and_bytes(one) for one in records if not one.point.trial), strict=True))
        point, last = records[0].point, read_lines(run / "trials.jsonl")[-1]
        expected, needed = last["expected_bytes"] / GIB, last["measured_bytes"] / GIB
        rows.append(
            (
                f"`{point.workload}`, {point.model.architecture if point.model else ''}",
                "H200" if point.device == "cuda" else "CPU",
                f"{r2:.4f}",
                f"{last['capacity_bytes'] / GIB:.0f} GiB",
                f"{last['batch_size']:,}",
                f"{expected:.2f} GiB",
                f"{needed:.2f} GiB",
            )
        )
    heads = ("workload, architecture", "device", "R² of the line", "limit", "largest batch")
    return table((*heads, "predicted", "needed"), rows)


def _load_and_bytes(record: Record) -> tuple[int, int]:
    """Return the largest load of a point and the memory that it needs: of a CPU, the resident memory."""
    if record.needs:
        return record.needs[0].load, record.needs[0].passed_bytes or 0
    return (record.summary.load_max or 0) if record.summary else 0, record.memory.rss_peak_bytes or 0


# -- faults, past jobs, jobkit itself

Report = Mapping[str, Any]
SOAKS: Mapping[str, Mapping[str, Callable[[Report], object]]] = {
    "soak": {
        "points": lambda one: one["points"],
        "killed or broken": lambda one: _counted(one["kills"]),
        "in the end": lambda one: _counted(one["rounds"][-1]),
        "lost, or succeeded twice": lambda one: one["lost_points"] + one["twice"],
    },
    "soak-apply": {
        "shards of a corpus": lambda one: one["shards"],
        "killed or broken": lambda one: _counted(one["kills"]),
        "rows": lambda one: f"{one['rows']:,}",
        "rows lost, or twice": lambda one: one["lost"] + one["doubled"],
        "equal to an undisturbed run": lambda one: "byte for byte" if one["byte_equal"] else "**no**",
    },
}
"""The lines of the table, and what a report of `benchmarks.soak` and `benchmarks.soak_apply` has for each."""


def soaks() -> str:
    """Return the table of a sweep and of a corpus on each scheduler."""
    rows = []
    for name, lines in SOAKS.items():
        reports = read_json(f"{name}.json")
        rows += [(what, *map(cell, reports)) for what, cell in lines.items()]
    return table(("", "Slurm", "Grid Engine"), rows)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in sorted(counts.items(), key=lambda one: -one[1]))


def past_jobs() -> str:
    """Return the table of what `benchmarks.past_jobs_public` found."""
    rules = read_json("past-jobs/public.json")["rules"]
    asked = rules["as asked"]["gib_hours"]
    rows = [
        (
            name,
            f"{100 * each['killed_by_memory'] / each['tasks']:.2f} %",
            f"{each['gib_hours']:,.0f} ({100 * (each['gib_hours'] / asked - 1):+.0f} %)",
            f"{100 * each['killed_by_walltime'] / each['tasks']:.2f} %",
            f"{each['cpu_hours']:,.0f}",
        )
        for name, each in rules.items()
    ]
    return table(("request", "killed for memory", "GiB-hours", "killed by walltime", "CPU-hours"), rows)


SHOWN: Mapping[str, tuple[str, ...]] = {
    "commands": ("`jobkit --help`", "`jobkit sweep --dry-run`"),
    "reading": ("`jobkit collect` of 10,000",),
    "settings": ("`jobkit recommend` of 2,000", "`jobkit report` of 2,000"),
    "overhead-gpu": ("wall time added",),
    "forked-cuda": ("a fresh try", "a forked try"),
    "corpus": ("text, one process", "JSONL", "100 GiB"),
    "apply": ("jobkit: beyond", "datatrove: beyond"),
    "harness": ("jobkit,", "ReFrame,"),
    "requests": ("ten workloads",),
}
"""Of each file of `python -m benchmarks` the rows that the page shows, by their first words."""


def own_speeds() -> Iterator[tuple[str, ...]]:
    """Yield the figures that a user waits for."""
    for name, starts in SHOWN.items():
        raw = read_json(f"{name}.json")
        command = f"`benchmarks {raw['command'].partition('benchmarks')[2].lstrip(' .').split()[0]}`"
        for row in raw["rows"]:
            if row["what"].startswith(starts):
                yield row["what"], row["shown"], row["target"], command


TABLES: Mapping[str, Callable[[], str]] = {
    "searches": searches,
    "short-searches": short_searches,
    "corpora": corpora,
    "grid": grid,
    "two-gpus": two_gpus,
    "cpu": cpu,
    "where": where,
    "sides": sides,
    "embedders": embedders,
    "garbage": garbage,
    "encoders": encoders,
    "precision": precision,
    "memory": memory_parts,
    "largest": largest,
    "answers": answers,
    "cost": cost,
    "caps": caps,
    "workloads": workloads,
    "soaks": soaks,
    "past-jobs": past_jobs,
    "speeds": lambda: table(("what", "measured", "target", "command"), own_speeds()),
}


def written(text: str) -> str:
    """Return the page with all tables as the records have them now."""
    return PLACE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
