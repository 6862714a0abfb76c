"""What rules of lint find beyond the example of the page (test_lint.py), and what they leave alone."""

from __future__ import annotations

from types import ModuleType

import pytest

from jobkit.schedulers import sge_lint, slurm_lint
from jobkit.schedulers.parsed_script import LintFinding, read_script

START = "#!/bin/bash\n"
STARTS = {slurm_lint: START, sge_lint: f"{START}#$ -S /bin/bash -cwd\n"}


def found(module: ModuleType, text: str, *folders: str) -> tuple[LintFinding, ...]:
    findings: tuple[LintFinding, ...] | None = module.lint(read_script(text, lambda path: path in folders))
    assert findings is not None
    return findings


def rules(module: ModuleType, text: str, *folders: str) -> list[tuple[int, str]]:
    return [(one.line, one.rule) for one in found(module, text, *folders)]


@pytest.mark.parametrize(
    ("module", "lines", "expected"),
    [
        (slurm_lint, "# sbatch --output=job.sh", "misspelt"),
        (slurm_lint, "  #SBATCH -n4", "misspelt"),
        (slurm_lint, "#SBATCH --signal=10\ntrap 'x' SIGUSR1", "signal"),
        (slurm_lint, '#SBATCH --signal R:usr1@60\ntrap -- "$x" 10 2 # both', "signal"),
        (slurm_lint, '#SBATCH --comment="${USER}"', "variable"),
        (slurm_lint, "#SBATCH --mem-per-c 8", "memory-unit"),
        (slurm_lint, "#SBATCH -a1-3 -oa.out", "shared-log"),
        (slurm_lint, "#SBATCH --array=1-3 --open-mode=truncate -o a%%a", "shared-log"),
        (slurm_lint, "#SBATCH --out nowhere/%j.out", "folder"),
        (slurm_lint, "#SBATCH --output=there/%4A/%a.out", "folder-number"),
        (slurm_lint, "#SBATCH --chdir=~/there", "folder-home"),
        (slurm_lint, "#SBATCH -n 1 \u2014mem=1G", "dash"),
        (slurm_lint, "#SBATCH -o run#1.out", "hash"),
        (slurm_lint, '#SBATCH -a 1-3 -o %a\nscancel "${SLURM_JOB_ID}"', "scancel"),
        (sge_lint, "#$ -l h_vmem=1G ,h_rt=10", "stray"),
        (sge_lint, "#$ -q gpu.q, serial.q", "stray"),
        (slurm_lint, "#SBATCH -n4 \u2013mem=1G", "dash: #SBATCH -n4 --mem=1G"),
        (slurm_lint, "#SBATCH --time=1\u201300:00:00", "dash: --time=1-00:00:00"),
        (slurm_lint, "#SBATCH -N1\u20132 -J a\u2013b", "dash: -N1-2 -J a\u2013b"),
        (slurm_lint, "#SBATCH --comment=\u201cit\u2019s\u201d", 'quotes: ="it\u2019s"'),
        (slurm_lint, "#SBATCH --comment=James\u2019", "quotes: pairs"),
        (sge_lint, "#$ -pe smp 2\u20134", "dash: #$ -pe smp 2-4"),
        (sge_lint, "#$ -l h_vmem=1.5 G", "stray: write -l h_vmem=1.5G"),
        (sge_lint, "#$ -l h_rt=60 extra", "stray: -l h_rt=60 (extra is outside"),
        (sge_lint, "#$ -l h_rt=60 h_vmem=2 GB", "stray: -l h_rt=60,h_vmem=2G"),
        (sge_lint, "#$ -l h_vmem=16Gi", "value: -l h_vmem=16G"),
        (sge_lint, "#$ -l h_rt=90m", "time-unit: -l h_rt=01:30:00"),
        (sge_lint, "#$ -l h_rt=1k", "time-unit: write hours:"),
        (sge_lint, "#$ -l h_rt=1.5h", "value: write hours:"),
        (sge_lint, "#$ -l h_rt=24h", "value: -l h_rt=24:00:00"),
        (sge_lint, "#$ -l h_rt=1-12", "value: -l h_rt=36:00:00"),
        (sge_lint, "#$ -t 00-5", "tasks: -t 1-6"),
        (sge_lint, "#$ -t 1-5,7", "tasks: one range"),
        (sge_lint, "#$ -pe smp -N x", "value: -pe smp NUMBER"),
        (sge_lint, "$# -l h_rt=100", "misspelt"),
        (sge_lint, "#$ -e there/err\n#$ -j yes", "joined"),
        (sge_lint, "#$ -soft -hard -l ngpus=1", "soft-alone"),
        (sge_lint, "#$ -l h_rt=10 -soft -q gpu.q", "soft"),
        (sge_lint, "trap 'save' USR2\n#$ -l s_rt=100,h_rt=200", "signal"),
        (sge_lint, "#$ -o nowhere/x,other:y", "folder"),
        (sge_lint, "#$ -wd /nowhere", "folder"),
        (sge_lint, "#$ -e logs/$TASK_ID/log", "folder-number"),
    ],
)
def test_what_is_found(module: ModuleType, lines: str, expected: str) -> None:
    text = f"{STARTS[module]}{lines}"
    (one,) = found(module, f"{text}\n", "there", "logs")
    expected, _, hint = expected.partition(": ")
    assert one.rule == expected
    assert hint in one.hint
    assert one.text == text.split("\n")[one.line - 1].removesuffix("\r")
    assert one.effect == module.RULES[expected].effect
    assert "{" not in one.message + one.hint


@pytest.mark.parametrize(
    ("module", "lines"),
    [
        (slurm_lint, "#SBATCH-n4 --mem=1G # a comment with $USER"),
        (slurm_lint, "#SBATCH\t--mem 100\n#SBATCH -N1 -p gpu --me"),
        (slurm_lint, "#   sbatch --mem 2G -o out.log --wrap 'python x'"),
        (slurm_lint, "# sbatch --export=ALL \\\\"),
        (slurm_lint, "#SBATCH --output=there/%x/%j.out --error=x-%j.err"),
        (slurm_lint, "#SBATCH --output=%%j/there"),
        (slurm_lint, r"#SBATCH --output='nowhere\%j/x'"),
        (slurm_lint, "#SBATCH --output='unclosed"),
        (slurm_lint, "#SBATCH --array=1-3 -o a-%a.out -e a-%j.err"),
        (slurm_lint, "#SBATCH --signal=B:USR1@60\ntrap 'x' USR1"),
        (slurm_lint, "#SBATCH --signal=USR1@60\nsrun ./work"),
        (slurm_lint, "#SBATCH -n1\ncat >other.sh <<E\n#SBATCH --mem=1G\n# SBATCH -n 1\nE\nsbatch other.sh"),
        (sge_lint, "# $1 is the text, $2 -l the language"),
        (sge_lint, "#$-N glued\n#$\t-N tab # -soft -l gpu=1"),
        (sge_lint, "echo hello\n#$ -l h_rt=100"),
        (sge_lint, "#$ -soft -l arch=lx-amd64 -hard -l ngpus=1"),
        (sge_lint, "#$ -j n -e there/err"),
        (sge_lint, "#$ -l 'h_vmem=INFINITY, h_rt=::5' -pe smp 2- -p -10 -m ea -V -t 1,3 -N a.b=c # note"),
        (sge_lint, "#$ -l h_vmem=1.5G,h_rt=1:0:0, -binding linear:1 -h u"),
        (slurm_lint, "#SBATCH -J 'a \u2013 b#1' # more #1\nscancel ${SLURM_ARRAY_JOB_ID}_1"),
        (slurm_lint, "#SBATCH --comment=it\u2019s -J a\u20131 # 1\u20139\n# --array=1\u20139"),
        (slurm_lint, "#SBATCH --comment='run -a 1\u20139'"),
        (sge_lint, "#$ -l h_rt=1e3,s_rt=3600.5,h_vmem=-1G,s_vmem=.5G,h_cpu=0x10 -hold_jid 1\u20132"),
        (sge_lint, "#$ -l s_rt=100,h_rt=200\ntrap 'save' USR1"),
        (sge_lint, "#$ -o there/$USER.$JOB_NAME.$HOSTNAME.$JOB_ID.$TASK_ID"),
        (sge_lint, "#$ -o node7:/nowhere/x"),
        (sge_lint, "#$ -o 'unclosed"),
    ],
)
def test_what_is_left_alone(module: ModuleType, lines: str) -> None:
    first = "#SBATCH --time=10\n" if module is slurm_lint else ""
    folders = ("there", "%j", "/dev", "$HOME/there", "/work")
    assert found(module, f"{STARTS[module]}{first}{lines}\n", *folders) == ()


def test_the_first_line_of_slurm() -> None:
    for first, rule in (
        *(("#! /bin/bash", ""), ("#!/usr/bin/env python3", ""), ("#!bin/bash", "interpreter")),
        *(("#!", "interpreter"), ("", "no-interpreter"), ("\ufeff#!/bin/bash", "no-interpreter")),
    ):
        of_line = [one for one in rules(slurm_lint, f"{first}\n#SBATCH -n 1\n") if one[1] != "late"]
        assert of_line == ([(1, rule)] if rule else []), first


def test_folders_are_sought_from_where_the_job_begins() -> None:
    log = f"{START}#SBATCH -o logs/%j --chdir=/work\n"
    assert rules(slurm_lint, log, "/work", "/work/logs") == []
    (one,) = found(slurm_lint, log.replace("logs/%j", "'my logs/%j'"), "/work", "my logs")
    assert one.hint == "mkdir -p '/work/my logs'"
    log = f"{START}#$ -S /bin/bash -wd /work -o logs/\n"
    assert rules(sge_lint, log, "/work", "/work/logs") == []
    (one,) = found(sge_lint, log, "/work", "logs")
    assert one.hint == "mkdir -p /work/logs"


def test_where_a_job_of_grid_engine_begins_and_by_which_shell() -> None:
    assert rules(sge_lint, "#!/bin/bash\n\n#$ -N x\n#$ -l h_rt=10\n") == [(1, "shell"), (1, "cwd")], (
        "each once"
    )
    assert rules(sge_lint, "#$ -S /bin/sh -o nowhere/x\n") == [(1, "cwd")], "relative to an unknown folder"
    assert rules(sge_lint, "#$ -S /bin/sh -o ~/nowhere/x\n") == [(1, "cwd"), (1, "folder")]


def test_a_script_without_a_directive_is_of_another_kind() -> None:
    for module, text in (
        (slurm_lint, "#!/bin/bash\n# batch sizes, see below\n#$ -cwd\ntrap 'x' USR1\n"),
        (slurm_lint, ""),
        (sge_lint, "#!/bin/bash\n#SBATCH -n 1\necho $# -l\ntrap 'x' USR1\n"),
        (sge_lint, "cat <<E >job.sh\n#$ -cwd\nE\nqsub job.sh\n"),
    ):
        assert module.lint(read_script(text)) is None


@pytest.mark.parametrize("word", ["BATCH", "SBATC", "SSBATCH", "SBTACH", "SbATCH", " SBATCH", "\tSBAATCH"])
@pytest.mark.parametrize("option", ["--mem=1G", "-n 4", "--array=1-3%2"])
def test_a_slip_is_found_and_the_fix_fixes_it(word: str, option: str) -> None:
    (one,) = found(slurm_lint, f"{START}#{word} {option}\n")
    assert one.rule == "misspelt"
    written = one.hint.removeprefix("write ").partition(", or, ")[0]
    assert found(slurm_lint, f"{START}{written}\n") == ()
