"""Slurm: argument lists out, text in. The names are those of `jobkit.schedulers.protocol.Scheduler`."""

import re
from collections.abc import Mapping

from jobkit.core.records import Outcome
from jobkit.schedulers import defaults
from jobkit.schedulers.slurm.accounting import accounting_argv as accounting_argv
from jobkit.schedulers.slurm.accounting import parse_accounting as parse_accounting
from jobkit.schedulers.slurm.checks import checks as checks
from jobkit.schedulers.slurm.jobs import cancel_argv as cancel_argv
from jobkit.schedulers.slurm.jobs import diagnostic_argvs as diagnostic_argvs
from jobkit.schedulers.slurm.jobs import header_path as header_path
from jobkit.schedulers.slurm.jobs import interactive_argv as interactive_argv
from jobkit.schedulers.slurm.jobs import limit_argv as limit_argv
from jobkit.schedulers.slurm.jobs import log_name as log_name
from jobkit.schedulers.slurm.jobs import parse_limit as parse_limit
from jobkit.schedulers.slurm.jobs import parse_queue as parse_queue
from jobkit.schedulers.slurm.jobs import queue_argv as queue_argv
from jobkit.schedulers.slurm.jobs import search_argvs as search_argvs
from jobkit.schedulers.slurm.jobs import submit_argv as submit_argv
from jobkit.schedulers.slurm.jobs import task_limit_error as task_limit_error
from jobkit.schedulers.slurm.jobs import throttle_argv as throttle_argv
from jobkit.schedulers.slurm.lint import lint as lint
from jobkit.schedulers.slurm.reasons import explain as explain
from jobkit.schedulers.slurm.reasons import remedy as remedy
from jobkit.schedulers.slurm.survey import parse_survey as parse_survey
from jobkit.schedulers.slurm.survey import survey_argvs as survey_argvs
from jobkit.schedulers.types import LogOutcomes

NAME, TITLE, DIRECTIVE = "slurm", "Slurm", "#SBATCH"
PROGRAMS: tuple[str, ...] = ("sbatch",)
COMMANDS: tuple[str, ...] = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr")
RUNS_HERE = False
EXPORTS_ENVIRONMENT = True
"""sbatch(1), ``--export``: all by default."""
CHARGES_PAGE_CACHE = True
RESERVED_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("--array", "-a"), "change sweep or max_parallel"),
    **dict.fromkeys(("--job-name", "-J"), "change name"),
    **dict.fromkeys(
        ("--output", "-o", "--error", "-e", "--open-mode"),
        "logs are in the run folder, which --runs-dir puts elsewhere",
    ),
    "--signal": "change warning_s in a site file",
    **dict.fromkeys(("--parsable", "--wrap"), "leave it out"),
    **dict.fromkeys(("--dependency", "-d"), "leave it out: find_max waits by it"),
}
FORBIDDEN_PATH_CHARS = "\\"
"""sbatch expands no ``%`` after a backslash: the job dies without a log (measured)."""
ENVIRONMENT: Mapping[str, str] = {"SLURM_BITSTR_LEN": "0"}
"""Without it lists of array tasks are cut to 64 bytes (squeue(1), sacct(1))."""
CLUSTER_VARIABLES = re.compile(r"SLURM_")
LEAKING_VARIABLES = re.compile(r"SBATCH_|SLURM_(?!(CONF|CLUSTERS|JWT)$)")
"""``SBATCH_*`` are options (sbatch(1), input environment variables), ``SLURM_*`` a surrounding job's."""
JOB_VARIABLE = "SLURM_JOB_ID"
RECORDED_VARIABLES: tuple[str, ...] = ("SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "SLURM_CPUS_PER_TASK")
BUSY_PATTERN = re.compile(r"Rate limit exceeded|Resource temporarily unavailable")
"""slurm.conf(5), ``rl_enable`` (since 23.02)."""
UNCONFIRMED_PATTERN = re.compile(
    r"Socket timed out|Zero Bytes were transmitted|Message (receive|send) failure|Connection reset"
)
"""sbatch had sent the job and got no answer."""
JOB_ID_PATTERNS: tuple[str, ...] = (
    r"(?P<id>\d+)(?:;(?P<cluster>\S+))?",
    r".*?Submitted batch job (?P<id>\d+)(?: on cluster (?P<cluster>\S+))?",
)
OVER_PATTERN = re.compile(
    r": No error$|already finished|already completing or completed|Invalid job id specified|expired"
)
"""scontrol prints a line for each task, with status 1 if one has ended (measured)."""
LOG_OUTCOMES: LogOutcomes = (
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO TIME LIMIT"), Outcome.TIMEOUT),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO PREEMPTION"), Outcome.PREEMPTED),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO NODE FAILURE"), Outcome.NODE_FAIL),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+ DUE TO JOB REQUEUE"), Outcome.CANCELLED),
    (re.compile(r"(?i)detected \d+ oom[-_ ]kill event|killed by the cgroup out-of-memory"), Outcome.RAM_OOM),
    (re.compile(r"slurmstepd.*[Ee]xceeded (job|step)?\s*memory limit"), Outcome.RAM_OOM),
    (re.compile(r"slurmstepd.*CANCELLED AT \S+"), Outcome.CANCELLED),
)
"""src/slurmd/slurmstepd/req.c; seen with 22.05.8."""
LOG_FAULT = re.compile(r"slurmstepd\S*: |srun: ")
resource_names = defaults.no_command
slots = defaults.one_slot
shut_argv = defaults.no_command
shut_reason = defaults.no_reason
