"""The whole corpus: ``jobkit apply`` and ``merge``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import read_points
from jobkit.core.units import format_count, format_list

if TYPE_CHECKING:
    from jobkit.extensions.corpus.merge import Merged
    from jobkit.launch.launch import Preview


@click.command(short_help="Work through a whole corpus with a measured setting.")
@click.argument("run", metavar="RUN|SPEC", type=shared.FilledPath(path_type=Path), required=False)
@shared.corpus_option("The corpus: files and folders, up to the next option; may be repeated.")
@click.option(
    "--out", metavar="DIR", required=True, type=click.Path(path_type=Path), help="The run folder to make."
)
@shared.shard_options
@shared.ceiling_option
@shared.set_option
@shared.after_option
@shared.stand_in_option
@shared.text_field_option
@shared.id_field_option
@shared.encoding_option
@shared.split_long_option
@shared.skip_bad_option
@shared.format_option(
    "The format that jobkit merge writes; a format that cannot be written is refused now.", "jsonl"
)
@shared.scheduler_option
@shared.site_option
@click.option(
    "--plan-as-job", is_flag=True, help="Read and plan the corpus in a job, which submits the shards."
)
@shared.preview_options
@shared.force_option
@click.option("--wait", is_flag=True, help="Wait until every shard has ended.")
@shared.print_jobs_option
@shared.json_option
def apply(
    run: Path | None,
    corpus: tuple[str, ...],
    out: Path,
    shard_minutes: float | None,
    shards: int | None,
    max_parallel: int | None,
    plan_as_job: bool,
    preview: Preview | None,
    wait: bool,
    print_jobs: bool,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 - fields of `ApplyRequest`
) -> int:
    """Work through a whole corpus with the setting that the run folder RUN measured, or that SPEC has.

    jobkit reads the corpus once, cuts it into shards of equal load, and prints the plan: how many shards,
    the hours with their interval, the end, and the request. Then it runs one job for each shard, on
    Slurm, on Grid Engine, or here. DIR is a run folder: status, logs, cancel and resume work on it.
    Each paragraph is worked through exactly once, also if jobs, nodes or this command are killed: type
    the same command again, or jobkit resume DIR. If the corpus has new files, it tags those alone.

    \b
      jobkit apply runs/stanza-20260102-101530-3f9a --corpus letters.txt --out tagged
      jobkit apply runs/stanza-20260102-101530-3f9a --corpus a.txt b.txt.gz more/ --out tagged --dry-run
      jobkit apply first.yaml --corpus docs.jsonl --text-field body --id-field doi --out tagged
      jobkit apply first.yaml --corpus corpus/ --out tagged --plan-as-job
      jobkit apply first.yaml --corpus sample --out trial --stand-in
      jobkit status tagged
      jobkit merge tagged

    The corpus `sample` is jobkit's own text. For any other corpus jobkit refuses a stand-in or a model
    with random weights, with the command that fetches the real one, unless --stand-in permits it.

    All that cannot be read is reported at once, with file and line, before anything is submitted. See
    jobkit help apply.

    \b
    Exit status:
      0  submitted; or every shard is done
      2  the corpus, the setting or the folder cannot be used: nothing was submitted
      3  the scheduler refused, or does not answer
      4  some shards failed; or the job could not plan the corpus
      5  submitted, but the journal could not be written; or some shards are still to come
    """
    from jobkit.core.paths import cache_dir
    from jobkit.extensions.corpus import apply as applying
    from jobkit.extensions.corpus.resumption import apply_as_job, report_end
    from jobkit.extensions.corpus.scan import corpus_path
    from jobkit.runs.journal import read_journal
    from jobkit.runs.request import MINUTES

    run, corpus = shared.run_and_corpus(run, corpus)
    if run is None:
        raise click.UsageError("Missing argument 'RUN|SPEC': name it before --corpus")
    if not corpus:
        raise click.UsageError("Missing option '--corpus': the files to work through")
    if print_jobs and as_json:
        raise click.UsageError("--json names the job of each shard: leave out --print-jobs")
    paths = tuple(corpus_path(word, cache_dir()) for word in corpus)
    asked["overrides"] += shared.most_at_once(max_parallel)
    minutes = shard_minutes or MINUTES
    request = applying.ApplyRequest(word=str(run), paths=paths, minutes=minutes, number=shards, **asked)
    before = len(read_journal(out.expanduser()).submissions) if print_jobs else 0
    begin = apply_as_job if plan_as_job else applying.apply
    code = begin(out, request, how=applying.How(preview, wait))
    if print_jobs and preview is None:
        shared.say_jobs(out.expanduser(), before)
    if as_json and preview is None:
        from jobkit.commands.status import status

        ended: int = status.main(args=["--json", "--", str(out)], standalone_mode=False)
        return ended if code is None else code
    return report_end(out) if code is None else code


class _Merge(click.Command):
    """Takes ``--with-text`` with and without ``=all``; a word behind it is never its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--all-text" if word == "--with-text=all" else word for word in args])


@click.command(cls=_Merge)
@shared.run_of_corpus
@shared.format_option(
    "conll needs tokens, npy needs vectors, npz needs arrays of any length, parquet needs jobkit[parquet]; "
    "may be repeated. Default: the format of jobkit apply; of vectors and arrays parquet.",
    multiple=True,
)
@click.option(
    "--with-text",
    is_flag=True,
    help="Add to each row the text of its paragraph, as paragraph_text; --with-text=all also if that is more "
    "than ten times the corpus.",
)
@click.option("--all-text", is_flag=True, hidden=True)
@click.option(
    "--context", metavar="N", type=click.IntRange(1), help="Add N characters on each side of the entity."
)
@shared.output_option(
    "Write to FILE, whole or not at all; of several formats each has its ending. Default: merged.jsonl "
    "(or .tsv, ...) in RUN."
)
@click.option(
    "--allow-missing", is_flag=True, help="Write the results that there are, and list what is missing."
)
@click.option(
    "--allow-quarantine",
    is_flag=True,
    help="Merge all but the paragraphs in quarantine, and list these.",
)
@click.option(
    "--fetch", is_flag=True, help="With jobkit --on HOST: bring the files to this machine, to the same path."
)
@shared.json_option
def merge(
    run: Path,
    fmt: tuple[str, ...],
    output: Path | None,
    allow_missing: bool,
    fetch: bool,
    as_json: bool,
    **added: Any,  # noqa: ANN401 - what each row has besides
) -> int:
    """Join the results of `jobkit apply` in one file, in the order of the corpus, each row once.

    RUN is the folder that `jobkit apply --out` names. Each row has the document, the number of the
    paragraph in it, and the columns of the workload; start and end are characters of the document as it
    was given. If a file of the corpus has several documents, each row has its file too.

    \b
      jobkit merge tagged                                     writes tagged/merged.jsonl
      jobkit merge tagged --format tsv --output entities.tsv
      jobkit merge tagged --format csv --format parquet --with-text

    Vectors and arrays are merged as parquet, or as npy or npz with a table merged.rows.tsv of documents and
    paragraphs.

    A second file, merged.documents.jsonl, has a line for each document, also for one without a row:
    document, paragraphs, rows. With --output entities.tsv it is entities.documents.jsonl.

    jobkit merges nothing if a shard has no result yet, if two results overlap, if a result does not
    match its SHA-256, or if a file of the corpus has changed since it was planned. An older FILE is
    replaced at the end, at once. With --allow-missing jobkit merges the results that there are into
    merged.partial.jsonl, and merged.partial.documents.jsonl counts the missing paragraphs of a document.
    With paragraphs in quarantine it merges nothing either; with --allow-quarantine it merges the others,
    and lists these in merged.quarantine.jsonl.

    The last lines are a paragraph for a methods section, and BibTeX. See jobkit help cite.

    \b
    Exit status:
      0  merged
      2  nothing to merge, or something does not match
      5  some shards are still to come, or paragraphs are in quarantine; if allowed, the others are merged
    """
    from jobkit.extensions.corpus.merge import default_format
    from jobkit.extensions.corpus.merge import merge as join
    from jobkit.extensions.corpus.plan import is_unplanned, refuse_sweep
    from jobkit.extensions.corpus.provenance import bibtex, closing_line, methods
    from jobkit.extensions.corpus.standing import CorpusState, finish
    from jobkit.runs.which_run import changed_run_named

    if fetch:
        raise click.UsageError("--fetch brings files from a cluster: jobkit --on HOST merge RUN --fetch")
    if output == Path("-"):
        raise JobkitError(
            "--output -: jobkit writes a merge whole or not at all, and cannot do so on standard output",
            hint="name a file: --output FILE",
        )
    folder = changed_run_named(run, "merge")
    refuse_sweep(folder)
    if is_unplanned(folder):
        hint = f"jobkit status {terminal.shell_path(folder)} shows the job that plans it"
        raise JobkitError(f"{folder}: the corpus is not planned yet", hint=hint, exit_code=ExitCode.TO_COME)
    forms, notes = fmt or (default_format(folder),), list[str]()
    try:
        merged = join(folder.absolute(), output or folder / f"merged.{forms[0]}", *forms, **added)
    except JobkitError as error:
        if error.exit_code != ExitCode.TO_COME:
            raise
        error.hint = _wait_or_resume(folder.absolute(), error.hint)
        if not allow_missing or not CorpusState(folder).winners:
            raise
        partial = output or folder / f"merged.partial.{forms[0]}"
        merged = join(folder.absolute(), partial, *forms, **added, allow_missing=True)
        notes.append(str(error))
    models = (point.model for point in read_points(folder)[0][:1])
    notes += [model.warning for model in models if model and model.stand_in]
    data = {} if merged.missing else finish(folder.absolute())
    cite = {"methods": methods(data), "bibtex": bibtex(data)} if data else {}
    if merged.missing:
        what = format_count(merged.missing.total(), "paragraph")
        documents = format_list(list(merged.missing))
        notes.append(f"missing: {what} of {format_count(len(merged.missing), 'document')}: {documents}")
    else:
        notes += [closing_line(data)] if data else []
        notes.append("done: all shards are merged, and nothing is left to run")
    if as_json:
        answer = {**asdict(merged), "missing": dict(merged.missing), "notes": notes, **cite}
        terminal.say(json.dumps(answer, default=str, indent=1))
    else:
        _say_merged(merged)
    if cite:
        notes += ["", *terminal.wrap(cite["methods"], terminal.page_width()), "", cite["bibtex"]]
    terminal.note("\n".join(notes))
    return ExitCode.TO_COME if merged.missing else 0


def _say_merged(merged: Merged) -> None:
    from jobkit.worker.workloads.base import noun

    kind = f"{merged.vectors} {noun(merged.vectors)}" if merged.vectors else "row"
    rows = format_count(merged.rows, kind)
    outputs = ", ".join(map(terminal.relative_path, merged.outputs))
    terminal.say(
        f"merged {rows} of {format_count(merged.paragraphs, 'paragraph')} "
        f"and {format_count(merged.shards, 'shard')}: {outputs}"
    )
    what = format_count(merged.quarantined, "paragraph")
    more = {"document and paragraph of each row": merged.places, f"in quarantine: {what}": merged.quarantine}
    for words, path in more.items():
        if path:
            terminal.note(f"{words}: {terminal.relative_path(path)}")
    silent = f", {merged.silent:,} of them without a row" if merged.silent else ""
    documents = f"{format_count(merged.documents, 'document')}{silent}"
    terminal.note(f"paragraphs and rows of {documents}: {terminal.relative_path(merged.counts)}")


def _wait_or_resume(folder: Path, resume: str) -> str:
    """Return what to do if shards have no result: wait for those that go on, run the others again."""
    from jobkit.runs.reader import read_status
    from jobkit.runs.status import MOVING, PointStanding

    (run,) = read_status([folder])
    left = {point.standing for point in run.points} - {PointStanding.DONE}
    if not left & MOVING:
        return resume
    status = f"jobkit status {terminal.shell_path(folder)} --watch"
    wait = f"shards are running or in the queue: wait; {status} follows them"
    return wait if left <= MOVING else f"{wait}; for the other shards: {resume}"
