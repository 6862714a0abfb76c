"""The run folders of benchmarks/records: those that no page's command reads are an archive for each group.

The same files make the same archive::

    find GROUP -mindepth 2 -type f | LC_ALL=C sort |
        tar -cJf GROUP.tar.xz --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=644 -T -
"""

from __future__ import annotations

import tarfile
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from jobkit.core.layout import POINTS_FILE

RECORDS = Path(__file__).with_name("records")
UNPACKED = Path(__file__).parents[1] / ".cache" / "records"
SUFFIX = ".tar.xz"


@cache
def group(name: str, unpacked: Path = UNPACKED) -> Path:
    """Return the folder with the runs of a group; unpack its archive, if it has one, once a checkout.

    Several processes may do so at once: a folder gets its name when it is complete.
    """
    archive = RECORDS / f"{name}{SUFFIX}"
    if not archive.is_file():
        return RECORDS / name
    folder = unpacked / sha256(archive.read_bytes()).hexdigest()[:16]
    if not folder.is_dir():
        unpacked.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=unpacked) as new, tarfile.open(archive) as packed:
            unpack(packed, Path(new))
            with suppress(OSError):  # another process was first
                Path(new).rename(folder)
    return folder / name


def unpack(packed: tarfile.TarFile, to: Path) -> None:
    """Extract an archive of the project's own; Python has the argument ``filter`` from 3.11.4 only."""
    packed.extraction_filter = getattr(tarfile, "data_filter", None)
    packed.extractall(to)  # noqa: S202 - the project's own


def runs() -> list[Path]:
    """Return the run folders of all groups, in order of group and name."""
    names = {path.name.removesuffix(SUFFIX) for path in RECORDS.iterdir()}
    found = [path.parent for name in names for path in group(name).glob(f"*/{POINTS_FILE}")]
    return sorted(found, key=lambda run: run.parts[-2:])
