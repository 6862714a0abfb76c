"""``jobkit help``: show the pages of the documentation in the terminal."""

from __future__ import annotations

import os
import re
import sys
from io import StringIO
from pathlib import Path

import click

from jobkit.commands.listing import refuse_removed, whole_list
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.units import format_count

WIDEST = 120
INDEX = "README"
MOST_PAGES = 12
"""Pages that are listed for a word, those with a heading first, then those with most lines."""
CLOSE = 0.7
"""How close a name must be to what was typed, which may be any word and no misspelt name."""


@click.command("help", short_help="List all commands and pages, show one, or find a word.")
@click.argument("topic", nargs=-1, metavar="[TOPIC|WORD]")
@click.pass_context
def help(ctx: click.Context, topic: tuple[str, ...]) -> int:  # noqa: A001 - the command's name
    """Show the page TOPIC or the help of the command TOPIC; without TOPIC, list all commands and pages.

    If a command has a page of its name, jobkit shows its help and then the page. Any other WORD is looked
    for in all pages. On a terminal jobkit formats a page and shows it in a pager; elsewhere it prints
    Markdown.

    \b
      jobkit help
      jobkit help spec
      jobkit help lesson 2
      jobkit help models fetch
      jobkit help 'out of memory'
    """
    if not topic:
        terminal.say(_index(), nl=False)
        return 0
    command, page = _command_help(ctx, topic), _pages().get("-".join(topic))
    if command or page:
        _show(command, page)
    else:
        refuse_removed(topic)
        terminal.say("\n".join(_pages_with(ctx, " ".join(topic))))
    return 0


def _pages() -> dict[str, Path]:
    """Return the pages by topic: of a folder its README has the folder's name, and the others a number."""
    from jobkit.core.paths import shipped_folder

    docs = shipped_folder("docs")
    pages = {_topic(str(path.relative_to(docs))): path for path in sorted(docs.rglob("*.md"))}
    return {topic: path for topic, path in pages.items() if topic != INDEX}


def _topic(link: str) -> str:
    """Return the topic of a page by its path in the docs: ``spec``, ``lesson``, ``lesson-2``."""
    path = Path(link)
    if not path.parent.name:
        return path.stem
    return path.parent.name if path.stem == INDEX else f"{path.parent.name}-{path.stem.partition('-')[0]}"


def _index() -> str:
    """Return every command, and the pages with the purpose of each in the order of the index."""
    from jobkit.core.paths import shipped_folder

    text = (shipped_folder("docs") / f"{INDEX}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^## (.+)$|^\| \[[^]]*\]\(([\w-][\w/-]*\.md)\) \| (.+) \|$", text, re.MULTILINE)
    width = max(len(_topic(link)) for _, link, _ in rows)
    lines = [
        f"\n{heading}" if heading else f"  {_topic(link):<{width}}  {purpose}"
        for heading, link, purpose in rows
    ]
    end = "\njobkit help NAME shows a page or the help of a command; jobkit help WORD finds a word"
    return "\n".join([*whole_list(), *lines, end]) + "\n"


def _pages_with(ctx: click.Context, word: str) -> list[str]:
    """Return the pages that have a word, else its parts in a line, each with its first line that does."""
    texts = {topic: _plain(path.read_text(encoding="utf-8")) for topic, path in _pages().items()}
    parts = [re.escape(part) for part in word.split()]
    found: dict[str, list[str]] = {}  # by topic, the lines that have the word, headings first
    for pattern in (r"[\W_]+".join(parts), "".join(f"(?=.*{part})" for part in parts)):
        sought = re.compile(pattern, re.IGNORECASE)
        for topic, text in texts.items():
            having = [line for line in text.splitlines() if sought.search(line)]
            found[topic] = sorted(having, key=lambda line: not line.startswith("#"))
        if any(found.values()):
            break
    topics = sorted(
        filter(found.get, found), key=lambda topic: (not found[topic][0].startswith("#"), -len(found[topic]))
    )
    if not topics:
        group = ctx.find_root().command
        commands = group.list_commands(ctx) if isinstance(group, click.Group) else []
        close = terminal.did_you_mean(word, [*_pages(), *commands], CLOSE)
        hint = close or "jobkit help lists all commands and pages"
        raise JobkitError(f"{word!r} is no command and no page, and no page contains it", hint=hint)
    width = max(map(len, topics))
    room = terminal.page_width() - width - 4
    rows: list[str] = []
    for topic in topics[:MOST_PAGES]:  # the part of the line around the word that fits
        text = found[topic][0].strip("#|> ")
        match = sought.search(text)
        begin = max(0, min((match.start() if match else 0) - room // 3, len(text) - room))
        rows.append(f"  {topic:<{width}}  {text[begin : begin + room].strip()}")
    more = f", the first {MOST_PAGES} here" if len(topics) > MOST_PAGES else ""
    end = f"next: jobkit help {topics[0]}"
    return [f"{format_count(len(topics), 'page')} with {word!r}{more}:", *rows, "", end]


def _command_help(ctx: click.Context, words: tuple[str, ...]) -> str:
    """Return the help of the command that the words name; empty if there is none."""
    context = ctx.find_root()
    for word in words:
        group = context.command
        command = group.get_command(context, word) if isinstance(group, click.Group) else None
        if command is None:
            return ""
        context = click.Context(command, parent=context, info_name=word)
    return context.command.get_help(context)


def _show(command: str, page: Path | None) -> None:
    """Print the help of a command and a page: as Markdown, on a terminal formatted and in a pager."""
    text = page.read_text(encoding="utf-8").rstrip("\n") if page else ""
    if page and sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        width = min(WIDEST, terminal.terminal_width() or WIDEST)
        formatted = Markdown(without_links(text, page), hyperlinks=False, code_theme="ansi_dark")
        out = StringIO()
        Console(file=out, force_terminal=True, width=width).print(formatted)
        text = out.getvalue()
    whole = "\n\n".join(filter(None, (command, text)))
    if sys.stdout.isatty():
        click.echo_via_pager(whole, color=True)
    else:
        terminal.say(whole)


def _plain(page: str) -> str:
    """Return a page without what only its site shows: comments and the marks of tabs; a tab is a heading."""
    page = re.sub(r"^<!--.*?-->\n", "", page, flags=re.MULTILINE)
    page = re.sub(r"^:{3,}\{tab-item\} (.+)$", r"**\1**", page, flags=re.MULTILINE)
    return re.sub(r"^:{3,}.*\n", "", page, flags=re.MULTILINE)


def without_links(text: str, page: Path) -> str:
    """Return the text of a page with its links to other pages as ``jobkit help`` and their topics."""
    topics = {str(path): topic for topic, path in _pages().items()}

    def topic(link: re.Match[str]) -> str:
        name = topics.get(os.path.normpath(page.parent / link[2].partition("#")[0]))
        return f"{link[1]} (`jobkit help {name}`)" if name else link[1]

    return re.sub(r"\[([^]]+)\]\((?!https?:)([^)]*)\)", topic, _plain(text))
