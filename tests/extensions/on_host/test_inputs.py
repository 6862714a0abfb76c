"""What of a command line travels, and what the command line is on the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.extensions.on_host.inputs import Inputs, find_inputs

SPEC = "name: letters\nworkload: count\ntext: {text}\nsweep: {{batch_size: [1, 2]}}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home" / "my letters"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    (folder / "letters.txt").write_text("One.\n")
    return folder


def spec(folder: Path, text: str = "letters.txt", more: str = "", name: str = "first.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(SPEC.format(text=text) + more, encoding="utf-8")
    return Path(name)


def inside(inputs: Inputs) -> set[str]:
    return {str(path.relative_to(inputs.base)) for path in inputs.inside}


def test_a_spec_travels_with_its_text(project: Path) -> None:
    found = find_inputs({"spec": spec(project)})
    assert inside(found) == {"first.yaml", "letters.txt"}
    assert found.words(["first.yaml", "--new"]) == ["first.yaml", "--new"]
    assert (found.outside, found.model) == ([], None)


@pytest.mark.parametrize("text", ["sample", "sample:30", "http://localhost/letters.txt", "missing.txt"])
def test_a_text_that_is_no_file_here_does_not_travel(project: Path, text: str) -> None:
    found = find_inputs({"spec": spec(project, text)})
    assert inside(found) == {"first.yaml"}
    assert found.words(["first.yaml"]) == ["first.yaml"]


@pytest.mark.parametrize("text", ["../it's.txt", "{folder}/it's.txt"])
def test_a_text_from_elsewhere_is_named_by_a_set(project: Path, text: str) -> None:
    outside = project.parent / "it's.txt"
    outside.write_text("Two.\n")
    found = find_inputs({"spec": spec(project, f'"{text.format(folder=project.parent)}"')})
    assert set(found.outside) == {outside}
    place = f"outside{outside}"
    assert found.words(["first.yaml"]) == ["first.yaml", "--set", f"text={place}"]


def test_a_text_on_the_cluster_is_named_by_a_set(project: Path) -> None:
    found = find_inputs({"spec": spec(project, "on:/data/letters.txt")})
    assert inside(found) == {"first.yaml"}
    assert found.words(["first.yaml"])[1:] == ["--set", "text=/data/letters.txt"]


def test_a_set_decides_what_travels(project: Path) -> None:
    (project / "other.txt").write_text("Three.\n")
    found = find_inputs({"spec": spec(project), "overrides": ("text=other.txt",)})
    assert inside(found) == {"first.yaml", "other.txt"}


def test_corpora_travel_files_and_folders_and_numbers_do_not(project: Path) -> None:
    (project / "more").mkdir()
    outside = project.parent / "a b.txt"
    outside.touch()
    words = ("letters.txt", "more/", str(outside), "on:/data/c.txt", "250000", "sample")
    found = find_inputs({"corpus": words})
    assert inside(found) == {"letters.txt", "more"}
    assert found.outside == [outside]
    there = ["letters.txt", "more/", f"outside{outside}", "/data/c.txt", "250000", "sample"]
    assert found.words(["run", "--corpus", *words]) == ["run", "--corpus", *there]


def test_an_option_with_its_value_is_one_word(project: Path) -> None:
    outside = project.parent / "ours.yaml"
    outside.touch()
    found = find_inputs({"site": str(outside)})
    assert found.words([f"--site={outside}"]) == [f"--site=outside{outside}"]


def test_a_run_folder_does_not_travel(project: Path) -> None:
    run = project / "runs" / "letters-1"
    run.mkdir(parents=True)
    (run / "points.jsonl").write_text("{}\n")
    (run / "sweep.yaml").write_text(SPEC.format(text="letters.txt"))
    assert not find_inputs({"run": Path("runs/letters-1")}).inside
    assert not find_inputs({"spec": Path("runs/letters-1/sweep.yaml")}).inside


@pytest.mark.parametrize(
    ("more", "files"),
    [
        ("workload: ./tagger.py:tag", {"tagger.py"}),
        ("workload: tagger:Tagger", {"tagger.py", "helper.py"}),
        ("workload: package.tagger:Tagger", {"package", "tagger.py", "helper.py"}),
        ("workload: {command: 'sh run.sh', files: [run.sh]}", {"run.sh"}),
        ("workload: count\ntemplate: mine.sh.j2", {"mine.sh.j2"}),
        ("workload: count\nsite: ./ours.yaml", {"ours.yaml"}),
        ("workload: hf-token-classification\nmodel: {path: weights}", {"weights"}),
    ],
)
def test_what_a_spec_names_travels(project: Path, more: str, files: set[str]) -> None:
    for name in ("tagger.py", "helper.py", "run.sh", "mine.sh.j2", "ours.yaml"):
        (project / name).touch()
    for name in ("package", "weights"):
        (project / name).mkdir()
    (project / "first.yaml").write_text(f"name: letters\ntext: letters.txt\n{more}\n")
    assert inside(find_inputs({"spec": Path("first.yaml")})) == {"first.yaml", "letters.txt"} | files


@pytest.mark.parametrize(
    ("workload", "part", "needed"),
    [
        ("stanza-ner", "", ("stanza-ner", {})),
        ("stanza-ner", "model: {name: de}", ("stanza-ner", {"name": "de"})),
        ("hf-token-classification", "model: {name: a/b}", ("hf-token-classification", {"name": "a/b"})),
        ("count", "", None),
        ("hf-token-classification", "model: {path: on:/m}", None),
    ],
)
def test_the_model_is_known_that_a_spec_needs(project: Path, workload: str, part: str, needed: Any) -> None:
    (project / "first.yaml").write_text(f"name: letters\nworkload: {workload}\n{part}\n")
    found = find_inputs({"spec": Path("first.yaml")})
    assert found.model == needed
    if "on:" in part:
        assert found.changes == ["model.path=/m"]


def test_a_workload_alone_travels(project: Path) -> None:
    (project / "tagger.py").touch()
    assert inside(find_inputs({"word": "./tagger.py:tag", "text": "letters.txt"})) == {
        "tagger.py",
        "letters.txt",
    }
    assert inside(find_inputs({"word": "stanza-ner", "text": "sample:100"})) == set()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("template: ../mine.sh.j2", "template: ../mine.sh.j2"),
        ("workload: ../tagger.py:tag", "workload: ../tagger.py:tag"),
    ],
)
def test_a_file_from_elsewhere_that_a_spec_names_is_refused(project: Path, more: str, named: str) -> None:
    for name in ("mine.sh.j2", "tagger.py"):
        (project.parent / name).touch()
    (project / "first.yaml").write_text(f"name: letters\n{more}\n")
    with pytest.raises(JobkitError, match="is not in this folder") as caught:
        find_inputs({"spec": Path("first.yaml")})
    assert caught.value.message.startswith(named)
    assert f"copy it into {project}" in caught.value.hint


def test_an_absolute_path_of_a_file_is_refused_with_the_relative_one(project: Path) -> None:
    (project / "tagger.py").touch()
    (project / "first.yaml").write_text(f"name: letters\nworkload: '{project}/tagger.py:tag'\n")
    with pytest.raises(JobkitError, match="has another path on the cluster") as caught:
        find_inputs({"spec": Path("first.yaml")})
    assert caught.value.hint.endswith(": tagger.py")


def test_what_travels_has_another_state_once_it_changes(project: Path) -> None:
    params = {"spec": spec(project)}
    before = find_inputs(params).state()
    assert find_inputs(params).state() == before
    (project / "letters.txt").write_text("Two letters.\n")
    assert find_inputs(params).state() != before
    (project / "more").mkdir()
    (project / "more" / "a.txt").write_text("One.\n")
    folder = find_inputs({"corpus": ("more",)}).state()
    (project / "more" / "a.txt").write_text("Two letters.\n")
    assert find_inputs({"corpus": ("more",)}).state() != folder


def test_a_spec_from_elsewhere_is_refused(project: Path) -> None:
    spec(project.parent)
    with pytest.raises(JobkitError, match=r"\.\./first\.yaml: the spec is not in this folder") as caught:
        find_inputs({"spec": Path("../first.yaml")})
    assert f"cd {project.parent}" in caught.value.hint


@pytest.mark.usefixtures("project")
def test_a_spec_that_is_not_here_is_looked_for_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = find_inputs({"spec": Path("runs/a/sweep.yaml")})
    assert not found.inside
    assert "runs/a/sweep.yaml is not on this machine" in capsys.readouterr().err
