"""Slurm: argument lists out, text in."""

from jobkit.schedulers.slurm.accounting import accounting_argv, parse_accounting
from jobkit.schedulers.slurm.checks import OWN_OPTIONS, checks
from jobkit.schedulers.slurm.jobs import (
    BUSY,
    ENVIRONMENT,
    HANDS_ON,
    NAME,
    PROGRAMS,
    UNSURE,
    cancel_argv,
    limit_argv,
    log_name,
    parse_limit,
    parse_queue,
    parse_submit,
    person_argvs,
    queue_argv,
    refusal,
    search_argvs,
    submit_argv,
    throttle_argv,
    too_many,
)
from jobkit.schedulers.slurm.reasons import explain, remedy
from jobkit.schedulers.slurm.survey import COMMANDS, parse_survey, survey_argvs

__all__ = [
    "BUSY",
    "COMMANDS",
    "ENVIRONMENT",
    "HANDS_ON",
    "NAME",
    "OWN_OPTIONS",
    "PROGRAMS",
    "UNSURE",
    "accounting_argv",
    "cancel_argv",
    "checks",
    "explain",
    "limit_argv",
    "log_name",
    "parse_accounting",
    "parse_limit",
    "parse_queue",
    "parse_submit",
    "parse_survey",
    "person_argvs",
    "queue_argv",
    "refusal",
    "remedy",
    "search_argvs",
    "submit_argv",
    "survey_argvs",
    "throttle_argv",
    "too_many",
]
