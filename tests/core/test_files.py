"""Files that a kill may cut short; what a full disk leaves: tests/whole/test_full_disks.py."""

from __future__ import annotations

import errno
import json
import os
import stat
from multiprocessing import Process
from pathlib import Path

import pytest

from jobkit.core import files
from jobkit.core.errors import DISK_FULL, ERRNO_HINTS, file_error, name_file_in_errors
from jobkit.core.files import append_line, filesystem_type, parse_object, read_tolerantly
from jobkit.core.layout import make_run_folder
from jobkit.spec.sweep_spec import SweepSpec


@pytest.mark.parametrize("torn", ['{"half', '{"whole": 1}', "\n"])
def test_a_line_that_was_cut_short_is_ended_before_the_next(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "journal.jsonl"
    append_line(path, "one")
    with path.open("a") as stream:
        stream.write(torn)
    append_line(path, "two")
    lines = [line.strip() for _, line in files.read_lines(path)]
    assert lines == list(filter(None, ["one", torn.strip(), "two"]))


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("half", ""),
        ("one\nhalf", "one"),
        ("one\n" + "x" * 200_000 + "\nhalf", "x" * 200_000),
        ("x" * 200_000 + "\ntwo\n", "two"),
        ("a" * 65_530 + "\nb\nhalf", "b"),
    ],
)
def test_the_last_whole_line_is_found_from_the_end(tmp_path: Path, text: str, last: str) -> None:
    path = tmp_path / "accounting.jsonl"
    path.write_text(text)
    assert files.last_line(path) == last


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


def test_a_missing_file_holds_no_lines_and_one_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    assert read_tolerantly(tmp_path / "journal.jsonl", parse_object) == ([], ())
    assert read_tolerantly(tmp_path, parse_object) == ([], (f"{tmp_path}: cannot be read: Is a directory",))


def test_lines_that_hold_nothing_are_one_note_and_the_others_stand(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f'{{"a": 1}}\n\n{"[" * 100_000}\n["a"]\n{{"b": 2}}\n{{"half')
    found, notes = read_tolerantly(path, parse_object)
    assert found == [{"a": 1}, {"b": 2}]
    assert notes == (f"{path}:3: not JSON: nested too deep (and 1 more line of this file): skipped",)
    found, notes = read_tolerantly(path, parse_object, growing=False)
    assert (len(found), "and 2 more lines" in notes[0]) == (2, True), "the last line of a file that is whole"


def test_a_line_that_was_appended_to_one_cut_short_is_read(tmp_path: Path) -> None:
    """So jobkit 0.1 left it; inside a string the quotes of such a beginning are escaped."""
    path = tmp_path / "journal.jsonl"
    whole = json.dumps({"at": "2026", "said": '{"at": "1"}'})
    path.write_text(f'{{"at": "2025", "sa{whole}\n{whole[:-1]}\n')
    found, notes = read_tolerantly(path, parse_object)
    assert found == [{"at": "2026", "said": '{"at": "1"}'}]
    assert len(notes) == 1


def _write_often(path: Path) -> None:
    for _ in range(100):
        files.write_atomically(path, "whole\n")


@pytest.mark.slow
def test_processes_that_write_one_file_at_the_same_moment_all_succeed(tmp_path: Path) -> None:
    writers = [Process(target=_write_often, args=(tmp_path / "text",)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"text": "whole\n"}


SPECS = [
    ({}, 0o666),
    ({"variables": {"A": "b"}}, 0o600),
    ({"setup": ["true"]}, 0o600),
    ({"modules": ["setup"], "venv": "variables"}, 0o666),
]


@pytest.mark.parametrize(("environment", "mode"), SPECS)
def test_what_holds_values_of_the_environment_is_its_owners_alone(
    tmp_path: Path, environment: dict[str, object], mode: int
) -> None:
    os.umask(before := os.umask(0))
    spec = SweepSpec.model_validate({"name": "t", "environment": environment})
    word = "".join(f"environment.{key}={value}" for key, value in environment.items())
    files.write_atomically(tmp_path / "sweep.yaml", spec.as_yaml())
    files.write_atomically(tmp_path / "job.sh", "true\n")
    append_line(tmp_path / "journal.jsonl", json.dumps({"given": ["pack=2"]}))
    append_line(tmp_path / "journal.jsonl", json.dumps({"given": [word] if mode == files.OWNER else []}))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("sweep.yaml", "journal.jsonl"), mode & ~before) | {"job.sh": 0o600}


@pytest.mark.parametrize(("group", "mode"), [(False, 0o700), (True, 0o750)])
def test_a_run_folder_is_its_owners_or_its_groups(tmp_path: Path, *, group: bool, mode: int) -> None:
    make_run_folder(tmp_path / "run", group=group)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == mode


@pytest.mark.parametrize("name", ["/dev/zero", "fifo", "a\0b", "\ud800", "large"])
def test_a_file_that_a_user_names_is_a_regular_one_of_a_size(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"12")
    with pytest.raises(OSError, match=r"not a regular file|no file can have this name|more than 0 MiB"):
        files.read_bytes(tmp_path / name, 1)


def test_a_full_disk_is_blamed_on_the_file_that_could_not_be_written() -> None:
    """As shutil.copyfile raises it: the source is the first name, the copy the second."""
    full = OSError(errno.ENOSPC, "No space left on device", "names.py", None, "runs/x/files/names.py")
    assert file_error(full).message == "runs/x/files/names.py: No space left on device"
    gone = OSError(errno.ENOENT, "No such file or directory", "names.py", None, "copy")
    assert file_error(gone).message.startswith("names.py: ")


MOUNTS = r"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /home rw,relatime shared:2 - nfs4 filer:/home rw
31 30 0:27 / /home/ada/big\040disk rw - lustre mds:/big rw
32 22 0:28 / /scratch rw - tmpfs tmpfs rw
33 22 0:29 / /scratch rw - xfs /dev/nvme0n1 rw
a line that is none
34 22 0:30 / /odd rw -
"""


def test_the_deepest_mount_point_counts_and_of_two_the_later() -> None:
    kinds = {"/homes": "ext4", "/home/ada": "nfs4", "/home/ada/big disk/x": "lustre"}
    kinds |= {"/scratch/x": "xfs", "/odd": "ext4"}
    assert {path: filesystem_type(path, MOUNTS) for path in kinds} == kinds
    assert filesystem_type("/home", "") == ""


def test_what_nodes_are_likely_to_share() -> None:
    for kinds, shared in {"nfs nfs4 lustre fuse.sshfs": True, "ext4 tmpfs overlay": False}.items():
        assert {files.likely_shared(kind) for kind in kinds.split()} == {shared}
    assert (files.likely_shared(""), files.likely_shared("newfs")) == (None, None)
