"""`environment.modules` with Debian's own environment-modules: by hand, and as a Slurm job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.packages import MODULES, need
from tests.whole.test_job_script import ScriptRun

MODULEFILE = """\
#%Module1.0
setenv MADE_READY by-modules
"""


@pytest.fixture(scope="session")
def modules() -> None:
    """Have environment-modules on this machine."""
    need(MODULES)


def environment(tmp_path: Path, module: str) -> dict[str, object]:
    (tmp_path / "modulefiles").mkdir()
    (tmp_path / "modulefiles" / "ready").write_text(MODULEFILE, encoding="utf-8")
    return {"modules": [module], "setup": [f'echo "$MADE_READY" >"{tmp_path}/told"']}


def ready(tmp_path: Path) -> list[str]:
    """Return what a site's ``setup`` would hold."""
    return [f"source {MODULES}", f"module use {tmp_path}/modulefiles"]


def test_a_module_is_loaded(modules: None, tmp_path: Path) -> None:
    del modules
    run = ScriptRun(tmp_path, site={"setup": ready(tmp_path)}, environment=environment(tmp_path, "ready"))
    status, said = run.run(1)
    assert status == 0, said
    assert (tmp_path / "told").read_text(encoding="utf-8") == "by-modules\n"
