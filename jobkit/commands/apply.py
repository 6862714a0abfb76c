"""``jobkit apply``: work through a whole corpus with a measured setting."""

from __future__ import annotations

from pathlib import Path

import click

from jobkit.commands import shared


@click.command(short_help="Work through a whole corpus with a measured setting.")
@click.argument("run", metavar="RUN|SPEC", type=shared.FilledPath(path_type=Path), required=False)
@shared.corpus_option("The corpus: files and folders, up to the next option; may be repeated.")
@click.option(
    "--out", metavar="DIR", required=True, type=click.Path(path_type=Path), help="The run folder to make."
)
@shared.shard_options
@shared.set_option
@shared.stand_in_option
@shared.text_field_option
@shared.id_field_option
@shared.skip_bad_option
@shared.format_option(
    "The format that jobkit merge writes; a format that cannot be written is refused now.", "jsonl"
)
@shared.scheduler_option
@shared.site_option
@click.option(
    "--plan-as-job", is_flag=True, help="Read and plan the corpus in a job, which submits the shards."
)
@shared.dry_run_option
@shared.script_option
@shared.show_environment_option
@click.option("--wait", is_flag=True, help="Wait until every shard has ended.")
def apply(
    run: Path | None,
    corpus: tuple[str, ...],
    out: Path,
    shard_minutes: float | None,
    shards: int | None,
    max_parallel: int | None,
    overrides: tuple[str, ...],
    stand_in: bool,
    text_field: str,
    id_field: str,
    skip_bad: bool,
    fmt: str,
    scheduler: str | None,
    site: str | None,
    plan_as_job: bool,
    dry_run: bool,
    script: bool,
    show_environment: bool,
    wait: bool,
) -> int:
    """Work through a whole corpus with the setting that the run folder RUN measured, or that SPEC has.

    jobkit reads the corpus once, cuts it into shards of equal load, and prints the plan: how many shards,
    the hours with their interval, the end, and the request. Then it runs one job for each shard, on
    Slurm, on Grid Engine, or here. DIR is a run folder: status, logs, cancel, resume and throttle work on
    it. Each paragraph is worked through exactly once, also if jobs, nodes or this command are killed:
    type the same command again, or jobkit resume DIR.

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
    from jobkit.extensions.corpus.scan import corpus_path
    from jobkit.extensions.corpus.shards import MINUTES

    run, corpus = shared.run_and_corpus(run, corpus)
    if run is None:
        raise click.UsageError("Missing argument 'RUN|SPEC': name it before --corpus")
    if not corpus:
        raise click.UsageError("Missing option '--corpus': the files to work through")
    more = (f"max_parallel={max_parallel}",) if max_parallel else ()
    request = applying.ApplyRequest(
        word=str(run),
        paths=tuple(corpus_path(word, cache_dir()) for word in corpus),
        overrides=(*overrides, *more),
        scheduler=scheduler,
        site=site,
        minutes=shard_minutes or MINUTES,
        number=shards,
        text_field=text_field,
        id_field=id_field,
        skip_bad=skip_bad,
        fmt=fmt,
        stand_in=stand_in,
    )
    preview = applying.Preview(script, show_environment) if dry_run or script else None
    code = applying.apply(out, request, as_job=plan_as_job, preview=preview, wait=wait)
    return applying.report_end(out) if code is None else code
