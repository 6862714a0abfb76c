"""``jobkit help``: show the pages of the documentation in the terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from jobkit.core import terminal
from jobkit.core.errors import JobkitError

WIDEST = 120
INDEX = "README"


@click.command("help", short_help="Show a page of the documentation, or the help of a command.")
@click.argument("topic", nargs=-1, metavar="[TOPIC]")
@click.pass_context
def help(ctx: click.Context, topic: tuple[str, ...]) -> int:  # noqa: A001 - the command's name
    """Show the page TOPIC of the documentation; without TOPIC, list the pages.

    A TOPIC may also be a command: then jobkit shows its help, followed by the page of that name if there
    is one. On a terminal jobkit formats the page and shows it in a pager; elsewhere it prints Markdown.

    \b
      jobkit help
      jobkit help spec
      jobkit help terms
      jobkit help sweep
      jobkit help models fetch
    """
    if not topic:
        terminal.say(_index(), nl=False)
        return 0
    name = "-".join(topic)
    command, page = _command_help(ctx, topic), None if name == INDEX else _pages().get(name)
    if not command and page is None:
        raise _unknown(ctx, " ".join(topic))
    _show(command, page.read_text(encoding="utf-8") if page else "")
    return 0


def _pages() -> dict[str, Path]:
    """Return the pages by topic, and the index."""
    from jobkit.core.paths import shipped_folder

    return {path.stem: path for path in sorted(shipped_folder("docs").glob("*.md"))}


def _index() -> str:
    """Return the list of pages with the purpose of each, in the order of the index and under its headings."""
    text = _pages()[INDEX].read_text(encoding="utf-8")
    rows = re.findall(r"^## (.+)$|^\| \[[^]]*\]\(([\w-]+)\.md\) \| (.+) \|$", text, re.MULTILINE)
    width = max(len(name) for _, name, _ in rows)
    lines = [
        f"\n{heading}" if heading else f"  {name:<{width}}  {purpose}" for heading, name, purpose in rows
    ]
    end = "\njobkit help TOPIC shows a page; jobkit help COMMAND shows the help of a command"
    return "\n".join([*lines, end]).lstrip("\n") + "\n"


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


def _unknown(ctx: click.Context, topic: str) -> JobkitError:

    group = ctx.find_root().command
    commands = group.list_commands(ctx) if isinstance(group, click.Group) else []
    close = terminal.did_you_mean(topic, [*(name for name in _pages() if name != INDEX), *commands])
    return JobkitError(f"no page and no command {topic!r}", hint=close or "jobkit help lists the pages")


def _show(command: str, page: str) -> None:
    if not sys.stdout.isatty():
        terminal.say("\n\n".join(filter(None, (command, page.rstrip("\n")))))
        return
    shown = filter(None, (command, _rendered(page) if page else ""))
    click.echo_via_pager("\n\n".join(shown), color=True)


def _rendered(page: str) -> str:
    """Return a page formatted for a terminal."""
    from io import StringIO

    from rich.console import Console
    from rich.markdown import Markdown

    out = StringIO()
    width = min(WIDEST, terminal.terminal_width() or WIDEST)
    text = Markdown(_without_links(page), hyperlinks=False, code_theme="ansi_dark")
    Console(file=out, force_terminal=True, width=width).print(text)
    return out.getvalue()


def _without_links(page: str) -> str:
    """Return a page with its links to other pages replaced by ``jobkit help`` topics."""
    page = re.sub(r"^<!--.*?-->\n", "", page, flags=re.MULTILINE)
    page = re.sub(r"\[([^]]+)\]\(([\w-]+)\.md(?:#[^)]*)?\)", r"\1 (`jobkit help \2`)", page)
    return re.sub(r"\[([^]]+)\]\((?!https?:)[^)]*\)", r"\1", page)
