from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.layout import read_exit
from jobkit.core.paths import shipped_folder
from jobkit.core.records import ModelRef, Point, TextRef
from jobkit.planning.job_script import FETCH_BODY, render, render_errand, render_find
from jobkit.planning.points import Inputs, plan
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec

MODEL = ModelRef(
    path="/cache/models/en", name="en", size="tiny", stand_in=True, fingerprint="f", size_bytes=15_000_000
)


SLURM = load_site("slurm-default", "slurm")


def point() -> Point:
    text = TextRef(path="/data/a text.txt", sha256="0" * 64, size_bytes=165_000, name="sample")
    inputs = Inputs(run_id="stanza-20260101-120000-beef", text=text, model=MODEL, device="cuda")
    return plan(SweepSpec(name="stanza"), inputs)[0]


def spec(**changes: object) -> SweepSpec:
    return SweepSpec.model_validate({"name": "stanza", **changes})


def script(scheduler: str, site: str, run_dir: str = "/home/me/runs/r1", **changes: object) -> str:
    return render(spec(**changes), load_site(site, scheduler), point(), Path(run_dir))


def find_script(**changes: object) -> str:
    return render_find(spec(**changes), SLURM, point(), Path("/home/me/runs/r1"))


EVERYTHING = {
    "environment": {
        "modules": ["cuda/12", "anaconda 3"],
        "conda": "my env",
        "setup": ["ulimit -n 4096"],
        "variables": {"OMP_NUM_THREADS": "2", "NOTE": "it's quoted"},
    },
    "resources": {"options": {"slurm": ["--nice=100"], "sge": ["-p -10"]}},
}


SITES = {"edinburgh-ilcc": "slurm", "lancaster-hec": "sge", "local-default": "local"}


def test_python_is_that_of_the_worker_to_a_command_unless_the_spec_names_an_environment() -> None:
    first = 'export PATH="${python%/*}:$PATH"'
    command: dict[str, Any] = {"workload": {"command": "python tag.py {text}"}}
    assert first in script("sge", "sge-default", **command)
    assert first not in script("sge", "sge-default", **command, environment={"venv": "/home/me/venv"})
    assert first not in script("sge", "sge-default")


@pytest.mark.slow
def test_shellcheck_has_nothing_to_say_of_odd_names(tmp_path: Path) -> None:
    """The whole texts of usual names are compared, and checked, by tests/whole/test_environments.py."""
    texts = {}
    for site, scheduler in SITES.items():
        folder = "/home/me/my runs/é" if scheduler == "sge" else "/home/me/my runs/it's"
        texts[site] = script(scheduler, site, folder, **EVERYTHING)
    words = ["en", "--resources-url", "http://127.0.0.1/it's"]
    errand = spec(resources={"gpus": 0})
    texts["fetch"] = render_errand(errand, SLURM, Path("/home/me/my runs/f1"), FETCH_BODY, fetch=words)
    fetched = """models fetch en --resources-url 'http://127.0.0.1/it'"'"'s'"""
    assert fetched in texts["fetch"]
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    program = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([program, *tmp_path.iterdir()], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "status"), [("exit 0", 0), ("exit 3", 1), ("kill -USR1 $PPID", 1), ("kill -TERM $PPID", 1)]
)
def test_a_fetch_that_a_signal_ends_is_no_success(does: str, status: int, tmp_path: Path) -> None:
    """In a trap of bash that a signal leads to, `$?` is the status of the command before."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    values = {"fetch": ["en"], "python": str(python)}
    text = render_errand(spec(), SLURM, tmp_path, FETCH_BODY, **values)
    subprocess.run(["bash", "-c", text], check=False)
    assert read_exit(tmp_path / "exit").status == status


def own_template(folder: Path, text: str, name: str = "mine.sh") -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_a_template_of_the_specs_own_overrides_one_block(tmp_path: Path) -> None:
    mine = own_template(
        tmp_path, "{% extends base %}{% block environment %}\n{{ super() }}\nnvidia-smi\n{% endblock %}"
    )
    plain = script("slurm", "slurm-default").splitlines()
    changed = script("slurm", "slurm-default", template=mine).splitlines()
    added = changed.index("nvidia-smi")
    assert "has no module stanza" in changed[added - 2]
    assert [line for line in changed if line and line != "nvidia-smi"] == [line for line in plain if line]


@pytest.mark.parametrize("extended", ["shipped/slurm.sh.j2", "shipped/job.sh.j2", "base"])
def test_every_block_of_the_body_can_be_overridden(extended: str, tmp_path: Path) -> None:
    body = (shipped_folder("templates") / "job.sh.j2").read_text(encoding="utf-8")
    extended = extended if extended == "base" else f'"{extended}"'
    names = re.findall(r"\{% block (\w+) %\}", body)
    blocks = "".join(f"{{% block {name} %}}# mine: {name}\n{{% endblock %}}" for name in names)
    mine = own_template(tmp_path, f"{{% extends {extended} %}}{blocks}")
    text = script("slurm", "slurm-default", template=mine)
    assert re.findall(r"^# mine: (\w+)$", text, re.MULTILINE) == [name for name in names if name != "worker"]


def test_a_template_in_the_config_folder_extends_the_shipped_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path))
    text = '{% extends "shipped/slurm.sh.j2" %}{% block header %}{{ super() }}#SBATCH --nice\n{% endblock %}'
    own_template(tmp_path / "templates", text, "slurm.sh.j2")
    lines = script("slurm", "slurm-default").splitlines()
    assert lines[lines.index("#SBATCH --nice") - 1] == "#SBATCH --ntasks=1"
    mine = own_template(tmp_path, "{% extends base %}{% block work %}true\n{% endblock %}")
    both = script("slurm", "slurm-default", template=mine)
    assert "#SBATCH --nice" in both
    assert both.endswith("true\n")
    own_template(tmp_path / "templates", '{% extends "slurm.sh.j2" %}', "slurm.sh.j2")
    with pytest.raises(JobkitError, match="extends itself") as caught:
        script("slurm", "slurm-default")
    assert "shipped/slurm.sh.j2" in (caught.value.hint or "")


def test_a_fault_in_a_template_names_its_line(tmp_path: Path) -> None:
    for text, fault in (
        ("{% extends base %}\n{% block work %}\n{{ nmae }}\n{% endblock %}", r":3: 'nmae' is undefined"),
        ('{% extends "slurm.sh" %}', r":1: there is no template 'slurm.sh' to extend"),
        ("{{ name | quote }}", r":1: No filter named 'quote'"),
    ):
        mine = own_template(tmp_path, text)
        with pytest.raises(JobkitError, match=rf"template {re.escape(mine)}{fault}"):
            script("slurm", "slurm-default", template=mine)


@pytest.mark.fault
def test_a_newline_in_a_path_is_refused() -> None:
    """FAULT: a newline in a path.

    HOW: real: the name of the run folder.
    REPORTED: that a job script cannot have a path with a control character.
    LOST: nothing.
    """
    with pytest.raises(JobkitError, match="control character"):
        script("slurm", "slurm-default", "/home/me/a\nb")


awkward = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="/"), min_size=1
)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(folder=awkward, variable=awkward)
def test_nothing_in_a_spec_reaches_the_shell(folder: str, variable: str, tmp_path: Path) -> None:
    """Bash itself reads the rendered assignments back to the very same text."""
    text = script("local", "local-default", f"/x/a{folder}", environment={"variables": {"V": variable}})
    lines = [line for line in text.split("\n") if re.match(r"(run|export V)=", line)]
    path = tmp_path / "echo.sh"
    path.write_text("\n".join([*lines, 'printf "%s\\0%s" "$run" "$V"']), encoding="utf-8")
    done = subprocess.run(["bash", path], capture_output=True, check=True)
    assert done.stdout.decode() == f"/x/a{folder}\0{variable}"


def test_the_header_of_a_template_of_the_specs_own_is_its_header_too(tmp_path: Path) -> None:
    header = "{% block header %}{{ super() }}#SBATCH --comment=mine\n{% endblock %}"
    mine = own_template(tmp_path, "{% extends base %}" + header + "{% block work %}odd{% endblock %}")
    text = find_script(template=mine)
    assert "#SBATCH --comment=mine\n" in text
    assert "\nodd" not in text
    assert "odd" in script("slurm", "slurm-default", template=mine)
    body = own_template(tmp_path, '{% extends "job.sh.j2" %}')
    assert find_script(template=body) == find_script(), "the body of a point is not taken for it"


def test_a_path_that_a_header_or_a_container_cannot_carry_is_refused() -> None:
    for scheduler, folder, image, words in (
        ("slurm", "a\\b", None, "slurm cannot write logs to a path with"),
        ("sge", "$HOME", None, "sge cannot write logs to a path with"),
        ("local", "r1", "tools.sif", "'tools.sif': here it must be an absolute path or a URI"),
        ("local", "a,b/r1", "/images/tools.sif", "a,b/r1: a path with a comma or a colon"),
    ):
        with pytest.raises(JobkitError, match=re.escape(words)):
            script(scheduler, f"{scheduler}-default", f"/home/me/{folder}", environment={"container": image})


@pytest.mark.slow
@pytest.mark.parametrize("image", ["/my images/it's.sif", "/$(touch x)/`id`.sif", 'docker://a"b'])
def test_no_image_reaches_the_shell(image: str, tmp_path: Path) -> None:
    body = script("local", "local-default", environment={"container": image})
    enter = body[body.index("container=(false)") : body.index("activate() {")]
    shown = 'type() { echo show; }; enter_container; printf "%s\\n" "$why" "${container[@]}"'
    argv = ["bash", "-c", f"run=/\n{enter}\n{shown}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    if "://" in image:
        assert said == ["", "show", "exec", "--nv", "--bind", "/", image, *said[7:]]
    else:
        assert said[0].startswith(f"there is no image {image} on ")
    assert list(tmp_path.iterdir()) == []
