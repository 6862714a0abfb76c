"""Report what a job's Python has: versions, torch, CUDA, GPUs. ``jobkit doctor`` runs it, in a job or here.

    python -m jobkit.worker.examine --device cuda --workload stanza-ner FILE

Standard library and pynvml; torch is imported only if the work needs it. The answer is one JSON object
in FILE; a value that could not be read is null.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import sys
import time
from dataclasses import asdict
from importlib import metadata, util
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular, write_atomically
from jobkit.core.shell import usable_cpus
from jobkit.worker.failure import TryFailed
from jobkit.worker.gpus import named_by
from jobkit.worker.measure import nvml
from jobkit.worker.measure.memory import open_device
from jobkit.worker.process import CHOOSE, GPUS_BY_VARIABLE
from jobkit.worker.workloads.base import missing_framework
from jobkit.worker.workloads.own import checked_class


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m jobkit.worker.examine")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--folder", help="folder with a workload of the user's own")
    parser.add_argument("--program", help="a program that a command starts")
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    report = examine(arguments.device, arguments.workload, arguments.folder, arguments.program)
    write_atomically(arguments.file, json.dumps(report) + "\n")


def examine(
    device: str, workload: str, folder: str | None = None, program: str | None = None
) -> dict[str, Any]:
    """Return what this Python has for a workload on a device; a command starts ``program``."""
    lack = missing_framework(workload)
    needs_torch = not lack and (device == "cuda" or workload == "stanza-ner")  # it imports torch everywhere
    with nvml.nvml() as has_nvml:
        gpus = nvml.list_gpus()  # before this process opens a GPU and is counted on it
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "jobkit": _version("jobkit"),
        "jobkit_path": str(Path(__file__).parents[1]),
        "stanza": _version("stanza") if util.find_spec("stanza") else None,
        **_workload(workload, folder, lack),
        "torch": _torch(device) if needs_torch else None,
        "nvml": has_nvml,
        "gpus": [asdict(gpu) for gpu in gpus],
        "gpus_named": os.environ.get(GPUS_BY_VARIABLE) in {None, CHOOSE} or any(named_by()),
        "cpus": usable_cpus(),
        "program": find_program(program) if program else None,
    }


def find_program(name: str) -> dict[str, str | None]:
    """Return the path of a program, the interpreter that it names, if it is a script, and its ``python``."""
    path = shutil.which(name)
    needs = interpreter(Path(path)) if path else ""
    return {
        "name": name,
        "path": path,
        "is_file": "yes" if Path(name).is_file() else None,
        "interpreter": needs,
        "interpreter_path": shutil.which(needs) if needs else None,
        "python": shutil.which("python"),
    }


def interpreter(script: Path) -> str:
    """Return the program that a script names after ``#!``, or after env(1); empty if it names none.

    A carriage return at the end of the line belongs to the name, as for the kernel (execve(2)).
    """
    try:
        with os.fdopen(open_regular(script), "rb") as stream:
            line, _, _ = stream.read(256).partition(b"\n")  # as many as Linux reads (execve(2))
    except OSError:  # one may execute a program that one cannot read
        return ""
    if not line.startswith(b"#!"):
        return ""
    words = [word for word in re.split("[ \t]+", os.fsdecode(line[2:])) if word]
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word] or words[:1]
    return words[0] if words else ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _workload(name: str, folder: str | None, lack: JobkitError | None) -> dict[str, str | None]:
    try:
        if lack:
            raise lack
        checked_class(name, folder)
    except JobkitError as error:
        return {"workload_error": error.message, "workload_hint": error.hint}
    return {"workload_error": None}


def _torch(device: str) -> dict[str, Any]:
    start = time.monotonic()
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001 - a broken CUDA library is an OSError, and there are others
        return {"version": None, "error": f"{type(error).__name__}: {error}"}
    report = {
        "version": str(torch.__version__),
        "error": None,
        "import_s": round(time.monotonic() - start, 1),
        "built_for": getattr(torch.version, "cuda", None),
    }
    if device != "cuda":
        return report
    try:  # to place a tensor on the first device
        open_device("cuda")
        properties = torch.cuda.get_device_properties(0)
    except Exception as error:  # noqa: BLE001 - CUDA may raise anything
        name = "" if isinstance(error, TryFailed) else f"{type(error).__name__}: "
        return report | {"works": False, "why": f"{name}{error}".splitlines()[0]}
    return report | {
        "works": True,
        "devices": int(torch.cuda.device_count()),
        "name": str(properties.name),
        "total_bytes": int(properties.total_memory),
    }


if __name__ == "__main__":
    main()
