# ruff: noqa: E501 - the page's sentences, a line each
"""docs/benchmarks.md, made from the raw data in benchmarks/records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
RAW = Path(__file__).with_name("records")
NAMES = ("commands", "planning", "submission", "reading", "overhead", "forked", "corpus", "apply")
LONG = ("harness", "shards", "replan")
"""`make bench` leaves these out, because they take minutes or need a package of Debian: the page has the
command of each."""

HEAD = """# Benchmarks

How fast jobkit itself is. `make bench` makes this page from the raw data in [benchmarks/records](../benchmarks/records); edit `benchmarks/page.py`, not the page.

The times are from a shared machine with two cores, on which other work ran: they differ by a factor of up to two from hour to hour.
Compare only figures of the same table, which were measured in turn, and check whether a time grows in proportion to the number of points. Times are medians of whole processes, including interpreter start and imports.

The controller is a set of shell scripts on PATH that answer after 5 ms (`benchmarks/controller.py`). So the figures show the cost of the client, not the speed of a cluster. `tests/cluster/` tests jobkit's commands on real schedulers.
"""

WORDS = {
    "submission": "submitit's `map_array` submits one array of any size and asks the controller nothing first. jobkit asks for the limits, the partitions and `--test-only`, writes the run folder, and records each submission on disk before and after it.",
    "reading": "The three clients read the same 1,000 results as Python objects: jobkit's records, submitit's pickles of the same content, signac's (empty) job documents. `jobkit collect` does more: it groups and averages, and pandas alone takes a third of a second to import. The first three lines are the time that a user waits (100,000 records were collected once). jobkit keeps one row of each record, so memory grows with the number of points and not with the size of their folders.",
    "planning": "More points than the controller holds (Slurm's `MaxJobCount`, Grid Engine's `max_jobs` and `max_u_jobs` for the arrays) are refused before jobkit writes or submits anything: `tests/submit/test_sweep.py`.",
    "overhead": "A pair is a pass over the text that makes every call of the tagger twice: once with measuring and once without, first the one and first the other in turn. In a call without measuring, the sampler process is stopped and no line is written. The figure is the median of (time with / time without - 1) over all calls of all pairs. The interval is that of the median, by order statistics, because other work on the machine slows single calls by chance.",
    "corpus": "jobkit reads a corpus once before it submits: SHA-256 of every file and of every piece, UTF-8, paragraphs and their lengths. Speeds are MiB of text (as decompressed) for each second of CPU of the whole process, start and imports included; `sha256sum` is that of GNU coreutils on the same file. The text is jobkit's sample text, JSONL has 20 paragraphs a document.",
    "apply": "Eight files of 250 documents, the words of each paragraph counted, one shard or task a file, one process at a time, three runs in turn. A shard of jobkit is a job of its own: a job script, staging, a record, and the check that its rows are whole; datatrove forks its tasks from one process. datatrove gives a task the files whose number matches its rank and marks ranks as completed: with another number of tasks the marks mean other files, which are then left out. jobkit cuts what has no winner again (`jobkit resume DIR --replan`).",
    "harness": "The same awk command with eight values of a parameter, once each; the programs take turns. hyperfine and pyperf start the command and keep its time. ReFrame and jobkit run a job script for each point; jobkit also copies the inputs, follows memory and leaves a record, so a point costs more than with ReFrame. A negative figure is scatter. `apt install hyperfine`; the others are in the extra `bench`.",
    "forked": "A pair is the same try twice, once forked from a process that had imported the framework and once in a fresh process, in turn. Its time is that of the whole command `python -m jobkit.run`. A fork saves the start of Python and the import of jobkit, torch and Stanza; the first forked try waits for the parent to import them. Loading includes the CUDA context on a GPU.",
    "replan": "The tiny stand-in on the CPU. Once nothing disturbs the corpus; once it is stopped after its first shard and the rest is cut into shards of another size. Then sentences meet other sentences in their batches, and sums may round differently. A text on a GPU, of which each paragraph comes 600 times in other batches: [a corpus](benchmarks-tune.md#a-corpus-with-that-setting).",
    "shards": "One process, or two and their supervisor, go through one shard of generated text, `order: sorted` in windows of 10,000 paragraphs (of the tagger 1,000). The memory is the largest of all processes of the try together, its sampler included, in a quarter of the work; pages that processes share count once. The speed is that of a machine on which other work ran.",
}


def text() -> str:
    """Return the page."""
    sections = [
        _section(path, json.loads(path.read_text(encoding="utf-8")), "" if number else WORDS.get(name, ""))
        for name in (*NAMES, *LONG)
        for number, path in enumerate(sorted(RAW.glob(f"{name}*.json")))
    ]
    return "\n".join([HEAD, *sections])


def _section(path: Path, raw: dict[str, Any], words: str) -> str:
    machine = raw["machine"]
    where = f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, Python {machine['python']}, load {machine['load_1min']:.1f} at the start"
    lines = [
        f"## {raw['title']}",
        "",
        *([words, ""] if words else []),
        "| what | measured | target | met |",
        "|---|--:|--:|---|",
        *(_row(row) for row in raw["rows"]),
        "",
        f"`{raw['command']}`, {raw['date']}, {where}. Raw data: [{path.name}](../benchmarks/records/{path.name}).",
        "",
    ]
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    met = {None: "", True: "yes", False: "**no**"}[row["met"]]
    return f"| {row['what']} | {row['shown']} | {row['target']} | {met} |"
