"""What Slurm's commands say where the controller or the accounting cannot be asked.

Captured from 22.05.8 with nobody listening at the port, but for the words of the rate limit, which
came with 23.02: they are those of SLURMCTLD_COMMUNICATIONS_BACKOFF in its slurm_errno.c.
"""

from __future__ import annotations

from tests.fakes.slurm.store import Store
from tests.fakes.slurm.text import Answer, captured

AWAY = "Unable to contact slurm controller (connect failure)"
BACK_OFF = "Rate limit exceeded, please retry momentarily"
OFF = "Rate limit exceeded, please retry momentarily"
DOWN = (
    "{0}: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
    "host:localhost:6819: Connection refused\n"
    "{0}: error: Sending PersistInit msg: Connection refused\n"
)
OFF = "Slurm accounting storage is disabled\n"
_PING = """\
Slurmctld(primary) at login is DOWN
*****************************************
** RESTORE SLURMCTLD DAEMON TO SERVICE **
*****************************************
"""


def refusal(store: Store, command: str, arguments: list[str]) -> Answer | None:
    """Return what a command says in place of an answer, ``None`` where it is answered."""
    if {"--version", "-V"} & set(arguments):
        return None
    if command in {"sacct", "sacctmgr"}:
        text = captured("sacctmgr-off", "stderr") if command == "sacctmgr" else OFF
        return Answer("", text, 1) if store.use("accounting_off") else None
    if store.use("controller_away"):
        return _controller(command, arguments, AWAY)
    calls = store.state.calls
    for every, count in (
        (store.fault(f"{command}_refuses_every"), calls[command]),
        (store.fault("refuses_every"), sum(n for name, n in calls.items() if not name.startswith("sacct"))),
    ):
        if every and count % every == 0:
            return _controller(command, arguments, BACK_OFF)
    return None


def _controller(command: str, arguments: list[str], words: str) -> Answer:
    if command == "scontrol" and "ping" in arguments:
        return Answer(_PING, "", 1)
    last = arguments[-1] if arguments else ""
    said = {
        "sbatch": f"sbatch: error: Batch job submission failed: {words}",
        "scancel": f"scancel: error: Kill job error on job id {last}: {words}",
        "scontrol": f"slurm_load_ctl_conf error: {words}",
        "sinfo": f"slurm_load_partitions: {words}",
        "squeue": f"slurm_load_jobs error: {words}",
    }[command]
    if command == "sbatch" and "--test-only" in arguments:
        said = f"allocation failure: {words}"
    return Answer("", said + "\n", 8 if command == "scancel" else 1)
