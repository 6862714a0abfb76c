"""The lesson on real schedulers: every command of docs/lesson is typed, and prints what the page shows."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.lesson import EPISODES, HOUR, PAGES, PATHS, TABS, for_scheduler, learner, tabbed_lines
from tests.pages.test_docs import DOCS
from tests.pages.test_docs_shell import shell_blocks

PARTS = ("Teaching: ", "Exercises: ", "**Questions**", "**Objectives**", "### Challenge", "## Key points")


@pytest.mark.skipif(
    os.environ.get("JOBKIT_CLUSTER") != "1", reason="needs real schedulers: set JOBKIT_CLUSTER=1"
)
@pytest.mark.parametrize(
    "scheduler", [pytest.param(name, marks=pytest.mark.xdist_group(f"lesson-{name}")) for name in TABS]
)
@pytest.mark.parametrize("pages", PATHS.values(), ids=PATHS)
def test_the_lesson_shows_what_a_learner_sees(scheduler: str, pages: Sequence[Path]) -> None:
    with learner(scheduler) as ada:
        for path in pages:
            text, begun = path.read_text(encoding="utf-8"), time.monotonic()
            tabbed = tabbed_lines(text)
            for block in shell_blocks(for_scheduler(text, scheduler)):
                seen, output = ada.sees(block, tabbed=block.line in tabbed)
                assert seen, f"{path.name}:{block.line}: {block.commands[0]} prints on {scheduler}:\n{output}"
            print(f"{path.name}: {time.monotonic() - begun:.1f} s")  # noqa: T201 - for the table of the lesson


@pytest.mark.xdist_group(
    "lesson-slurm"
)  # pytest-xdist begins with large groups, and the lesson takes longest
@pytest.mark.parametrize("path", EPISODES, ids=lambda path: path.name)
def test_an_episode_has_the_parts_that_teachers_expect(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    places = [text.find(part) for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)
    (teaching, exercises) = re.findall(r"(?:Teaching|Exercises): (\d+) min", text)
    assert int(teaching) + int(exercises) == 15
    assert text.count("<details>") == text.count("</details>") == text.count("### Challenge")


def test_the_hour_is_read_in_an_hour() -> None:
    assert len(HOUR.read_text(encoding="utf-8").split()) <= 1500


@pytest.mark.xdist_group("lesson-sge")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tabs_come_in_pairs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for tabs in re.findall(r"^::::\{tab-set\}\n(.*?)^::::$", text, re.MULTILINE | re.DOTALL):
        assert re.findall(r"^:::\{tab-item\} (.+)$", tabs, re.MULTILINE) == list(TABS.values())
    assert text.count("::::{tab-set}") * 2 == text.count("\n:::{tab-item}")


def test_the_talk_types_what_the_lesson_types() -> None:
    talk = (DOCS / "demo.md").read_text(encoding="utf-8")
    typed = {command for path in PAGES for name in TABS for command in commands(path.read_text(), name)}
    said = {command for name in TABS for command in commands(re.sub(r"<!--.*?-->\n", "", talk), name)}
    cells = re.findall(r"^\| \d+ \| (.*?) \|", talk, re.MULTILINE)
    said |= {code for cell in cells for code in re.findall(r"`(.+?)`", cell) if "RUN" not in code}
    assert said
    assert said - {"cat tagger.py lesson.yaml", "jobkit sweep lesson.yaml --dry-run"} <= typed


def commands(text: str, scheduler: str) -> list[str]:
    return [command for block in shell_blocks(for_scheduler(text, scheduler)) for command in block.commands]
