"""A cache of texts and models that the users of a group share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.fault

GROUP, ONE, OTHER = 60000, 60001, 60002
AS_USER = """
import os, sys
from pathlib import Path
from unittest import mock
from jobkit.planning import sample, standin, texts

def built(_, made, *words, **options):  # in the place of the training
    folder = Path(made)
    (folder / "en").mkdir(parents=True)
    (folder / "en" / "t.pt").write_text("weights")
    (folder / standin.CARD_FILE).write_text("{}")

def use(cache, paragraphs, size, url):
    sample.write_sample(cache / "texts", paragraphs)
    texts.find_text(url, base=cache, cache=cache)
    with mock.patch.object(standin, "run_in_child", built):
        standin.make_stand_in("stanza-ner", size, cache, print)

user, umask, cache, warm, url, size, *numbers = sys.argv[1:]
use(Path(warm), 7, size, url)   # imports all, for the user may not read this Python
os.setgroups([]); os.setgid(60000); os.setuid(int(user)); os.umask(int(umask, 8))
for number in numbers:
    use(Path(cache), int(number), size, url + "?" + number)
for path in Path(cache).rglob("*"):
    if path.is_file() and "lock" not in path.name:
        path.read_bytes()
"""


@pytest.fixture
def cache() -> Iterator[Path]:
    """Return a folder of a group, in a place that all users can reach."""
    if os.geteuid() != 0:
        pytest.skip("root alone can act as other users")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        made = Path(folder) / "cache"
        made.mkdir()
        os.chown(made, 0, GROUP)
        made.chmod(0o2770)
        yield made


@pytest.fixture
def url(tmp_path: Path, serve: Callable[[Path], str]) -> str:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "text").write_text("One.\n\nTwo.\n")
    return f"{serve(tmp_path / 'served')}/text"


def use(user: int, umask: str, cache: Path, warm: Path, *words: str) -> str:
    """Use the cache as a user; return what went wrong."""
    argv = [sys.executable, "-c", AS_USER, str(user), umask, str(cache), str(warm), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def test_two_users_of_a_group_share_a_cache(cache: Path, url: str, tmp_path: Path) -> None:
    """FAULT: two users share a cache, and the umask of each user excludes others.

    HOW: real: two uids of one group, texts and a stand-in in a folder with the set-group-ID bit.
    REPORTED: nothing: files in such a folder get the group permissions of the folder, and no others.
    LOST: nothing.
    """
    assert use(ONE, "077", cache, tmp_path / "1", url, "tiny", "5", "6") == ""
    assert use(OTHER, "077", cache, tmp_path / "2", url, "full", "5", "8") == ""
    modes = {path: path.stat().st_mode for path in cache.rglob("*")}
    assert len({path.stat().st_uid for path in modes}) == 2
    assert all(mode & 0o060 == 0o060 for mode in modes.values()), modes
    assert not any(mode & 0o007 for mode in modes.values()), modes


def test_a_cache_that_can_only_be_read_is_enough(cache: Path, url: str, tmp_path: Path) -> None:
    """FAULT: a user may read a cache but not write in it.

    HOW: real: another uid, without the group, on a cache that is complete.
    REPORTED: nothing, as long as the cache holds every file that is needed.
    LOST: nothing.
    """
    cache.chmod(0o755)
    os.chown(cache, ONE, GROUP)
    assert use(ONE, "022", cache, tmp_path / "1", url, "tiny", "5") == ""
    assert {path.stat().st_mode & 0o777 for path in cache.rglob("*") if path.is_file()} == {0o644}
    assert use(65534, "022", cache, tmp_path / "2", url, "tiny", "5") == ""
