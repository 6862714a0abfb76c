"""On what kind of file system a path lies, and whether other machines are likely to see it. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

SHARED_TYPES = re.compile(
    r"nfs\d?|lustre|gpfs|beegfs|fhgfs|ceph|glusterfs|cifs|smb\d?|afs|panfs|pvfs2|orangefs|wekafs|ocfs2|gfs2|9p"
    r"|fuse\..*"
)
"""Types that are on a server; FUSE mostly is, on clusters."""
LOCAL_TYPES = re.compile(r"ext\d|xfs|btrfs|zfs|f2fs|jfs|reiserfs|vfat|tmpfs|ramfs|overlay")
"""Types that are a disk, or the memory, of one machine (zfs: its server has it so, its clients nfs)."""


def filesystem_type(path: str, mountinfo: str) -> str:
    r"""Return the type of the file system that holds a path; empty where that is not known.

    Parameters
    ----------
    path
        Absolute, links resolved.
    mountinfo
        The text of ``/proc/self/mountinfo`` (proc(5)): the mount point is the fifth word, with
        spaces as ``\040``; the type follows the `` - ``. Of two mounts at a place the later counts.
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
    """Tell whether a type of file system is one that nodes share; ``None`` where it tells nothing."""
    if SHARED_TYPES.fullmatch(kind):
        return True
    return False if LOCAL_TYPES.fullmatch(kind) else None
