"""What Grid Engine's commands say where the qmaster cannot be asked (captured with nobody there)."""

from __future__ import annotations

from tests.fakes.common.entry import Answer
from tests.fakes.common.store import Store
from tests.fakes.sge.rules import HOST, PORT

_COMMLIB = "error: commlib error: got select error (Connection refused)\n"
_UNSENT = f'unable to send message to qmaster using port {PORT} on host "{HOST}": got send error\n'


def refusal(store: Store, command: str, arguments: list[str]) -> Answer | None:
    """Return what a command says in place of an answer, ``None`` where it is answered."""
    if "-help" in arguments:
        return None
    if command == "qacct":
        return _accounting(store)
    calls = store.state.calls
    every, any_every = store.fault(f"{command}_refuses_every"), store.fault("refuses_every")
    asked = sum(count for name, count in calls.items() if name != "qacct")
    busy = bool((every and calls[command] % every == 0) or (any_every and asked % any_every == 0))
    if not (store.use("controller_away") or busy):
        return None
    said = {"qsub": f"Unable to run job: {_UNSENT}Exiting.\n", "qstat": f"error: {_UNSENT}"}.get(
        command, _UNSENT
    )
    on_stdout = command == "qdel"
    return Answer(_COMMLIB + said if on_stdout else "", "" if on_stdout else _COMMLIB + said, 1)


def _accounting(store: Store) -> Answer | None:
    """Return what qacct says where its file is not there: on this machine, or nowhere."""
    if store.use("accounting_off") or store.use("accounting_down"):
        path = "/var/lib/gridengine/default/common/accounting"
        return Answer("no jobs running since startup\n", f"{path}: No such file or directory\n", 1)
    return None
