from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.planning.job_script import render, render_find, render_follow
from jobkit.schedulers.lint import lint, refuse_script
from jobkit.schedulers.parsed_script import Effect
from jobkit.schedulers.sge_lint import RULES as SGE_RULES
from jobkit.schedulers.slurm_lint import RULES as SLURM_RULES
from jobkit.spec.site import load_site
from tests.pages.test_docs import blocks, coded, page, section, table
from tests.planning.test_job_script import point, spec

SITES = {"slurm": "slurm-default", "sge": "sge-default", "local": "local-default"}


def test_a_script_may_be_for_both() -> None:
    looked = lint("#!/bin/bash\n# SBATCH -n 4\n#$ -S /bin/bash -cwd\n#$ -soft\n#SBATCH -n 1\n", "both.sh")
    assert list(looked.found) == ["slurm", "sge"]
    assert [one.rule for _, one in looked.findings] == ["misspelt", "soft-alone"]


OPTIONS = {"slurm": ["--mem-per-cpu=2G"], "sge": ["-soft -l gpu_type=v100"]}


@pytest.mark.parametrize("scheduler", OPTIONS)
def test_an_option_that_would_not_do_what_it_says_is_refused(scheduler: str) -> None:
    site = load_site(SITES[scheduler], scheduler)
    asked = spec(resources={"options": OPTIONS})
    for make in (render, render_find, render_follow):
        with pytest.raises(JobkitError) as raised:
            make(asked, site, point(), Path("/runs/r"))
        start = f"template {scheduler}.sh.j2: resources.options.{scheduler}: "
        assert raised.value.message.startswith(start)
        assert OPTIONS[scheduler][0] in raised.value.message
        assert raised.value.hint
    assert scheduler == "sge" or f"jobkit: {raised.value}\n" in blocks(page("lint.md"), "text")


@pytest.mark.parametrize(
    ("scheduler", "header", "said"),
    [
        ("slurm", "# SBATCH --mem=8G\n", "# SBATCH --mem=8G: sbatch takes it for a comment"),
        ("sge", "#$ -l ngpus=1\n", "#!/bin/bash: without -S"),
    ],
)
def test_a_template_that_the_scheduler_would_not_heed_is_refused(
    scheduler: str, header: str, said: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.sh.j2"
    mine.write_text('{% extends "shipped/job.sh.j2" %}{% block header %}\n' + header + "{% endblock %}")
    with pytest.raises(JobkitError) as raised:
        render(spec(template=str(mine)), load_site(SITES[scheduler], scheduler), point(), Path("/runs/r"))
    assert raised.value.message.startswith(f"template {mine}: {said}")


def test_what_is_for_another_scheduler_is_left_alone() -> None:
    refuse_script("#!/bin/sh\n#SBATCH -n 1\n#$ -soft\n", "slurm", "template x", {})
    refuse_script("#!/bin/sh\n# SBATCH -n 1\n", "local", "template x", {})


RULES = {"Slurm": SLURM_RULES, "Grid Engine": SGE_RULES}
ROWS = [(heading, row) for heading in RULES for row in table(section(page("lint.md"), heading))]


@pytest.mark.parametrize("heading", RULES)
def test_every_rule_is_reported(heading: str) -> None:
    assert [coded(row[0])[0] for of, row in ROWS if of == heading] == list(RULES[heading])


@pytest.mark.parametrize(("heading", "row"), ROWS, ids=[f"{heading}-{row[0]}" for heading, row in ROWS])
def test_the_example_of_a_rule_shows_it(heading: str, row: list[str]) -> None:
    rule, examples = coded(row[0])[0], coded(row[2])
    start = ["#!/bin/bash", "#SBATCH --time=10" if heading == "Slurm" else "#$ -S /bin/bash -cwd"]
    text = "\n".join([*start, *examples])
    if rule in {"interpreter", "no-interpreter"}:
        text = "\n".join([*(examples or [""]), start[1]])
    elif rule == "crlf":
        text = text.replace("\n", "\r\n")
    elif rule in {"shell", "cwd"}:
        text = "#!/bin/bash\n#$ -N x\n"
    found = [one.rule for _, one in lint(text, is_folder=lambda _: False).findings]
    assert rule in found


def test_every_effect_is_reported() -> None:
    effects = page("lint.md").partition("| word |")[2].partition("\n\n")[0]
    assert [coded(row[0])[0] for row in table(f"| word |{effects}")] == [str(effect) for effect in Effect]


@given(st.text(alphabet="#SBATCH$ -=/%\n\r<E'\"trap USR1memoutput~x"))
def test_no_text_is_too_odd(text: str) -> None:
    looked = lint(text, is_folder=lambda _: False)
    assert len(looked.lines()) == 3 * len(looked.findings)
    assert all(1 <= one.line <= text.count("\n") + 1 for _, one in looked.findings)
