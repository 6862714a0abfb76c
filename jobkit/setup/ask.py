"""Ask a scheduler about its site: the queues, their limits, who may use them."""

from __future__ import annotations

from jobkit.core import shell
from jobkit.core.shell import Completed
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name, query_environment
from jobkit.schedulers.survey import (
    RequestedQueues,
    Survey,
    asked_for,
)
from jobkit.spec.site import Site, queue_of
from jobkit.spec.sweep_spec import Resources

TIMEOUT_S = 20.0
"""squeue gives a dead controller up after 18 s (measured, Slurm 22.05.8)."""


def ask_site(scheduler: Scheduler, *only: str) -> Survey:
    """Return a scheduler's description of its site; ``only`` the answers to these questions if there are any.

    After a question that took longer than `TIMEOUT_S` no other is asked: the user has waited long
    enough, and a controller in trouble gets no more load.
    """
    answers: dict[str, Completed] = {}
    environment = query_environment(scheduler)
    while questions := {
        name: argv
        for name, argv in scheduler.survey_argvs(answers).items()
        if name not in answers and (not only or name in only)
    }:
        for name, argv in questions.items():
            hung = next((answer for answer in answers.values() if answer.status == shell.NO_ANSWER), None)
            if hung is None:
                answers[name] = shell.run(argv, env=environment, timeout_s=TIMEOUT_S)
            else:
                answers[name] = Completed(argv, shell.NO_ANSWER, "", f"not asked: {hung.said}")
    return scheduler.parse_survey(answers)


def asked_queues(resources: Resources, site: Site) -> RequestedQueues | None:
    """Return what the scheduler answers of the queues that a request names; ``None`` on this machine."""
    scheduler = by_name(site.scheduler)
    if scheduler.RUNS_HERE:
        return None
    survey = ask_site(scheduler, "controller", "nodes", "queues")
    return asked_for(queue_of(resources, site), survey.queues or (), survey.queue_noun)
