"""Each command with ``--on HOST``: what travels, what runs there, what comes back and runs here."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import platform
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from jobkit.core import terminal
from jobkit.core.command_list import HERE_ALONE
from jobkit.core.errors import ExitCode, JobkitError, RefusedError
from jobkit.core.files import write_atomically
from jobkit.core.frozen import frozen
from jobkit.core.host import CALL
from jobkit.core.json_codec import parse_json
from jobkit.core.layout import COPY_FILE
from jobkit.core.units import format_count, format_list
from jobkit.extensions.on_host import transfer
from jobkit.extensions.on_host.client import Cluster, Suggesting, suggest_here
from jobkit.extensions.on_host.connection import connect
from jobkit.extensions.on_host.inputs import OUTSIDE, Inputs, find_inputs
from jobkit.extensions.on_host.protocol import Place

FETCH = frozenset(("collect", "report"))
"""Commands that fetch records and run here."""
TRAVELS: Mapping[str, Sequence[str] | None] = {
    **dict.fromkeys(("sweep", "tune", "apply", "doctor", "preflight", "workload check")),
    "recommend": ("corpus",),
}
"""Commands whose files travel, and the arguments that name them; ``None`` for all arguments."""


@frozen
class Typed:
    """A command as it was typed."""

    name: str  # with that of its subcommand: ``models fetch``
    words: Sequence[str]  # what follows the name
    params: Mapping[str, Any]  # the values of its arguments and options, by name, as far as they can be known
    run_here: Callable[[list[str]], int]  # runs a command line of jobkit on this machine

    @property
    def line(self) -> list[str]:
        """The command line after ``jobkit``."""
        return [*self.name.split(), *self.words]


def run_on(host: str, typed: Typed, *, named: bool) -> int:
    """Run a command with ``--on``, and return its exit code.

    ``named``: whether the command line names the host; the site file does otherwise.
    """
    if typed.name.split()[0] in HERE_ALONE:
        return typed.run_here(typed.line)
    if "-" in (*(typed.params.get("corpus") or ()),):
        raise JobkitError("--corpus -: standard input does not travel", hint="name a file, or on:/PATH there")
    inputs = _inputs_of(typed)
    cluster = _cluster(host, named=named)
    if typed.name == "init":
        return _init(cluster, typed)
    if typed.name in FETCH:
        return _fetch(cluster, typed)
    if typed.name == "merge" and typed.params.get("fetch"):
        return _merge(cluster, typed)
    _send(cluster, inputs)
    code = _run(cluster, [*typed.name.split(), *inputs.words(typed.words)], inputs)
    if typed.name == "merge" and code == 0:
        terminal.note(f"the files are on {cluster.host}; merge --fetch brings them here")
    return code


def _inputs_of(typed: Typed) -> Inputs:
    if typed.name not in TRAVELS:
        return Inputs(Path.cwd())
    names = TRAVELS[typed.name]
    return find_inputs(typed.params if names is None else {name: typed.params.get(name) for name in names})


def _cluster(host: str, *, named: bool = True) -> Cluster:
    name, _, folder = host.partition(":")
    if folder.startswith((":", "//")) or name.startswith("["):
        hint = "an address with colons, or a port, gets a name in ~/.ssh/config: Host, HostName, Port"
        raise JobkitError(f"--on {host}: neither HOST nor HOST:FOLDER", hint=hint)
    folder = folder or "jobkit"  # of projects, in the home folder on the cluster
    return Cluster(connect(name), folder, Path.cwd().name or "project", host, named)


def call(host: str, name: str, given: Mapping[str, Any], **named: object) -> Mapping[str, Any]:
    """Have the host call `jobkit.handle.answer`; return the answer, with ``run``, the records fetched here.

    ``named``: what of ``given`` may name files that travel, under the names of the arguments of commands.
    """
    inputs = find_inputs(named)
    cluster = _cluster(host)
    if "out" in given:
        _refuse_other(Path(given["out"]), cluster)
    _send(cluster, inputs)
    there = {key: _there(value, inputs) for key, value in given.items()}
    if inputs.changes:
        there["changes"] += inputs.changes
    said = io.StringIO()
    code = _run(cluster, [CALL, name, json.dumps(there, default=str)], inputs, said)
    if code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    answer: Mapping[str, Any] = parse_json(said.getvalue() or "{}", cluster.host)
    if error := answer.get("error"):
        classes = (*JobkitError.__subclasses__(), *RefusedError.__subclasses__())
        kind = next((one for one in classes if one.__name__ == error["kind"]), JobkitError)
        said_there = f"{cluster.host}: {error['message']}"
        raise kind(said_there, hint=error["hint"], exit_code=error["exit_code"])
    if not answer:
        hint = f"its reason is above; if the jobkit there is older: jobkit {cluster.prefix} init --install"
        raise JobkitError(f"{cluster.host}: {name} ended with exit code {code}", hint=hint)
    return {**answer, "run": _bring(cluster, cluster.places_of([answer["run"]]))[0]}


def _there(value: Any, inputs: Inputs) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, (list, tuple)):
        return [_there(one, inputs) for one in value]
    return inputs.renamed.get(str(value), value) if isinstance(value, (str, Path)) else value


def fetch_merged(host: str, run: str, fmt: str, output: str) -> Path:
    """Fetch the rows of a corpus that are merged there, and return their file."""
    return _fetch_merged(_cluster(host), run, (fmt,), {"output": output} if output else {})[0]


def _run(cluster: Cluster, words: list[str], inputs: Inputs, out: io.StringIO | None = None) -> int:
    name = words[1] if words[0] == CALL else words[0]
    changes_nothing = {"load", "status", "logs", "recommend", "waste", "compare", "preflight"}
    does_what_is_left = {"cancel", "resume", "merge"}
    again = name in changes_nothing | does_what_is_left or not {"--dry-run", "--script"}.isdisjoint(words)
    sent = inputs.marks()
    kept = _kept_under(words, sent)
    return cluster.run(words, kept="" if again else kept, sent=sent, out=out)


def _kept_under(words: Sequence[str], sent: Mapping[str, str]) -> str:
    what = "\0".join((_laptop(), *words, *(f"{path} {mark}" for path, mark in sent.items())))
    return hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()


def _laptop() -> str:
    """Return what tells this machine from another whose project is in a folder of the same path."""
    note = platformdirs.user_state_path("jobkit") / "laptop"
    with contextlib.suppress(OSError):
        if not note.exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(note, secrets.token_hex(16))
        return note.read_text(encoding="utf-8")
    return platform.node()


def _send(cluster: Cluster, inputs: Inputs) -> None:
    if not (inputs.inside or inputs.outside or inputs.model):
        return
    model = _model_here(inputs)
    there = cluster.prepare(model=model[1] if model else None)
    folder = there["folder"]
    transfer.send(cluster.connection, inputs.inside, inputs.base, folder)
    transfer.send(cluster.connection, inputs.outside, Path("/"), f"{folder}/{OUTSIDE}")
    if model and there["model"]:
        terminal.note(f"{cluster.host} lacks the model: sending {terminal.relative_path(model[0])}")
        transfer.send(cluster.connection, [model[0]], model[0].parent, str(Path(there["model"]).parent))
    if named := [terminal.relative_path(path) for path in dict.fromkeys((*inputs.inside, *inputs.outside))]:
        terminal.note(f"{cluster.host}:{folder} has {format_list(named, 4)}")


def _model_here(inputs: Inputs) -> tuple[Path, dict[str, Any]] | None:
    from jobkit.core.paths import cache_dir
    from jobkit.planning.models import find, hub_folder

    if inputs.model is None:
        return None
    workload, named = inputs.model
    try:
        model = find(workload, {**named, "fallback": None}, inputs.base, cache_dir())
    except JobkitError:
        return None
    name = hub_folder(model.name, Path()).name if "/" in model.name else model.name
    return Path(model.path), {"workload": workload, "model": named, "folder": name}


def _fetch(cluster: Cluster, typed: Typed) -> int:
    """Fetch the records of runs, and run the command here on the copies."""
    given = [str(word) for word in (typed.params.get("paths") or typed.params.get("runs") or ())]
    here = [word for word in given if Path(word).is_file()]
    asked = [word for word in given if word not in here]
    if given and not asked:
        return typed.run_here(typed.line)
    fetched = _bring(cluster, cluster.find("runs", *asked, all=typed.name == "collect"), asked)
    terminal.note(f"fetched the records of {format_count(len(fetched), 'run')} from {cluster.host}")
    kept = [word for word in typed.words if word not in asked]
    out, err = (Suggesting(stream, cluster.prefix) for stream in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return typed.run_here([typed.name, *kept, *map(str, fetched)])


def _bring(cluster: Cluster, places: Sequence[Place], asked: Sequence[str] = ()) -> list[Path]:
    """Fetch the records of runs, and the files that were asked for; return their paths here."""
    for _, path, is_folder in places:
        if is_folder:
            _claim(path, cluster)
        elif path.exists() or path.name not in {Path(word).name for word in asked}:
            hint = "rename it, or type the command in another folder"
            raise JobkitError(f"{path}: {cluster.host} would write this file of yours", hint=hint)
    transfer.fetch(cluster.connection, places, Path.cwd(), leave=transfer.LEAVE)
    return [place.path for place in places]


def _refuse_other(run: Path, cluster: Cluster) -> None:
    """Refuse a folder that is no copy of a run on the cluster."""
    if run.is_dir() and not (run / COPY_FILE).exists():
        hint = f"rename one of them, or type the command in another folder; {cluster.host} keeps its own"
        raise JobkitError(f"{run}: this folder is no copy of that on {cluster.host}", hint=hint)


def _claim(run: Path, cluster: Cluster) -> None:
    """Mark a run folder as a copy of that on the cluster; refuse one that is something else."""
    _refuse_other(run, cluster)
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    (run / COPY_FILE).write_text(f"{cluster.typed}\n", encoding="utf-8")


def _merge(cluster: Cluster, typed: Typed) -> int:
    words = [word for word in typed.words if word != "--fetch"]
    code = _run(cluster, ["merge", *words], Inputs(Path.cwd()))
    if code and not (code == ExitCode.TO_COME and typed.params.get("allow_missing")):
        return code
    params = {key: str(value) for key in ("output", "allow_missing") if (value := typed.params.get(key))}
    for path in _fetch_merged(cluster, str(typed.params["run"]), typed.params.get("fmt") or (), params):
        terminal.say(f"fetched {path}")
    return code


def _fetch_merged(cluster: Cluster, run: str, forms: Sequence[str], params: Mapping[str, str]) -> list[Path]:
    from jobkit.extensions.corpus.formats import counts_path, output_paths, places_path, quarantine_path

    places = cluster.find("merged", run, **params, **({"fmt": ",".join(forms)} if any(forms) else {}))
    outputs = output_paths(Path(params.get("output", "none")), [*filter(None, forms)] or ("npy",)).values()
    named = {
        path.name
        for one in outputs
        for path in (one, counts_path(one), places_path(one), quarantine_path(one))
    }
    for place in places:
        if place.path.name not in named:
            _claim(place.path.parent, cluster)
    transfer.fetch(cluster.connection, places, Path.cwd(), leave=())
    return [place.path for place in places]


def _init(cluster: Cluster, typed: Typed) -> int:
    """Install jobkit there if it is missing, let it write its files, and bring the spec."""
    from jobkit.extensions.on_host.install import install_if_missing

    extras, permitted = typed.params.get("extras") or (), "--install" in typed.words
    install_if_missing(cluster, extras, permitted=permitted)
    spec = Path(str(typed.params.get("folder") or "."), "first.yaml")
    only = typed.params.get("only")
    code = _write_there(cluster, typed, only, cluster.prepare(spec=str(spec)))
    if code or only == "site":
        return code
    if spec.exists():
        terminal.note(f"{terminal.shell_path(spec)} is here already")
        return 0
    places = [place for place in cluster.find("runs", str(spec)) if place.path == spec]
    transfer.fetch(cluster.connection, places, Path.cwd(), leave=())
    spec.write_text(suggest_here(spec.read_text(encoding="utf-8"), cluster.prefix), encoding="utf-8")
    terminal.say(f"fetched {terminal.shell_path(spec)}")
    return 0


def _write_there(cluster: Cluster, typed: Typed, only: str | None, there: Mapping[str, str]) -> int:
    """Let jobkit write there what is not ``there`` of site file and spec; return its exit code."""
    words = [word for word in typed.words if word != "--install"]
    if there["site"] and not only:
        terminal.note(f"{cluster.host} keeps its site file, {there['site']}")
        words += ["--only", "spec"]
    if there["spec"] and only != "site":
        return 0
    return _run(cluster, ["init", *words], Inputs(Path.cwd()))
