# ruff: noqa: T201, S603, S607 - it prints what it found, and runs git and pytest
"""Faults on purpose: every patch of this folder is applied in a copy of the checkout, and a test must fail.

``python -m benchmarks.mutants [NAME...]`` first notes which of the quick tests reach which line.
For each patch it runs those that reach the changed lines, the most special first, until one fails, and
then the tests that the head of the patch names (``Also: tests/...``). It ends with 1 if a patch is not found,
and with 2 if a patch does not apply: a commit that moves the code rewrites the patch.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "--no-header",
    "--dist",
    "loadgroup",
)
MOST_TESTS = 150
HUNK = re.compile(r"^@@.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A patch: what it breaks, which lines of which files, and tests that start processes and reach them."""

    path: Path
    fault: str
    also: tuple[str, ...]
    lines: Mapping[str, frozenset[int]]


def read(path: Path) -> Mutant:
    """Read a patch: its head is text, and the changed lines are those that it removes or follows."""
    head, _, diff = path.read_text(encoding="utf-8").partition("\ndiff --git ")
    (file,) = re.findall(r"^--- a/(\S+)$", diff, re.MULTILINE)
    now, changed = (ROOT / file).read_text(encoding="utf-8"), set[int]()
    for hunk in HUNK.split(diff)[1:]:
        lines = hunk.splitlines()
        before = "\n".join(line[1:] for line in lines if line[:1] != "+")
        number = now[: now.index(before)].count("\n") + 1  # it may have moved since the patch was made
        for line in lines:
            if line[:1] in {"-", "+"}:
                changed.add(number)
            number += line[:1] != "+"
    words = [line.partition(": ") for line in head.splitlines()]
    also = tuple(test for name, _, rest in words if name == "Also" for test in rest.split())
    (fault,) = (rest for name, _, rest in words if name == "Fault")
    return Mutant(path, fault, also, {file: frozenset(changed)})


def copy(folder: Path) -> None:
    """Copy the files of the checkout that git knows, and the model that tests tag with."""
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    if (ROOT / ".cache").is_dir():
        (folder / ".cache").symlink_to(ROOT / ".cache")


def apply(mutant: Mutant, folder: Path, *options: str) -> bool:
    """Apply a patch in the copy; return whether it applies."""
    done = subprocess.run(("git", "apply", *options, str(mutant.path)), cwd=folder, check=False)
    return done.returncode == 0


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run tests in the copy."""
    around = {**os.environ, "COVERAGE_FILE": str(folder / "reached"), "PYTHONPATH": str(folder)}
    argv = (*PYTEST, *words)
    return subprocess.run(argv, cwd=folder, env=around, capture_output=True, text=True, check=False)


def reaching(folder: Path, mutant: Mutant) -> list[str]:
    """Return the quick tests that reach a line of a patch; those that reach few lines of it come first."""
    rows = sqlite3.connect(folder / "reached").execute(
        "select context.context, arc.tono, file.path from arc"
        " join context on context.id = arc.context_id join file on file.id = arc.file_id"
    )
    reached: set[str] = set()
    size: Counter[str] = Counter()
    for context, line, path in rows:
        name = str(Path(path).relative_to(folder))
        if context and name in mutant.lines:
            test = re.split(r"[\[|@]", context)[0]  # without parameters and group
            size[test] += 1
            # a change between two lines is reached by who reaches the line above or below it
            if mutant.lines[name] & {abs(line) - 1, abs(line), abs(line) + 1}:
                reached.add(test)
    return sorted(reached, key=lambda test: (size[test], test))[:MOST_TESTS]


def first_failure(folder: Path, tests: Iterable[str]) -> str:
    """Run tests until one fails; return its name, or nothing."""
    tests = list(tests)
    if not tests:
        return ""
    done = run(folder, "-x", "-n", "2", *tests)
    if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE):
        return failed[1]
    if done.returncode:
        raise SystemExit(f"status {done.returncode} of pytest {' '.join(tests)}: {done.stdout}{done.stderr}")
    return ""


def main(names: list[str]) -> int:
    """Try every patch, or those that are named; print a line for each."""
    mutants = [read(path) for path in sorted(HERE.glob("*.patch")) if not names or path.stem in names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = Path(temporary).resolve()
        copy(folder)
        if wrong := [mutant.path.name for mutant in mutants if not apply(mutant, folder, "--check")]:
            print(f"these patches do not apply: {', '.join(wrong)}", file=sys.stderr)
            return 2
        begin = time.monotonic()
        before = run(folder, "tests", "-n", "2", "--quick", "--cov", "--cov-context=test", "--cov-report=")
        if before.returncode:
            print(f"the tests fail without a patch:\n{before.stdout[-2000:]}", file=sys.stderr)
            return 2
        print(f"{'':5} quick tests, traced: {time.monotonic() - begin:.0f} s")
        missed = 0
        for mutant in mutants:
            begin = time.monotonic()
            apply(mutant, folder)
            found = first_failure(folder, reaching(folder, mutant)) or first_failure(folder, mutant.also)
            apply(mutant, folder, "--reverse")
            missed += not found
            print(f"{'found' if found else 'MISS':5} {mutant.path.stem}: {mutant.fault}")
            print(f"{'':5} {time.monotonic() - begin:.0f} s  {found}", flush=True)
    print(f"{len(mutants) - missed} of {len(mutants)} found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
