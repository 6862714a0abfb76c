"""How most of these tests begin: a spec of `count` on this machine, of a text next to it, and a command."""

from __future__ import annotations

import json
from pathlib import Path

TEXT = "One two.\n\nThree.\n\n  Four five six.\n"


def write_spec(folder: Path, name: str = "spec.yaml", content: str = TEXT, **keys: object) -> Path:
    """Write a text and a spec of it, with other keys or without those that are ``None``; return the spec."""
    spec: dict[str, object] = {
        "name": "t",
        "workload": "count",
        "text": "text.txt",
        "sweep": {"batch_size": [1, 2]},
        "repeats": 1,
        "scheduler": "local",
        "device": "cpu",
        "resources": {"gpus": 0, "cpus": 1, "memory": "500MiB", "walltime": "00:02:00"},
        **keys,
    }
    (folder / "text.txt").write_text(content, encoding="utf-8")
    path = folder / name
    written = {key: value for key, value in spec.items() if value is not None}
    path.write_text(json.dumps(written, ensure_ascii=False), encoding="utf-8")  # it is YAML, too
    return path
