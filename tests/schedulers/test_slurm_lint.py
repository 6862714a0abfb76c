from __future__ import annotations

import pytest

from jobkit.schedulers.parsed_script import LintFinding, read_script
from jobkit.schedulers.slurm_lint import RULES, lint

START = "#!/bin/bash\n"


def found(text: str, *folders: str) -> tuple[LintFinding, ...]:
    findings = lint(read_script(text, lambda path: path in folders))
    assert findings is not None
    return findings


def rules(text: str, *folders: str) -> list[tuple[int, str]]:
    return [(one.line, one.rule) for one in found(text, *folders)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("#SBTACH --mem=1G", "misspelt"),
        ("# sbatch --output=job.sh", "misspelt"),
        ("  #SBATCH -n4", "misspelt"),
        ("#SBATCH --signal=10\ntrap 'x' SIGUSR1", "signal"),
        ('#SBATCH --signal R:usr1@60\ntrap -- "$x" 10 2 # both', "signal"),
        ('#SBATCH --comment="${USER}"', "variable"),
        ("#SBATCH --mem-per-c 8", "memory-unit"),
        ("#SBATCH -a1-3 -oa.out", "shared-log"),
        ("#SBATCH --array=1-3 --open-mode=truncate -o a%%a", "shared-log"),
        ("#SBATCH --out nowhere/%j.out", "folder"),
        ("#SBATCH --output=there/%4A/%a.out", "folder-number"),
        ("#SBATCH --chdir=~/there", "folder-home"),
    ],
)
def test_what_is_found(lines: str, expected: str) -> None:
    """The page of lint has an example of each rule: tests/schedulers/test_lint.py tries those."""
    (one,) = found(f"{START}{lines}\n", "there")
    assert one.rule == expected
    assert one.text == f"{START}{lines}".split("\n")[one.line - 1].removesuffix("\r")
    assert one.effect == RULES[expected].effect
    assert "{" not in one.message + one.hint


@pytest.mark.parametrize(
    "lines",
    [
        "#SBATCH-n4 --mem=1G # a comment with $USER",
        "#SBATCH\t--mem 100\n#SBATCH -N1 -p gpu --me",
        "#   sbatch --mem 2G -o out.log --wrap 'python x'",
        "# sbatch --export=ALL \\\\",
        "# ---------- SBATCH ----------",
        "#SBATCH --output=there/%x/%j.out --error=x-%j.err",
        "#SBATCH --output=%%j/there",
        r"#SBATCH --output='nowhere\%j/x'",
        "#SBATCH --output='unclosed",
        "#SBATCH --array=1-3 -o a-%a.out -e a-%j.err",
        "#SBATCH --array=1-3 -o a.out --open-mode=append",
        "#SBATCH --signal=B:USR1@60\ntrap 'x' USR1",
        "#SBATCH --signal=USR1@60\nsrun ./work",
        "#SBATCH -n1\ncat >other.sh <<E\n#SBATCH --mem=1G\n# SBATCH -n 1\nE\nsbatch other.sh",
    ],
)
def test_what_is_left_alone(lines: str) -> None:
    assert rules(f"{START}#SBATCH --time=10\n{lines}\n", "there", "%j", "/dev") == []


def test_the_first_line() -> None:
    for first, rule in (
        *(("#! /bin/bash", ""), ("#!/usr/bin/env python3", ""), ("#!bin/bash", "interpreter")),
        *(("#!", "interpreter"), ("", "no-interpreter"), ("\ufeff#!/bin/bash", "no-interpreter")),
    ):
        found = [one for one in rules(f"{first}\n#SBATCH -n 1\n") if one[1] != "late"]
        assert found == ([(1, rule)] if rule else []), first


def test_folders_are_sought_from_where_the_job_begins() -> None:
    assert rules(f"{START}#SBATCH -o logs/%j --chdir=/work\n", "/work", "/work/logs") == []
    (one,) = found(f"{START}#SBATCH -o 'my logs/%j' --chdir=/work\n", "/work", "my logs")
    assert one.hint == "mkdir -p '/work/my logs'"


def test_a_script_without_a_directive_is_of_another_kind() -> None:
    assert lint(read_script("#!/bin/bash\n# batch sizes, see below\n#$ -cwd\ntrap 'x' USR1\n")) is None
    assert lint(read_script("")) is None


@pytest.mark.parametrize("word", ["BATCH", "SBATC", "SSBATCH", "SBTACH", "SbATCH", " SBATCH", "\tSBAATCH"])
@pytest.mark.parametrize("option", ["--mem=1G", "-n 4", "--array=1-3%2"])
def test_a_slip_is_found_and_the_fix_fixes_it(word: str, option: str) -> None:
    (one,) = found(f"{START}#{word} {option}\n")
    assert one.rule == "misspelt"
    written = one.hint.removeprefix("write ").partition(", or, ")[0]
    assert found(f"{START}{written}\n") == ()
