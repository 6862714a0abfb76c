"""Tell, once a run, that it has ended, has failed or needs a person: the spec's ``on_end``.

A file of the run folder marks an outlet before its call, and another one that the message was taken. Between
both it is not known whether it was, so it is never sent again.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from jobkit.core import shell
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import read_text, sync_folder, write_atomically
from jobkit.core.layout import COPY_FILE, ON_END, SPEC_FILE
from jobkit.core.terminal import printable
from jobkit.runs.driver_lock import is_held
from jobkit.runs.journal import Role
from jobkit.runs.reader import read_status
from jobkit.runs.status import ENDED, MOVING, PointStanding, RunStatus, count_by_state, first_task

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from jobkit.spec.policy import Webhook

DEADLINE_S = 10.0
BEGUN, SENT, KEPT = "begun", "sent", "kept"  # how the names of its files end
NEEDS_YOU = "needs you"
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def outlets_of(run_dir: Path) -> dict[str, Webhook | list[str]]:
    """Return by name whom a run tells that it has ended; nobody if its spec cannot be read."""
    try:
        if "\non_end:\n" not in read_text(run_dir / SPEC_FILE):
            return {}
        from jobkit.spec.sweep_spec import load_spec  # here: most runs tell nothing

        on_end = load_spec(run_dir / SPEC_FILE).on_end
    except (JobkitError, OSError):
        return {}
    return on_end.outlets if on_end else {}


def states(run_dir: Path) -> dict[str, str]:
    """Return by outlet, once it was tried, whether the message is sent, perhaps sent, or kept and why."""
    found = {}
    for name in outlets_of(run_dir):
        begun, sent, kept = (run_dir / ON_END.format(name, state) for state in (BEGUN, SENT, KEPT))
        if begun.exists():
            found[name] = SENT if sent.exists() else f"perhaps {SENT}"
        elif kept.exists():
            found[name] = f"{KEPT}: {read_text(kept).strip()}"
    return found


def verdict(run: RunStatus, *, following: bool = False) -> str:
    """Return what there is to tell of a run; empty if it goes on, or if that is not known.

    ``following``: the job that follows the points asks, at its end.
    """
    jobs = [job for job in run.jobs if job.state != ENDED and first_task(job.submission) not in run.ended]
    jobs = [job for job in jobs if not (following and job.submission.role is Role.FOLLOW)]
    standings = {*(point.standing for point in run.points), *(job.state for job in jobs)}
    if run.silent or run.unanswered or is_held(run.folder):
        return ""
    if run.left or PointStanding.STUCK in standings or any(point.blocked for point in run.points):
        return NEEDS_YOU
    if jobs or standings & MOVING:
        return ""
    if PointStanding.MISSING in standings or run.kind.awaited(run.folder):
        return NEEDS_YOU
    return "has ended" if run.exit_code == ExitCode.DONE else "has failed"


def tell(run_dir: Path, *, following: bool = False) -> None:
    """Tell each outlet that was not told yet, if there is something to tell; it takes ten seconds at most.

    ``following`` as in `verdict`.
    """
    outlets = outlets_of(run_dir)
    open_ = [name for name in outlets if not (run_dir / ON_END.format(name, BEGUN)).exists()]
    if not open_ or (run_dir / COPY_FILE).exists():
        return
    (run,) = read_status([run_dir])
    if run.mine and (state := verdict(run, following=following)):
        text = harmless(f"jobkit: {run.title} {state}: {count_by_state(run)}")
        told = {"text": text, "state": state, "run": str(run_dir), "exit_code": int(run.exit_code)}
        with ThreadPoolExecutor() as pool, suppress(OSError):  # a full disk: not told, or perhaps
            list(pool.map(lambda name: _send(run_dir, name, outlets[name], told), open_))


def harmless(text: str) -> str:
    """Return text as one short line that no program takes for HTML, Markdown, a mention or a link."""
    # each sign of HTML, Markdown and mentions to a form that looks like it and that no program obeys
    full_width = {ord(sign): ord(sign) + 0xFEE0 for sign in "<>&@*_`~[]#|!\\"}
    line = printable(" ".join(text.split())).translate(full_width)
    return line.replace("://", "\uff1a//")[:500]


def _send(run_dir: Path, name: str, outlet: Webhook | list[str], told: Mapping[str, object]) -> None:
    begun, sent, kept = (run_dir / ON_END.format(name, state) for state in (BEGUN, SENT, KEPT))
    try:
        if isinstance(outlet, list):
            call = partial(_run, outlet, json.dumps(told))
        else:
            call = partial(_post, address_of(outlet), _body(outlet.format, told["text"]))
        os.close(os.open(begun, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:  # another command tells it now
        return
    except JobkitError as error:
        write_atomically(kept, f"{error.message}\n")
        return
    sync_folder(run_dir)
    if (why := call()) == "":
        sent.touch()
    elif why is not None:
        write_atomically(kept, f"{why}\n")
        begun.unlink()


def address_of(webhook: Webhook) -> SplitResult:
    """Return the address of a webhook; an error has no part of it."""
    source, why = webhook.file or f"the variable {webhook.env}", "has no address that begins with https://"
    try:
        if webhook.file and stat.S_IMODE(Path(webhook.file).stat().st_mode) & 0o077:
            raise PermissionError(errno.EPERM, "can be read by others")
        address = read_text(webhook.file) if webhook.file else os.environ.get(webhook.env or "", "")
        parts = urlsplit(address.strip())
        safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        if safe and parts.hostname and parts.port != 0:
            return parts
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or why
    hint = f"export {webhook.env}=ADDRESS"
    hint = f"write it into {webhook.file}, and chmod 600 {webhook.file}" if webhook.file else hint
    raise JobkitError(f"on_end.webhook: {source}: {why}", hint=hint) from None


# -- a call returns an empty text if the message was taken, else why not; ``None`` if that is not known


def _run(argv: list[str], text: str) -> str | None:
    done = shell.run(argv, text=text, timeout_s=DEADLINE_S)
    if done.status < 0 or done.status == shell.NO_ANSWER:
        return None
    why = f"there is no program {argv[0]}" if done.status == 127 else f"it ended with status {done.status}"
    return why if done.status else ""


def _body(form: str, text: object) -> str:
    if form == "text":
        return json.dumps({"text": text})
    block = {"type": "TextBlock", "text": text, "wrap": True}
    card = {"type": "AdaptiveCard", "version": "1.2", "body": [block]}
    attached = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return json.dumps({"type": "message", "attachments": [attached]})


def _post(parts: SplitResult, body: str) -> str | None:
    """POST a message; what is not connected at the deadline never sends it."""
    from http.client import HTTPException

    gate, over = threading.Lock(), threading.Event()
    why: list[str | None] = ["no connection within 10 s"]
    target = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"

    def post() -> None:
        try:
            with closing(_connection(parts)) as connection:
                connection.connect()
                with gate:  # from here on it may arrive, unless the caller has given up
                    if over.is_set():
                        return
                    why[0] = None
                connection.request("POST", target, body.encode(), {"Content-Type": "application/json"})
                status = connection.getresponse().status
            why[0] = "" if 200 <= status < 300 else f"the server answered {status}"
        except (OSError, HTTPException, ValueError) as error:
            if why[0] is not None:
                why[0] = f"no connection ({type(error).__name__})"

    (thread := threading.Thread(target=post, daemon=True)).start()
    thread.join(DEADLINE_S)
    with gate:
        over.set()
        return why[0]


def _connection(parts: SplitResult) -> HTTPConnection:
    """Return a connection that follows no redirect, by the proxy that the environment names for the host."""
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import getproxies, proxy_bypass

    host, kind = parts.hostname or "", HTTPSConnection if parts.scheme == "https" else HTTPConnection
    proxy = getproxies().get(parts.scheme, "") if host not in LOOPBACK and not proxy_bypass(host) else ""
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else parts
    connection = kind(via.hostname or "", via.port, timeout=DEADLINE_S)
    if proxy:
        user = unquote(via.netloc.rpartition("@")[0])
        given = {"Proxy-Authorization": f"Basic {b64encode(user.encode()).decode()}"} if user else {}
        connection.set_tunnel(host, parts.port, given)
    return connection
