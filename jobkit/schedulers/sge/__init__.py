"""Grid Engine: argument lists out, text in. The names are those of `jobkit.schedulers.protocol.Scheduler`."""

import re
from collections.abc import Mapping

from jobkit.schedulers import defaults
from jobkit.schedulers.sge.accounting import accounting_argv as accounting_argv
from jobkit.schedulers.sge.accounting import parse_accounting as parse_accounting
from jobkit.schedulers.sge.checks import checks as checks
from jobkit.schedulers.sge.checks import resource_names as resource_names
from jobkit.schedulers.sge.checks import slots as slots
from jobkit.schedulers.sge.jobs import cancel_argv as cancel_argv
from jobkit.schedulers.sge.jobs import diagnostic_argvs as diagnostic_argvs
from jobkit.schedulers.sge.jobs import header_path as header_path
from jobkit.schedulers.sge.jobs import interactive_argv as interactive_argv
from jobkit.schedulers.sge.jobs import limit_argv as limit_argv
from jobkit.schedulers.sge.jobs import log_name as log_name
from jobkit.schedulers.sge.jobs import parse_limit as parse_limit
from jobkit.schedulers.sge.jobs import parse_queue as parse_queue
from jobkit.schedulers.sge.jobs import queue_argv as queue_argv
from jobkit.schedulers.sge.jobs import search_argvs as search_argvs
from jobkit.schedulers.sge.jobs import submit_argv as submit_argv
from jobkit.schedulers.sge.jobs import task_limit_error as task_limit_error
from jobkit.schedulers.sge.jobs import throttle_argv as throttle_argv
from jobkit.schedulers.sge.lint import lint as lint
from jobkit.schedulers.sge.reasons import explain as explain
from jobkit.schedulers.sge.reasons import remedy as remedy
from jobkit.schedulers.sge.reasons import shut_argv as shut_argv
from jobkit.schedulers.sge.reasons import shut_reason as shut_reason
from jobkit.schedulers.sge.survey import parse_survey as parse_survey
from jobkit.schedulers.sge.survey import survey_argvs as survey_argvs

NAME, TITLE, DIRECTIVE = "sge", "Grid Engine", "#$"
PROGRAMS: tuple[str, ...] = ("qsub", "qconf")
"""``qsub`` alone may be PBS's."""
COMMANDS: tuple[str, ...] = ("qsub", "qstat", "qacct", "qdel", "qconf", "qalter")
RUNS_HERE = False
EXPORTS_ENVIRONMENT = False
"""qsub(1): only with ``-V``."""
CHARGES_PAGE_CACHE = False
RESERVED_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("-t", "-tc"), "change sweep or max_parallel"),
    "-N": "change name",
    **dict.fromkeys(
        ("-o", "-e", "-j", "-cwd", "-wd"), "logs are in the run folder, which --runs-dir puts elsewhere"
    ),
    "-notify": "change warning_s in a site file for an earlier warning",
    **dict.fromkeys(("-S", "-r", "-terse"), "leave it out"),
    "-hold_jid": "leave it out: find_max waits by it",
}
FORBIDDEN_PATH_CHARS = "\\'\"$,"
"""qsub drops quotes and expands ``$``: the job dies, or waits in Eqw, without a log (measured)."""
ENVIRONMENT: Mapping[str, str] = {"SGE_SINGLE_LINE": "1"}
"""qconf then prints a long value on one line, without backslashes (qconf(1))."""
CLUSTER_VARIABLES = re.compile(r"SGE_")
LEAKING_VARIABLES = defaults.NEVER
JOB_VARIABLE = "JOB_ID"
RECORDED_VARIABLES: tuple[str, ...] = ("QUEUE", "NSLOTS")
BUSY_PATTERN = re.compile(
    r"Connection refused|got send error|gdi request rejected|denied: .* currently overloaded"
)
"""Nothing was sent."""
UNCONFIRMED_PATTERN = re.compile(r"failed receiving gdi request|got read error|timeout")
"""qsub had sent the job and got no answer."""
JOB_ID_PATTERNS: tuple[str, ...] = (
    r"(?P<id>\d+)(?:\.\d+-\d+:\d+)?",
    r".*?Your job(?:-array)? (?P<id>\d+)\b.*",
)
OVER_PATTERN = re.compile(
    r"job \"?\d+\"?( task \"\d+\")? (does not exist|is already in deletion)|has (registered|deleted)"
)
"""qdel prints a line for each task, with status 1 if one has ended (measured)."""
LOG_OUTCOMES = defaults.NO_OUTCOMES
LOG_FAULT = defaults.NEVER
