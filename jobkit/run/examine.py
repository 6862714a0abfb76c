"""What a job's Python has: versions, torch, CUDA, cards. ``jobkit doctor`` runs it, in a job or here.

    python -m jobkit.run.examine --device cuda --workload stanza-ner FILE

Standard library and pynvml; torch is imported only where the work needs it. The answer is one JSON
object in FILE; what could not be found out is null.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from dataclasses import asdict
from importlib import metadata, util
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import write_atomically
from jobkit.run import process
from jobkit.run.failure import TryFailed
from jobkit.run.measure import nvml
from jobkit.run.measure.device import open_device
from jobkit.run.workloads.own import checked_class

NEEDS_TORCH = frozenset({"stanza-ner"})
"""The shipped workloads that import torch, on whatever device."""


def main() -> None:
    """Write what is found to a file."""
    parser = argparse.ArgumentParser(prog="python -m jobkit.run.examine")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--folder", help="where a workload of the user's own is looked for")
    parser.add_argument("file", type=Path)
    asked = parser.parse_args()
    write_atomically(asked.file, json.dumps(examine(asked.device, asked.workload, asked.folder)) + "\n")


def examine(device: str, workload: str, folder: str | None = None) -> dict[str, Any]:
    """Return what this Python has, for a workload on a device.

    Parameters
    ----------
    device
        ``cpu`` or ``cuda``.
    workload
        As a spec names it.
    folder
        Where a workload of the user's own is looked for.
    """
    needs_torch = device == "cuda" or workload in NEEDS_TORCH
    cards = [asdict(card) for card in nvml.list_gpus()]  # before this process opens one, and is counted on it
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "jobkit": _version("jobkit"),
        "jobkit_path": str(Path(__file__).parents[1]),
        "stanza": _version("stanza") if util.find_spec("stanza") else None,
        **_workload(workload, folder),
        "torch": _torch(device) if needs_torch else None,
        "nvml": _has_nvml(),
        "cards": cards,
        "visible": process.visible(),
        "cpus": len(os.sched_getaffinity(0)),
    }


def _has_nvml() -> bool:
    with nvml.nvml() as there:
        return there


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _workload(name: str, folder: str | None) -> dict[str, str | None]:
    """Return what is wrong with the class of a workload, and what mends it."""
    try:
        checked_class(name, folder)
    except JobkitError as error:
        return {"workload_error": error.message, "workload_mend": error.hint}
    return {"workload_error": None}


def _torch(device: str) -> dict[str, Any]:
    """Return what torch says of itself, how long it took to import, and whether CUDA works."""
    start = time.monotonic()
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001 - a broken CUDA library is an OSError, and there are others
        return {"version": None, "error": f"{type(error).__name__}: {error}"}
    told = {
        "version": str(torch.__version__),
        "error": None,
        "import_s": round(time.monotonic() - start, 1),
        "built_for": getattr(torch.version, "cuda", None),
    }
    return told | (_cuda() if device == "cuda" else {})


def _cuda() -> dict[str, Any]:
    """Return whether a tensor can be put on the first device."""
    try:
        found = open_device("cuda")
        properties = found.torch.cuda.get_device_properties(0)
        return {
            "works": True,
            "devices": int(found.torch.cuda.device_count()),
            "name": str(properties.name),
            "total_bytes": int(properties.total_memory),
        }
    except TryFailed as error:
        return {"works": False, "why": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever CUDA raises, it does not work
        return {"works": False, "why": f"{type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    main()
