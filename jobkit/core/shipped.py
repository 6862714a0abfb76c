"""Find the files that ship with jobkit: in the wheel, else in the checkout."""

from __future__ import annotations

from pathlib import Path

from jobkit.core.errors import JobkitError


def shipped_folder(name: str) -> Path:
    """Return the folder ``templates``, ``sweeps`` or ``docs``.

    The checkout is looked at first: an editable install leaves a copy inside the package that
    grows stale (seen with hatchling's force-include).

    Raises
    ------
    JobkitError
        Where the installation is incomplete.
    """
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    if (inside := package / "shipped" / name).is_dir():
        return inside
    raise JobkitError(f"{name}/ is missing from this installation", hint="reinstall jobkit")
