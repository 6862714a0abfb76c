"""Find out, without importing torch, whether its build can use a GPU; and the command that fixes it."""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path

from jobkit.core.terminal import shell_quote

INDEX = "https://download.pytorch.org/whl/cu126"
"""Index of CUDA builds. Without it pip may install the CPU build again, and without ``--force-reinstall`` it
keeps the torch that is installed."""
_BUILT = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*['\"]", re.MULTILINE)
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)


def cuda_install_command(python: str) -> str:
    return f"{shell_quote(python)} -m pip install --force-reinstall torch --index-url {INDEX}"


def cpu_build_problem() -> str:
    """Return a clause on why this Python cannot use a GPU; empty if it can, or if that is unknown."""
    package = util.find_spec("torch")
    if package is None:
        return "which has no torch"
    try:
        text = Path(package.origin or "").with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    version = _VERSION.search(text)
    return "" if version is None or _BUILT.search(text) else f"whose torch ({version[1]}) is a CPU build"
