"""What is not installed: the extras of jobkit, and a torch for GPUs; and the lines that install them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

from jobkit.core.errors import JobkitError
from jobkit.core.terminal import shell_quote

EXTRAS = {
    "stanza": ("stanza", "Stanza with torch: 5.7 GB with CUDA, 1.2 GB for CPUs"),
    "hf": ("transformers", "transformers with torch: 5.8 GB with CUDA, 1.3 GB for CPUs"),
    "embedding": (
        "sentence_transformers",
        "sentence-transformers with torch: 6 GB with CUDA, 1.5 GB for CPUs",
    ),
    "spacy": ("spacy", "spaCy: 210 MB"),
    "parquet": ("pyarrow", "pyarrow: 170 MB"),
    "plot": ("matplotlib", "matplotlib: 100 MB"),
    "zst": ("zstandard", "zstandard: 25 MB"),
}
"""By the name of an extra: the module without which it is missing; what it brings, and its size on disk."""
NO_EXTRA = "none"
"""In place of an extra: the base alone."""


def missing_extra(need: str, extra: str, module: str = "") -> JobkitError | None:
    """Return the error of what needs an extra, or one module of it, that this Python lacks; else ``None``."""
    module = module or EXTRAS[extra][0]
    if importlib.util.find_spec(module):
        return None
    path, editable = origin()
    package = shell_quote(f"{path or 'jobkit'}[{extra}]")
    message = f"{need} needs the Python module {module}, which is not installed"
    hint = f"{_install()} {'-e ' if editable else ''}{package}   ({EXTRAS[extra][1]})"
    return JobkitError(message, hint=hint)


def added(module: str) -> str:
    """Return the command that adds a module to this Python, and changes no framework that is there."""
    from importlib import metadata  # as below

    kept = []
    for name in ("torch", *(name for name, _ in EXTRAS.values())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            kept.append(f"{name}=={metadata.version(name)}")
    other = "   (refused? Name a Python of its own: environment.venv)" * bool(kept)
    return f"{' '.join([_install(), module, *kept])}{other}"


def _install() -> str:
    """Return the command that adds a package to this Python: by pip, or by uv if it has no pip."""
    python = shell_quote(sys.executable)
    has_pip = importlib.util.find_spec("pip")
    return f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"


def origin() -> tuple[Path | None, bool]:
    """Return the checkout or wheel that this jobkit came from, if it is there, and whether it is editable.

    Source: https://packaging.python.org/en/latest/specifications/direct-url/
    """
    from importlib import metadata  # 40 ms that only an error costs

    direct = json.loads(metadata.distribution("jobkit").read_text("direct_url.json") or "{}")
    address = urlparse(direct.get("url", ""))
    path = Path(unquote(address.path))
    there = address.scheme == "file" and path.exists()
    return path if there else None, there and bool(direct.get("dir_info", {}).get("editable"))


INDEX = "https://download.pytorch.org/whl/cu126"
"""Index of CUDA builds. Without it pip may install the CPU build again, and without ``--force-reinstall`` it
keeps the torch that is installed."""


def cuda_install_command(python: str) -> str:
    return f"{shell_quote(python)} -m pip install --force-reinstall torch --index-url {INDEX}"


def cpu_build_problem() -> str:
    """Return a clause on why this Python cannot use a GPU; empty if it can, or if that is unknown."""
    package = importlib.util.find_spec("torch")
    if package is None:
        return "which has no torch"
    try:
        text = Path(package.origin or "").with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    built = re.search(r"^(cuda|hip)\b[^=\n]*=\s*['\"]", text, re.MULTILINE)
    return "" if version is None or built else f"whose torch ({version[1]}) is a CPU build"
