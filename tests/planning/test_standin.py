from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef
from jobkit.planning import standin
from jobkit.planning.sample import SEED
from jobkit.planning.standin import PARTS, is_built, make_stand_in, part_path, read_card, standin_path

FLOOR_F1 = 0.90


def test_it_tags_text_that_it_has_not_seen(tiny_model: ModelRef) -> None:
    card = read_card(Path(tiny_model.path))
    assert len({card["training_seed"], card["held_out_seed"], SEED}) == 3
    assert (card["training_seed"], card["held_out_seed"]) == (standin.TRAINING_SEED, standin.HELD_OUT_SEED)
    assert card["f1"] >= FLOOR_F1
    assert {"torch", "stanza"} <= set(card["versions"])


def test_it_is_small_and_whole_and_has_no_address_to_fetch_from(tiny_model: ModelRef) -> None:
    folder = Path(tiny_model.path)
    assert is_built(folder)
    assert tiny_model.size_bytes < 20_000_000
    assert all(part_path(folder, part).is_file() for part in PARTS)
    resources = json.loads((folder / "resources.json").read_text())
    assert (resources["url"], "mwt" in resources["en"]) == ("", False)


def test_a_broken_card_is_named(tmp_path: Path) -> None:
    for text, why in {"{": "not JSON", "[]": "f1", '{"f1": null}': "f1"}.items():
        (tmp_path / standin.CARD_FILE).write_text(text)
        with pytest.raises(JobkitError, match=rf"standin\.json: .*{why}"):
            read_card(tmp_path)


@pytest.mark.usefixtures("tiny_model")
def test_what_is_built_is_not_built_again(kept_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    make_stand_in("stanza-ner", "tiny", kept_cache, said.append)
    assert said == []
    assert capsys.readouterr() == ("", "")


def test_a_second_builder_waits_for_the_first(tiny_model: ModelRef, tmp_path: Path) -> None:
    made = standin_path("tiny", tmp_path)
    made.parent.mkdir(parents=True)
    lock = made.with_name(f".{made.name}.lock")
    said: list[str] = []
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def say(line: str) -> None:
            said.append(line)
            made.symlink_to(tiny_model.path)  # as the first builder leaves it
            fcntl.flock(other, fcntl.LOCK_UN)

        make_stand_in("stanza-ner", "tiny", tmp_path, say)
    assert len(said) == 1
    assert "waiting" in said[0]


pytestmark = pytest.mark.xdist_group("torch")  # as the other tests that import it
