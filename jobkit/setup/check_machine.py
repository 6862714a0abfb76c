"""Check this machine: jobkit itself, the scheduler's commands, folders, text, model."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.filesystems import filesystem_type, likely_shared
from jobkit.core.paths import CACHE_VARIABLE, cache_dir
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_bytes_gib
from jobkit.planning.texts import find_text
from jobkit.run.command.words import SHELL, placeholders
from jobkit.run.examine import interpreter
from jobkit.run.workloads.base import missing_framework
from jobkit.schedulers.protocol import Scheduler
from jobkit.setup.doctor_case import model_place
from jobkit.setup.findings import Finding, fine, missing, unknown, warning
from jobkit.spec.sweep_spec import SweepSpec

LITTLE_BYTES = 2**30
"""Results of a sweep take a few MiB a point, a model some hundred MiB."""
MOUNTS = Path("/proc/self/mountinfo")


def jobkit_itself() -> Finding:
    """Return which jobkit and which Python this is."""
    python = ".".join(map(str, sys.version_info[:3]))
    return fine("jobkit", f"{metadata.version('jobkit')}, Python {python} at {sys.executable}")


def commands(scheduler: Scheduler, why: str) -> Finding:
    """Return whether the scheduler's commands are on PATH."""
    absent = [name for name in scheduler.COMMANDS if shutil.which(name) is None]
    if not absent:
        return fine("commands", f"{', '.join(scheduler.COMMANDS)} are on PATH" if scheduler.COMMANDS else why)
    message = f"not on PATH: {', '.join(absent)}"
    hint = "log in to a node that submits jobs, or load the scheduler's module"
    return missing("commands", message, f"{hint}; without a scheduler: --scheduler local")


def run_folders(folder: Path, *, shared: bool) -> Finding:
    """Return whether run folders and their logs can be written.

    Parameters
    ----------
    shared
        Whether nodes must see them.
    """
    hint = "name another place: --runs-dir FOLDER, or `runs_dir` in the site file"
    return _folder("run folders", folder, hint, shared=shared)


def cache(*, shared: bool) -> Finding:
    """Return whether the cache of texts and models can be written, and is likely to be seen by nodes."""
    hint = f"name another place: export {CACHE_VARIABLE}=FOLDER"
    return _folder("cache", cache_dir(), hint, shared=shared)


def _folder(name: str, folder: Path, hint: str, *, shared: bool) -> Finding:
    """Return whether a folder, or its nearest parent that exists, is writable and has room."""
    there = folder
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there) as stream:
            stream.write(b"\0" * 4096)
            stream.flush()
        free = shutil.disk_usage(there).free
        kind = filesystem_type(str(there.resolve()), MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return missing(name, f"nothing can be written in {there}: {error.strerror}", hint)
    message = f"{folder}: {format_bytes_gib(free, 0)} free"
    if free < LITTLE_BYTES:
        return warning(name, f"{folder}: only {format_bytes_gib(free)} free", f"make room, or {hint}")
    if shared and likely_shared(kind) is False:
        seen = "jobkit doctor --submit checks it; if they do not, "
        return warning(
            name, f"{message}, on {kind}: a disk of this machine, which nodes may not see", f"{seen}{hint}"
        )
    return fine(name, f"{message}{f', on {kind}' if kind else ''}")


def text(spec: SweepSpec, base: Path) -> Finding:
    """Return whether the text of a spec is there."""
    try:
        text_file = find_text(spec.text, base=base, cache=cache_dir(), write=False)
    except JobkitError as error:
        return missing("text", error.message, error.hint)
    return fine("text", f"{spec.text} ({text_file.size_bytes:,} bytes)")


def program(word: str, staged: Path | None) -> Finding | None:
    """Return whether the program of a command can be started, if it travels with the run.

    Parameters
    ----------
    word
        The first word of the command.
    staged
        The file, if it travels with the run.
    """
    if placeholders(word):
        return unknown("program", f"{word}: a knob decides it, so it is not looked for")
    if word == SHELL[0]:
        return fine("program", f"{word} reads the command; the programs that it names are not looked for")
    if staged is None:
        return None  # `jobkit.setup.check_node.program` looks for it
    if not os.access(staged, os.X_OK):
        return missing("program", f"{staged} is not executable", f"chmod +x {shell_path(staged)}")
    needs = interpreter(staged)
    return fine("program", f"{word}: travels with the run{f', and needs {needs!a}' if needs else ''}")


def model(spec: SweepSpec, base: Path, sweep: str) -> Finding:
    """Return whether the model of a spec is on this machine, since a job never downloads.

    Parameters
    ----------
    base
        The folder of the spec.
    sweep
        The command that sweeps the spec; empty if none needs the model: then its absence is a warning.
    """
    from jobkit.planning.models import find, stanza  # here, for a workload without a model
    from jobkit.planning.standin.build import is_built, standin_path

    asked = spec.model
    if find.is_folder(spec.workload_name, asked.model_dump()):
        return _folder_model(spec, base)
    place = model_place(asked.name)
    if place is not None and asked.size == "full":
        return fine("model", f"{asked.name} at {place}")
    if asked.fallback:
        built = is_built(standin_path(asked.size, cache_dir()))
        message = f"the {asked.size} stand-in {'is built' if built else 'will be built by the sweep'}"
        return fine("model", f"{asked.name} is not here; {message}")
    if asked.size != "full":
        message = f"only the stand-in has the size {asked.size!r}"
        return missing("model", message, "set model.fallback: stand-in")
    message = f"{asked.name} is not on this machine; a job never downloads"
    hint = f"jobkit models fetch {asked.name}"
    if sweep and asked.name == stanza.LANGUAGE:
        hint += f"; or, to try jobkit without it:\n{sweep} --stand-in"
    return (missing if sweep else warning)("model", message, hint)


def _folder_model(spec: SweepSpec, base: Path) -> Finding:
    """Return whether a model that is a whole folder is on this machine."""
    from jobkit.planning.models import find, stanza

    if lack := missing_framework(spec.workload_name):
        return missing("model", lack.message, lack.hint)
    try:
        model = find.find(spec.workload_name, spec.model.model_dump(), base, cache_dir())
    except JobkitError as error:
        return missing("model", error.message, error.hint)
    if model.fingerprint == stanza.NOT_BUILT:
        return fine("model", f"{model.name} is not here; {model.caveat}: will be built by the sweep")
    return fine("model", f"{model.name} at {model.path}{f' ({model.caveat})' if model.caveat else ''}")
