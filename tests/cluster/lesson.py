"""The lesson as a learner goes through it: README.md and the episodes of docs/lesson, in one shell, in order.

Another learner takes the hour of docs/lesson/one-hour.md.

A block in a tab runs on the scheduler of that tab, any other on both. After a change of what jobkit prints:
``python -m tests.cluster.lesson`` runs the lesson on both schedulers, and writes what they print into the
pages where they show something else.

A line ``...`` stands for any lines. A command that only looks (``squeue``, ``jobkit status``) is typed
again until it prints what the page shows, as a learner does.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobkit.practice import cluster, packages
from tests.pages.test_docs import DOCS
from tests.pages.test_docs_shell import LEFT_OUT, Block, shell_blocks

HOUR = DOCS / "lesson" / "one-hour.md"
EPISODES = sorted((DOCS / "lesson").glob("[1-9]*.md"))
PATHS = {"lesson": [DOCS / "lesson" / "README.md", *EPISODES], "hour": [HOUR]}
PAGES = [page for pages in PATHS.values() for page in pages]
TABS = {"slurm": "Slurm", "sge": "Grid Engine"}
TAB = re.compile(r"^:::\{tab-item\} (.+)\n((?:(?!:::).*\n)*):::$", re.MULTILINE)
LOOKS = ("squeue", "sacct", "qstat", "qacct", "head ", "jobkit status", "jobkit logs")
"""How commands begin that change nothing, so that a learner may repeat them."""
CANCELS = ("scancel -n hello", "qdel hello")
COMMAND_TIMEOUT_S = 300
LOOK_TIMEOUT_S = 120
LOOK_AGAIN_S = 0.3

STATE = ".local/state/jobkit/practice"
"""Where a practice cluster is, from the home."""
HOME = "/home/ada"
"""The learner's home on the pages."""
VARIES = tuple(
    (re.compile(pattern, re.MULTILINE), put)
    for pattern, put in (
        (r"\blesson-\d{8}-\d{6}-[0-9a-f]{4}\b", "RUN"),
        (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\b|\b\d\d/\d\d/\d{4} \d\d:\d\d:\d\d\b", "DATE"),
        (r"^Slurm estimates a start at DATE: .*\n", ""),  # not if Slurm is busy
        (r"(?<![:\d])\d+:\d\d(?![:\d])", "ELAPSED"),
        (r"(?<=paragraphs: )\d\d:\d\d:\d\d(?= \()|(?<=iB and )\d\d:\d\d:\d\d", "CLOCK"),
        (r"^\d+ cautions?:", "SOME cautions:"),  # one of them depends on the scatter
        (r"^(  #SBATCH --time=|  #\$ -l h_rt=)\d\d:\d\d:\d\d", r"\1CLOCK"),
        (r"(?<=\bjob )\d+(?:, \d+)+$", "ID"),
        (r"\b([Jj]ob |JOB |StepId=|hello-|logs/|RUN\.o|jobnumber +)\d+", r"\1ID"),
        (r"^ +\d+(?= +(?:cpu|0\.\d+) )", "ID"),
        (r"^\d+(?= +hello )", "ID"),
        (r"(?<=MaxRSS )[\d.]+|\(\d+(?= > )", "BYTES"),
        (r"\b\d+\.\d+\.\d+\b", "VERSION"),
        (r"[+-]?(?<![\d.])(?:\d+\.\d+|\d{1,3}(?:,\d{3})+)|\b\d+(?= s\b| %| paragraphs/s)", "NUMBER"),
        (r"^( +\d+ +)\d+(?= +NUMBER)", r"\1NUMBER"),  # a speed of three digits
        (r"^  \d+ points?, waiting: .*\n", ""),  # not if the cluster starts them at once
        (r", about .* to go.*", ""),
        (r"^running points copy their results to the run folder\n", ""),  # not if none runs at that moment
        (r"(?<=points: )(?:\d+ \w+, )*\d+ waiting", "SOME waiting"),  # points end while a learner types
        (r"(?:\d+ done, )?\b\d+ cancelled(?:, \d+ done)?|(?<=cancelled: )\d+(?= points)", "SOME cancelled"),
        (r"(?<=again: )\d+(?= points)", "SOME"),
        (r"^(?:Largest safe|  extrapolated|  unproved).*\n", ""),
        (r"\b\d+ more cautions?", "SOME more cautions"),
        (r"(?<=speed is shown between )batch_size \d+ and batch_size \d+", "SIZES"),  # the fastest
        # points that were cancelled had begun, or not, and may have left no times
        (r"(?<=CPU-minutes \()\d+ tries(?:, \d+ of which left no times)?", "SOME tries"),
        (r"─+", "─"),
        (r"[ \t]+", " "),
        (r" $", ""),
    )
)
"""What differs from one run to the next: run names, job ids, dates, times, memory, speeds."""
ELSEWHERE = ((r"\bsge\b", "slurm"), (r"\blocalhost\b|\bn2\b", "n1"))
"""Outside tabs a page shows Slurm: what Grid Engine prints in its place."""


def for_scheduler(text: str, scheduler: str) -> str:
    """Return a page without the tabs of other schedulers; every line keeps its number."""

    def kept(tab: re.Match[str]) -> str:
        return tab[0] if tab[1] == TABS[scheduler] else "\n" * tab[0].count("\n")

    return TAB.sub(kept, text)


def tabbed_lines(text: str) -> set[int]:
    """Return the numbers of the lines that stand in tabs, from 1."""
    return {
        n
        for tab in TAB.finditer(text)
        for n in range(text.count("\n", 0, tab.start()) + 1, text.count("\n", 0, tab.end()) + 2)
    }


def normal(text: str, *, tabbed: bool) -> str:
    """Return an output without what varies; outside tabs as if every scheduler were Slurm."""
    for pattern, put in VARIES:
        text = pattern.sub(put, text)
    for words, put in () if tabbed else ELSEWHERE:
        text = re.sub(words, put, text)
    return text.strip("\n")


def agree(shown: str, output: str, *, tabbed: bool) -> bool:
    """Return whether an output is what a page shows, but for what varies; ... is any lines."""
    parts = re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
    pattern = r"(?:.*\n)*?".join(
        "".join(re.escape(line) + r"\n" for line in normal(part, tabbed=tabbed).splitlines())
        for part in parts
    )
    return re.fullmatch(pattern, normal(output, tabbed=tabbed) + "\n") is not None


@dataclass
class Learner:
    """A person with a home of their own, who types what the pages say into one shell."""

    folder: Path
    scheduler: str

    @property
    def env(self) -> dict[str, str]:
        """The environment of a new shell."""
        outer = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
        return outer | {
            "HOME": str(self.folder),
            "COLUMNS": "120",  # of the pages
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def types(self, block: Block) -> tuple[int, str]:
        """Run a block where the one before ended, with its variables; return status and output."""
        state = self.folder / ".state"
        before = f"source {shlex.quote(str(state))}\n" if state.exists() else 'cd "$HOME"\n'
        after = f'{{ export -p; printf "cd %q\\n" "$PWD"; }} >{shlex.quote(str(state))}; exit $status'
        done = subprocess.run(
            ("bash", "-c", "\n".join(["set -o allexport", before, *block.commands, "status=$?", after])),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        return done.returncode, self.as_on_a_page(done.stdout)

    def sees(self, block: Block, *, tabbed: bool) -> tuple[bool, str]:
        """Run a block; return whether a learner sees what the page shows, and what it printed."""
        deadline = time.monotonic() + (LOOK_TIMEOUT_S if block.shown else 0)
        while block.commands[0].startswith(CANCELS) and not self.has_printed():
            time.sleep(LOOK_AGAIN_S)
        while True:
            began = time.monotonic()
            status, output = self.types(block)
            seen = status == 0 if block.shown is None else agree(block.shown, output, tabbed=tabbed)
            if seen or not block.commands[0].startswith(LOOKS) or time.monotonic() > deadline:
                return seen, output
            time.sleep(max(LOOK_AGAIN_S, 3 * (time.monotonic() - began)))

    def has_printed(self) -> bool:
        """Return whether the job of the page has begun its log: a person is not as fast as this test."""
        return any(log.stat().st_size for log in self.folder.rglob("hello-*.log"))

    def as_on_a_page(self, text: str) -> str:
        """Return an output with the names of the pages in place of this machine's."""
        programs, user = str(Path(sys.executable).parent), re.escape(getpass.getuser())
        text = text.replace(str(self.folder), HOME).replace(programs, f"{HOME}/env/bin")
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "node", text)
        return re.sub(rf"\b{user}\b( {{2,}})?", lambda name: f"{'ada':<{len(name[0])}}", text)


@contextmanager
def learner(scheduler: str) -> Iterator[Learner]:
    """Have a learner with an empty home; no daemon of theirs is left afterwards."""
    packages.install(scheduler)
    with tempfile.TemporaryDirectory(prefix="lesson-") as folder:  # short: the path of a socket has a limit
        try:
            yield Learner(Path(folder), scheduler)
        finally:
            cluster.down(Path(folder) / STATE)


def rewrite(scheduler: str, pages: Sequence[Path]) -> None:
    """Run the lesson on a scheduler, and correct what its pages show."""
    with learner(scheduler) as ada:
        for path in pages:
            text, begun = path.read_text(encoding="utf-8"), time.monotonic()
            lines, tabbed = text.splitlines(keepends=True), tabbed_lines(text)
            for block in shell_blocks(for_scheduler(text, scheduler)):
                seen, output = ada.sees(block, tabbed=block.line in tabbed)
                if seen:
                    continue
                sys.stdout.write(f"{path.name}:{block.line}: {block.commands[0]}\n{output}")
                if block.shown is not None:  # the numbers of later lines stay
                    end = block.line + block.shown.count("\n")
                    lines[block.line - 1] += output
                    lines[block.line : end] = [""] * (end - block.line)
            sys.stdout.write(f"{path.name} on {scheduler}: {time.monotonic() - begun:.0f} s\n")
            path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    for name in set(sys.argv[1:]) & {*TABS} or TABS:
        for path in set(sys.argv[1:]) & {*PATHS} or PATHS:
            rewrite(name, PATHS[path])
