"""``jobkit apply`` next to datatrove's local executor: the overhead of a shard, and a kill in one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.row import Row
from benchmarks.submission import peer
from benchmarks.timing import JOBKIT, once
from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning.sample import sample_text
from jobkit.worker.workloads.count import Count

TITLE = "A corpus: jobkit apply next to datatrove"
FILES = 8
DOCUMENTS = 250
"""Of each file; of ten paragraphs each."""
COPIES = 20
"""How often a document holds its paragraphs: a shard takes seconds."""
RUNS = 3
SPEC = """\
name: corpus
workload: count
sweep: {batch_size: [32]}
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:10:00"}
scheduler: local
"""
Key = tuple[str, int]


def measure(folder: Path) -> list[Row]:
    """Return the time of a shard beyond the work itself, and what a kill leaves."""
    write_corpus(folder)
    expected = Counter(work(folder))
    times: dict[str, list[float]] = {"work": [], "jobkit": [], "datatrove": []}
    for turn in range(RUNS):
        start = time.perf_counter()
        sum(1 for _ in work(folder))
        times["work"].append(time.perf_counter() - start)
        times["jobkit"].append(once(apply(folder, f"calm-{turn}"), cwd=folder).wall_s)
        trove = folder / f"trove-{turn}"
        link_corpus(folder, trove)
        times["datatrove"].append(once(peer("with_datatrove", "run", trove, FILES, 1)).wall_s)
    middle = {name: median(values) for name, values in times.items()}
    raw: dict[str, object] = {"seconds": times, "shards": FILES, "paragraphs": expected.total()}
    return [
        Row(what="the work alone, in one process", shown=f"{middle['work']:.1f} s", raw=raw),
        *(
            Row(
                what=f"{name}: beyond that, for each of {FILES} shards",
                shown=f"{(middle[name] - middle['work']) / FILES:.2f} s",
            )
            for name in ("jobkit", "datatrove")
        ),
        *killed_jobkit(folder, expected),
        *killed_datatrove(folder, expected),
    ]


def write_corpus(folder: Path) -> None:
    """Write the files and the spec."""
    (folder / "corpus").mkdir()
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    paragraphs = split_paragraphs(sample_text(DOCUMENTS * 10))
    for number in range(FILES):
        lines = []
        for document in range(DOCUMENTS):
            text = "\n".join(paragraphs[document * 10 : document * 10 + 10] * COPIES)
            lines.append(json.dumps({"id": f"{number}-{document}", "text": text}) + "\n")
        (folder / "corpus" / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")


def link_corpus(folder: Path, other: Path) -> None:
    """Give datatrove a folder of its own with the same corpus."""
    other.mkdir()
    (other / "corpus").symlink_to(folder / "corpus")


def work(folder: Path) -> Iterator[Key]:
    """Do the work in this process: yield each paragraph once its words are counted."""
    workload = Count()
    for path in sorted((folder / "corpus").iterdir()):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                document = json.loads(line)
                for number, paragraph in enumerate(split_paragraphs(document["text"])):
                    workload.process([paragraph])
                    yield document["id"], number


def apply(folder: Path, out: str) -> list[str]:
    """Return the command that works through the corpus here."""
    argv = ["apply", "spec.yaml", "--corpus", str(folder / "corpus"), "--out", out, "--shards", str(FILES)]
    return [*JOBKIT, *argv]


def kill_halfway(argv: Sequence[str], folder: Path, outputs: str, cwd: Path | None = None) -> None:
    """Start a command, and kill all its processes once half of its outputs, a pattern, exist."""
    process = subprocess.Popen(  # noqa: S603 - our own commands
        argv, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and len(list(folder.glob(outputs))) < FILES // 2:
        time.sleep(0.005)
    for pid in [*descendants(process.pid), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return the processes below one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for word in task.read_text(encoding="ascii").split():
            found += [*descendants(int(word)), int(word)]
    return found


def keys(path: Path) -> Iterator[Key | None]:
    """Yield the document and number of each row; ``None`` for a line that was cut."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                yield None
            else:
                yield row["document"], row["paragraph"]


def killed_jobkit(folder: Path, expected: Counter[Key]) -> list[Row]:
    """Kill jobkit with all its processes halfway, look, and type the same command again."""
    kill_halfway(apply(folder, "killed"), folder, "killed/winners/*.json", cwd=folder)
    out = folder / "killed"
    refused = subprocess.run([*JOBKIT, "merge", str(out)], capture_output=True, text=True, check=False)  # noqa: S603
    winners = len(list(out.glob("winners/*.json")))
    again = once(apply(folder, "killed"), cwd=folder)
    once([*JOBKIT, "merge", str(out), "--output", str(folder / "killed.jsonl")])
    found = Counter(keys(folder / "killed.jsonl"))
    tries = len(list(out.glob("results/*/try-*")))
    raw: dict[str, object] = {
        "shards_done_at_the_kill": winners,
        "merge_after_the_kill": refused.stderr,
        "merge_status": refused.returncode,
        "tries": tries,
        "again_s": again.wall_s,
    }
    return [
        Row(
            what="jobkit, killed halfway: what `jobkit merge` gives",
            shown="refused, with the missing shards" if refused.returncode else "**rows**",
            raw=raw,
        ),
        _after("jobkit, the same command again", found, expected),
    ]


def _after(what: str, found: Counter[Key | None], expected: Counter[Key]) -> Row:
    lost, doubled = (expected - found).total(), (found - expected).total()  # type: ignore[operator]
    raw: dict[str, object] = {"lost": lost, "doubled_or_cut": doubled}
    return Row(what=f"{what}: rows lost, rows twice or cut", shown=f"{lost:,}, {doubled:,}", raw=raw)


def killed_datatrove(folder: Path, expected: Counter[Key]) -> list[Row]:
    """Kill datatrove with all its processes halfway, look, and run it again, also with fewer tasks."""
    rows: list[Row] = []
    for tasks, what in ((FILES, "with as many tasks"), (FILES // 2, "with half as many tasks")):
        place = folder / f"trove-{tasks}-tasks"
        link_corpus(folder, place)
        argv = peer("with_datatrove", "run", place, FILES, 1)
        kill_halfway(argv, place, "trove/*")
        if not rows:
            rows.append(_left(place))
        again = peer("with_datatrove", "run", place, tasks, 1)
        subprocess.run(again, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        found = Counter(key for path in (place / "trove").iterdir() for key in keys(path))
        rows.append(_after(f"datatrove, run again {what}", found, expected))
    return rows


def _left(place: Path) -> Row:
    """Return what a kill leaves in datatrove's output folder."""
    files = sorted((place / "trove").iterdir())
    done = len(list((place / "log" / "completions").iterdir()))
    cut = sum(None in set(keys(path)) for path in files)
    raw: dict[str, object] = {"files": len(files), "completed": done, "files_that_end_in_a_cut_line": cut}
    return Row(
        what="datatrove, killed halfway: files under their final names, of these completed",
        shown=f"{len(files)}, {done}",
        raw=raw,
    )


if __name__ == "__main__":
    sys.exit("python -m benchmarks apply")
