from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobkit import cli
from jobkit.commands import listing
from jobkit.core.errors import JobkitError

ROOT = Path(__file__).parents[2]
PAGES = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"lesson"}
NAMED = re.compile(r"jobkit help (?!lists)([a-z][a-z-]+)")


def help_of(*topic: str) -> str:
    from click.testing import CliRunner

    done = CliRunner().invoke(cli.app, ["help", *topic], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def test_without_a_topic_all_commands_and_pages_are_listed_each_with_its_purpose() -> None:
    listed = re.findall(r"^  ([\w-]+)  +\S.*$", help_of(), re.MULTILINE)
    assert sorted(listed) == sorted([*listing.LISTED, *(PAGES - {"README"})])


def test_each_command_of_the_program_is_in_one_part_of_the_list() -> None:
    parts = [listing.FRONT, *listing.MORE.values(), listing.RARE]
    names = [name for part in parts for name in part]
    folder = ROOT / "jobkit" / "commands"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "listing", "shared"}
    assert len(names) == len(set(names))
    assert set(listing.LISTED) == modules
    assert len(listing.FRONT) == 8
    assert all(listed.example.startswith(f"jobkit {name}") for name, listed in listing.FRONT.items())


def test_the_front_page_names_all_but_the_rare_commands() -> None:
    from click.testing import CliRunner

    _, _, shown = CliRunner().invoke(cli.app, ["--help"]).stdout.partition("Commands:\n")
    words = set(re.findall(r"[\w-]+", shown))
    assert words >= listing.LISTED.keys() - listing.RARE.keys()
    assert not words & listing.RARE.keys()


def test_a_page_of_the_lesson_is_a_topic() -> None:
    episode = (ROOT / "docs" / "lesson" / "2-submit-watch-cancel.md").read_text(encoding="utf-8")
    assert help_of("lesson", "2").rstrip() == episode.rstrip()
    assert "# Lesson" in help_of("lesson")


def test_a_word_is_found_in_all_pages() -> None:
    found = help_of("Out", "of", "Memory")
    assert re.search(r"^  lesson-4 +.*out of memory", found, re.MULTILINE)
    assert re.search(r"^next: jobkit help [\w-]+$", found, re.MULTILINE)
    assert help_of(found.split()[-1])


def test_a_page_is_printed_as_it_is_where_there_is_no_terminal() -> None:
    assert help_of("spec").rstrip() == (ROOT / "docs" / "spec.md").read_text(encoding="utf-8").rstrip()


@pytest.mark.parametrize("words", [("sweep",), ("models", "fetch"), ("models",)])
def test_a_command_shows_its_help(words: tuple[str, ...]) -> None:
    assert help_of(*words).startswith(f"Usage: {cli.app.name} {' '.join(words)} ")


def test_a_command_that_has_a_page_shows_both() -> None:
    text = help_of("lint")
    assert text.startswith("Usage: ")
    assert (ROOT / "docs" / "lint.md").read_text(encoding="utf-8").rstrip() in text


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("spek", "did you mean 'spec'?"),
        ("nosuchword", "jobkit help lists all commands and pages"),  # as close to doctor as many words
    ],
)
def test_what_is_no_topic_is_refused(topic: str, hint: str) -> None:
    with pytest.raises(JobkitError, match=f"'{topic}' is no command and no page") as caught:
        help_of(topic)
    assert caught.value.hint == hint


def test_on_a_terminal_a_page_is_set_for_it() -> None:
    here, there = pty.openpty()
    environment = {**os.environ, "PAGER": "cat", "TERM": "xterm"}
    argv: list[str | Path] = [Path(sys.executable).with_name("jobkit"), "help", "walk-away"]
    with subprocess.Popen(argv, stdout=there, stdin=there, env=environment) as process:
        os.close(there)
        read = b""
        try:
            while data := os.read(here, 65536):
                read += data
        except OSError:  # the other end is closed
            pass
        assert process.wait(60) == 0
    os.close(here)
    text = read.decode()
    assert "\x1b[" in text
    assert "<!-- not run" not in text
    assert "](" not in text, "no link is left"
    assert "jobkit help spec" in text


def test_every_topic_that_is_named_exists_and_no_hint_names_a_file() -> None:
    named = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *_sources()]:
        for topic in NAMED.findall(path.read_text(encoding="utf-8")):
            named.append(topic)
            assert topic in PAGES or _is_command(topic), f"{path}: jobkit help {topic}"
    assert len(named) > 20
    for path in _sources():
        text = re.sub(r'"""(.|\n)*?"""|#[^\n]*', "", path.read_text(encoding="utf-8"))
        shown = re.findall(r"docs/[\w-]+\.md", text)
        assert not shown or path.name == "gpus.py", f"{path}: an installed jobkit has no {shown[0]}"


def _sources() -> list[Path]:
    files = (path for folder in ("jobkit", "templates", "sweeps") for path in (ROOT / folder).rglob("*.*"))
    return [path for path in files if path.suffix in {".py", ".yaml", ".j2"}]


def _is_command(topic: str) -> bool:
    return topic in listing.LISTED
