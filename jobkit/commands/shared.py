"""Arguments and options that several commands share, each with one name, type and help."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobkit.core import terminal
from jobkit.core.errors import JobkitError

if TYPE_CHECKING:
    from jobkit.core.blocks import Block

F = TypeVar("F", bound=Callable[..., Any])


class FilledPath(click.Path):
    """A path that is not empty, as the value of an unset variable of the shell is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own
        """Return the path; refuse an empty word, which pathlib reads as the working directory."""
        if value == "":
            self.fail("the path is empty; is a variable of your shell not set?", param, ctx)
        return super().convert(value, param, ctx)


class OutputPath(FilledPath):
    """A file to write, which no file that jobkit reads in a run folder may be."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own
        """Return the path; refuse a contract file of a run folder."""
        from jobkit.core.layout import refuse_contract_file

        path = super().convert(value, param, ctx)
        refuse_contract_file(path, param.opts[0] if param else "")
        return path


def write_output(path: Path, text: str) -> None:
    """Write the file that ``--output`` names, all of it or nothing."""
    from jobkit.core.files import write_atomically

    try:
        write_atomically(path, text)
    except OSError as error:
        hint = "name a file in a folder that exists"
        raise JobkitError(f"--output {path}: {error.strerror}", hint=hint) from error


class Paths(click.Option):
    """An option that takes every word up to the next option, and may be repeated."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ANN401 - click's own
        """Let the option take the words that follow its first one."""
        super().add_to_parser(parser, ctx)
        option = parser._long_opt[self.opts[0]]  # noqa: SLF001 - click has no other way to them
        take = option.process

        def take_all(value: str, state: Any) -> None:  # noqa: ANN401 - click's own
            take(value, state)
            while state.rargs and (state.rargs[0] == "-" or not state.rargs[0].startswith("-")):
                take(state.rargs.pop(0), state)

        option.process = take_all


def say_blocks(blocks: Iterable[Block]) -> None:
    """Print an answer for a person, as wide as the terminal."""
    from jobkit.core.blocks import as_text

    terminal.say(as_text(blocks, terminal.terminal_width()), nl=False)


def together(*options: Callable[..., Any]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the decorator that adds several options, in the order of the help."""

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def options_of_spec(command: Callable[..., int]) -> Callable[..., int]:
    """Pass ``--set``, ``--scheduler`` and the other options that every spec accepts as one `Options`."""

    @wraps(command)
    def call(**given: Any) -> int:  # noqa: ANN401 - of any option
        from jobkit.planning.prepare import Options

        names = given.keys() & {"overrides", "scheduler", "site", "runs_dir", "stand_in"}
        options = Options(**{name: given.pop(name) for name in names})
        return command(options=options, **given)

    return call


def preview_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a dry run, and pass them as a `Preview`, or ``None`` for no dry run."""

    @click.option(
        "--dry-run", is_flag=True, help="Print the plan and submit nothing; in a pipe, then the job script."
    )
    @click.option("--script", is_flag=True, help="Print only the job script; submit nothing.")
    @click.option("--show-environment", is_flag=True, help="Print the values of `environment` too.")
    @wraps(command)
    def call(dry_run: bool, script: bool, show_environment: bool, **given: Any) -> int:  # noqa: ANN401 - of any option
        from jobkit.launch.launch import Preview

        return command(preview=Preview(script, show_environment) if dry_run or script else None, **given)

    return call


def ceiling_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add ``--max-gpu-hours``, and pass it as a key that overrides that of the spec."""

    @click.option(
        "--max-gpu-hours",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="Refuse what takes the run beyond N GPU-hours.",
    )
    @wraps(command)
    def call(max_gpu_hours: float | None, overrides: tuple[str, ...], **given: Any) -> int:  # noqa: ANN401 - of any option
        words = () if max_gpu_hours is None else (f"max_gpu_hours={max_gpu_hours}",)
        return command(overrides=(*overrides, *words), **given)

    return call


def say_jobs(run: Path, before: int = 0) -> None:
    """Print the ids of the jobs of a run, without so many that were submitted before."""
    from jobkit.runs.journal import read_journal

    for job in read_journal(run).submissions[before:]:
        terminal.say(job.job.id)


def corpus_option(meaning: str) -> Callable[[F], F]:
    """Return the decorator that adds ``--corpus`` with its help."""
    return click.option("--corpus", cls=Paths, multiple=True, metavar="PATH...", help=meaning)


def run_and_corpus(run: Path | None, corpus: tuple[str, ...]) -> tuple[Path | None, tuple[str, ...]]:
    """Return RUN and the corpus; a run or a spec that is typed behind the paths of ``--corpus`` is RUN."""
    from jobkit.core.layout import is_run_folder

    if run is None and len(corpus) > 1 and (is_run_folder(Path(corpus[-1])) or corpus[-1].endswith(".yaml")):
        return Path(corpus[-1]), corpus[:-1]
    return run, corpus


class NamedRun(click.Argument):
    """The RUN of a command that changes it: it is required, and the error suggests the latest run."""

    def __init__(self, *names: Any, extension: str | None = None, **more: Any) -> None:  # noqa: ANN401 - click's own
        """Note of which extension the run must be; ``None`` for any."""
        super().__init__(*names, **more)
        self.extension = extension

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> Any:  # noqa: ANN401 - click's own
        """Take the run from the command line; refuse a missing one."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.MissingParameter:
            from jobkit.core.extensions import extension_of
            from jobkit.runs.which_run import known_runs

            begins = "apply" if self.extension else "sweep"
            latest = f" No run of jobkit {begins} is known here."
            if runs := [run for run in known_runs() if self.extension in {None, extension_of(run)}]:
                words = f"jobkit {ctx.info_name} {terminal.shell_path(runs[0])}"
                latest = f" A command that changes a run needs the run; for the latest: {words}"
            raise click.UsageError(f"Missing argument 'RUN'.{latest}", ctx) from None


changed_run = click.argument("run", type=FilledPath(file_okay=False, path_type=Path), cls=NamedRun)
"""The argument RUN of a command that changes the run."""
run_of_corpus = click.argument(
    "run", type=FilledPath(file_okay=False, path_type=Path), cls=NamedRun, extension="corpus"
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the spec, such as resources.memory=16GiB; may be repeated.",
)


def after_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add ``--after``, and pass it as the key `after` of ``--set``."""

    @click.option(
        "--after",
        multiple=True,
        metavar="JOBID|RUN",
        help="Begin once it has ended well (any:JOBID: at all).",
    )
    @wraps(command)
    def call(after: tuple[str, ...], overrides: tuple[str, ...], **given: Any) -> int:  # noqa: ANN401 - of any
        if after:
            from jobkit.runs.after import resolved

            overrides += (f"after={json.dumps(list(map(resolved, after)))}",)
        return command(overrides=overrides, **given)

    return call


site_option = click.option(
    "--site", metavar="NAME|FILE", help="The site: a name, or a site file. Default: the site in the spec."
)
runs_dir_option = click.option(
    "--runs-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for run folders. Default: the site's runs_dir, else runs/.",
)
stand_in_option = click.option(
    "--stand-in",
    is_flag=True,
    help="Permit a stand-in in place of a model that is missing: to try jobkit, not for results.",
)
print_jobs_option = click.option(
    "--print-jobs", is_flag=True, help="Print the ids of the submitted jobs, the job that follows last."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs: bytes, seconds, no NaN."
)


def _lines(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> str:
    del context, option
    return "\n".join(words)


text_field_option = click.option(
    "--text-field",
    metavar="[FILE=]NAME",
    multiple=True,
    callback=_lines,
    help="The field of a text; of several a file's first. Default: text, or a field like it.",
)
id_field_option = click.option(
    "--id-field",
    "--id",
    "id_field",
    metavar="[FILE=]NAME",
    multiple=True,
    callback=_lines,
    help="The field of a document's id; file-row: FILE:ROW. Default: id, or a field like it.",
)
encoding_option = click.option(
    "--encoding",
    metavar="NAME",
    default="",
    help="The encoding of text files; auto guesses it of each. Default: UTF-8.",
)
split_long_option = click.option(
    "--split-long", is_flag=True, help="Cut a paragraph that no measured batch covers between sentences."
)
skip_bad_option = click.option(
    "--skip-bad", is_flag=True, help="Skip what cannot be read; provenance.json lists it."
)
wait_option = click.option(
    "--wait", is_flag=True, help="Wait until the last point has ended, then print the table."
)


def force(ctx: click.Context, param: click.Parameter | None = None, forced: bool = True) -> None:  # noqa: FBT002 - click's own
    """Let the jobs of a command be submitted though jobkit expects that they never start."""
    del param
    if forced:
        from jobkit.launch.scheduler_calls import FORCED

        token = FORCED.set(True)
        ctx.call_on_close(lambda: FORCED.reset(token))


force_option = click.option(
    "--force",
    is_flag=True,
    expose_value=False,
    callback=force,
    help="Submit what jobkit, not the scheduler, expects never to start.",
)


def format_option(meaning: str, default: str | None = None, *, multiple: bool = False) -> Callable[[F], F]:
    """Return the decorator that adds ``--format``, that of the results of a corpus, with its help."""
    from jobkit.extensions.corpus.formats import FORMATS  # here, because only two commands have it

    return click.option(
        "--format",
        "fmt",
        type=click.Choice(FORMATS),
        default=default,
        multiple=multiple,
        show_default=True,
        help=meaning,
    )


shard_options = together(
    click.option(
        "--shard-minutes",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="How long a shard of the corpus may take. Default: 30.",
    ),
    click.option("--shards", type=click.IntRange(min=1), metavar="N", help="Cut N shards."),
    click.option(
        "--max-parallel",
        type=click.IntRange(min=1),
        metavar="N",
        help="The largest number of shards at a time.",
    ),
)
"""The options that say what the shards of a corpus are to be."""


def most_at_once(number: int | None) -> tuple[str, ...]:
    """Return what ``--max-parallel`` overrides."""
    return (f"max_parallel={number}",) if number else ()


def scheduler_option(
    command: F, default: str = "the scheduler in the spec, else the scheduler on this machine"
) -> F:
    """Add ``--scheduler``."""
    # Imported here because it takes a third of the time of `jobkit status --help`, which has no such option.
    from jobkit.schedulers.registry import scheduler_names

    return click.option(
        "--scheduler",
        type=click.Choice(["auto", *scheduler_names()]),
        help=f"The scheduler. Default: {default}.",
    )(command)


def output_option(meaning: str, default: Path | None = None) -> Callable[[F], F]:
    """Return the decorator that adds ``--output`` with its help."""
    kind = OutputPath()
    return click.option(
        "--output", type=kind, metavar="FILE", default=default, show_default=True, help=meaning
    )


def gpu_memory_option(meaning: str) -> Callable[[F], F]:
    """Return the decorator that adds ``--gpu-memory`` with its help."""
    return click.option("--gpu-memory", metavar="SIZE", help=meaning)
