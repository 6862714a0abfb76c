"""``jobkit merge``: join the results of a corpus in one file."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands.shared import OutputPath, changed_run, format_option
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.units import format_count, format_list


@click.command()
@changed_run
@format_option(
    "conll needs tokens, npy needs vectors, parquet needs jobkit[parquet]. Default: the format of jobkit "
    "apply; of vectors parquet."
)
@click.option(
    "--output",
    type=OutputPath(),
    metavar="FILE",
    help="Write to FILE, whole or not at all. Default: merged.jsonl (or .tsv, ...) in RUN.",
)
@click.option(
    "--allow-missing", is_flag=True, help="Write the results that there are, and list what is missing."
)
@click.option(
    "--fetch", is_flag=True, help="With jobkit --on HOST: bring the files to this machine, to the same path."
)
def merge(run: Path, fmt: str | None, output: Path | None, allow_missing: bool, fetch: bool) -> int:
    """Join the results of `jobkit apply` in one file, in the order of the corpus, each row once.

    RUN is the folder that `jobkit apply --out` names. Each row has the document, the number of the
    paragraph in it, and the columns of the workload; start and end are characters of the document as it
    was given. If the corpus has JSONL files, each row has its file too.

    \b
      jobkit merge tagged                                     writes tagged/merged.jsonl
      jobkit merge tagged --format tsv --output entities.tsv

    Vectors are merged as parquet, or as npy with a table merged.rows.tsv of documents and paragraphs.

    A second file, merged.documents.jsonl, has a line for each document, also for one without a row:
    document, paragraphs, rows. With --output entities.tsv it is entities.documents.jsonl.

    jobkit merges nothing if a shard has no result yet, if two results overlap, if a result does not
    match its SHA-256, or if a file of the corpus has changed since it was planned. An older FILE is
    replaced at the end, at once. With --allow-missing jobkit merges the results that there are into
    merged.partial.jsonl, and merged.partial.documents.jsonl counts the missing paragraphs of a document.

    \b
    Exit status:
      0  merged
      2  nothing to merge, or something does not match
      5  some shards are still to come; with --allow-missing the others are merged
    """
    from jobkit.core.errors import ExitCode
    from jobkit.core.layout import read_points
    from jobkit.extensions.corpus.merge import default_format
    from jobkit.extensions.corpus.merge import merge as join
    from jobkit.extensions.corpus.standing import MOST_NAMED, finish, void_shards
    from jobkit.extensions.corpus.winners import read_winners
    from jobkit.launch.guards import warn_stand_in
    from jobkit.runs.which_run import changed_run_named

    if fetch:
        raise click.UsageError("--fetch brings files from a cluster: jobkit --on HOST merge RUN --fetch")
    if output == Path("-"):
        raise JobkitError(
            "--output -: jobkit writes a merge whole or not at all, and cannot do so on standard output",
            hint="name a file: --output FILE",
        )
    folder = changed_run_named(run, "merge")
    _refuse_without_shards(folder)
    void, form = void_shards(folder.absolute()), fmt or default_format(folder)
    try:
        merged = join(folder.absolute(), output or folder / f"merged.{form}", form, void=void)
    except JobkitError as error:
        if error.exit_code != ExitCode.TO_COME:
            raise
        error.hint = _hint(folder.absolute(), error.hint)
        if not allow_missing or not read_winners(folder).keys() - void:
            raise
        partial = output or folder / f"merged.partial.{form}"
        merged = join(folder.absolute(), partial, form, void=void, allow_missing=True)
        terminal.note(str(error))
    rows = format_count(merged.rows, f"{merged.vectors} vector" if merged.vectors else "row")
    terminal.say(
        f"merged {rows} of {format_count(merged.paragraphs, 'paragraph')} "
        f"and {format_count(merged.shards, 'shard')}: {terminal.relative_path(merged.output)}"
    )
    if merged.places:
        terminal.note(f"document and paragraph of each row: {terminal.relative_path(merged.places)}")
    silent = f", {merged.silent:,} of them without a row" if merged.silent else ""
    documents = f"{format_count(merged.documents, 'document')}{silent}"
    terminal.note(f"paragraphs and rows of {documents}: {terminal.relative_path(merged.counts)}")
    for point in read_points(folder)[0][:1]:
        warn_stand_in(point)
    if merged.missing:
        what = format_count(merged.missing.total(), "paragraph")
        documents = format_list(list(merged.missing), MOST_NAMED)
        terminal.note(f"missing: {what} of {format_count(len(merged.missing), 'document')}: {documents}")
        return ExitCode.TO_COME
    if closing := finish(folder.absolute()):
        terminal.note(closing)
    terminal.note("done: all shards are merged, and nothing is left to run")
    return 0


def _refuse_without_shards(folder: Path) -> None:
    from jobkit.core.errors import ExitCode
    from jobkit.extensions.corpus.plan import is_corpus_folder, is_unplanned

    if not is_corpus_folder(folder):
        raise JobkitError(f"{folder}: not the folder of jobkit apply", hint="jobkit collect prints a sweep")
    if is_unplanned(folder):
        hint = f"jobkit status {terminal.shell_path(folder)} shows the job that plans it"
        raise JobkitError(f"{folder}: the corpus is not planned yet", hint=hint, exit_code=ExitCode.TO_COME)


def _hint(folder: Path, resume: str) -> str:
    """Return what to do if shards have no result: wait for those that go on, run the others again."""
    from jobkit.runs.reader import read_status
    from jobkit.runs.status import MOVING, PointState

    (run,) = read_status([folder])
    left = {point.state for point in run.points} - {PointState.DONE}
    if not left & MOVING:
        return resume
    status = f"jobkit status {terminal.shell_path(folder)} --watch"
    wait = f"shards are running or in the queue: wait; {status} follows them"
    return wait if left <= MOVING else f"{wait}; for the other shards: {resume}"
