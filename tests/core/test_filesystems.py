from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.files import filesystem_type, likely_shared

MOUNTS = r"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /home rw,relatime shared:2 - nfs4 filer:/home rw
31 30 0:27 / /home/ada/big\040disk rw - lustre mds:/big rw
32 22 0:28 / /scratch rw - tmpfs tmpfs rw
33 22 0:29 / /scratch rw - xfs /dev/nvme0n1 rw
a line that is none
34 22 0:30 / /odd rw -
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc", "ext4"),
        ("/homes", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada", "nfs4"),
        ("/home/ada/big disk/x", "lustre"),
        ("/scratch/x", "xfs"),
        ("/odd", "ext4"),
    ],
)
def test_the_deepest_mount_point_counts_and_of_two_the_later(path: str, kind: str) -> None:
    assert filesystem_type(path, MOUNTS) == kind


def test_without_mounts_nothing_is_known() -> None:
    assert filesystem_type("/home", "") == ""


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("lustre", True),
        ("fuse.sshfs", True),
        ("ext4", False),
        ("tmpfs", False),
        ("overlay", False),
        ("", None),
        ("newfs", None),
    ],
)
def test_what_nodes_are_likely_to_share(kind: str, shared: bool | None) -> None:  # noqa: FBT001 - a parameter
    assert likely_shared(kind) is shared


@given(st.text())
def test_nothing_is_too_odd_to_read(text: str) -> None:
    assert "\n" not in filesystem_type("/a/b", text)
