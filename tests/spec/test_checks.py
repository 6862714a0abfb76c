"""The faults of a command in a spec, each with its place, and the files that it takes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.files import copy_files, digest
from jobkit.planning.prepare import prepare
from jobkit.spec.checks import CommandSpec, file_refs
from jobkit.spec.sweep_spec import load_spec

SPEC = """\
name: own
workload:
  command: {command}
  files: {files}
  metrics: {metrics}
sweep: {sweep}
scheduler: local
resources: {{gpus: 0}}
{more}
"""


def write(folder: Path, command: str, **keys: str) -> Path:
    values = {"files": "[]", "metrics": "{}", "sweep": "{}", "more": ""} | keys
    path = folder / "own.yaml"
    path.write_text(SPEC.format(command=command, **values), encoding="utf-8")
    return path


NOTHING = "means nothing to a command"


@pytest.mark.parametrize(
    ("command", "keys", "what"),
    [
        ("run {batch}", {"sweep": "{batch_size: [1]}"}, "3:12: workload.command: {batch}: no such knob"),
        ("run", {"sweep": "{zip: {batch_size: [1]}}"}, "own.yaml:6:15: sweep.zip.batch_size: has no place"),
        ("run", {"sweep": "{include: [{beam: 1}]}"}, "own.yaml:6:20: sweep.include.0.beam: has no place"),
        ("run", {"files": "[gone.py]"}, "own.yaml:4:11: workload: "),
        ("run", {"files": "[../x]"}, "own.yaml:4:11: workload: '../x' is not below the folder"),
        ("python tag.py", {}, "own.yaml:3:12: workload.command: tag.py is a file next to the spec"),
        ("run", {"metrics": "{f1: 'f1='}"}, "own.yaml:5:17: workload.metrics.f1: has 0 groups"),
        ("run", {"metrics": "{f1: '('}"}, "workload.metrics.f1: not a regular expression"),
        ("run {batch_size}", {"sweep": "{batch_size: auto}"}, "sweep.batch_size: 'auto' is chosen by"),
        ("run", {"more": "find_max: {}"}, f"own.yaml:9:11: find_max: {NOTHING}"),
        ("[a, b]", {}, "workload.command: ['a', 'b']: should be a valid string"),
    ],
)
def test_faults(tmp_path: Path, command: str, keys: dict[str, str], what: str) -> None:
    (tmp_path / "tag.py").touch()
    with pytest.raises(JobkitError) as caught:
        prepare(write(tmp_path, command, **keys))
    assert what in caught.value.message


def test_a_command_is_written_out_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "tag.py").write_text("print('{batch_size}', '$JOBKIT_BEAM')")
    path = write(tmp_path, "python tag.py", files="[./tag.py]", sweep="{beam: [1, 2]}")
    prepared = prepare(path)
    path.write_text(prepared.spec.as_yaml())
    assert load_spec(path).workload == CommandSpec(command="python tag.py", files=["./tag.py"])
    assert prepared.points[0].workload == "python tag.py"
    assert [file.name for file in prepared.points[0].files] == ["tag.py"]
    assert len(prepared.points) == 6


@pytest.mark.parametrize("command", ["preflight", "tune"])
def test_what_needs_batches_refuses_a_command(tmp_path: Path, command: str) -> None:
    from tests.support.commands import jobkit

    done = jobkit(command, write(tmp_path, "run"))
    assert done.returncode == 2
    assert "needs a workload that jobkit calls batch by batch" in done.stderr


def test_a_folder_is_one_file_with_one_digest(tmp_path: Path) -> None:
    library = tmp_path / "lib"
    (library / "sub" / "__pycache__").mkdir(parents=True)
    (library / "sub" / "__pycache__" / "a.pyc").touch()
    (library / "sub" / "run.sh").write_text("echo 1")
    (library / "sub" / "run.sh").chmod(0o755)
    (ref,) = file_refs(["lib/", "lib/"], tmp_path)
    assert (ref.name, ref.size_bytes) == ("lib/", 6)
    copy_files(library, tmp_path / "copy")
    assert digest(tmp_path / "copy") == (ref.sha256, 6)
    assert (tmp_path / "copy" / "sub" / "run.sh").stat().st_mode & 0o100
    assert not list((tmp_path / "copy").rglob("*.pyc"))
    (tmp_path / "copy" / "sub" / "run.sh").rename(tmp_path / "copy" / "run.sh")
    assert digest(tmp_path / "copy")[0] != ref.sha256
