"""What runs have measured: ``jobkit collect``, ``recommend``, ``report``, ``compare`` and ``waste``."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from jobkit.commands import shared
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CPU
from jobkit.core.layout import is_run_folder, read_points
from jobkit.core.paths import user_name
from jobkit.core.records import Outcome
from jobkit.core.units import format_count, format_list, parse_duration, parse_size
from jobkit.runs.status import kind_of
from jobkit.runs.which_run import find_run, how_to_begin, refuse_unmeasured, run_or_latest, usual

STDOUT = Path("-")


@click.command()
@click.argument("paths", nargs=-1, type=shared.FilledPath(path_type=Path))
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["table", *terminal.DELIMITERS, "json", "md"]),
    default="table",
    show_default=True,
    metavar=f"[table|{'|'.join(terminal.DELIMITERS)}|md]",
    help="table and md are for people, in GiB; csv and tsv are for programs, in bytes and seconds.",
)
@shared.output_option("Write to FILE, whole or not at all, and print nothing; - is standard output.")
@shared.gpu_memory_option(
    "The GPU memory to estimate the largest batch for. Default: that of the measured GPU."
)
@shared.json_option
@click.option(
    "--plot",
    type=shared.OutputPath(),
    metavar="FILE.{png,svg,pdf}",
    help="Also draw memory, speed and energy to this file, with line, bound and knee. Needs jobkit[plot].",
)
@click.option(
    "--plot-size",
    type=click.Choice(["screen", "paper"]),
    default="screen",
    show_default=True,
    help="The size of the picture: of a screen, or of a column of a paper.",
)
def collect(
    paths: tuple[Path, ...],
    fmt: str,
    output: Path | None,
    gpu_memory: str | None,
    as_json: bool,
    plot: Path | None,
    plot_size: str,
) -> int:
    """Read the results of runs and print how speed and memory scale with the batch size.

    PATHS are run folders, folders of run folders, and logs of the Stanza taggers that came before
    jobkit, in any mixture. The name of a run works without its folder. Without PATHS, jobkit reads
    runs/, or the site's runs_dir. It only reads files, asks no scheduler and changes nothing, so you
    can use it at any time, also while a sweep runs.

    \b
      jobkit collect                                  every run under runs/
      jobkit collect runs/stanza-20260102-101530-3f9a one run
      jobkit collect runs/ --gpu-memory 80GiB         would a larger GPU take a larger batch?
      jobkit collect old.o2650                        a log of an earlier tagger
      jobkit collect runs/ --format csv --output points.csv
      jobkit collect runs/stanza-20260102-101530-3f9a --plot scaling.pdf

    jobkit prints one table for each combination of text, model, GPU, software versions and settings; it
    never averages points that differ in one of these. Means are over the repeats that succeeded. Below
    the table are the points that failed or are still to come, with the evidence and what to type. If
    the points show how memory grows with the load, jobkit predicts the largest batch that fits a GPU,
    with a bound, as `jobkit recommend RUN` does; else it prints why not. Of an old log it guesses by a
    straight line, without a bound.

    csv and tsv have one row per point; --json has points, sizes (means, standard deviations and
    intervals), groups, estimates and notes.

    \b
    Exit status:
      0  every point is done (out of GPU memory is a result, not a failure)
      2  there is nothing to collect
      4  some points failed
      5  some points are still to come
    """
    fmt = "json" if as_json else fmt
    output = None if output == STDOUT else output
    if output and plot and output.resolve() == plot.resolve():
        raise click.UsageError(f"--plot and --output both name {output}: give each a file of its own")
    limit_bytes = None if gpu_memory is None else parse_size(gpu_memory)

    found = tuple(path if path.exists() else find_run(path) or path for path in paths) or (usual(),)
    if not paths and not usual().exists():
        raise JobkitError(f"nothing to collect: there is no {usual()}/ here", hint=how_to_begin())
    for path in found:
        refuse_unmeasured(path, "collect")
    # Imported here because pandas takes most of a second, which --help need not spend.
    from jobkit.report.output import render
    from jobkit.report.tables import collect as collect_runs

    if plot is not None:
        from jobkit.report.plot import pictures

        pictures.check_plot(plot)
    collected = collect_runs(found)
    if not collected.rows and not collected.sources.profiled:
        notes = "".join(f"\n  {note}" for note in collected.notes)
        raise JobkitError(f"nothing to collect{notes}", hint=how_to_begin())
    if plot is not None:
        pictures.plot(collected, plot, limit_bytes=limit_bytes, size=plot_size)
        terminal.note(f"plot: {plot}")
    color = output is None and sys.stdout.isatty()
    report = render(collected, fmt, width=terminal.page_width(), limit_bytes=limit_bytes, color=color)
    if output is not None:
        shared.write_output(output, report)
        return collected.exit_code
    runs = [Path(folder) for folder in dict.fromkeys(row.folder for row in collected.rows)]
    if fmt == "table" and not paths:
        named = format_list([terminal.shell_path(run) for run in runs[::-1]], 3)
        report = f"Of {format_count(len(runs), 'run')}: {named}\n{report}"
    terminal.say(report, nl=False, colours=color)
    # If a point failed or is still to come, the table says what to type.
    if fmt == "table" and not collected.exit_code and len(runs) == 1 and is_run_folder(runs[0]):
        on_gpu = any(row.point.device != CPU for row in collected.rows)  # recommend refuses it for a CPU
        given = f" --gpu-memory {terminal.shell_quote(gpu_memory)}" if gpu_memory and on_gpu else ""
        terminal.note_next(f"jobkit recommend {terminal.shell_path(runs[0])}{given}")
    return collected.exit_code


def print_table(run: Path) -> int:
    """Print the scaling table of a run; return the exit code of `jobkit collect`."""
    from jobkit.runs.on_end import tell

    code: int = collect.main(args=["--", str(run)], prog_name="jobkit collect", standalone_mode=False)
    tell(run.absolute())
    return code


@click.command("recommend", short_help="Recommend batch size, GPU, time and scheduler request for a corpus.")
@click.argument("run", type=shared.FilledPath(path_type=Path), required=False)
@shared.gpu_memory_option("A GPU that jobkit does not know by name, by its memory, such as 48GiB.")
@click.option("--gpu", metavar="NAME[,NAME...]", help="GPUs by name, such as v100-32,a100-40; or all.")
@shared.corpus_option("Your corpus: N paragraphs, or files and folders, up to the next option.")
@click.option(
    "--margin",
    metavar="SHARE",
    default="0",
    show_default=True,
    help="Share of memory to keep free in addition.",
)
@click.option(
    "--min-f1",
    type=click.FloatRange(0, 1),
    metavar="F1",
    default=1.0,
    show_default=True,
    help="Also accept a precision whose F1 with the entities of fp32 is at least this.",
)
@shared.skip_bad_option
@click.option("--why", is_flag=True, help="Print all that the answer rests on, too.")
@shared.set_option
@shared.json_option
def recommend(
    run: Path | None,
    gpu_memory: str | None,
    gpu: str | None,
    corpus: tuple[str, ...],
    margin: str,
    min_f1: float,
    skip_bad: bool,
    why: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Read the folder of one RUN, by default the latest, and recommend how to run your whole corpus.

    jobkit prints the smallest batch size within 5 % of the fastest, or the best setting by the objective
    of the spec, or of a run of jobkit tune its answer; the lines for your job script that request just
    enough; the time that your corpus takes on the GPU of the run; the largest safe batch size, with a
    95 % bound; and the cautions that matter most. With --why it adds all cautions, the reasons, other
    GPUs, and what the sweep itself cost. It submits and changes nothing.

    \b
      jobkit recommend
      jobkit recommend runs/stanza-20260102-101530-3f9a
      jobkit recommend runs/stanza-20260102-101530-3f9a --corpus letters.txt
      jobkit recommend runs/stanza-20260102-101530-3f9a --corpus 2000000 --why
      jobkit recommend runs/stanza-20260102-101530-3f9a --gpu v100-32,mig-2g.10gb
      jobkit recommend runs/stanza-20260102-101530-3f9a --gpu-memory 48GiB --margin 5%
      jobkit recommend runs/stanza-20260102-101530-3f9a --min-f1 0.999
      jobkit recommend runs/stanza-20260102-101530-3f9a --set objective.metric=joules_per_1000

    If something is not known, the output says why. See jobkit help recommend.
    """
    if gpu_memory is not None and gpu is not None:
        raise click.UsageError("--gpu-memory and --gpu both name the GPUs: give one of them")
    share = _share(margin)
    run, corpus = shared.run_and_corpus(run, corpus)
    from jobkit.answers.gpus import GpuKind, gpu_kinds
    from jobkit.handle import Run
    from jobkit.report.recommend import output
    from jobkit.report.recommend.material import VALUES_OF

    gpus = gpu_kinds(gpu) if gpu is not None else None
    if gpu_memory is not None:
        gpus = (GpuKind(name=gpu_memory, usable_bytes=parse_size(gpu_memory)),)
    found = run if run and run.is_file() else run_or_latest(run)
    answer = Run(found).recommend(
        corpus, overrides, gpus=gpus, margin=share, min_f1=min_f1, skip_bad=skip_bad
    )
    if as_json:
        terminal.say(output.as_json(answer), nl=False)
        return 0
    if run is None:
        terminal.say(f"Of the latest run, {terminal.shell_path(found)}:")
    shared.say_blocks(output.blocks(answer, why=why, gpus=gpus is not None))
    if is_run_folder(found):
        values = [word for word in overrides if word.startswith(VALUES_OF)]
        more = " --skip-bad" if skip_bad else ""
        more += "".join(f" --set {terminal.shell_quote(word)}" for word in values)
        note_apply(found, corpus, more, chosen=bool(len(values) < len(overrides) or share or min_f1 < 1))
    return 0


def note_apply(run: Path, corpus: tuple[str, ...] = (), more: str = "", *, chosen: bool = False) -> None:
    """Print the command that works through the corpus; nothing of a run that `jobkit apply` refuses.

    ``chosen`` is whether options chose the setting that `jobkit apply` does not have.
    """
    point = next(iter(read_points(run)[0]), None)
    if point is None or point.command:
        return
    if chosen:
        terminal.note(
            "jobkit apply RUN chooses without these options: for this setting name a spec that has it"
        )
        return
    named = bool(corpus) and not corpus[0].replace(",", "").replace("_", "").isdecimal()
    named = named and "://" not in corpus[0]  # apply reads no address
    paths = " ".join(map(terminal.shell_quote, corpus)) if named else "CORPUS"
    stand_in = " --stand-in" if point.model and point.model.stand_in else ""
    command = f"jobkit apply {terminal.shell_path(run)} --corpus {paths} --out tagged{more}{stand_in}"
    terminal.note_next(command, "" if named else "CORPUS: your files or folders")


def _share(text: str) -> float:
    """Parse a share from 0 to less than 1: ``0.05`` or ``5%``."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise JobkitError(f"--margin {text!r}: not a share between 0 and 1", hint="for instance 0.05 or 5%")
    return share


@click.command()
@click.argument("runs", nargs=-1, type=shared.FilledPath(path_type=Path), metavar="[RUN]...")
@shared.output_option("Write to FILE, whole or not at all.", Path("report.html"))
@click.option(
    "--dcgm",
    type=click.Path(exists=True, path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="A report of DCGM on a job of the one RUN, to show next to its figures; may be repeated.",
)
def report(runs: tuple[Path, ...], output: Path, dcgm: tuple[Path, ...]) -> int:
    """Write the results of each RUN, by default of the latest, as one HTML file.

    The file opens anywhere, without network, and begins with the answer: of a sweep the setting, the lines to
    request and the time; of a search the setting and how many times the plain loop it is; of a corpus what is
    done, and promise and truth. Below are pictures and tables, what went wrong and what to type, and folded
    the cautions, the wastes, the versions, the spec and the script. It needs no style and no script to be
    read. With several runs it begins with a comparison of each sweep with the first, as `jobkit compare`
    prints it. jobkit only reads the run folders and asks no scheduler.

    \b
      jobkit report
      jobkit report runs/stanza-20260102-101530-3f9a --output stanza.html
      jobkit report runs/stanza-20260102-101530-3f9a --dcgm job-2650.gpu-report
      jobkit report tagged
      jobkit report runs/a100-20260102-101530-3f9a runs/v100-20260103-091200-77b2
    """
    from jobkit.report.page import page

    named = runs_named(runs)
    if dcgm and len(named) > 1:
        hint = "name one RUN, or put each report into the logs/ folder of its run, as NAME.gpu-report"
        raise JobkitError(f"--dcgm {dcgm[0]}: {len(named)} runs are named", hint=hint)
    more = None
    if dcgm:
        from jobkit.extensions.other_logs import dcgm_reports

        more = partial(dcgm_reports, dcgm)
    made = page(named, more)
    shared.write_output(output, made.html)
    terminal.say(f"report: {terminal.shell_path(output)} ({len(made.html.encode()) / 1000:.0f} kB)")
    if len(named) == 1 and is_run_folder(run := named[0]):
        kind = kind_of(run)
        steps = tuple(kind.steps_after(run, made.outcomes))
        for command, does in steps:
            terminal.note_next(command, does)
        if not steps and not kind.refusal(run, "apply"):
            note_apply(run)
    return 0


@click.command()
@click.argument("runs", nargs=-1, required=True, type=shared.FilledPath(path_type=Path), metavar="RUN RUN...")
@shared.json_option
def compare(runs: tuple[Path, ...], as_json: bool) -> int:
    """Print each RUN next to the first: what they differ in, and the settings that they share.

    For speed, memory and energy jobkit prints the means, the ratio of the means and its 95 % interval. It
    calls a difference one only if the interval excludes 1. It only reads the run folders.

    \b
      jobkit compare runs/a100-20260102-101530-3f9a runs/v100-20260103-091200-77b2
      jobkit compare runs/a100-20260102-101530-3f9a runs/v100-20260103-091200-77b2 --json
    """
    from jobkit.extensions.compare import as_data, blocks, sides
    from jobkit.report.tables import collect

    named = runs_named(runs)
    for run in named:
        refuse_unmeasured(run, "compare")
    compared = sides([collect([run]) for run in named])
    if len(compared) < 2:
        raise JobkitError(
            f"nothing to compare: {len(compared)} of these runs has a table",
            hint="name two runs with figures",
        )
    if as_json:
        terminal.say(terminal.as_json(as_data(compared), indent=1))
        return 0
    shared.say_blocks(blocks(compared))
    return 0


def runs_named(words: Sequence[Path]) -> list[Path]:
    """Return the runs, corpora and old logs that words name, each once; the latest run without a word."""
    found = [word if word.is_file() else run_or_latest(word) for word in words] or [run_or_latest(None)]
    return list({run.resolve(): run for run in found}.values())


DAYS = 7


@click.command()
@click.argument("words", nargs=-1, metavar="[RUN | JOBID...]")
@click.option("--mine", is_flag=True, help="Your own past jobs.")
@click.option("--name", metavar="PATTERN", help="Jobs of this name, your own by default.")
@click.option("--user", "-u", metavar="NAME", help="The jobs of this user.")
@click.option("--account", "-A", metavar="NAME", help="Those of this account or project.")
@click.option("--partition", "-r", metavar="NAME", help="Those of this partition or queue.")
@click.option("--all", "-a", "everyone", is_flag=True, help="Those of all users.")
@click.option("--since", "-S", metavar="WHEN", help="How far back: 30d, 6w, 2026-01-31.")
@click.option("--days", type=click.IntRange(1), metavar="N", help=f"The same; {DAYS} by default.")
@click.option("--at-least", metavar="HOURS", help="Only what leaves so much unused: 50h.")
@click.option(
    "--from",
    "file",
    type=shared.FilledPath(path_type=Path),
    metavar="FILE",
    help="What sacct --parsable2 or qacct -j has printed.",
)
@click.option("--sampled-every", metavar="DURATION", help="How often Slurm samples memory.")
@click.option("--hash-users", is_flag=True, help="Print no name of a user, but a hash.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--scheduler",
    default="auto",
    metavar="NAME",
    show_default=True,
    help="The scheduler whose accounting jobkit asks, if two schedulers are here.",
)
@shared.json_option
def waste(words: tuple[str, ...], scheduler: str, as_json: bool, as_csv: bool, **options: object) -> int:
    """Print what one RUN, by default the latest, requested and did not use, with the lines that fix it.

    jobkit judges seven wastes: idle GPU, memory, cores, too large a GPU, walltime, tiny jobs, and work on
    the login node. For each it prints what was requested, what was used, by how many points, and whether
    it is waste by a stated limit; for a waste the key of the spec and the #SBATCH or #$ line that fix it.
    If something was not measured, it prints the reason. It reads the run folder, asks no scheduler and
    changes nothing.

    Of past jobs, named by JOBID, --mine, --name, --user, --account, --partition or --all, it asks the
    accounting (sacct or qacct), or reads an export: what jobs of one name and request used, what the next
    one needs, and how often that had been enough. Jobs of several names are a table, worst first.

    \b
      jobkit waste
      jobkit waste runs/stanza-20260102-101530-3f9a
      jobkit waste runs/stanza-20260102-101530-3f9a --json
      jobkit waste 4711 4712
      jobkit waste --mine --days 30
      jobkit waste --name 'train*'
      jobkit waste --all --since 30d --at-least 50h
      jobkit waste --from sacct.txt --hash-users --csv

    jobkit help waste explains each.

    \b
    Exit status:
      0  the run or the jobs were read, with or without waste
      2  there is nothing to read
      3  the accounting does not answer
    """
    from jobkit.extensions.past_jobs.ask import JOB_ID

    words = tuple(part for word in words for part in _split(word))
    ids = tuple(word for word in words if JOB_ID.fullmatch(word))
    if options["name"] == "":
        raise click.UsageError("--name is empty; is a variable of your shell not set?")
    if options["mine"] and options["user"] not in {None, user_name()}:
        raise click.UsageError("--mine and --user: name one of them")
    keys = ("mine", "name", "user", "account", "partition", "everyone", "file")
    if not ids and not any(options[key] for key in keys):
        if options["days"] is not None or options["since"]:
            raise click.UsageError("--days and --since need --mine or --name: a run is read as a whole")
        return _of_run(words, as_json=as_json)
    if words and any(options[key] for key in keys if key != "file"):
        raise click.UsageError(
            "--mine, --name and the like choose among jobs: name no RUN and no JOBID with them"
        )
    if ids and (options["days"] is not None or options["since"]):
        raise click.UsageError("--days and --since need no JOBID: jobkit finds it however old the job is")
    if others := [word for word in words if word not in ids]:
        raise click.UsageError(f"{others[0]} is no job id: name one RUN, or only job ids")
    if len(ids) == 1 and Path(ids[0]).exists():
        hint = f"the folder: jobkit waste ./{ids[0]}; the job: (cd / && jobkit waste {ids[0]})"
        raise JobkitError(f"{ids[0]}: a job id, and a folder here has that name", hint=hint)
    return _of_jobs(ids, options, scheduler, "json" if as_json else "csv" if as_csv else "")


def _split(word: str) -> list[str]:
    """Return the ids of a list with commas, as schedulers take it; any other word as it is."""
    return word.split(",") if re.fullmatch(r"[\d_.,+]*\d,\d[\d_.,+]*", word) else [word]


def _since(options: Mapping[str, Any]) -> date | None:
    """Return the first day; a file has no other than its own."""
    today, text = datetime.now().astimezone().date(), options["since"]
    if text is None:
        days = options["days"]
        return None if days is None and options["file"] else today - timedelta(days=days or DAYS)
    if found := re.fullmatch(r"(\d{1,4})([dw])", text):
        return today - timedelta(days=int(found[1]) * (7 if found[2] == "w" else 1))
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        raise click.UsageError(f"--since {text}: not like 30d, 6w or 2026-01-31") from None


def _of_jobs(ids: tuple[str, ...], options: Mapping[str, Any], scheduler: str, form: str) -> int:
    """Print what past jobs used."""
    from jobkit.extensions.past_jobs import ask, output
    from jobkit.schedulers.protocol import Whose

    others = any(options[key] for key in ("user", "account", "partition", "everyone", "file"))
    own = "" if others or ids else user_name()
    hours = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)h?", options["at_least"] or "0")
    if not hours:
        raise click.UsageError(f"--at-least {options['at_least']}: not like 50h")
    user, account, queue = (options[key] or "" for key in ("user", "account", "partition"))
    history = ask.ask(
        Whose(ids=ids, user=user or own, account=account, queue=queue),
        since=_since(options),
        name=options["name"] or "*",
        scheduler=scheduler,
        file=options["file"],
        hide=options["hash_users"],
        sampled_s=parse_duration(every) if (every := options["sampled_every"]) else None,
    )
    groups = output.worst_first(history, float(hours[1]))
    if form:
        for piece in output.as_json(history, groups) if form == "json" else output.as_csv(groups):
            terminal.say(piece, nl=False)
        return 0
    if not groups:
        terminal.say(f"no jobs of one name and user leave {hours[1]} hours unused")
        return 0
    worst = groups[0].name
    table = not ids and any((group.name, group.user) != (worst, groups[0].user) for group in groups)
    shared.say_blocks(output.blocks(history, groups, table=table))
    if table:
        words = {"--name": worst, "--user": groups[0].user if others and not options["hash_users"] else None}
        words |= {f"--{key}": options[key] for key in ("since", "days")}
        words |= {"--from": options["file"], "--scheduler": scheduler if scheduler != "auto" else None}
        typed = [str(word) for pair in words.items() if pair[1] is not None for word in pair]
        terminal.note_next(shlex.join(["jobkit", "waste", *typed]), "the lines for the next job of a name")
    return 0


def _of_run(words: tuple[str, ...], *, as_json: bool) -> int:
    """Print what a run used."""
    from jobkit.report.recommend import waste as wasted
    from jobkit.report.recommend.material import read_use

    if len(words) > 1:
        raise click.UsageError(f"{words[1]}: one RUN at a time")
    if words == ("",):
        raise click.UsageError("RUN is empty; is a variable of your shell not set?")
    try:
        run = run_or_latest(words[0] if words else None)
    except JobkitError as error:
        if words:
            raise
        raise JobkitError(error.message, hint=f"{error.hint}; past jobs: jobkit waste --mine") from error
    use = read_use(run)
    found = wasted.wastes(use)
    if as_json:
        terminal.say(wasted.as_json(use, found), nl=False)
        return 0
    shared.say_blocks(wasted.blocks(use, found))
    folder = terminal.shell_path(run)
    if use.unended or all(each.row.outcome is not Outcome.OK for each in use.points):
        terminal.note_next(f"jobkit status {folder}", f"how the {use.noun}s stand")
    elif not kind_of(run).refusal(run, "recommend"):
        terminal.note_next(f"jobkit recommend {folder}")
    return 0
