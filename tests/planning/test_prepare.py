"""Checks of a sweep before it is submitted."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers.loads import NONE, TOKENIZER, Lengths, read_lengths
from jobkit.core.errors import JobkitError
from jobkit.core.layout import LENGTHS_FILE
from jobkit.launch.submission import write_run
from jobkit.planning.prepare import Options, Prepared, prepare
from jobkit.spec.sweep_spec import load_spec
from tests.support.builders import own_workload

SPEC = "name: t\nworkload: count\ntext: text.txt\nsweep: {batch_size: [1, 2]}\nresources: {gpus: 0}\n"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def ready(spec: Path, *overrides: str, scheduler: str = "slurm", **more: Any) -> Prepared:
    """Return what a spec is without anything built; its runs would stand next to it."""
    say = more.pop("say", print)
    options = Options(overrides=overrides, scheduler=scheduler, runs_dir=spec.parent / "runs", **more)
    return prepare(spec, options, say=say)


def test_everything_auto_is_decided_and_nothing_is_written(spec: Path, tmp_path: Path) -> None:
    prepared = ready(spec, "repeats=1")
    decided = prepared.spec
    assert (decided.scheduler, decided.site, decided.device) == ("slurm", "slurm-default", "cpu")
    assert len(prepared.points) == 2
    assert prepared.groups[0].request.walltime_s == 600
    assert not (tmp_path / "runs").exists()
    asked = ready(spec, scheduler="sge", site="lancaster-hec").groups[0].request
    assert asked.resources == ("ncpus", "h_vmem", "h_rt"), "to be checked"


def test_an_encoder_gets_the_paragraphs_of_a_call_and_the_budget_that_fill_a_device(spec: Path) -> None:
    text = SPEC.replace("count", "sentence-embedding").replace("gpus: 0", "gpus: 1")
    text += "model: {name: en, fallback: stand-in}\n"
    spec.write_text(text.replace("batch_size: [1, 2]", "padded: [4096]"))
    given = ("shortcuts=exact",), ("shortcuts=exact", "work_unit=50"), ("sweep.shortcuts=[off, exact]",), ()
    runs = [ready(spec, "device=cuda", *words).points for words in given]
    assert [{point.work_unit for point in points} for points in runs] == [{10_000}, {50}, {10_000}, {100}]
    spec.write_text(text.replace("batch_size: [1, 2]", "threads: [1]"))
    found = []
    for words in (
        ("device=cuda", "shortcuts=exact"),
        ("device=cpu", "shortcuts=exact"),
        ("device=cpu", "shortcuts=exact", "sweep.batch_size=[8]"),
        ("device=cpu",),
    ):
        prepared = ready(spec, *words)
        found.append(prepared.points[0].params.get("padded"))
        assert prepared.spec.sweep.product.get("padded") == (found[-1] and [found[-1]])
    assert found == [16_384, 1_000, None, None]


def test_what_the_shell_asks_of_sbatch_and_the_spec_does_not_is_asked_and_kept(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACCOUNT", "nlp"), ("PARTITION", "long"), ("QOS", "high")):
        monkeypatch.setenv(f"SBATCH_{name}", value)
    prepared = ready(spec, "resources.qos=low")
    lines = {"--account=nlp", "--partition=long", "--qos=low"}
    assert {f"#SBATCH {line}" for line in lines} < set(prepared.script.splitlines())
    assert prepared.spec.resources.account == "nlp"
    assert prepared.why.endswith("; SBATCH_ACCOUNT is nlp; SBATCH_PARTITION is long")
    assert ready(spec, scheduler="sge").spec.resources.account is None


def test_missing_things_are_faults_among_the_others(spec: Path) -> None:
    text = SPEC.replace("text.txt", "gone.txt").replace("count", "stanza-ner")
    more = "site: nowhere\nscheduler: sge\nmodel: {name: xx}\nrepeat: 1\ntemplate: gone.j2\n"
    spec.write_text(text + more, encoding="utf-8")
    with pytest.raises(JobkitError) as caught:
        prepare(spec, Options(), build=False, say=print)
    lines = [line.strip().removeprefix(f"{spec}:") for line in caught.value.message.splitlines()[1:]]
    places = [line.split(" ")[0] for line in lines]
    assert places == ["3:7:", "6:7:", "8:8:", "9:1:", "10:11:"]
    assert "gone.txt" in lines[0]
    assert "no site 'nowhere'" in lines[1]
    assert "jobkit models fetch xx" in lines[2]
    assert "did you mean 'repeats'?" in lines[3]
    assert f"there is no template {spec.parent}/gone.j2" in lines[4]


def test_a_key_that_means_nothing_to_a_workload_is_one_fault(spec: Path) -> None:
    assert ready(spec, "trim=true").spec.trim, "init writes it, and then a person changes the workload"
    for overrides, said in (
        (("model.trust_remote_code=true",), "model.trust_remote_code is not for count"),
        (("workload={command: 'true'}", "model.pooling=cls"), "model.pooling is not for a command"),
        (("workload=sentence-embeding", "prompt=query"), "no such workload; did you mean"),
    ):
        with pytest.raises(JobkitError, match=said) as caught:
            ready(spec, *overrides)
        assert "prompt: " not in caught.value.message


def test_a_template_stands_next_to_the_spec_and_in_the_run_by_its_whole_path(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.sh.j2").write_text("{% extends base %}{% block work %}true\n{% endblock %}")
    spec.write_text(SPEC + "template: mine.sh.j2\n", encoding="utf-8")
    monkeypatch.chdir("/")
    prepared = ready(spec)
    assert prepared.script.endswith("\ntrue\n")
    assert prepared.spec.template == str(tmp_path / "mine.sh.j2")
    again = tmp_path / "elsewhere" / "sweep.yaml"
    again.parent.mkdir()
    again.write_text(prepared.spec.as_yaml(), encoding="utf-8")
    assert prepare(again, Options(runs_dir=tmp_path)).spec == prepared.spec


def test_gpus_that_every_point_holds_and_none_uses_are_warned_of(spec: Path) -> None:
    for scheduler, device, gpus, warned in (
        ("slurm", "cpu", 1, ["each point would hold a GPU and use none (--set resources.gpus=0)"]),
        ("slurm", "auto", 2, []),
        ("local", "cpu", 2, []),
    ):
        lines: list[str] = []
        words = (f"device={device}", f"resources.gpus={gpus}", "sweep.batch_size=[1]")
        ready(spec, *words, scheduler=scheduler, say=lines.append)
        assert [line.rpartition(": ")[2] for line in lines] == warned


def test_a_text_of_one_paragraph_is_warned_of_and_jsonl_is_read_as_documents(
    spec: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    for name, number in (("lines.NDJSON", 3), ("lines.txt", 1)):
        (tmp_path / name).write_text('{"text": "One.\\r\\n\\r\\nTwo."}\n{"text": ""}\n{"text": "Three."}\n')
        assert not said
        lengths = ready(spec, f"text={name}", scheduler="local", say=said.append).lengths
        assert lengths
        assert len(lengths.paragraphs) == number
    assert f"sed G {tmp_path}/lines.txt > {tmp_path}/lines.lines.txt" in said[0]
    (tmp_path / "lines.NDJSON").write_text('{"text": "One."}\nTwo.\n')
    with pytest.raises(JobkitError, match=r"lines.NDJSON:2: not JSON"):
        ready(spec, "text=lines.NDJSON", scheduler="local")


def test_the_batch_sizes_are_chosen_from_the_text(spec: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join("x" * (50 + n % 7) for n in range(400)), encoding="utf-8")
    said: list[str] = []
    prepared = ready(spec, "sweep.batch_size=auto", scheduler="local", say=said.append)
    chosen = prepared.spec.sweep.product["batch_size"]
    assert len(chosen) == 5
    assert [point.numbers["batch_size"] for point in prepared.points] == chosen * 3
    assert len(said) == 1
    assert said[0].startswith(f"batch_size {', '.join(map(str, chosen))}: loads of ")
    assert prepared.lengths is not None
    write_run(prepared)
    written = (prepared.run_dir / LENGTHS_FILE).read_text(encoding="utf-8")
    assert Lengths.from_json(written) == prepared.lengths
    assert load_spec(prepared.run_dir / "sweep.yaml").sweep.product["batch_size"] == chosen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "source"), [("count", TOKENIZER), ("tests.workloads.hungry:Unmeasured", NONE)]
)
def test_the_run_folder_has_the_lengths_also_for_sizes_in_numbers(
    spec: Path, workload: str, source: str
) -> None:
    """Every command goes by them, so that one question has one answer; a workload may tell none."""
    prepared = ready(spec, f"workload={workload}", scheduler="local")
    write_run(prepared)
    written = read_lengths(prepared.run_dir)
    assert written is not None
    assert (written, written.source) == (prepared.lengths, source)


def test_how_many_points_share_a_job_is_the_specs_word_else_the_sites(spec: Path) -> None:
    site = spec.with_name("site.yaml")
    requests = "requests: {cpus: x, memory: x, walltime: x}\n"
    for scheduler, said, pack in (("slurm", "", 6), ("slurm", "pack: 3\n", 3), ("local", "pack: 3\n", 1)):
        spec.write_text(SPEC + said, encoding="utf-8")
        text = f"name: s\nscheduler: {scheduler}\npack: 20\n{requests if scheduler == 'slurm' else ''}"
        site.write_text(text, encoding="utf-8")
        assert ready(spec, scheduler=scheduler, site=str(site)).spec.pack == pack
    with pytest.raises(JobkitError, match="2 points of 48000:00:00 each need a job of more than ten years"):
        ready(spec, "pack=2", "repeats=2", "resources.walltime=2000d")


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own:Own", ""),
        ("own:Oun", r"own\.py has no 'Oun'; did you mean 'Own'\?"),
        ("own:Bare", r"'own:Bare' \(.*own\.py:\d+\) has no method load; .*no NEEDS_MODEL"),
        ("gone:Own", "the module 'gone' is neither installed nor in"),
        ("broken_:Own", r"cannot be imported: .*broken_\.py:2: ZeroDivisionError: division by zero"),
    ],
)
def test_a_workload_next_to_the_spec_is_looked_at_before_anything_is_submitted(
    name: str, said: str, spec: Path, tmp_path: Path
) -> None:
    """FAULT: the class of a user's own workload is missing, lacks a method, or fails on import.

    HOW: real: modules next to the spec.
    REPORTED: jobkit refuses the sweep, with the file and line of the user's code and what is expected; in a \
    job the outcome is `bug`, with that file and line.
    LOST: nothing.
    """
    own_workload(tmp_path)
    with (tmp_path / "own.py").open("a") as stream:
        stream.write("class Bare:\n    KNOBS = ('batch_size',)\n")
    (tmp_path / "broken_.py").write_text("x = 0\n1 / x\n")
    with pytest.raises(JobkitError, match=said) if said else nullcontext():
        found = ready(spec, f"workload={name}", scheduler="local").points
        assert {point.workload_folder for point in found} == {str(tmp_path)}
    assert "own" not in sys.modules, "the code of a user runs in another process"


@pytest.mark.slow
def test_a_knob_that_a_workload_of_ones_own_lacks_is_a_fault_of_the_spec(spec: Path, tmp_path: Path) -> None:
    name = own_workload(tmp_path, name="own_knobs")
    spec.write_text(f"workload: {name}\ntext: {tmp_path}/text.txt\nsweep:\n  batch_size: [1]\n  width: [2]\n")
    said = rf"spec\.yaml:5:3: sweep\.width: no such knob: the KNOBS of {name} holds batch_size"
    with pytest.raises(JobkitError, match=said):
        ready(spec, scheduler="local")
    assert not (tmp_path / "runs").exists()


CPU_ONLY = ("device=cpu", "workload=stanza-ner", "model.fallback=stand-in")


def test_what_only_a_gpu_has_is_refused_on_a_cpu(spec: Path) -> None:
    assert ready(spec, *CPU_ONLY, "mps=auto", "precision=bf16").points
    for said, override in (
        ("gpus: ", "gpus=2"),
        ("sweep.mps: ", "sweep.mps=auto"),
        ("sweep.precision: tf32 ", "sweep={zip: {batch_size: [1], precision: [tf32]}}"),
    ):
        with pytest.raises(JobkitError, match=f"^{said}means nothing with device: cpu") as caught:
            ready(spec, *CPU_ONLY, override)
        assert caught.value.hint == "leave it out, or set device: cuda"
