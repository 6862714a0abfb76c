from __future__ import annotations

import pytest

from jobkit.schedulers.parsed_script import LintFinding, read_script
from jobkit.schedulers.sge_lint import RULES, lint

START = "#!/bin/bash\n#$ -S /bin/bash -cwd\n"


def found(text: str, *folders: str) -> tuple[LintFinding, ...]:
    findings = lint(read_script(text, lambda path: path in folders))
    assert findings is not None
    return findings


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("$# -l h_rt=100", "misspelt"),
        ("#$ -e there/err\n#$ -j yes", "joined"),
        ("#$ -soft -hard -l ngpus=1", "soft-alone"),
        ("#$ -l h_rt=10 -soft -q gpu.q", "soft"),
        ("trap 'save' USR2\n#$ -l s_rt=100,h_rt=200", "signal"),
        ("#$ -o nowhere/x,other:y", "folder"),
        ("#$ -wd /nowhere", "folder"),
        ("#$ -o $HOME/nowhere/$JOB_ID", "folder"),
        ("#$ -e logs/$TASK_ID/log", "folder-number"),
    ],
)
def test_what_is_found(lines: str, expected: str) -> None:
    """The page of lint has an example of each rule: tests/schedulers/test_lint.py tries those."""
    (one,) = found(f"{START}{lines}\n", "there", "logs")
    assert one.rule == expected
    assert one.text == f"{START}{lines}".split("\n")[one.line - 1].removesuffix("\r")
    assert one.effect == RULES[expected].effect
    assert "{}" not in one.message + one.hint


@pytest.mark.parametrize(
    "lines",
    [
        "# $1 is the text, $2 -l the language",
        "#$-N glued\n#$\t-N tab # -soft -l gpu=1",
        "echo hello\n#$ -l h_rt=100",
        "#$ -soft -l arch=lx-amd64 -hard -l ngpus=1",
        "#$ -j n -e there/err",
        "#$ -l s_rt=100,h_rt=200\ntrap 'save' USR1",
        "#$ -l h_vmem=8G,h_rt=10",
        "#$ -o there/$USER.$JOB_NAME.$HOSTNAME.$JOB_ID.$TASK_ID",
        "#$ -o $HOME/there/x",
        "#$ -o node7:/nowhere/x",
        "#$ -o 'unclosed",
    ],
)
def test_what_is_left_alone(lines: str) -> None:
    assert found(f"{START}{lines}\n", "there", "$HOME/there", "/work") == ()


def test_where_a_job_begins() -> None:
    findings = found("#!/bin/bash\n\n#$ -N x\n#$ -l h_rt=10\n")
    assert [(finding.line, finding.rule) for finding in findings] == [(1, "shell"), (1, "cwd")], "each once"
    start = "#!/bin/bash\n#$ -S /bin/bash -wd /work -o logs/\n"
    assert found(start, "/work", "/work/logs") == ()
    (one,) = found(start, "/work", "logs")
    assert one.hint == "mkdir -p /work/logs"


def test_without_a_known_folder_a_relative_log_is_left_alone() -> None:
    assert [one.rule for one in found("#$ -S /bin/sh -o nowhere/x\n")] == ["cwd"]
    assert [one.rule for one in found("#$ -S /bin/sh -o ~/nowhere/x\n")] == ["cwd", "folder"]


def test_a_script_without_a_directive_is_of_another_kind() -> None:
    assert lint(read_script("#!/bin/bash\n#SBATCH -n 1\necho $# -l\ntrap 'x' USR1\n")) is None
    assert lint(read_script("cat <<E >job.sh\n#$ -cwd\nE\nqsub job.sh\n")) is None
