"""Find the type of the file system of a path, and whether other machines probably see it. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

SHARED_TYPES = re.compile(
    r"nfs\d?|lustre|gpfs|beegfs|fhgfs|ceph|glusterfs|cifs|smb\d?|afs|panfs|pvfs2|orangefs|wekafs|ocfs2|gfs2|9p"
    r"|fuse\..*"
)
"""Types on a file server; on clusters FUSE mostly is one."""
LOCAL_TYPES = re.compile(r"ext\d|xfs|btrfs|zfs|f2fs|jfs|reiserfs|vfat|tmpfs|ramfs|overlay")
"""Types on a disk or in the memory of one machine (zfs: its clients see nfs)."""


def filesystem_type(path: str, mountinfo: str) -> str:
    r"""Return the type of the file system that holds a path; empty if unknown.

    Parameters
    ----------
    path
        Absolute, with links resolved.
    mountinfo
        The text of ``/proc/self/mountinfo`` (proc(5)): the mount point is the fifth word, with
        spaces as ``\040``; the type follows the `` - ``. If two mounts share a mount point, the later counts.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        words = left.split()
        if not dash or len(words) < 5 or not right.split():  # noqa: PLR2004 - the fifth is the mount point
            continue
        place = PurePosixPath(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        if PurePosixPath(path).is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), right.split()[0]
    return kind


def likely_shared(kind: str) -> bool | None:
    """Return whether nodes share a file system of this type; ``None`` if unknown."""
    if SHARED_TYPES.fullmatch(kind):
        return True
    return False if LOCAL_TYPES.fullmatch(kind) else None
