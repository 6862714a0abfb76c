from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.setup.doctor import What, next_command, script, what_is, workload
from jobkit.setup.findings import Status

GOOD = "#!/bin/bash\n#SBATCH --mem=100M\n#SBATCH --time=00:02:00\necho hi\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.yaml", "name: a\n", What.SPEC),
        ("broken.yml", "name: [\n", What.SPEC),
        ("spec", "name: a\nsweep: {}\n", What.SPEC),
        ("job", GOOD, What.SCRIPT),
        ("job.sh", "#!/bin/sh\n#$ -l h_vmem=1G\nname: a\n", What.SCRIPT),
    ],
)
def test_a_file_is_what_it_holds(here: Path, name: str, text: str, what: What) -> None:
    (here / name).write_text(text, encoding="utf-8")
    assert what_is(name) is what


@pytest.mark.usefixtures("here")
def test_what_is_no_file_is_a_workload_and_nothing_is_this_machine() -> None:
    assert what_is("") is What.MACHINE
    assert what_is("./tagger.py:tag") is what_is("stanza-ner") is What.WORKLOAD


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("letters.txt", b"Dear Sir\n\nDear Madam\n", "jobkit help workloads"),
        ("tagger.py", b"def tag(paragraphs): ...\n", "jobkit doctor ./tagger.py:FUNCTION"),
        ("model.bin", b"\0\1", "name a spec, or a job script"),
        ("gone.sh", None, "a SCRIPT"),
        ("gone.yaml", None, "jobkit init"),
    ],
)
def test_a_file_of_another_kind_is_refused(here: Path, name: str, content: bytes | None, hint: str) -> None:
    if content is not None:
        (here / name).write_bytes(content)
    with pytest.raises(JobkitError) as caught:
        what_is(name)
    assert hint in caught.value.hint


@pytest.mark.slow
def test_a_script_has_a_finding_for_each_line_that_is_ignored(here: Path) -> None:
    (here / "job.sh").write_text(f"{GOOD}#SBATCH --cpus-per-task=4\n", encoding="utf-8")
    late, trial = script(Path("job.sh"), lambda _: True)
    assert (late.name, late.status) == ("line 5", Status.MISSING)
    assert "--cpus-per-task=4" in late.said
    assert (trial.name, trial.status) == ("job", Status.UNKNOWN)
    assert next_command(What.SCRIPT, "job.sh", ()) == "sbatch job.sh"


@pytest.mark.slow
@pytest.mark.usefixtures("fake_slurm")
@pytest.mark.parametrize(
    ("more", "lines"), [("", "2"), ("#SBATCH -p no\n", "24"), ("#SBATCH --mem=1G\n", "")]
)
def test_the_lines_for_which_a_script_is_refused_are_named(tmp_path: Path, more: str, lines: str) -> None:
    header = f"#!/bin/bash\n#SBATCH --mem=16G\n#SBATCH -t 5\n{more}"
    (tmp_path / "job.sh").write_text(f"{header}echo hi\n", encoding="utf-8")
    found = {each.name: each.said for each in script(tmp_path / "job.sh", lambda _: True) if each.hint}
    assert list(found) == [f"line {line}" for line in lines]
    reasons = {"line 2": "configuration is not available", "line 4": "partition"}
    assert all(reasons[name] in said for name, said in found.items())


@pytest.mark.slow
def test_a_workload_is_tried(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (here / "tagger.py").write_text("def tag(paragraphs):\n    return [[len(one)] for one in paragraphs]\n")
    found = {finding.name: finding.status for finding in workload("./tagger.py:tag", lambda _: None)}
    assert found["loads"] is found["knob batch_size"] is Status.OK
    assert Status.MISSING not in found.values()
    (finding,) = workload("no-such-workload", lambda _: None)
    assert (finding.name, finding.status) == ("loads", Status.MISSING)
    assert "stanza-ner" in finding.hint
