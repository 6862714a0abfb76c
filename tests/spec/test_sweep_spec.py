from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.figures import choosable
from jobkit.core.paths import shipped_folder
from jobkit.core.units import SIZE_UNITS
from jobkit.spec.fields import Auto
from jobkit.spec.sweep_spec import FILE, SweepSpec, load_spec, schema_text, setting_overrides, spec_schema
from jobkit.spec.yaml_files import read_document

BAD = """\
name: 1st try
workload: stanza-nre
sweep:
  batch_sise: [50]
  batch_size: [0, many]
repeats: 0
resources:
  memory: 8
  walltime: 10
  gpu: 1
environment: {conda: a, venv: b, container: c}
policy: {gpu_oom: again}
schedular: slurm
"""


def refused(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JobkitError) as caught:
        load_spec(path, overrides)
    assert caught.value.exit_code == 2
    return [line.strip().removeprefix(f"{path}:") for line in caught.value.message.splitlines()[1:]]


def loaded(tmp_path: Path, text: str, *overrides: str) -> SweepSpec:
    """Return a spec, of which the text that it writes says the same."""
    path = tmp_path / "spec.yaml"
    path.write_text(f"name: t\n{text}\n", encoding="utf-8")
    spec = load_spec(path, overrides)
    path.write_text(spec.as_yaml(), encoding="utf-8")
    assert load_spec(path) == spec
    return spec


def test_all_faults_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert refused(tmp_path, BAD, "repeats=none") == [
        "--set repeats=none: repeats: 'none': should be a whole number above 0, auto, or a mapping",
        "1:7: name: '1st try': string should match pattern '^[A-Za-z][A-Za-z0-9_-]*$'",
        "2:11: workload: 'stanza-nre': no such workload; did you mean 'stanza-ner'?",
        "5:16: sweep.batch_size.0: 0: should be greater than 0",
        "5:19: sweep.batch_size.1: 'many': should be a whole number above 0",
        "8:11: resources.memory: 8: a size needs a unit, for instance 8GiB",
        '9:13: resources.walltime: 10: a duration is text, for instance "00:10:00" or 90m',
        "10:3: resources.gpu: no such key; did you mean 'gpus'?",
        "11:25: environment.venv: given as well as conda; keep one of the two",
        "11:34: environment.container: given as well as conda; keep one of the two",
        "12:19: policy.gpu_oom: 'again': should be 'prune' or 'keep'",
        "13:1: schedular: no such key; did you mean 'scheduler'?",
    ]


@pytest.mark.parametrize(
    ("text", "place", "phrase"),
    [
        ("sweep: {padded_chars: [9], batch_size: [1]}", "2:9", "sweep.padded: batch_size cuts the same"),
        ("sweep: {padded: 9, paragraphs_per_call: 1}", "2:9", "paragraphs_per_call cuts"),
        ("sweep: {padded: 9, padded_chars: [9]}", "2:20", "the earlier name of padded; keep one"),
        ("sweep: {include: [{padded_chars: 9, batch_size: 1}]}", "2:20", "sweep.include.0.padded: "),
        ("sweep: {mps: [on, yes]}", "2:19", "sweep.mps.1: 'yes': should be one of off, on, auto"),
        ("sweep: {batch_size: [true]}", "2:22", "batch_size.0: True: should be a whole number above 0"),
        ("workload: a:B\nsweep: {mode: [a b]}", "3:16", "should be a word of letters, digits"),
        ("workload: count\nprecision: bf16", "3:12", "'bf16': count offers no choice; stanza-ner, hf-"),
        ("workload: 3", "2:11", "should be the name of a workload, or a mapping with a command"),
        ("workload: {shell: true}", "2:1", "workload.command: required, not given"),
        ("workload: {command: a, file: [x]}", "2:24", "workload.file: no such key; did you mean"),
        ("policy: {ram_oom: {memory: xnan}}", "2:28", "a factor is written like x1.5"),
        ("sweep:\n  batch_sise: [50]", "3:3", "sweep.batch_sise: no such knob; did you mean 'batch_size'?"),
        ("sweep: {zip: {batch_size: [1, 2], workers: [1]}}", "2:9", "batch_size has 2, workers has 1"),
        ("sweep: {workers: 1, zip: {workers: [1]}}", "2:27", "sweep.zip.workers: an axis of its own"),
        ("sweep: {batch_size: []}", "2:9", "sweep.batch_size: no values"),
        ("sweep: {include: [{x: 1}]}", "2:20", "sweep.include.0.x: no such knob"),
        ("sweep: {quiet: [on]}", "2:9", "no such knob, of no shipped workload; one of: batch_"),
        ("sweep: {tokenizer_batch: auto}", "2:9", "sweep.tokenizer_batch: only batch_size may be 'auto'"),
        ("workload: count\nsweep: {precision: [bf16]}", "3:9", "stanza-ner, hf-token-classification and"),
        ("sweep: [50]", "2:8", "sweep: [50]: should be a mapping of knobs to values"),
        ('resources: {options: {slurm: ["-x", "-a 1"]}}', "2:37", "options.slurm.1: '-a 1': jobkit sets"),
        ("resources: {queue: []}", "2:20", "resources.queue: "),
        ("sweep: {tokenizer_batch: [3, 4]}\nfind_max: {}", "2:9", "sweep.tokenizer_batch: find_max needs"),
        ("sweep: {zip: {batch_size: [1, 2], tokenizer_batch: [3, 4]}}\nfind_max: {}", "2:35", "needs a"),
        ("find_max: {memory: 16}", "2:20", "find_max.memory: 16: device, or a size with a unit: 16GiB"),
        ("find_max: {memory: card}", "2:20", "find_max.memory: 'card': size 'card': not understood"),
        ("profile: scalene", "2:10", "scalene is no longer a profiler: use python"),
        ('text: "a\\0b"', "2:7", "a NUL"),
        ("workload: {command: c, metrics: {1: 2}}", "2:37", "metrics.1: 1: should be a valid string"),
        ("sweep: {batch_size: [auto, 5]}", "2:22", "'auto': should be a whole number above 0"),
    ],
)
def test_a_fault_has_its_place(tmp_path: Path, text: str, place: str, phrase: str) -> None:
    (fault,) = refused(tmp_path, f"name: x\n{text}\n")
    assert fault.startswith(f"{place}: ")
    assert phrase in fault


def test_the_words_of_schedulers_name_the_key(tmp_path: Path) -> None:
    text = "name: x\nmemory: 1G\nresources: {partition: g, h_rt: 1, nodes: 2, throttle: 3, job-name: y}\n"
    assert refused(tmp_path, text, "time=3") == [
        "--set time=***: time: no such key; did you mean 'resources.walltime'?",
        "2:1: memory: no such key; did you mean 'resources.memory'?",
        "3:13: resources.partition: no such key; did you mean 'queue'?",
        "3:27: resources.h_rt: no such key; did you mean 'walltime'?",
        "3:36: resources.nodes: no such key; a point runs on one node",
        "3:46: resources.throttle: no such key; did you mean 'max_parallel', at the top?",
        "3:59: resources.job-name: no such key; did you mean 'name', at the top?",
    ]


def test_too_many_settings_are_not_multiplied_out(tmp_path: Path) -> None:
    sizes = list(range(1, 2001))
    text = f"name: x\nrepeats: 1\nsweep: {{batch_size: {sizes}, tokenizer_batch: {sizes}, include: [{{}}]}}\n"
    (said,) = refused(tmp_path, text)
    assert said.endswith("sweep: 4,000,001 settings x 1 would be 4,000,001 points; a run has at most 100,000")


def test_no_fault_has_a_value_of_the_environment(tmp_path: Path) -> None:
    given = ("environment.variables.A=5", "environment.setup={a: hunter2}", "enviroment.variables.A=hunter2")
    mistyped = ("environment.venv.A=hunter2", "environment.variables.A:hunter2", "model.name=h://a?hunter2")
    said = refused(tmp_path, "name: x\nenvironment: {variables: {B: [hunter2]}}\n", *given, *mistyped)
    assert [line for line in said if "hunter2" in line or "5" in line or "***" not in line] == []
    assert len(said) == 7, "a line for each"


def test_what_is_written_out_and_short_forms_are_read_back(tmp_path: Path) -> None:
    text = SweepSpec(name="x").as_yaml()
    assert all(line in text for line in ("memory: 8GiB", "walltime: 00:10:00", "max_parallel: 4"))
    assert loaded(tmp_path, "sweep: {batch_size: 50}").sweep.product == {"batch_size": [50]}
    spec = loaded(tmp_path, "sweep: {batch_size: auto}")
    assert isinstance(spec.sweep.product["batch_size"], Auto)
    assert "\n  batch_size: auto\n" in spec.as_yaml()
    assert "walltime: x1.25" in loaded(tmp_path, "policy: {timeout: {walltime: x1.25}}").as_yaml()
    assert loaded(tmp_path, "resources: {queue: [short, long]}").resources.queue == "short,long"
    for text, memory in (("{}", "device"), ("{memory: device}", "device"), ("{memory: 1.5GiB}", 3 * 2**29)):
        find_max = loaded(tmp_path, f"find_max: {text}").find_max
        assert find_max is not None
        assert (find_max.memory, find_max.verify) == (memory, True)
    for text in (
        "sweep: {padded: [9, 10], order: [load, sorted], work_unit: [5, 9]}\nsort_window: 7",
        "order: sorted\nsort_window: 3\nsweep: {include: [{padded_chars: 9}, {batch_size: 1}]}\nwork_unit: 4",
        "sweep: {batch_size: [1, 2], tokenizer_batch: [3]}\nfind_max: {}",
    ):
        loaded(tmp_path, text)
    old = loaded(tmp_path, "sweep: {padded_chars: 9, exclude: [{padded_chars: 7}]}", "workload=count").sweep
    assert (old.product, old.exclude) == ({"padded": [9]}, [{"padded": 7}])
    text = "shortcuts: off\nsweep: {shortcuts: [off, exact], mps: [on, auto]}"
    spec = loaded(tmp_path, text)
    assert (spec.shortcuts, spec.sweep.product["shortcuts"]) == ("off", ["off", "exact"])
    assert spec.sweep.product["mps"] == ["on", "auto"]
    assert loaded(tmp_path, text, "shortcuts=exact").shortcuts == "exact"
    assert loaded(tmp_path, text, "shortcuts=null", "workload=count", "sweep={}").shortcuts is None
    assert loaded(tmp_path, "mps: on").mps == "on"
    assert loaded(tmp_path, "").shortcuts == "off"


def test_a_setting_that_a_search_found_is_read_as_overrides(tmp_path: Path) -> None:
    text = "order: sorted\nmps: on\nresources:\n  cpus: 1\nsweep:\n  padded_chars: [20000]\n"
    (tmp_path / "setting.yaml").write_text(text, encoding="utf-8")
    found = ('order="sorted"', 'mps="on"', 'sweep={"padded_chars": [20000]}', "resources.cpus=1")
    assert setting_overrides(tmp_path) == setting_overrides(tmp_path / "setting.yaml") == found
    (tmp_path / "setting.yaml").unlink()
    (tmp_path / "points.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(JobkitError, match="not there: a search writes it at its end"):
        setting_overrides(tmp_path)
    (tmp_path / "setting.yaml").write_text("# none\n", encoding="utf-8")
    with pytest.raises(JobkitError, match="has no setting: the search found none"):
        setting_overrides(tmp_path)


def test_an_objective_has_the_usual_direction_of_a_figure_that_jobkit_measures(tmp_path: Path) -> None:
    found = {name: loaded(tmp_path, "", f"objective.metric={name}").objective for name in choosable()}
    usual = {name: figure.direction for name, figure in choosable().items()}
    assert {name: objective.chosen_direction for name, objective in found.items()} == usual
    own = loaded(tmp_path, "", "objective={metric: f1, direction: max}").objective
    assert (own.metric, own.chosen_direction) == ("f1", "max")


def test_constraints_are_bounds_of_any_figure(tmp_path: Path) -> None:
    given = "constraints={gpu_memory: 1GiB, batch_p95: 500ms, cpus: 2, a b: {max: -1.5}}"
    bounds = loaded(tmp_path, "", given, "constraints.f1.min=0.9").constraints.bounds
    upper = {"gpu_memory": (None, 2**30), "batch_p95": (None, 0.5), "a b": (None, -1.5)}
    assert bounds == {**upper, "f1": (0.9, None)}


def test_objectives_and_constraints_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for override, phrase in {
        "objective.metric=f1": "needs objective.direction",
        "constraints.f1=0.9": "should be {min: NUMBER}, {max: NUMBER} or both",
        "constraints.batch_p96=2s": "other names are gpu_memory, batch_p95, joules_per_1000, cpus",
        "constraints.f1={min: 2, max: 1}": "no value is at least min and at most max",
        "constraints.f1={min: .nan}": "should be a valid number",
    }.items():
        (line,) = refused(tmp_path, "name: t\n", override)
        assert line.startswith(f"--set {override}: ")
        assert phrase in line


SPEC_PAGE = (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
MODELINE = f"# yaml-language-server: $schema={FILE}"


@pytest.fixture(scope="module")
def checker() -> jsonschema.Draft202012Validator:
    schema = spec_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_shipped_sweeps_and_the_specs_of_the_page_obey_the_shipped_schema(
    tmp_path: Path, checker: jsonschema.Draft202012Validator
) -> None:
    """After a change to the spec: jobkit schema > sweeps/jobkit.schema.json."""
    assert (shipped_folder("sweeps") / FILE).read_text(encoding="utf-8") == schema_text()
    path = tmp_path / "spec.yaml"
    for shipped in shipped_folder("sweeps").glob("*.yaml"):
        assert shipped.read_text(encoding="utf-8").splitlines()[0] == MODELINE
        checker.validate(read_document(shipped).data)
        spec = load_spec(shipped)
        path.write_text(spec.as_yaml(), encoding="utf-8")
        assert load_spec(path) == spec
    examples = re.findall(r"^```yaml spec\n(.*?)^```$", SPEC_PAGE, re.MULTILINE | re.DOTALL)
    assert examples
    for text in examples:
        path.write_text(text, encoding="utf-8")
        checker.validate(read_document(path).data)


def test_what_jobkit_refuses_an_editor_marks_and_what_jobkit_takes_it_takes(
    tmp_path: Path, checker: jsonschema.Draft202012Validator
) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("name: x\n", encoding="utf-8")
    refused: dict[str, list[object]] = {
        "workload": ["stanza-nre"],
        "repeats": [0, "some", {"share": 3}, {"least": 1}],
        "resources.memory": [8, "8 gigs"],
        "resources.walltime": ["10:00", "10 weeks"],
        "resources.options": [{"pbs": ["-x"]}],
        "sweep.batch_size": [[50, "many"], []],
        "find_max": ["device", {"memory": 16}, {"memory": "card"}, {"verify": "yes"}, {"batch": 9}],
    }
    for key, value in ((key, value) for key, values in refused.items() for value in values):
        data = read_document(file, [f"{key}={json.dumps(value)}"]).data
        assert not checker.is_valid(data), value
    walltimes = ("90m", "2 h", "00:10:00", "1-12:00:00", "3d")
    sizes = [{"memory": f"1.5 {unit}"} for unit in SIZE_UNITS]
    taken: dict[str, list[object]] = {
        "resources": [*sizes, *({"walltime": walltime} for walltime in walltimes)],
        "repeats": [3, "auto", {}, {"share": "2.5%", "most": 8}],
        "find_max": [None, {}, {"memory": "device"}, {"verify": False}],
    }
    for key, value in ((key, value) for key, values in taken.items() for value in values):
        checker.validate({"name": "x", key: value})
