"""Files that a kill may cut short; what a full disk leaves: tests/whole/test_full_disks.py."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jobkit.core.errors import DISK_FULL, ERRNO_HINTS, file_error, name_file_in_errors
from jobkit.core.files import append_line, last_line, read_lines


@pytest.mark.parametrize("torn", ['{"half', '{"whole": 1}', "\n"])
def test_a_line_that_was_cut_short_is_ended_before_the_next(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "journal.jsonl"
    append_line(path, "one")
    with path.open("a") as stream:
        stream.write(torn)
    append_line(path, "two")
    assert [line.strip() for _, line in read_lines(path)] == [
        one for one in ["one", torn.strip(), "two"] if one
    ]


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("", ""),
        ("half", ""),
        ("one\n", "one"),
        ("one\nhalf", "one"),
        ("one\n" + "x" * 200_000 + "\nhalf", "x" * 200_000),
        ("x" * 200_000 + "\ntwo\n", "two"),
        ("a" * 65_530 + "\nb\nhalf", "b"),
    ],
)
def test_the_last_whole_line_is_found_from_the_end(tmp_path: Path, text: str, last: str) -> None:
    path = tmp_path / "accounting.jsonl"
    path.write_text(text)
    assert last_line(path) == last


def test_an_error_of_a_file_keeps_its_name_and_its_meaning(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, name_file_in_errors(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert file_error(caught.value).message == f"{tmp_path}/a: No space left on device"
    with pytest.raises(FileNotFoundError) as caught, name_file_in_errors(tmp_path / "a"):
        (tmp_path / "b").read_text()
    said = file_error(caught.value, tmp_path, hint="name a file")
    assert (said.message, said.hint) == (f"{tmp_path}/b: No such file or directory", "name a file")
    hints = {code: file_error(OSError(code, "x"), "p").hint for code in ERRNO_HINTS}
    assert hints.keys() >= DISK_FULL
    assert len(set(hints.values())) == len(hints) - 1, "each says something else; EPERM is as EACCES"
    assert file_error(OSError(errno.ENOSPC, "x")).message == "standard output: x"
