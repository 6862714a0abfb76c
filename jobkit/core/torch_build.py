"""Whether torch can use a GPU at all, told without importing it; and the command that mends it."""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path

from jobkit.core.terminal import shell_quote

INDEX = "https://download.pytorch.org/whl/cu126"
"""Of builds for CUDA. Without an index pip may be set to bring the same build, and without force it says
that torch is there already."""
_BUILT = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*['\"]", re.MULTILINE)
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)


def cuda_install_command(python: str) -> str:
    """Return the command that gives a Python a torch for CUDA."""
    return f"{shell_quote(python)} -m pip install --force-reinstall torch --index-url {INDEX}"


def cpu_build_problem() -> str:
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
