"""Hostile files, specs and records, and the commands that read them: each ends within seconds, with no bug.

``python -m benchmarks.hostile --seed 1 --cases 2000`` prints how many cases there were, the slowest, and
every case that crashed or blocked. `--first NUMBER --cases 1` runs a case again.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.commands import jobkit

RUNS = Path(__file__).parents[1] / "tests" / "golden" / "runs"
MOST_CPU_S, MOST_S = 10, 60
MOST_BYTES = 12 * 2**30
WRONG: list[Any] = [
    *(None, True, -1, 0, 10**30, 1.5, float("nan"), float("inf"), "", "auto", "x", "\x01", "a b\nc", "a\0b"),
    *("/dev/zero", "fifo", "\u202e", [], [[]], [1], ["a"], [None], ["auto", 5], {}, {"a": 1}, {1: 2}),
    *({"a": {"b": [1]}}, [{"a": 1}], {"command": {"a": 1}}, {None: 1}, {True: []}),
]
"""Values that a key of a spec may get."""
NUMBERS = ["NaN", "-Infinity", "1e999", "1" * 400, "1" * 30, "-1", "1e300", "0", "1.5"]
TEXTS = [
    '"abc"',
    '""',
    '"\\u0000"',
    '"\\ud800"',
    '"a\\nb"',
    "null",
    "true",
    "[]",
    "{}",
    "[[1]]",
    '{"a": 1}',
    '"NaN"',
]
DEEP = "[" * 100_000 + "]" * 100_000
READING = [
    "status",
    "status --json",
    "collect",
    "collect --format json",
    "recommend --json",
    "report",
    "waste",
]
"""Commands that read a run."""
FILES = [
    *(
        "lint {}",
        "doctor {}",
        "sweep {} --dry-run",
        "collect {}",
        "report {run} --dcgm {}",
        "preflight {} --fast",
    ),
    *("sweep ok.yaml --dry-run --set text={}", "sweep ok.yaml --dry-run --set template={}"),
    *("sweep ok.yaml --dry-run --site ./{}.yaml", "sweep ok.yaml --dry-run --setting {}", "recommend {}"),
    *("sweep ok.yaml --dry-run --set workload=./{}.py:f", "apply {run} --corpus {} --out tagged --dry-run"),
    *(
        "workload check ./{}.py:f",
        "merge {}",
        "compare {} {}",
        "status {}",
        "tune {} --dry-run",
    ),
]
"""Commands to which a person names a file."""


def keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every key of a spec or a site file, with those that it is nested in."""
    for name, field in model.model_fields.items():
        yield (*above, name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys(kind, (*above, name))


OWN = [
    ("sweep", "batch_size"),
    ("sweep", "zip", "workers"),
    ("workload", "files"),
    ("constraints", "f1", "min"),
]
OWN += [
    ("workload", "command"),
    ("workload", "metrics", "f1"),
    ("environment", "variables", "A"),
    ("sweep", "x"),
]
SPEC_KEYS, SITE_KEYS = [*keys(SweepSpec), *OWN], [*keys(Site)]


def spec_with(key: Sequence[str], value: object) -> str:
    """Return a spec, or a site file, whose key has a value."""
    data: dict[str, Any] = {"name": "t", "text": "text", "workload": "count", "scheduler": "local"}
    part = data
    for name in key[:-1]:
        known = part.get(name)
        part[name] = (
            known if isinstance(known, dict) else {"command": "wc {text}"} if name == "workload" else {}
        )
        part = part[name]
    part[key[-1]] = value
    return yaml.safe_dump(data, allow_unicode=True)


def damaged(text: str, chance: random.Random) -> bytes:
    """Return the text of a file of a run with a hostile value in it, or as no program writes it."""
    way, lines = chance.randrange(12), text.splitlines() or [""]
    line = lines[number := chance.randrange(len(lines))]
    if way > len(TORN) - 1 and line.startswith("{"):
        begin = chance.choice([at for at in range(len(line)) if line[at : at + 2] in {": ", ", "}] or [0]) + 2
        end = next((at for at in range(begin, len(line)) if line[at] in ",}]"), len(line))
        lines[number] = line[:begin] + chance.choice(NUMBERS + TEXTS) + line[end:]
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    torn = [*TORN, text.encode()[: len(text) // 2], b"\xff\xfe\0" + text.encode()]
    return torn[way % len(torn)]


TORN = [DEEP.encode(), b"", b"\0" * 100, b'{"a": ' * 9_000, b"[]\n" * 9]


def make_file(path: Path, chance: random.Random) -> None:
    """Make what a person may name in place of a file."""
    script = "#!/bin/bash\n#SBATCH --time=" + "9" * 5000 + "\n#$ -pe \x01 x\n#SBATCH --array=1-99999999999\n"
    contents = [
        chance.randbytes(5_000),
        DEEP.encode(),
        script.encode(),
        b"a: &a [*a]\n? {x: [}\n",
        b"\xe9 \x1b\n\n",
    ]
    make: Any = chance.choice([os.mkfifo, os.mkdir, "/dev/zero", path, SPARSE_BYTES, *contents])
    if callable(make):
        make(path)
    elif isinstance(make, str | Path):
        path.symlink_to(make)
    elif isinstance(make, int):
        path.touch()
        os.truncate(path, make)
    else:
        path.write_bytes(make)


SPARSE_BYTES = 2**29
"""Of a file that is larger than what any command reads whole, and holds nothing."""


@contextmanager
def limit() -> Iterator[None]:
    """End what takes longer than `MOST_CPU_S` of CPU, or than `MOST_S`: then it blocks."""

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    timers = {signal.SIGALRM: (signal.ITIMER_REAL, MOST_S), signal.SIGPROF: (signal.ITIMER_PROF, MOST_CPU_S)}
    before = {number: signal.signal(number, ring) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def fault(words: Sequence[str], folder: Path) -> str:
    """Run a command; return what is wrong with its end, empty if nothing is."""
    try:
        with limit():
            done = jobkit(*words, cwd=folder)
    except BaseException as error:  # noqa: BLE001 - also what no command catches is a fault
        return f"{type(error).__name__}: {error}"
    bad = (
        done.returncode not in {0, 2, 3, 4, 5} or "a bug, sorry" in done.stderr or "Traceback" in done.stderr
    )
    return done.stderr[-300:] if bad else ""


def run_case(seed: int, number: int, folder: Path) -> Iterator[tuple[list[str], str]]:
    """Make a case; yield each of its commands with its fault."""
    chance = random.Random(f"{seed} {number}")  # noqa: S311 - to be made again
    (folder / "text").write_text("a b\n\nc d\n", encoding="utf-8")
    (folder / "ok.yaml").write_text(spec_with(["repeats"], 1), encoding="utf-8")
    run = shutil.copytree(chance.choice(sorted(RUNS.iterdir())), folder / "run")
    if number % 3 == 0:
        site = chance.random() < 0.2
        text = spec_with(chance.choice(SITE_KEYS if site else SPEC_KEYS), chance.choice(WRONG))
        (folder / "spec.yaml").write_text(text, encoding="utf-8")
        spec = ["ok.yaml", "--site", "./spec.yaml"] if site else ["spec.yaml"]
        lines = [[chance.choice(["sweep", "tune"]), *spec, "--dry-run"], ["preflight", *spec, "--fast"]]
    elif number % 3 == 1:
        names = sorted(path for path in run.rglob("*") if path.is_file() and path.suffix != ".py")
        above = [path for path in names if "results" not in path.parts]
        path = chance.choice(chance.choice([names, above]))
        path.write_bytes(damaged(path.read_text(encoding="utf-8"), chance))
        lines = [[*word.split(), "run"] for word in chance.sample(READING, 3)]
        lines += [["merge", "run"]] if run.joinpath("corpus.json").exists() else []
    else:
        command = chance.choice(FILES)
        suffix = ".yaml" if "{}.yaml" in command else ".py" if "{}.py" in command else ""
        make_file(folder / f"it{suffix}", chance)
        lines = [word.split() for word in [command.replace("{run}", "run").replace("{}", "it")]]
    for words in [chance.choice(lines)]:
        yield words, fault(words, folder)


def main() -> int:
    """Run the cases; return 1 if one has a fault."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    numbers = range(asked.first, asked.first + asked.cases)
    faults, slowest, commands = 0, (0.0, 0, [""]), 0
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            for name in ("JOBKIT_CONFIG", "JOBKIT_LEDGER"):
                patch.setenv(name, folder)
            start = time.process_time()
            for words, said in run_case(asked.seed, number, Path(folder)):
                commands, took = commands + 1, time.process_time() - start
                slowest, start = max(slowest, (took, number, words)), time.process_time()
                if said:
                    faults += 1
                    sys.stdout.write(f"{number} jobkit {' '.join(words)}: {said}\n")
                    sys.stdout.flush()
    sys.stdout.write(f"{len(numbers)} cases, {commands} commands, {faults} faults; slowest {slowest}\n")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
