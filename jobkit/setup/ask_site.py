"""Ask a scheduler about its site, each question with a deadline."""

from __future__ import annotations

from jobkit.core import shell
from jobkit.core.shell import Completed
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.survey import Survey
from jobkit.submit.scheduler_calls import submission_environment

TIMEOUT_S = 20.0
"""squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)."""


def ask_site(scheduler: Scheduler) -> Survey:
    """Return a scheduler's description of its site.

    After a question that took longer than `TIMEOUT_S` no other is asked: the user has waited long
    enough, and a controller in trouble gets no more load.
    """
    answers: dict[str, Completed] = {}
    environment = {**submission_environment(), **scheduler.ENVIRONMENT}
    while questions := {
        name: argv for name, argv in scheduler.survey_argvs(answers).items() if name not in answers
    }:
        for name, argv in questions.items():
            hung = next((answer for answer in answers.values() if answer.status == shell.NO_ANSWER), None)
            if hung is None:
                answers[name] = shell.run(argv, env=environment, timeout_s=TIMEOUT_S)
            else:
                answers[name] = Completed(argv, shell.NO_ANSWER, "", f"not asked: {hung.said}")
    return scheduler.parse_survey(answers)
