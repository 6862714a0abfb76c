from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobkit import cli
from jobkit.commands import listing
from jobkit.commands.help import without_links
from jobkit.core import command_list
from jobkit.core.errors import JobkitError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.stem for path in DOCS.glob("*.md")} | {"lesson", "lesson-one-hour"}
NAMED = re.compile(r"jobkit help (?!lists)([a-z][a-z-]+)")


def help_of(*topic: str) -> str:
    done = CliRunner().invoke(cli.app, ["help", *topic], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def test_without_a_topic_all_commands_and_pages_are_listed_each_with_its_purpose() -> None:
    listed = re.findall(r"^  ([\w-]+)  +\S.*$", help_of(), re.MULTILINE)
    assert sorted(listed) == sorted([*command_list.LISTED, *(PAGES - {"README"})])


def test_each_command_of_the_program_is_in_one_part_of_the_list() -> None:
    parts = [command_list.FRONT, *command_list.MORE.values(), command_list.RARE]
    names = [name for part in parts for name in part]
    folder = ROOT / "jobkit" / "commands"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "listing", "shared"}
    assert len(names) == len(set(names))
    assert set(listing.MODULES) == set(names)
    assert set(listing.MODULES.values()) == modules
    assert len(command_list.FRONT) == 8
    assert all(example.startswith(f"jobkit {name}") for name, (_, example) in command_list.FRONT.items())


def test_a_page_is_printed_as_it_is_where_there_is_no_terminal() -> None:
    pages = {"spec": "spec", "lesson": "lesson/README", "lesson 2": "lesson/2-submit-watch-cancel"}
    for topic, page in pages.items():
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert help_of(*topic.split()).rstrip() == text.rstrip()


def test_the_links_of_a_page_name_pages_that_help_opens() -> None:
    texts = {page: without_links(page.read_text("utf-8"), page) for page in DOCS.rglob("*.md")}
    assert "(`jobkit help lesson-3`)" in texts[DOCS / "lesson" / "README.md"]
    for topic in {name for text in texts.values() for name in re.findall(r"\(`jobkit help (.+?)`\)", text)}:
        assert help_of(topic)


def test_a_word_is_found_in_all_pages() -> None:
    found = help_of("Out", "of", "Memory")
    assert re.search(r"^  lesson-4 +.*out of memory", found, re.MULTILINE)
    assert re.search(r"^next: jobkit help [\w-]+$", found, re.MULTILINE)
    assert help_of(found.split()[-1])
    for words, page in (("how large", "find-max"), ("Model path", "spec"), ("typo script", "lint")):
        assert help_of(*words.split()).endswith(f"next: jobkit help {page}\n")
    assert "  symptoms  A job waits, or is not starting\n" in help_of("not", "starting")
    assert "jobkit help symptoms" in help_of("job", "pending")
    for words in ("out of memory", "why does my job wait", "exit code 137", "oom-kill", "Resources"):
        assert help_of(*words.split()).splitlines()[1].startswith("  symptoms "), words
    assert help_of("how", "long").endswith("next: jobkit help tag-my-corpus\n")
    assert "BibTeX" in help_of("citation")


def test_a_reason_why_a_job_waits_is_explained() -> None:
    """Slurm's reasons that no page has too; a word that only begins like one is none."""
    assert "symptoms  ReqNodeNotAvail: nodes down" in help_of("ReqNodeNotAvail")
    assert ": requests walltime above the limit" in help_of("AssocMaxWallDurationPerJobLimit")
    with pytest.raises(JobkitError, match="no page contains it"):
        help_of("Prologue")


def test_commands_keys_and_options_come_first_and_no_word_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for word, first in (("account", "spec  +resources.account: "), ("encoding", "apply +jobkit apply --enc")):
        head, *lines = help_of(word).splitlines()
        assert re.match(rf"'{word}' is in \d+ places", head)
        assert any(re.match(rf"  {first}", line) for line in lines[:3])
        assert max(map(len, lines)) <= 80
        assert not re.search(r"`|\*\*|\]\(|\|", "".join(lines))
    assert "accounting" not in help_of("account")


def test_a_command_shows_its_help_and_its_page() -> None:
    for words in ("models", "models fetch"):
        assert help_of(*words.split()).startswith(f"Usage: {cli.app.name} {words} ")
    text = help_of("lint")
    assert text.startswith("Usage: ")
    assert (ROOT / "docs" / "lint.md").read_text(encoding="utf-8").rstrip() in text


def test_what_is_no_topic_is_refused() -> None:
    """Nosuchword is as close to doctor as many words."""
    hints = {"spek": "did you mean 'spec'?", "nosuchword": "jobkit help lists all commands and pages"}
    for topic, hint in hints.items():
        with pytest.raises(JobkitError, match=f"'{topic}' is no command and no page") as caught:
            help_of(topic)
        assert caught.value.hint == hint


def test_every_topic_that_is_named_exists_and_no_hint_names_a_file() -> None:
    named = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *_sources()]:
        for topic in NAMED.findall(path.read_text(encoding="utf-8")):
            named.append(topic)
            assert topic in PAGES or topic in command_list.LISTED, f"{path}: jobkit help {topic}"
    assert len(named) > 20
    for path in _sources():
        text = re.sub(r'"""(.|\n)*?"""|#[^\n]*', "", path.read_text(encoding="utf-8"))
        shown = re.findall(r"docs/[\w-]+\.md", text)
        assert not shown or path.name == "gpus.py", f"{path}: an installed jobkit has no {shown[0]}"


def _sources() -> list[Path]:
    files = (path for folder in ("jobkit", "templates", "sweeps") for path in (ROOT / folder).rglob("*.*"))
    return [path for path in files if path.suffix in {".py", ".yaml", ".j2"}]
