"""The function of docs/llm-taggers.md, with a stand-in for vLLM and for the tokenizer of a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jobkit.worker.workloads import own
from tests.pages.test_docs import blocks, page

TEXTS = ["Ada met Bob and Ada.", "Ada is cut off.", "word " * 3000]
NAMED = [("Ada", "PERSON"), ("Bob", "PERSON"), ("Ada", "PERSON"), ("Zoe", "PERSON"), ("", "PLACE")]
ANSWERS = {
    "Ada met": SimpleNamespace(
        text=json.dumps([{"text": text, "label": label} for text, label in NAMED]), finish_reason="stop"
    ),
    "Ada is": SimpleNamespace(text='[{"text": "Ada", "label": "PERSON"}, {"te', finish_reason="length"),
}


class Tokenizer:
    """A word is a token, and its own id."""

    @staticmethod
    def apply_chat_template(chats: Any, *, tokenize: bool, add_generation_prompt: bool) -> list[str]:
        assert (tokenize, add_generation_prompt) == (False, True)
        return [f"{message['content']} assistant" for [message] in chats]

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> Any:
        assert not add_special_tokens
        return SimpleNamespace(input_ids=[text.split() for text in texts])


class Engine:
    def __init__(self, model: str, **given: int) -> None:
        assert (model, given["seed"]) == ("model", 0)
        self.most = given["max_model_len"]

    @staticmethod
    def get_tokenizer() -> Tokenizer:
        return Tokenizer()

    def generate(self, prompts: Any, sampling: Any, **_: bool) -> list[Any]:
        """Refuse all prompts if one is too long, as vLLM does."""
        assert sampling["structured_outputs"]["json"]["items"]["required"] == ["text", "label"]
        assert all(len(one["prompt_token_ids"]) + sampling["max_tokens"] <= self.most for one in prompts)
        texts = [" ".join(one["prompt_token_ids"]) for one in prompts]
        found = [answer for text in texts for words, answer in ANSWERS.items() if words in text]
        return [SimpleNamespace(outputs=[answer]) for answer in found]


@pytest.fixture
def tagger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the file of the page; return its folder."""
    [source] = blocks(page("llm-taggers.md"), "python")
    assert len([line for line in source.splitlines() if line]) <= 45
    (tmp_path / "tagger.py").write_text(source, encoding="utf-8")
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    known: dict[str, dict[str, object]] = {
        "vllm": {"LLM": Engine, "SamplingParams": dict},
        "vllm.sampling_params": {"StructuredOutputsParams": dict},
        "transformers": {"AutoTokenizer": SimpleNamespace(from_pretrained=lambda _: Tokenizer())},
    }
    for name, members in known.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return str(tmp_path)


def test_an_answer_is_rows_or_a_problem_and_no_prompt_takes_others_with_it(tagger: str) -> None:
    workload = own.open_workload("./tagger.py:tag", tagger)
    workload.load(Path("model"), "cpu", {}, 1)
    found = workload.process(TEXTS)
    assert found.rows == (
        (0, "Ada", "PERSON", 0, 3, None),
        (0, "Bob", "PERSON", 8, 11, None),
        (0, "Ada", "PERSON", 16, 19, None),
        (0, "Zoe", "PERSON", 0, 0, "not in the text"),
        (0, "", "PLACE", 0, 0, "not in the text"),
        (1, "", "", 0, 0, "length"),
        (2, "", "", 0, 0, "prompt too long"),
    )


def test_lengths_are_those_of_the_prompts(tagger: str) -> None:
    model = {"name": "m", "path": "model", "size": "", "stand_in": False, "size_bytes": 0, "fingerprint": ""}
    [[first], _, [long]] = own.lengths("./tagger.py:tag", tagger, TEXTS, model, say=print)
    assert first == 5 + len(PROMPT.split()) + 1
    assert long - first == 2995
    assert own.traits("./tagger.py:tag", tagger, say=print)[4:6] == ("tokens", False)


PROMPT = "List the people and the places that this text names, as JSON."
