"""Whether torch can use a GPU at all, told without importing it; and the command that mends it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.errors import JobkitError
from jobkit.typed import word

if TYPE_CHECKING:
    from jobkit.site import Site
    from jobkit.spec import SweepSpec
    from jobkit.traits import Traits

INDEX = "https://download.pytorch.org/whl/cu126"
"""Of builds for CUDA. Without an index pip may be set to bring the same build, and without force it says
that torch is there already."""
_BUILT = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*['\"]", re.MULTILINE)
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)


def install(python: str) -> str:
    """Return the command that gives a Python a torch for CUDA."""
    return f"{word(python)} -m pip install --force-reinstall torch --index-url {INDEX}"


def fault() -> str:
    """Return why the torch of this Python cannot use a GPU; empty where it may, or that is not known."""
    found = util.find_spec("torch")
    if found is None:
        return "torch is not installed"
    try:
        text = Path(found.origin or "").with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    version = _VERSION.search(text)
    return "" if version is None or _BUILT.search(text) else f"torch {version[1]} is a CPU build"


def refuse(spec: SweepSpec, site: Site, workload: Traits) -> None:
    """Refuse points on a GPU where the Python that will run them is this one, and cannot use a GPU.

    Raises
    ------
    JobkitError
        With the commands that mend it.
    """
    environment = spec.environment
    another = environment.conda or environment.venv or environment.modules or environment.setup or site.setup
    if spec.device != "cuda" or not workload.needs_model or another or not (why := fault()):
        return
    ways = [
        f"{install(sys.executable)}   (or the index for your driver)",
        "or name the Python that jobs use: environment.venv or environment.conda in the spec",
        "or measure on the CPU: --set device=cpu --set resources.gpus=0",
    ]
    if site.scheduler != "local":
        ways.append("or, if this path holds another torch on the nodes: --set 'environment.setup=[\":\"]'")
    message = f"the sweep asks for a GPU, and in the Python that its jobs use {why}: {sys.executable}"
    raise JobkitError(message, hint="\n        ".join(ways))


def warn(say: Callable[[str], None], spec: SweepSpec, site: Site, workload: Traits) -> None:
    """Say what `refuse` would refuse."""
    try:
        refuse(spec, site, workload)
    except JobkitError as error:
        say(f"without --dry-run this is refused: {error}")
