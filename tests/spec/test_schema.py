from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from jobkit.core.paths import shipped_folder
from jobkit.core.units import SIZE_UNITS
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import FILE, SweepSpec, docstring, schema_text, spec_schema
from jobkit.spec.yaml_files import read_document

ROOT = Path(__file__).parents[2]
SWEEPS = sorted(shipped_folder("sweeps").glob("*.yaml"))
EXAMPLES = re.findall(
    r"^```yaml spec\n(.*?)^```$", (ROOT / "docs" / "spec.md").read_text(), re.MULTILINE | re.DOTALL
)
MODELINE = f"# yaml-language-server: $schema={FILE}"


@pytest.fixture(scope="module")
def checker() -> jsonschema.Draft202012Validator:
    schema = spec_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_shipped_file_is_the_generated_one() -> None:
    """After a change to the spec: jobkit schema > sweeps/jobkit.schema.json."""
    assert (shipped_folder("sweeps") / FILE).read_text(encoding="utf-8") == schema_text()


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.name)
def test_a_shipped_sweep_names_the_schema_and_obeys_it(
    path: Path, checker: jsonschema.Draft202012Validator
) -> None:
    assert path.read_text(encoding="utf-8").splitlines()[0] == MODELINE
    checker.validate(read_document(path).data)


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_spec_of_the_page_obeys_it(
    text: str, tmp_path: Path, checker: jsonschema.Draft202012Validator
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    checker.validate(read_document(path).data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nmae", "x"),
        ("name", "2much"),
        ("scheduler", "slurn"),
        ("workload", "stanza-nre"),
        ("repeats", 0),
        ("repeats", "some"),
        ("repeats", {"share": 3}),
        ("repeats", {"least": 1}),
        ("resources.memory", 8),
        ("resources.memory", "8 gigs"),
        ("resources.walltime", "10:00"),
        ("resources.walltime", "10 weeks"),
        ("resources.account", "a\nb"),
        ("resources.options", {"pbs": ["-x"]}),
        ("sweep.batch_size", [50, "many"]),
        ("sweep.batch_size", []),
        ("sweep.include", [{"batch_size": 0}]),
        ("model.fallback", "standin"),
        ("find_max.memory", 16),
        ("find_max.memory", "card"),
        ("find_max.verify", "yes"),
        ("find_max.batch", 9),
        ("find_max", "device"),
    ],
)
def test_what_jobkit_refuses_an_editor_marks(
    path: str, value: object, tmp_path: Path, checker: jsonschema.Draft202012Validator
) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("name: x\n", encoding="utf-8")
    data = read_document(file, [f"{path}={json.dumps(value)}"]).data
    assert not checker.is_valid(data)


@pytest.mark.parametrize(
    "keys",
    [
        *({"resources": {"memory": f"1.5 {unit}"}} for unit in SIZE_UNITS),
        *({"resources": {"walltime": text}} for text in ("90m", "2 h", "00:10:00", "1-12:00:00", "3d")),
        *({"repeats": part} for part in (3, "auto", {}, {"share": "2.5%", "most": 8})),
        *({"find_max": part} for part in (None, {}, {"memory": "device"}, {"verify": False})),
    ],
)
def test_what_jobkit_takes_an_editor_takes(
    keys: dict[str, object], checker: jsonschema.Draft202012Validator
) -> None:
    checker.validate({"name": "x", **keys})


def properties(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = part["properties"]
    return found


def test_every_key_says_what_it_means_and_has_its_default() -> None:
    schema = spec_schema()
    parts = [schema, *schema["$defs"].values()]
    keys = [key for part in parts for key in properties(part).values()]
    assert all(key["description"] for key in keys)
    resources = properties(schema["$defs"]["Resources"])
    assert (resources["memory"]["default"], resources["walltime"]["default"]) == ("8GiB", "00:10:00")
    assert properties(schema)["repeats"]["default"] == 3
    assert properties(schema)["scheduler"]["enum"] == ["auto", *SCHEDULERS]
    assert "stanza-ner and count" in properties(schema["$defs"]["Axes"])["batch_size"]["description"]


def test_a_docstring_tells_of_the_keys_that_share_a_line() -> None:
    summary, words = docstring(SweepSpec)
    assert summary.startswith("The whole spec")
    assert list(words) == list(SweepSpec.model_fields)
    assert docstring(Site)[1]["memory_per"].startswith("Whether the scheduler counts")
