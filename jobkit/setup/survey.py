"""Ask a scheduler about its site, each question with a deadline."""

from __future__ import annotations

from collections.abc import Mapping

from jobkit.core import shell
from jobkit.core.shell import Completed
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.survey import Survey
from jobkit.submit.controller import submission_environment

TIMEOUT_S = 20.0
"""squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)."""


def ask_site(scheduler: Scheduler, timeout_s: float | None = None) -> Survey:
    """Return a scheduler's description of its site.

    Parameters
    ----------
    timeout_s
        How long one question may take; by default `TIMEOUT_S`. After one that took longer no other
        is asked: the user has waited long enough, and a controller in trouble gets no more load.
    """
    answers: dict[str, Completed] = {}
    environment = {**submission_environment(), **scheduler.ENVIRONMENT}
    while new := _new(scheduler, answers):
        for name, argv in new.items():
            answers[name] = _ask(argv, environment, timeout_s or TIMEOUT_S, answers)
    return scheduler.parse_survey(answers)


def _new(scheduler: Scheduler, answers: Mapping[str, Completed]) -> dict[str, tuple[str, ...]]:
    """Return the questions that were not asked before."""
    return {name: argv for name, argv in scheduler.survey_argvs(answers).items() if name not in answers}


def _ask(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    timeout_s: float,
    answers: Mapping[str, Completed],
) -> Completed:
    hung = next((answer for answer in answers.values() if answer.status == shell.NO_ANSWER), None)
    if hung is None:
        return shell.run(argv, env=environment, timeout_s=timeout_s)
    return Completed(argv, shell.NO_ANSWER, "", f"not asked, for {hung.said}")
