"""What `jobkit lint` says of the schedulers, asked of the schedulers: each rule's script is submitted."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobkit.schedulers.lint import lint
from jobkit.schedulers.slurm_lint import ONE_DASH
from tests.cluster.daemons import SgeDaemons, Wait, wait_for
from tests.cluster.lab import CANCEL, HOLD, SHOW

pytestmark = pytest.mark.usefixtures("here")
Answer = subprocess.CompletedProcess[str]

BASH = "#!/bin/bash\n"
SGE = "#!/bin/bash\n#$ -S /bin/bash\n#$ -cwd\n"
HEADS = {"slurm": BASH, "sge": SGE}
SUBMIT = {"slurm": ("sbatch", "--parsable"), "sge": ("qsub", "-terse")}
ENDED_S = 60
LOGIN_S = 180
"""A login shell reads the user's profile: ``pyenv init`` in it waits a minute for a lock that a kill left."""


def ask(*argv: str | Path) -> Answer:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def rules(text: str) -> list[str]:
    """Return the rules by which lint finds something, as seen from the folder that we are in."""
    return [one.rule for _, one in lint(text, is_folder=lambda path: Path(path).is_dir()).findings]


def submit(command: tuple[str, ...], text: str, name: str = "job.sh") -> Answer:
    Path(name).write_bytes(text.encode())
    return ask(*command, name)


def held(scheduler: str, text: str) -> str:
    """Submit a script, held; return what the scheduler knows of the job."""
    done = submit((*SUBMIT[scheduler], HOLD[scheduler]), text)
    assert done.returncode == 0, done.stdout + done.stderr
    job = done.stdout.split(".")[0].strip()
    known = ask(*SHOW[scheduler], job).stdout
    ask(CANCEL[scheduler], job)
    return re.sub(r" +", " ", known)


Row = tuple[str, str, str, bool]
"""A rule, or none; lines; what the scheduler shows of the job if it heeds them; and whether it does."""
SLURM_ROWS: list[Row] = [
    ("", "#SBATCH --array=1-3", "ArrayTaskId=1-3", True),
    ("misspelt", "# SBATCH --array=1-3", "ArrayTaskId=1-3", False),
    ("misspelt", "#sbatch --array=1-3", "ArrayTaskId=1-3", False),
    ("late", "#SBATCH -n 1\nX=1\n#SBATCH --array=1-3", "ArrayTaskId=1-3", False),
    ("one-dash", "#SBATCH -output=a.log", "/utput=a.log", True),
    ("variable", "#SBATCH --job-name=$USER", "JobName=$USER", True),
    ("memory-unit", "#SBATCH --mem=16", "MinMemoryNode=16M", True),
    ("hash", "#SBATCH --output=run#1.out", "/run\n", True),
    ("quotes", "#SBATCH --comment=\u201cx\u201d", "Comment=\u201cx\u201d", True),
]
SGE_ROWS: list[Row] = [
    ("", "#$ -t 1-3", "job-array tasks: 1-3", True),
    ("", "echo hello\n#$ -t 1-3", "job-array tasks: 1-3", True),
    ("misspelt", "# $ -t 1-3", "job-array tasks: 1-3", False),
    ("misspelt", "$# -t 1-3", "job-array tasks: 1-3", False),
    ("soft-alone", "#$ -soft\n#$ -l ngpus=1", "hard resource_list: ngpus=1", True),
    ("soft", "#$ -soft -l h_rt=9 -q gpu.q", "soft resource_list: h_rt=9", True),
    ("here-document", "cat >b.sh <<END\n#$ -N other\nEND", "job_name: other", True),
    ("memory-unit", "#$ -l h_vmem=16", "hard resource_list: h_vmem=16\n", True),
    ("time-unit", "#$ -l h_rt=90m", "hard resource_list: h_rt=90000000\n", True),
]


@pytest.mark.parametrize(
    ("scheduler", "row"),
    [
        *(pytest.param("slurm", row, marks=pytest.mark.slurm) for row in SLURM_ROWS),
        *(pytest.param("sge", row, marks=pytest.mark.sge) for row in SGE_ROWS),
    ],
)
def test_what_is_ignored_or_changed(scheduler: str, row: Row) -> None:
    rule, lines, shown, heeded = row
    text = f"{HEADS[scheduler]}{lines}\n"
    assert rules(text) == ([rule] if rule else [])
    assert (shown in held(scheduler, text)) is heeded


class TestSlurm:
    pytestmark = pytest.mark.slurm

    def test_the_options_that_take_one_dash_for_another_option(self) -> None:
        for name in ONE_DASH:
            assert held("slurm", f"{BASH}#SBATCH -{name}=1\n"), name

    @pytest.mark.parametrize(
        ("rule", "text", "said"),
        [
            ("no-interpreter", "#SBATCH -n 1\n", "does not look like a batch script"),
            ("no-interpreter", "\ufeff#!/bin/bash\n#SBATCH -n 1\n", "does not look like a batch script"),
            ("crlf", "#!/bin/bash\n#SBATCH -n 1\r\n", "DOS line breaks"),
            ("memory-twice", "#!/bin/bash\n#SBATCH --mem=1G --mem-per-cpu=1G\n", "mutually exclusive"),
            ("dash", "#!/bin/bash\n#SBATCH -n 1 \u2013mem=1G\n", "Invalid directive"),
            ("dash", "#!/bin/bash\n#SBATCH --nodes=1\u20132\n", "not a valid node count"),
        ],
    )
    def test_what_is_refused(self, rule: str, text: str, said: str) -> None:
        assert rule in rules(text)
        done = submit(("sbatch", "--hold"), text)
        assert done.returncode != 0
        assert said in done.stderr

    def test_what_is_lost(self, here: Path, wait_until: Wait) -> None:
        scripts = {
            "folder": f"{BASH}#SBATCH --output=nowhere/%j.out\ntouch ran\n",
            "folder-number": f"{BASH}#SBATCH --output=%j/out\ntouch ran\n",
            "folder-home": f"{BASH}#SBATCH --output=~/x.out\ntouch ran\n",
            "interpreter": "#!bin/bash\n#SBATCH --output=/dev/null\ntouch ran\n",
        }
        jobs = {}
        for rule, text in {**scripts, "chdir": f"{BASH}#SBATCH --chdir=/nowhere/at/all\ntouch ran\n"}.items():
            assert rules(text) == ["folder" if rule == "chdir" else rule]
            done = submit(("sbatch", "--parsable"), text)
            assert done.returncode == 0, done.stderr
            jobs[rule] = done.stdout.strip()
        wait_until(
            lambda: all(
                "JobState=FAILED" in ask("scontrol", "show", "job", job).stdout for job in jobs.values()
            ),
            ENDED_S,
        )
        assert [path.name for path in here.iterdir()] == ["job.sh"]

    def test_a_log_that_tasks_share_keeps_a_part(self, here: Path, wait_until: Wait) -> None:
        text = f"{BASH}#SBATCH --array=1-4\n#SBATCH --output=a.log\n"
        text += "echo begun; touch ran-$SLURM_ARRAY_TASK_ID\n"
        assert rules(text) == ["shared-log"]
        done = submit(("sbatch", "--parsable", "--array=1-4%1"), text)
        wait_until(lambda: not ask("squeue", "-h", "-j", done.stdout.strip()).stdout, ENDED_S)
        assert len(list(here.glob("ran-*"))) == 4
        assert (here / "a.log").read_text() == "begun\n"

    def test_a_signal_without_b_does_not_reach_the_shell(self, here: Path, wait_until: Wait) -> None:
        """By ``@15`` of a minute's walltime Slurm sends it after 15 s to 45 s, as it looks every 30 s.

        It goes to every process of a step, so that it would also end a program that the trap begins.
        """
        body = "trap '>caught-{0}' USR1\nsrun bash -c \"trap '>step-{0}; exit' USR1; >up-{0}; "
        body += 'sleep 120 & wait" &\nwait; wait\n'
        jobs = []
        for name, to in (("steps", ""), ("shell", "B:")):
            text = f"{BASH}#SBATCH --time=1 --signal={to}USR1@15\n" + body.format(name)
            assert rules(text) == ([] if to else ["signal"])
            jobs.append(submit(("sbatch", "--parsable"), text).stdout.strip())
        wait_until(lambda: {"caught-shell", "step-steps"} <= {path.name for path in here.iterdir()}, 90)
        ask("scancel", *jobs)
        assert not (here / "caught-steps").exists()
        assert not (here / "step-shell").exists()


class TestGridEngine:
    pytestmark = pytest.mark.sge

    @pytest.mark.parametrize(
        ("rule", "line", "right"),
        [
            ("dash", "#$ \u2013l h_rt=0:05:00", "-l h_rt=0:05:00"),
            ("stray", "#$ -l h_vmem=1G , h_rt=0:05:00", "-l h_vmem=1G,h_rt=0:05:00"),
            ("dash", "#$ -t 1\u201310", "-t 1-10"),
            ("dash", "#$ -pe smp 2\u20134", "-pe smp 2-4"),
            ("stray", "#$ -l h_vmem = 1G", "-l h_vmem=1G"),
            ("stray", "#$ -l h_vmem=1.5 G", "-l h_vmem=1.5G"),
            ("stray", "#$ -pe smp 2 (slots)", "-pe smp 2"),
            ("stray", "#$ -N two words", "-N two_words"),
            ("value", "#$ -l h_vmem=2GB", "-l h_vmem=2G"),
            ("value", "#$ -l h_rt=24:00", "-l h_rt=24:00:00"),
            ("name", "#$ -N 1abc", "-N j1abc"),
            ("tasks", "#$ -t 0-50", "-t 1-51"),
            ("value", "#$ -l h_rt=90min", "-l h_rt=01:30:00"),
            ("tasks", "#$ -t 00-5", "-t 1-6"),
            ("tasks", "#$ -t 1-10%2", "-t 1-10 -tc 2"),
            (None, "#$ -l h_vmem=INFINITY,h_rt=::5 -pe smp 2- -p -10 -t 5-3", ""),
            (None, "#$ -l h_vmem=-1G,h_rt=1e3,s_rt=3600.5", ""),
        ],
    )
    def test_what_is_refused_and_what_to_write_instead(self, rule: str | None, line: str, right: str) -> None:
        text = f"{SGE}{line}\n"
        assert rules(text) == ([rule] if rule else [])
        if rule:
            assert submit(("qsub", "-h"), text).returncode != 0
            assert right in lint(text).findings[0][1].hint
        assert held("sge", f"{SGE}#$ {right}\n" if rule else text)

    def test_a_consumable_is_refused_as_a_wish(self) -> None:
        assert rules(f"{SGE}#$ -soft -l ngpus=1\n") == ["soft"]
        done = submit(("qsub", "-h"), f"{SGE}#$ -soft -l ngpus=1\n")
        assert done.returncode == 1
        assert "soft requests on consumables" in done.stdout + done.stderr

    def test_what_is_lost(self, here: Path, wait_until: Wait) -> None:
        scripts = {
            f"{SGE}#$ -o nowhere/ -j y\ntouch ran\n": "folder",
            f"{SGE}#$ -e nowhere/x\ntouch ran\n": "folder",
            f"{SGE}#$ -o a-$JOB_ID/x -j y\ntouch ran\n": "folder-number",
            f"{SGE}#$ -o $FOO/x -j y\ntouch ran\n": "variable",
            f"{BASH}#$ -S /bin/bash -wd /nowhere/at/all -o /dev/null -j y\ntouch {here}/ran\n": "folder",
            f"{SGE}#$ -o /dev/null -j y\ntouch ran\n".replace("\n", "\r\n"): "crlf",
        }
        with deleted() as jobs:
            for text, rule in scripts.items():
                assert rules(text) == [rule]
                jobs.append(submit(("qsub", "-terse"), text).stdout.strip())
            wait_until(lambda: states(jobs) == ["Eqw"] * len(jobs), ENDED_S)
        assert not (here / "ran").exists()

    def test_what_runs_otherwise(self, here: Path, wait_until: Wait) -> None:
        joined = f"{SGE}#$ -o out -j y -e err\necho o; echo e >&2\n"
        home = f"{BASH}#$ -S /bin/bash -o /dev/null -j y\npwd >{here}/began-in\n"
        braces = f"{SGE}#$ -o a-${{USER}} -j y\ntrue\n"
        assert [rules(text) for text in (joined, home, braces)] == [["joined"], ["cwd"], ["variable"]]
        with deleted() as jobs:
            jobs += [submit(("qsub", "-terse"), text).stdout.strip() for text in (joined, home, braces)]
            wait_until(lambda: states(jobs) == [], ENDED_S)
        assert (here / "out").read_text() == "o\ne\n"
        assert not (here / "err").exists()
        assert Path((here / "began-in").read_text().strip()) == Path.home()
        assert (here / "a-${USER}").exists()

    def test_a_kill_cannot_be_trapped(self, here: Path, wait_until: Wait) -> None:
        body = "trap 'touch caught-{}' TERM USR2\ntouch up-{}\nsleep 60 & wait; wait\n"
        with deleted() as jobs:
            for name, asked in (("silent", ""), ("warned", "#$ -notify\n")):
                text = f"{SGE}#$ -o /dev/null -j y\n{asked}" + body.format(name, name)
                assert rules(text) == ([] if asked else ["signal"])
                jobs.append(submit(("qsub", "-terse"), text).stdout.strip())
            wait_until(lambda: len(list(here.glob("up-*"))) == 2, ENDED_S)
            ask("qdel", *jobs)
            wait_until(lambda: states(jobs) == [], ENDED_S)
        assert [path.name for path in here.glob("caught-*")] == ["caught-warned"]

    def test_without_s_the_queue_chooses_the_shell(
        self, sge_alone: SgeDaemons, here: Path, wait_until: Wait
    ) -> None:
        """In a queue as Grid Engine makes it by default, but for the shell: this one is no bash."""
        del sge_alone
        with posix_queue(here) as queue, deleted() as jobs:
            for name, shell in (("queue", ""), ("named", "#$ -S /bin/bash\n")):
                text = f'{BASH}#$ -cwd -o {name} -j y -q {queue}\n{shell}echo "bash $BASH_VERSION"\n'
                assert rules(text) == ([] if shell else ["shell"])
                jobs.append(submit(("qsub", "-terse"), text).stdout.strip())
            wait_until(lambda: states(jobs) == [], LOGIN_S)
        # What a login prints, such as a warning of a version manager, comes first.
        assert (here / "queue").read_text().splitlines()[-1] == "bash "
        assert re.match(r"bash \d", (here / "named").read_text().splitlines()[-1])


@contextmanager
def deleted() -> Iterator[list[str]]:
    """Give a list for the ids of jobs, and delete those that are left at the end."""
    jobs: list[str] = []
    try:
        yield jobs
    finally:
        for job in jobs:
            ask("qdel", job)


def states(jobs: list[str]) -> list[str]:
    rows = (line.split() for line in ask("qstat").stdout.splitlines())
    return [row[4] for row in rows if row and row[0] in jobs]


@contextmanager
def posix_queue(folder: Path) -> Iterator[str]:
    """Have a queue whose jobs are run by its own shell, as the default is; no other test may run."""
    text = ask("qconf", "-sq", "serial.q").stdout
    for key, value in (("qname", "posix.q"), ("shell_start_mode", "posix_compliant"), ("shell", "/bin/sh")):
        text = re.sub(rf"^{key} .*$", f"{key} {value}", text, flags=re.MULTILINE)
    (folder / "queue.conf").write_text(text)
    assert ask("qconf", "-Aq", folder / "queue.conf").returncode == 0
    try:
        yield "posix.q"
    finally:
        wait_for(lambda: ask("qconf", "-dq", "posix.q").returncode == 0, ENDED_S)
