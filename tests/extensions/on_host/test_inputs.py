"""What of a command line travels, and what the command line is on the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import COPY_FILE
from jobkit.extensions.on_host import transfer
from jobkit.extensions.on_host.connection import Connection
from jobkit.extensions.on_host.inputs import Inputs, find_inputs

SPEC = "name: letters\nworkload: count\ntext: {text}\nsweep: {{batch_size: [1, 2]}}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in the home folder, with a few files and one next to it."""
    folder = tmp_path / "home" / "my letters"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder.parent))
    (folder / "letters.txt").write_text("One.\n")
    for name in (
        "tagger.py",
        "helper.py",
        "run.sh",
        "mine.sh.j2",
        "ours.yaml",
        "../it's.txt",
        "../mine.sh.j2",
    ):
        (folder / name).touch()
    for name in ("package", "weights", "more"):
        (folder / name).mkdir()
    return folder


def spec(folder: Path, text: str = "letters.txt") -> Path:
    (folder / "first.yaml").write_text(SPEC.format(text=text), encoding="utf-8")
    return Path("first.yaml")


def inside(inputs: Inputs) -> set[str]:
    return {str(path.relative_to(inputs.base)) for path in inputs.inside}


@pytest.mark.parametrize(
    ("text", "files", "there"),
    [
        ("letters.txt", {"letters.txt"}, ""),
        ("sample:30", set(), ""),
        ("on:/data/letters.txt", set(), "/data/letters.txt"),
        ("{project}/letters.txt", {"letters.txt"}, "letters.txt"),
        ("~/my letters/letters.txt", {"letters.txt"}, "letters.txt"),
        ("../it's.txt", set(), "outside{home}/it's.txt"),
    ],
)
def test_a_spec_travels_with_its_text(project: Path, text: str, files: set[str], there: str) -> None:
    places = {"project": project, "home": project.parent}
    found = find_inputs({"spec": spec(project, f'"{text.format(**places)}"')})
    assert inside(found) == {"first.yaml", *files}
    assert set(found.outside) == ({project.parent / "it's.txt"} if "outside" in there else set())
    words = ["--set", f"text={there.format(**places)}"] if there else []
    assert found.words(["first.yaml", "--new"]) == ["first.yaml", "--new", *words]
    assert found.model is None


def test_corpora_travel_files_and_folders_and_numbers_do_not(project: Path) -> None:
    outside = project.parent / "it's.txt"
    words = ("letters.txt", "more/", str(outside), "on:/data/c.txt", "250000", "sample", "~nobody-of-this/x")
    found = find_inputs({"corpus": words})
    assert (inside(found), found.outside) == ({"letters.txt", "more"}, [outside])
    there = ["letters.txt", "more/", f"outside{outside}", "/data/c.txt", *words[4:]]
    assert found.words(["run", "--corpus", *words]) == ["run", "--corpus", *there]
    found = find_inputs({"site": str(outside)})
    assert found.words([f"--site={outside}"]) == [f"--site=outside{outside}"], "one word"


def test_a_run_folder_does_not_travel(project: Path) -> None:
    run = project / "runs" / "letters-1"
    run.mkdir(parents=True)
    (run / "points.jsonl").write_text("{}\n")
    (run / "sweep.yaml").write_text(SPEC.format(text="letters.txt"))
    assert not find_inputs({"run": Path("runs/letters-1")}).inside
    assert not find_inputs({"spec": Path("runs/letters-1/sweep.yaml")}).inside


def test_copies_of_runs_do_not_travel_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "texts" / "runs" / "[a]*"
    copy.mkdir(parents=True)
    (copy / COPY_FILE).touch()
    given: list[str] = []
    monkeypatch.setattr(transfer, "_has_rsync", lambda: True)
    monkeypatch.setattr(transfer, "_rsync", lambda _, arguments, **__: given.extend(arguments))
    transfer.send(Connection("hec", ()), [tmp_path / "texts"], tmp_path, "/home")
    assert r"--exclude=/texts/runs/\[a]\*" in given


@pytest.mark.parametrize(
    ("more", "files"),
    [
        ("workload: ./tagger.py:tag\nqueries: run.sh", {"tagger.py", "run.sh"}),
        ("workload: tagger:Tagger", {"tagger.py", "helper.py"}),
        ("workload: package.tagger:Tagger", {"package", "tagger.py", "helper.py"}),
        ("workload: {command: 'sh run.sh', files: [run.sh]}", {"run.sh"}),
        ("workload: count\ntemplate: mine.sh.j2", {"mine.sh.j2"}),
        ("workload: count\nsite: ./ours.yaml", {"ours.yaml"}),
        ("workload: hf-token-classification\nmodel: {path: weights}", {"weights"}),
    ],
)
def test_what_a_spec_names_travels(project: Path, more: str, files: set[str]) -> None:
    (project / "first.yaml").write_text(f"name: letters\ntext: letters.txt\n{more}\n")
    assert inside(find_inputs({"spec": Path("first.yaml")})) == {"first.yaml", "letters.txt"} | files
    changed = find_inputs({"spec": Path("first.yaml"), "overrides": ("text=helper.py",)})
    assert inside(changed) == {"first.yaml", "helper.py"} | files
    assert inside(find_inputs({"word": "./tagger.py:tag", "text": "letters.txt"})) == {
        "tagger.py",
        "letters.txt",
    }
    assert inside(find_inputs({"word": "stanza-ner", "text": "sample:100"})) == set()


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ("workload: stanza-ner", ("stanza-ner", {})),
        ("workload: stanza-ner\nmodel: {name: de}", ("stanza-ner", {"name": "de"})),
        ("workload: hf-token-classification\nmodel: {path: on:/m}", None),
    ],
)
def test_the_model_is_known_that_a_spec_needs(project: Path, more: str, needed: Any) -> None:
    (project / "first.yaml").write_text(f"name: letters\n{more}\n")
    found = find_inputs({"spec": Path("first.yaml")})
    assert found.model == needed
    assert found.changes == (["model.path=/m"] if "on:" in more else [])


@pytest.mark.parametrize(
    ("name", "more", "message", "hint"),
    [
        ("first.yaml", "template: ../mine.sh.j2", "is not in this folder", "copy it into {project}"),
        (
            "first.yaml",
            "workload: '{project}/tagger.py:tag'",
            "has another path on the cluster",
            ": tagger.py",
        ),
        ("../first.yaml", "", "../first.yaml: the spec is not in this folder", "cd {project.parent}"),
    ],
)
def test_a_file_that_would_have_another_path_there_is_refused(
    project: Path, name: str, more: str, message: str, hint: str
) -> None:
    (project / name).write_text(f"name: letters\n{more.format(project=project)}\n")
    with pytest.raises(JobkitError) as caught:
        find_inputs({"spec": Path(name)})
    assert message in caught.value.message
    assert caught.value.message.startswith(more.format(project=project).replace("'", ""))
    assert hint.format(project=project) in caught.value.hint


def test_what_travels_has_another_state_once_it_changes(project: Path) -> None:
    for params, path in (({"spec": spec(project)}, "letters.txt"), ({"corpus": ("more",)}, "more/a.txt")):
        (project / path).write_text("One.\n")
        before = find_inputs(params).marks()
        assert find_inputs(params).marks() == before
        (project / path).write_text("Two letters.\n")
        assert find_inputs(params).marks() != before


@pytest.mark.usefixtures("project")
def test_a_spec_that_is_not_here_is_looked_for_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert not find_inputs({"spec": Path("runs/a/sweep.yaml")}).inside
    assert "runs/a/sweep.yaml is not on this machine" in capsys.readouterr().err
