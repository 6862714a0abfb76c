"""A run of shards: what `jobkit status` and the other commands of the kernel say of a corpus."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.json_codec import from_json
from jobkit.core.layout import ORDER_FILE, PROMISE_FILE
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import shell_path
from jobkit.extensions.corpus.plan import read_corpus
from jobkit.extensions.corpus.standing import corpus_json, corpus_lines, read_parts
from jobkit.extensions.corpus.winners import has_rows, read_claim, winner_path
from jobkit.runs.journal import Role
from jobkit.runs.status import Foreseen, NextStep, Order, PointState, RunKind, RunStatus
from jobkit.runs.tries import Try


class CorpusRun(RunKind):
    command = "apply"
    look = "status"
    noun = "shard"
    subject = "the corpus"
    untabled = "the shards of a corpus, which measure no setting"
    again = "jobkit apply with another --out"
    fewer_points = "jobkit apply RUN --corpus PATH --out FOLDER --shard-minutes 30"

    def order(self, folder: Path) -> Order | None:
        path = folder / ORDER_FILE
        if not path.is_file():
            return None
        try:
            return from_json(Order, read_text(path), where=str(path))
        except (OSError, JobkitError):
            return Order()

    def settle(self, folder: Path) -> str:
        from jobkit.extensions.corpus.provenance import finish

        return finish(folder)

    def title(self, run: RunStatus) -> str:
        """Return the name of the folder, which a person has chosen."""
        return run.folder.name if run.points else run.name

    def status_lines(self, run: RunStatus) -> Iterator[str]:
        return corpus_lines(run)

    def status_data(self, run: RunStatus) -> Mapping[str, object]:
        return {"corpus": corpus_json(run)}

    def looks(self, run: RunStatus, typed: str) -> Iterator[NextStep]:
        """Yield what joins the results, once all are there."""
        if {point.state for point in run.points} == {PointState.DONE}:
            yield f"jobkit merge {typed}", "joins the results of all shards"

    def steps_after(self, folder: Path, outcomes: Collection[Outcome | None]) -> Iterator[NextStep]:
        """Yield what joins the results, unless they are joined; while a shard is missing, its status."""
        from jobkit.extensions.corpus.merge import counts_path

        if set(outcomes) != {Outcome.OK}:
            yield f"jobkit status {shell_path(folder)}", "how much of the corpus is done"
        elif not counts_path(folder / "merged.jsonl").is_file():
            yield f"jobkit merge {shell_path(folder)}", "joins the results of all shards"

    def refusal(self, folder: Path, command: str) -> JobkitError | None:
        typed = shell_path(folder)
        return JobkitError(
            f"{folder}: the shards of a corpus, and {command} has nothing to show: shards measure no setting",
            hint=f"jobkit merge {typed} joins the results, jobkit status {typed} shows how far they are",
        )

    def foreseen(self, folder: Path, point: Point) -> Foreseen:
        """Return the time by the plan, and the memory of the run that measured the setting."""
        part, path = read_parts(folder).get(point.index), folder / PROMISE_FILE
        try:
            promised = from_json(Foreseen, read_text(path), where=str(path))
        except (OSError, JobkitError):
            promised = Foreseen()
        return replace(promised, seconds=part.expected_s if part else None)

    def awaited(self, folder: Path) -> Role | None:
        """Return the job that plans, until the corpus is planned."""
        return Role.PLAN if self.unplanned(folder) else None

    def places(self, folder: Path) -> tuple[str, ...]:
        return tuple(read_corpus(folder).folders())

    def is_home(self, home: str, folder: str) -> bool:
        """Return whether the rows of a try are home, or those of another try have won."""
        return has_rows(home, folder)

    def judged(self, home: str, tries: Iterable[Try]) -> Iterable[Try]:
        """Yield the tries; the one whose rows won has succeeded, also if its record is lost."""
        tries = tuple(tries)
        won = None
        with suppress(JobkitError):  # then it is as if none had won
            if all(tried.outcome is not Outcome.OK for tried in tries):
                won = read_claim(winner_path(Path(home).parents[1], Path(home).name))
        for tried in tries:
            if won and tried.number and tried.number == won.try_number:
                yield replace(tried.ended(Outcome.OK, "its rows are those that count"), hung=False)
            else:
                yield tried


CORPUS = CorpusRun()
