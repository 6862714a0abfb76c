"""The JSON schema of specs, for editors: made from the model, its words from the docstrings."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from jobkit.core.knobs import AUTO, BATCH_SIZE, RUN_KNOBS
from jobkit.run.workloads.base import SHIPPED, knobs, offered
from jobkit.spec.fields import POSITIVE, one_or_list
from jobkit.spec.sweep_spec import Axes, SweepSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE = "jobkit.schema.json"
"""Its name next to the shipped sweeps, which name it in their first line."""


def schema_text() -> str:
    """Return the schema of `jobkit.spec.sweep_spec.SweepSpec` as JSON, as `jobkit schema` prints it."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


def spec_schema() -> dict[str, Any]:
    """Return the schema of a spec: every key with its type, its default and what it means."""
    whole: dict[str, Any] = SweepSpec.model_json_schema()
    parts: dict[str, dict[str, Any]] = whole.pop("$defs")
    models = {kind.__name__: kind for kind in _models(SweepSpec)}
    for name, part in [("SweepSpec", whole), *parts.items()]:
        _describe(part, models[name])
    _add_knobs(parts[Axes.__name__])
    whole["properties"]["workload"]["anyOf"][0]["enum"] = offered()
    return {"$schema": DIALECT, **whole, "$defs": parts}


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and those that its keys hold."""
    annotations = [field.annotation for field in model.model_fields.values()]
    annotations.append(get_type_hints(model).get("__pydantic_extra__"))  # keys that a user names
    kinds = [kind for annotation in annotations for kind in (annotation, *get_args(annotation))]
    below = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [model, *(model for kind in below for model in _models(kind))]


def _describe(part: dict[str, Any], model: type[BaseModel]) -> None:
    """Put the words of the docstring into a part of the schema, and defaults as YAML has them."""
    summary, described = docstring(model)
    defaults = model.model_construct().model_dump(mode="json", warnings=False)
    part["description"] = summary
    part.pop("title", None)
    for name, key in part["properties"].items():
        key.pop("title", None)
        key.pop("default", None)
        key["description"] = described[name]
        if "$ref" not in key and name in defaults:
            key["default"] = defaults[name]


def docstring(model: type[BaseModel]) -> tuple[str, dict[str, str]]:
    """Return the first line of a model's docstring, and the text of its Attributes for each key."""
    summary, _, rest = inspect.cleandoc(model.__doc__ or "").partition("\n")
    _, _, section = rest.partition("Attributes\n----------\n")
    found = re.findall(r"^(\w[\w, ]*)\n((?:(?: +.*)?\n)+)", section + "\n", re.MULTILINE)
    words = {
        name: " ".join(text.replace("``", "`").split()) for names, text in found for name in names.split(", ")
    }
    return summary, words


def _add_knobs(axes: dict[str, Any]) -> None:
    """Name the knobs of the shipped workloads, so that an editor offers them."""
    for knob in dict.fromkeys(knob for workload in SHIPPED for knob in knobs(workload) or ()):
        of = " and ".join(workload for workload in SHIPPED if knob in (knobs(workload) or ()))
        of = "every workload" if knob in RUN_KNOBS else of
        what = f"A knob of {of}: a list of values, or one; combined with those of the other knobs."
        allowed: dict[str, Any] = one_or_list({"enum": list(knob.words)} if knob.words else POSITIVE)
        if knob.name == BATCH_SIZE:
            allowed["anyOf"].append({"const": AUTO})
            what += " `auto`: those worth measuring, chosen from the text."
        axes["properties"][knob.name] = {**allowed, "description": what}
