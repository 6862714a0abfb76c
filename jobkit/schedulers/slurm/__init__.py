"""Slurm: argument lists out, text in."""

from jobkit.schedulers.slurm.accounting import accounting_argv, parse_accounting
from jobkit.schedulers.slurm.checks import RESERVED_OPTIONS, checks
from jobkit.schedulers.slurm.jobs import (
    BUSY_PATTERN,
    ENVIRONMENT,
    EXPORTS_ENVIRONMENT,
    NAME,
    PROGRAMS,
    UNCONFIRMED_PATTERN,
    cancel_argv,
    diagnostic_argvs,
    limit_argv,
    log_name,
    parse_limit,
    parse_queue,
    parse_submit,
    queue_argv,
    refusal,
    search_argvs,
    submit_argv,
    task_limit_error,
    throttle_argv,
)
from jobkit.schedulers.slurm.reasons import explain, remedy
from jobkit.schedulers.slurm.survey import COMMANDS, parse_survey, survey_argvs

__all__ = [
    "BUSY_PATTERN",
    "COMMANDS",
    "ENVIRONMENT",
    "EXPORTS_ENVIRONMENT",
    "NAME",
    "PROGRAMS",
    "RESERVED_OPTIONS",
    "UNCONFIRMED_PATTERN",
    "accounting_argv",
    "cancel_argv",
    "checks",
    "diagnostic_argvs",
    "explain",
    "limit_argv",
    "log_name",
    "parse_accounting",
    "parse_limit",
    "parse_queue",
    "parse_submit",
    "parse_survey",
    "queue_argv",
    "refusal",
    "remedy",
    "search_argvs",
    "submit_argv",
    "survey_argvs",
    "task_limit_error",
    "throttle_argv",
]
