"""``jobkit help``: show the pages of the documentation in the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import click

from jobkit.commands.listing import refuse_removed, whole_list
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.units import format_count

INDEX = "README"
_KEYS = ("spec", "templates-and-sites", "commands")
"""The pages with a table of keys or options, in the order of their hits."""


@click.command("help", short_help="List all commands and pages, show one, or find a word.")
@click.argument("topic", nargs=-1, metavar="[TOPIC|WORD]")
@click.pass_context
def help(ctx: click.Context, topic: tuple[str, ...]) -> int:  # noqa: A001 - the command's name
    """Show the page TOPIC or the help of the command TOPIC; without TOPIC, list all commands and pages.

    If a command has a page of its name, jobkit shows its help and then the page. Any other WORD is looked
    for in all pages: commands, keys and options come first, then headings, then sentences. On a terminal
    jobkit formats a page, and shows it in a pager if it is longer than the screen; elsewhere it prints
    Markdown.

    \b
      jobkit help
      jobkit help spec
      jobkit help lesson 2
      jobkit help models fetch
      jobkit help 'out of memory'
    """
    if not topic:
        _say(_index())
        return 0
    command, page = _command_help(ctx, topic), _pages().get("-".join(topic))
    if command or page:
        _show(command, page)
    else:
        refuse_removed(topic)
        _say("\n".join(_pages_with(ctx, " ".join(topic))))
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
    name = re.sub(r"^(\d+)-.*", r"\1", path.stem)
    return path.parent.name if path.stem == INDEX else f"{path.parent.name}-{name}"


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
    return "\n".join([*whole_list(), *lines, end])


class Piece(NamedTuple):
    """A heading, a row, a sentence or a line of code of a page, without Markdown."""

    topic: str
    name: str  # of a command, a key or an option, and other code in the first column; else empty
    text: str
    rank: int  # of its kind; what has the word in its name comes before
    symptoms: tuple[str, ...] = ()  # what a person may have copied: it comes before all others


HEADING, SENTENCE, CODE = 1, 2, 3


def _pieces(topic: str, page: str) -> Iterator[Piece]:
    """Yield the pieces of a page; what the list of commands has of a command is of that topic."""
    command = ""
    parts = re.split(r"^```.*\n((?:(?!```).*\n)*)```$", _plain(page), flags=re.MULTILINE)
    for number, part in enumerate(parts):
        for line in part.splitlines():
            text, at = _bare(line.strip("#->| ")), command.removeprefix("jobkit ") or topic
            if number % 2:
                yield Piece(topic, "", line.strip(), CODE)
            elif line.startswith("#"):
                command = text if topic == "commands" and text.startswith("jobkit ") else ""
                yield Piece(command.removeprefix("jobkit ") or topic, command, text, HEADING)
            elif line.startswith("|"):
                cells = [_bare(cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip("| "))]
                name = f"{command} {cells[0]}".strip() if topic in _KEYS and line.startswith("| `") else ""
                codes = re.findall(r"`([^`]+)`", line.split(" | ")[0]) if topic == "symptoms" else ()
                yield Piece(at, name, f"{name or cells[0]}: {'; '.join(cells[1:])}", SENTENCE, tuple(codes))
            else:
                # not after the number of an item
                sentences = re.split(r"(?<=[^\W\d][.?]|[)\"][.?]) (?=[\w-])", text)
                yield from (Piece(at, "", one, SENTENCE) for one in sentences)


def _bare(text: str) -> str:
    return re.sub(r"\\(?=\|)|\*\*|`", "", re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text))


def _patterns(word: str) -> Iterator[re.Pattern[str]]:
    """Yield what to look for until it is found: the words in a row, then those that matter, then stems."""
    small = re.findall(r"\w+", "a are can do does did for how i in is it me my of on the to was what why")
    words = [one for one in word.split() if one.lower() not in small] or word.split()
    row, whole = (
        [rf"(?<![^\W_]){re.escape(one)}s?(?![^\W_])" for one in some] for some in (word.split(), words)
    )
    # The first letters of a word that is looked for last, and of which shorter words are left out
    stem = 5
    stems = [rf"(?<![^\W_]){re.escape(one[:stem])}" for one in words if len(one) >= stem]
    anywhere = ("".join(f"(?=.*{one})" for one in parts) for parts in (whole, stems or whole))
    for pattern in (r"[\W_]+".join(row), *anywhere):
        yield re.compile(pattern, re.IGNORECASE)


def _pages_with(ctx: click.Context, word: str) -> list[str]:
    """Return where a word is: commands, keys and options first, then a heading or a sentence of each page."""
    pages = {topic: _pages()[topic] for topic in _KEYS} | _pages()
    pieces = [
        piece for topic, path in pages.items() for piece in _pieces(topic, path.read_text(encoding="utf-8"))
    ]
    for sought in _patterns(word):
        found = [piece for piece in pieces if sought.search(piece.text)]
        if found:
            break
        if explained := _reason(word):
            return [explained, "", terminal.next_line("jobkit help symptoms")]
    else:
        group = ctx.find_root().command
        commands = group.list_commands(ctx) if isinstance(group, click.Group) else []
        # How close a name must be to what was typed, which may be any word and no misspelt name
        close = terminal.did_you_mean(word, [*_pages(), *commands], 0.7)
        hint = close or "jobkit help lists all commands and pages"
        raise JobkitError(f"{word!r} is no command and no page, and no page contains it", hint=hint)
    times, places = Counter(piece.topic for piece in found), dict[tuple[str, str], Piece]()

    def order(ranked: tuple[int, Piece]) -> tuple[int, int]:
        """Of headings the shortest is the closest, of sentences that of the page with most."""
        rank, piece = ranked
        return rank, len(piece.text) if rank == HEADING else -max(rank, 0) * times[piece.topic]

    ranked = [
        (-1 if word in one.symptoms else one.rank * (not sought.search(one.name)), one) for one in found
    ]
    for rank, piece in sorted(ranked, key=order):
        places.setdefault((piece.topic, "" if rank else piece.name), piece)
    # Places that are listed for a word
    most_places = 12
    shown = [*places.values()][:most_places]
    width = max(len(piece.topic) for piece in shown)
    lines = list[str]()
    for piece in shown:
        first, below = f"  {piece.topic:<{width}}  ", " " * (width + 4)
        lines += terminal.wrap(piece.text, terminal.page_width(), first=first, below=below)
    more = f", the first {most_places} here" if len(places) > most_places else ""
    head = f"{word!r} is in {format_count(len(places), 'place')}{more}:"
    return [head, *lines, "", terminal.next_line(f"jobkit help {shown[0].topic}")]


def _reason(word: str) -> str:
    """Return what a reason of Slurm for a job that waits means; empty if the word is none."""
    from jobkit.schedulers import slurm
    from jobkit.schedulers.types import Queued, State

    said = slurm.explain(Queued(job_id="", task=0, state=State.PENDING, reason=word))
    return said if said != word and re.fullmatch(r"[A-Z]\w*[a-z][A-Z]\w*", word) else ""


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
    widest = 120
    if page and sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        width = min(widest, terminal.terminal_width() or widest)
        formatted = Markdown(without_links(text, page), hyperlinks=False, code_theme="ansi_dark")
        out = StringIO()
        Console(file=out, force_terminal=True, width=width).print(formatted)
        text = out.getvalue()
    _say("\n\n".join(filter(None, (command, text))))


def _say(text: str) -> None:
    """Print a text, in a pager if it is longer than the terminal."""
    if sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines - 1:
        click.echo_via_pager(text, color=True)
    else:
        terminal.say(text, colours=True)


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
