"""Modules that strings name: ``python -m jobkit.worker`` is an arrow that import-linter cannot see."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
LAYERS = next(contract["layers"] for contract in CONTRACTS["contracts"] if contract["type"] == "layers")
FLOORS = {room: floor for floor, rooms in enumerate(reversed(LAYERS)) for room in rooms.split(" | ")}
TABLE = "jobkit/core/extensions.py"
"""The one file that may name modules of any floor: the table of extensions."""
NAMED_ROOM = re.compile(rf"(?<![\w.])jobkit\.({'|'.join(FLOORS)})\b")


def named_rooms(code: str) -> Iterator[tuple[str, int]]:
    """Yield each room that a string of the code names, and its line; a string that stands alone documents."""
    tree = ast.parse(code)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield from ((room, node.lineno) for room in NAMED_ROOM.findall(node.value))


def hidden_arrows(room: str, code: str) -> list[tuple[str, int]]:
    """Return the rooms that a string names and the room may not import, each with its line."""
    return [
        (named, line) for named, line in named_rooms(code) if named != room and FLOORS[named] >= FLOORS[room]
    ]


def test_no_string_names_a_module_of_a_higher_floor() -> None:
    package = ROOT / "jobkit"
    found = {
        str(path): arrows
        for room in FLOORS
        for path in (package / f"{room}.py", *(package / room).rglob("*.py"))
        if path.is_file()
        and path != ROOT / TABLE
        and (arrows := hidden_arrows(room, path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_an_arrow_up_or_to_a_room_of_the_same_floor_is_found() -> None:
    assert hidden_arrows("schedulers", 'argv = ("-m", "jobkit.launch.resume")') == [("launch", 1)]
    assert hidden_arrows("schedulers", 'name = f"jobkit.worker.{name}:main"') == [("worker", 1)]
    assert hidden_arrows("planning", 'values = {"module": "jobkit.answers.search"}') == []
    assert hidden_arrows("core", '"""See `jobkit.launch`."""\nFILE = "jobkit.schema.json"') == []
