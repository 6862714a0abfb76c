"""The shell blocks of README.md and docs/, in order: README.md in a new folder, docs/ in a checkout.

The blocks of a page run in order, and each begins in the folder where the one before ended: by bash, or in
this process if every command of the block is a call of jobkit. Output that a page shows is compared: the
rest of a ``console`` block, and a ``text`` block that follows a shell block under the same heading. Of a
``text excerpt`` block only: that the output contains it. What cannot run without cluster, GPU or network
has an invisible comment above its block, ``<!-- not run: needs a cluster -->``, or, of some lines of it,
``<!-- not run, lines 2-3: needs a cluster -->``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from jobkit.core.records import ModelRef
from tests.pages.test_docs import DOCS, FENCE, ROOT, blocks, page
from tests.support.commands import JOBKIT, jobkit, ran
from tests.support.copiers import path_without

pytestmark = pytest.mark.xdist_group("docs-shell")  # one worker, so that there is one world

SHELL = {"sh", "bash", "console"}
OTHER = {"", "text", "text excerpt", "python", "yaml", "json", "jinja", "make", "bibtex"}
REASONS = {
    "needs a cluster",
    "needs a GPU",
    "needs another program",
    "needs the network",
    "calls make",
    "takes minutes",
}
"""Why a block may stand unrun."""

MARK = re.compile(r"<!-- not run(?:, lines? (\d+)(?:-(\d+))?)?: ([^>]*) -->\n")
MARKS_ABOVE = re.compile(rf"(?:{MARK.pattern})*\Z")
ELSEWHERE = {"python-api.md"}
"""Pages that a test of their own runs whole, Python and shell in turn."""
PAGES = [path for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))) if path.name not in ELSEWHERE]

RUN = "stanza-20260102-101530-3f9a"
"""The run folder that docs/run-by-hand.md goes through."""
SWEEP = ("--set", "workload=count", "--set", "repeats=1", "--set", "sweep.batch_size=[50, 100, 150]")
SCHEDULERS = {"sbatch", "qsub"}
LEFT_OUT = ("JOBKIT", "XDG", "SLURM", "SGE", "COV")
"""How names of environment variables begin that no page's command gets."""
BLOCK_TIMEOUT_S = 120
CALL = re.compile(r"jobkit ([^|<>;&$`*]+)(?:\| ([^|].*))?")
"""A command that is a call of jobkit, and what its output is piped into."""


@dataclass(frozen=True)
class Block:
    """Commands of a page that run in one shell, and what the page says that they print."""

    line: int
    commands: tuple[str, ...]
    shown: str | None = None
    excerpt: bool = False
    """Whether the page shows a part of the output only."""

    def explains(self, output: str) -> bool:
        """Return whether a reader finds in the output what the page shows."""
        return self.shown is None or (self.shown in output if self.excerpt else self.shown == output)


def shell_blocks(text: str) -> Iterator[Block]:
    """Yield what is to be run of a page."""
    for fence in FENCE.finditer(text):
        if fence[1] not in SHELL:
            continue
        line = text.count("\n", 0, fence.start()) + 2
        marked = unrun(text[: fence.start()])
        if fence[1] == "console":
            yield from (one for one in console(fence[2], line) if not marked & {0, one.line - line + 1})
        elif commands := tuple(
            command for n, command in enumerate(joined(fence[2]), start=1) if not marked & {0, n}
        ):
            yield Block(line, commands, *shown_after(text, fence.end()))


def joined(body: str) -> list[str]:
    """Return the lines of a block, those that a backslash continues as one."""
    return re.sub(r"\\\n *", "", body).splitlines()


def unrun(above: str) -> set[int]:
    """Return which lines of a block are marked, by what stands above it; 0 stands for all."""
    marks = MARKS_ABOVE.search(above)
    found = MARK.finditer(marks[0] if marks else "")
    return {n for one in found for n in range(int(one[1] or 0), int(one[2] or one[1] or 0) + 1)}


def console(body: str, line: int) -> Iterator[Block]:
    """Yield each command of a console block with its output."""
    for one in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
        yield Block(line + body.count("\n", 0, one.start()), (one[1],), one[2])


def shown_after(text: str, end: int) -> tuple[str | None, bool]:
    """Return the text block under the same heading that follows, and whether it is an excerpt."""
    following = FENCE.search(text, end)
    if following is None or following[1] not in {"text", "text excerpt"}:
        return None, False
    if re.search(r"^#", text[end : following.start()], re.MULTILINE):
        return None, False
    return following[2], following[1] == "text excerpt"


@dataclass(frozen=True)
class World:
    """A folder where the pages' commands find what they speak of, and nothing of this machine's."""

    folder: Path

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        """Leave the user's own environment, and clusters."""
        for name in [name for name in os.environ if name.startswith(LEFT_OUT)]:
            patch.delenv(name)
        home = self.folder / "home"
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", f"{JOBKIT.parent}:{path_without(self.folder / 'programs', *SCHEDULERS)}")
        patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        patch.setenv("JOBKIT_CACHE", str(home / "cache"))
        patch.setenv("JOBKIT_LEDGER", str(home / "ledger.jsonl"))

    def fill(self) -> None:
        """Lay out what the pages need: a checkout, a site of one's own, old logs, a run."""
        for name in ("sweeps", "docs", "benchmarks/records"):
            shutil.copytree(ROOT / name, self.folder / name)
        shutil.copytree(ROOT / "tests" / "data" / "predecessors", self.folder, dirs_exist_ok=True)
        sites = self.folder / "home" / ".config" / "jobkit" / "sites"
        sites.mkdir(parents=True)
        (mine,) = blocks(page("templates-and-sites.md"), "yaml site")
        (sites / "mine.yaml").write_text(mine, encoding="utf-8")
        self.write_letters(self.folder)
        self.write_letters(self.newcomer)
        self.run_sweep()

    @property
    def newcomer(self) -> Path:
        """The new folder in which the README begins: with the user's own text, without a checkout."""
        return self.folder / "newcomer"

    def write_letters(self, folder: Path) -> None:
        """Write the README's own spec, with a light workload and fewer points, and a text for it."""
        folder.mkdir(exist_ok=True)
        (body,) = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "yaml")
        spec = yaml.safe_load(body)
        spec |= {"workload": "count", "repeats": 1, "resources": spec["resources"] | {"gpus": 0}}
        spec["sweep"]["batch_size"] = spec["sweep"]["batch_size"][::2]
        (folder / "letters.yaml").write_text(json.dumps(spec), encoding="utf-8")
        text = folder / spec["text"]
        text.parent.mkdir()
        paragraphs = [f"Letter {n} came{' by the evening post' * (n % 7)}." for n in range(300)]
        text.write_text("\n\n".join(paragraphs), encoding="utf-8")

    def run_sweep(self) -> None:
        """Make the run folder with the light workload, and give it the name that the pages use."""
        words = ("sweep", "sweeps/stanza.yaml", "--scheduler", "local", *SWEEP, "--set", "resources.gpus=0")
        ran(*words, cwd=self.folder)
        (made,) = (self.folder / "runs").iterdir()
        for path in made.rglob("*"):
            if path.is_file():
                path.write_text(path.read_text(encoding="utf-8").replace(made.name, RUN), encoding="utf-8")
        made.rename(made.with_name(RUN))

    def run(self, block: Block, start: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
        """Run a block from a folder; return what it said and the folder where it ended."""
        calls = [CALL.fullmatch(command) for command in block.commands]
        if not all(calls):
            ended = self.folder / "ended-in"
            done = bash("\n".join([*block.commands, f"pwd >'{ended}'"]), start)
            return done, Path(ended.read_text(encoding="utf-8").strip()) if done.returncode == 0 else start
        said = []
        for words, piped in (call.groups() for call in calls if call):
            done = jobkit(*shlex.split(words, comments=True), cwd=start)
            if piped and done.returncode == 0:
                done = bash(piped, start, done.stdout)
            said.append(done.stdout)
            if done.returncode:
                break
        done.stdout = "".join(said)
        return done, start


def bash(script: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script that ends at the first error."""
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=BLOCK_TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: ModelRef, kept_cache: Path
) -> Iterator[World]:
    """Return a world whose cache has the stand-in, and what it has found: both are tested elsewhere."""
    made = World(tmp_path_factory.mktemp("world"))
    models = made.folder / "home" / "cache" / "models"
    models.mkdir(parents=True)
    (models / Path(tiny_model.path).name).symlink_to(tiny_model.path)
    (kept_cache / "lengths").mkdir(exist_ok=True)
    models.with_name("lengths").symlink_to(kept_cache / "lengths")
    with pytest.MonkeyPatch.context() as patch:
        made.enter(patch)
        made.fill()
        yield made


RUNNABLE = {path: list(shell_blocks(path.read_text(encoding="utf-8"))) for path in PAGES}


def uses_jq(path: Path) -> bool:
    """Return whether a command of a page calls jq."""
    return any(re.search(r"\bjq\b", command) for block in RUNNABLE[path] for command in block.commands)


RUN_PAGES = [
    pytest.param(path, marks=[pytest.mark.program("jq")] if uses_jq(path) else [], id=path.name)
    for path in PAGES
    if RUNNABLE[path]
]


@pytest.mark.parametrize("path", RUN_PAGES)
def test_the_shell_blocks_of_a_page_run(path: Path, world: World) -> None:
    here = world.newcomer if path.name == "README.md" and path.parent == ROOT else world.folder
    for block in RUNNABLE[path]:
        done, here = world.run(block, here)
        where = f"{path.relative_to(ROOT)}:{block.line}"
        assert done.returncode == 0, f"{where}: status {done.returncode}\n{done.stdout}{done.stderr}"
        assert block.explains(done.stdout), f"{where} shows something else:\n{done.stdout}"


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
def test_groups_have_effect(request: pytest.FixtureRequest) -> None:
    said = "say --dist loadgroup; see pyproject.toml on versions of pytest with which it has no effect"
    assert request.node.nodeid.endswith("@docs-shell"), said


def test_the_readme_needs_no_file_of_a_checkout() -> None:
    """Most users install jobkit: a command that is not run here must not name such a file either."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for _, body in FENCE.findall(text) for line in body.splitlines()]
    assert not [line for line in lines if line.startswith("jobkit ") and "sweeps/" in line]


def test_as_much_is_run_and_compared_as_there_was() -> None:
    """What is not found on a page would pass in silence."""
    found = [block for page in RUNNABLE.values() for block in page]
    assert sum(len(block.commands) for block in found) >= 115
    assert sum(command.startswith("jobkit ") for block in found for command in block.commands) >= 28
    assert sum(block.shown is not None for block in found) >= 11


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_block_that_is_not_run_says_why_and_none_hides(path: Path) -> None:
    """A block that is indented, or called otherwise, would neither run nor need a mark."""
    text = path.read_text(encoding="utf-8")
    assert {mark[3] for mark in MARK.finditer(text)} <= REASONS, "the reason is none of the list"
    fences, marks = list(FENCE.finditer(text)), 0
    for fence in fences:
        word, body, above = fence[1], fence[2], text[: fence.start()]
        marked = MARKS_ABOVE.search(above)
        marks += len(MARK.findall(marked[0])) if marked and word in SHELL else 0
        assert max(unrun(above), default=0) <= len(joined(body)), "a mark of a line that is not there"
        assert word in SHELL or word.partition(" ")[0] in OTHER, f"{word!r} is none of the kinds"
        assert word != "console" or body.startswith("$ "), "a console block that begins with no command"
        typed = re.search(r"^(\$|jobkit [a-z]+) (?!.*\[OPTIONS\])", body, re.MULTILINE)
        assert word in SHELL or not typed, "a command in a block of text"
    assert text.count("<!-- not run") == marks, "a mark that is misspelt, or not right above a shell block"
    ticks = re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)
    assert len(ticks) == 2 * len(fences), "indented, or not closed"
