from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from jobkit.run import work
from tests.support.disks import disk
from tests.workloads.broken import fill


def test_room_is_taken_and_given_back(tmp_path: Path) -> None:
    work.reserve_disk(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_blocks * 512 >= work.RESERVED_BYTES
    assert path.name.endswith(".part"), "such files stay on the node"
    work.release_disk(tmp_path)
    work.release_disk(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_there_is_none(tmp_path: Path) -> None:
    with ExitStack() as mounts:
        small = mounts.enter_context(disk(tmp_path / "small", 1))
        fill(small)
        with pytest.raises(OSError, match="No space left"):
            work.reserve_disk(small)
