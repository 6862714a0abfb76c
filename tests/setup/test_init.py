"""What `jobkit init` writes, from what fake schedulers say; and that it writes over nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.setup.init import Written, begin, plan_for
from jobkit.spec.directives import directives
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import load_spec
from tests.fakes.cluster import FakeCluster


@pytest.fixture(autouse=True)
def own_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config" / "site.yaml"


def init(
    folder: Path, scheduler: str, site: Path | None = None, only: str | None = None
) -> tuple[Written, ...]:
    said: list[str] = []
    return begin(plan_for(folder, scheduler, site, only), said.append)


@pytest.mark.parametrize("scheduler", ["slurm", "sge"])
def test_a_site_file_that_auto_finds_and_a_spec_that_fits(
    scheduler: str, own_site: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"fake_{scheduler}")
    written = init(tmp_path / "new" / "project", scheduler)

    assert [one.path for one in written] == [own_site, tmp_path / "new" / "project" / "first.yaml"]
    site, spec = load_site("auto", scheduler), load_spec(written[1].path)
    assert site.queue == spec.resources.queue
    assert site.queue == {"slurm": "cpu", "sge": "gpu.q"}[scheduler]
    assert (spec.site, spec.scheduler, spec.resources.gpus) == ("auto", scheduler, 1)


def test_a_site_file_for_all_users(fake_slurm: FakeCluster, own_site: Path, tmp_path: Path) -> None:
    del fake_slurm
    ours = tmp_path / "shared" / "ours.yaml"
    (site,) = init(tmp_path, "slurm", ours, "site")

    assert site.path == ours
    assert not own_site.exists()
    (spec,) = init(tmp_path, "slurm", ours, "spec")
    assert load_spec(spec.path).site == str(ours)
    assert load_site(str(ours), "slurm").name == "lab"


def test_nothing_is_written_over(fake_slurm: FakeCluster, own_site: Path, tmp_path: Path) -> None:
    site, spec = init(tmp_path, "slurm")
    before = [path.read_bytes() for path in (site.path, spec.path)]
    fake_slurm.forget()

    with pytest.raises(JobkitError, match="nothing was written, for there is already") as both:
        init(tmp_path, "slurm")
    assert "--site-file FILE" in both.value.hint
    assert str(own_site) in both.value.hint
    with pytest.raises(JobkitError) as site_only:
        init(tmp_path / "other", "slurm")
    assert f"jobkit init {tmp_path / 'other'} --only spec" in site_only.value.hint
    assert not (tmp_path / "other").exists()
    site.path.rename(tmp_path / "away.yaml")
    with pytest.raises(JobkitError) as spec_only:
        init(tmp_path, "slurm")
    assert "jobkit init --only site" in spec_only.value.hint
    assert not own_site.exists()
    assert [path.read_bytes() for path in (tmp_path / "away.yaml", spec.path)] == before
    assert fake_slurm.calls() == [], "nobody is asked for nothing"


def test_a_second_spec_keeps_to_the_site_file(
    fake_slurm: FakeCluster, own_site: Path, tmp_path: Path
) -> None:
    del fake_slurm
    init(tmp_path, "slurm", only="site")
    text = own_site.read_text(encoding="utf-8")
    own_site.write_text(text.replace("\nqueue: cpu", "\nqueue: gpu"), encoding="utf-8")
    (spec,) = init(tmp_path, "slurm", only="spec")

    assert load_spec(spec.path).resources.queue == "gpu"


def test_a_spec_sets_nothing_that_the_site_file_has_no_header_line_for(
    fake_slurm: FakeCluster, own_site: Path, tmp_path: Path
) -> None:
    del fake_slurm
    init(tmp_path, "slurm", only="site")
    text = own_site.read_text(encoding="utf-8")
    kept = re.sub(r"(?m)^  (gpus|gpu_type|cpus|account|queue): .*$", r"  \1: null", text)
    own_site.write_text(re.sub(r"(?m)^queue: .*$", "queue: null", kept), encoding="utf-8")
    (spec,) = init(tmp_path, "slurm", only="spec")
    resources = load_spec(spec.path).resources
    assert (resources.gpus, resources.gpu_type, resources.cpus, resources.account) == (0, None, 1, None)
    assert directives(resources, load_site("auto", "slurm"))


def test_the_second_command_of_the_readme_takes_the_first_spec_of_a_cluster(
    fake_slurm: FakeCluster, own_site: Path, tmp_path: Path
) -> None:
    """The one type of GPU that Slurm reports has no header line at the site of the command."""
    del fake_slurm, own_site
    _, spec = init(tmp_path, "slurm")
    assert directives(load_spec(spec.path).resources, load_site("lancaster-hec", "sge"))


def test_a_spec_for_a_site_file_that_is_not_there(fake_slurm: FakeCluster, tmp_path: Path) -> None:
    del fake_slurm
    with pytest.raises(JobkitError, match=r"ours\.yaml"):
        init(tmp_path, "slurm", tmp_path / "ours.yaml", "spec")


def test_a_scheduler_that_does_not_answer(fake_slurm: FakeCluster, own_site: Path, tmp_path: Path) -> None:
    fake_slurm.fault("controller_away")
    with pytest.raises(JobkitError, match="Slurm does not answer; nothing was written") as caught:
        init(tmp_path, "slurm")

    assert caught.value.exit_code == 3
    assert not own_site.exists()
    assert not (tmp_path / "first.yaml").exists()


def test_where_one_file_cannot_be_written_none_stays(
    fake_slurm: FakeCluster, own_site: Path, tmp_path: Path
) -> None:
    del fake_slurm
    with pytest.raises(JobkitError, match="nothing was written"):
        init(Path("/proc/project"), "slurm")
    assert not own_site.exists()

    (tmp_path / "file").touch()
    with pytest.raises(JobkitError, match="nothing was written"):
        init(tmp_path / "file", "slurm")
    assert not own_site.exists()


def test_without_a_scheduler_a_spec_for_this_machine(
    own_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (spec,) = init(tmp_path, "auto")

    assert load_spec(spec.path).scheduler == "local"
    assert "this machine" in spec.path.read_text(encoding="utf-8")
    assert not own_site.exists()
    with pytest.raises(JobkitError, match="no scheduler here to ask"):
        init(tmp_path / "other", "auto", only="site")
