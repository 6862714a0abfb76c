"""Stanza's tokenizer and named-entity tagger as a workload.

Standard library only at import; torch and stanza are imported by `StanzaNer.preload` and `load`.

One number in Stanza means three things, so each has its own knob. ``paragraphs_per_call`` is the number of
paragraphs that go through the pipeline together. ``sentences_per_ner_batch`` is the number of sentences
that the tagger pads together; they come in text order and from one call, so a call with few sentences
limits it. ``padded`` takes its place: it caps sentences x characters of the longest of every NER
batch, and of the tokenizer's batches. ``tokenizer_batch`` is the tokenizer's batch in paragraphs. The
tokenizer reads it from the arguments of the saved model: the pipeline's ``tokenize_batch_size`` has no
effect, so this module sets it on the trainer.

``precision`` is the format of numbers of the tagger (`jobkit.worker.workloads.stanza_batches`).
``shortcuts: exact`` leaves out what inference does not need
(`jobkit.worker.workloads.stanza_shortcuts`); then the tokenizer on a GPU takes a call as one batch,
unless ``tokenizer_batch`` or ``padded`` limits it.

Results do not depend on the batch sizes, except for rounding: in another batch a sentence is padded
differently, kernels add in another order, and two tags with scores equal to the last digit of a 32-bit
float may swap.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import (
    BATCH_SIZE,
    CUDA,
    EXACT,
    OFF,
    ORDER,
    PADDED,
    PRECISION,
    SHORTCUTS,
    SORTED,
    Knob,
    Value,
    numbers,
)
from jobkit.core.records import ModelRef
from jobkit.worker.workloads import stanza_batches
from jobkit.worker.workloads.base import Entity, Heavy, Result
from jobkit.worker.workloads.stanza_batches import (
    SLEEP_WHILE_WAITING,
    SentenceCut,
    columns_of,
    sentence_lengths,
)

DEFAULT_BATCH_SIZE = 32
"""Paragraphs per call and sentences per NER batch if the sweep does not set them: Stanza's default."""

PROCESSORS = "tokenize,ner"

_BATCH_SIZE_IS = ("paragraphs_per_call", "sentences_per_ner_batch")
_CUTS = (*_BATCH_SIZE_IS, "tokenizer_batch")
_BLANK = re.compile(r"[\s\u0080-\u009f]+")
"""Characters that Stanza reads as white space, and writes as a space in a token's text."""
_TOO_LONG = "<UNK>"
"""Stanza's text for a token of more than 1,000 characters."""

TOKENIZER_CHARS = 2**18
"""Padded characters of a batch of the tokenizer, if it takes whole calls and the setting has no limit."""


class StanzaNer:
    """Tag named entities with a Stanza pipeline; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (
        BATCH_SIZE,
        *_CUTS,
        PADDED,
        stanza_batches.KNOB,
        Knob(name=SHORTCUTS, words=(OFF, EXACT)),
    )
    NEEDS_MODEL: ClassVar[bool] = True

    def __init__(self) -> None:
        self._cut = SentenceCut()
        self._params: Mapping[str, int] = {}  # those that are whole numbers
        self._precision: dict[str, Value] = {}  # what takes effect; empty if it is torch's own
        self._shortcuts: dict[str, Value] = {}  # the same; empty if the setting does not name them
        self._pipeline: Any = None
        self._stock: dict[str, Any] = {}  # the processors of stock Stanza
        self._shapes: list[tuple[int, int]] = []  # of the NER batches of a call: sentences, characters
        self._largest: dict[str, int] = {}  # by knob
        self._saved_batch = 0  # of the tokenizer
        self._whole_calls = self._on_gpu = False  # for the tokenizer
        self._heaviest: tuple[int, list[Any]] = (0, [])  # load and sentences of an NER batch

    @staticmethod
    def preload() -> None:
        """Import all that loading and tagging import, without a parallel computation and without CUDA.

        Stanza makes an optimizer with its tokenizer, and the first optimizer imports a third of torch
        (``torch._dynamo``, seen in torch 2.13).
        """
        os.environ.setdefault(*SLEEP_WHILE_WAITING)
        import stanza  # noqa: F401 - imported for its side effect
        import torch

        torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load the pipeline from a folder, without network, on exactly this device.

        In ``params`` ``batch_size`` stands for ``paragraphs_per_call`` and ``sentences_per_ner_batch`` if
        these are not given. Without ``precision`` torch keeps its own.
        """
        if model is None:
            raise JobkitError("stanza-ner needs a model", hint="see `model` in the spec")
        os.environ.setdefault(*SLEEP_WHILE_WAITING)  # also in a child, whose environment is another
        import stanza
        import torch

        torch.set_num_threads(threads)
        self._on_gpu = device == CUDA
        self._params = numbers(params)
        if precision := str(params.get(PRECISION, "")):
            self._precision = {PRECISION: stanza_batches.set_tf32(precision, device)}
        self._cut = SentenceCut(
            size=self._knob("sentences_per_ner_batch"),
            padded=self._params.get(PADDED),
            by_length=params.get(ORDER) == SORTED,
        )
        self._pipeline = stanza.Pipeline(
            lang=language_of(model),
            dir=str(model),
            processors=PROCESSORS,
            download_method=None,
            device=device,
            verbose=False,
            ner_batch_size=self._knob("sentences_per_ner_batch"),
        )
        stanza_batches.convert(self._pipeline.processors["ner"], precision)
        self._set_up(str(params.get(SHORTCUTS, "")))

    def items_per_call(self) -> int:
        """Return the number of paragraphs that go through the pipeline together."""
        return self._knob("paragraphs_per_call")

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Tag these paragraphs in one bulk call.

        The load is the largest ``sentences x characters of the longest`` over the NER batches,
        as the tagger padded them; ``padded_chars`` is their sum.
        """
        self._shapes.clear()
        self._cap_tokenizer(paragraphs)
        documents = self._pipeline.bulk_process(list(paragraphs))
        self._note("paragraphs_per_call", len(paragraphs))
        entities = (
            _entity(number, paragraph, entity)
            for number, (paragraph, document) in enumerate(zip(paragraphs, documents, strict=True))
            for entity in document.ents
        )
        shapes = self._shapes
        self._keep_heaviest(documents)
        return Result(
            entities=tuple(entities),
            load=max((rows * columns for rows, columns in shapes), default=0),
            sentences=sum(len(document.sentences) for document in documents),
            tokens=sum(len(sentence.tokens) for document in documents for sentence in document.sentences),
            longest_sentence_chars=max((columns for _, columns in shapes), default=0),
            padded_chars=sum(rows * columns for rows, columns in shapes),
        )

    def heaviest(self) -> Sequence[Heavy]:
        """Return the heaviest NER batch so far, whole and in part.

        Each part has its longest sentence, so that the load falls with the number of sentences.
        """
        load, sentences = self._heaviest
        return self.again(sentences, load // len(sentences)) if sentences else []

    def again(self, sentences: Sequence[Any], columns: int) -> Sequence[Heavy]:
        """Return an NER batch to tag again, whole and in part.

        ``sentences``: stanza's, tokenised.
        ``columns``: the columns of the longest.
        """
        return list(self._tagger.parts(sentences, columns))

    def tag_heaviest(self, paragraphs: Sequence[str]) -> None:
        """Tag the heaviest NER batch of these paragraphs alone, and discard the result."""
        sentences = [sentence for many in self.tokenised(paragraphs) for sentence in many]
        if batches := self._cut.batches(sentences):
            self.tag_again(max(batches, key=lambda batch: len(batch) * max(map(columns_of, batch))))()

    def attempted_load(self) -> int:
        """Return the load of the NER batch that began last; after an error, of the batch that failed."""
        rows, columns = self._shapes[-1] if self._shapes else (0, 0)
        return rows * columns

    def tokenised(self, paragraphs: Sequence[str]) -> list[list[Any]]:
        """Return the sentences of each paragraph, tokenised and not tagged."""
        import stanza

        self._cap_tokenizer(paragraphs)
        documents = [stanza.Document([], text=paragraph) for paragraph in paragraphs]
        tokenised = self._pipeline.processors["tokenize"].bulk_process(documents)
        return [list(document.sentences) for document in tokenised]

    def tag_again(self, sentences: Sequence[Any]) -> Callable[[], object]:
        """Return a function that runs only the tagger, on tokenised sentences."""
        again: Callable[[], object] = self._tagger.again(sentences)
        return again

    def effective(self) -> Mapping[str, Value | None]:
        """Return the largest batches that entered the models, and precision and shortcuts if asked for.

        A batch is ``None`` before the first call. The value of ``batch_size`` is the smaller of the two
        knobs that it stands for.
        """
        largest = {name: self._largest.get(name) for name in _CUTS}
        if BATCH_SIZE not in self._params:
            return {**largest, **self._precision, **self._shortcuts}
        values = [largest[name] for name in _BATCH_SIZE_IS if name not in self._params]
        smaller = min((value for value in values if value is not None), default=None)
        return {BATCH_SIZE: smaller, **largest, **self._precision, **self._shortcuts}

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return the padded length of every sentence of every paragraph.

        Only the tokenizer runs, on the CPU.
        """
        if model is None:
            raise JobkitError("stanza-ner needs a model", hint="see `model` in the spec")

        return sentence_lengths(paragraphs, model)

    def versions(self) -> Mapping[str, str]:
        """Return the versions of torch, stanza, numpy, and of CUDA and cuDNN if torch has them."""
        import numpy as np
        import stanza
        import torch

        versions = {
            "torch": torch.__version__,
            "stanza": stanza.__version__,
            "numpy": np.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
        }
        return {name: str(version) for name, version in versions.items() if version is not None}

    def _knob(self, name: str) -> int:
        return self._params.get(name, self._params.get(BATCH_SIZE, DEFAULT_BATCH_SIZE))

    def _note(self, knob: str, size: int) -> None:
        self._largest[knob] = max(self._largest.get(knob, 0), size)

    def check_shortcuts(self, paragraphs: Sequence[str]) -> str:
        """Return why the shortcuts must be off; empty if they find in these paragraphs what Stanza finds."""
        if not self._is_exact:
            return str(self._shortcuts.get(SHORTCUTS, OFF)).removeprefix(f"{OFF}: ")
        exact = dict(self._pipeline.processors)
        with_shortcuts = self._everything(paragraphs)
        self._use(self._stock, exact=False)
        stock = self._everything(paragraphs)
        self._use(exact, exact=True)
        return _difference(stock, with_shortcuts)

    def _everything(self, paragraphs: Sequence[str]) -> list[tuple[list[Any], list[Any]]]:
        self._cap_tokenizer(paragraphs)
        return [
            (
                [
                    [(token.text, token.start_char, token.end_char, token.ner) for token in sentence.tokens]
                    for sentence in document.sentences
                ],
                [(entity.text, entity.type, entity.start_char, entity.end_char) for entity in document.ents],
            )
            for document in self._pipeline.bulk_process(list(paragraphs))
        ]

    @property
    def _tagger(self) -> Any:  # noqa: ANN401 - Stanza is untyped
        return self._pipeline.processors["ner"]

    def _set_up(self, wanted: str) -> None:
        from jobkit.worker.workloads import stanza_shortcuts
        from jobkit.worker.workloads.stanza_tagging import Tagger

        processors = self._pipeline.processors
        refused = stanza_shortcuts.refusal(self._pipeline) if wanted == EXACT else ""
        if wanted:
            self._shortcuts = {SHORTCUTS: f"{OFF}: {refused}" if refused else wanted}
        exact = stanza_shortcuts.processors(self._pipeline, self._cut) if self._is_exact else {}
        self._stock = {**processors, "ner": Tagger.of(processors["ner"], self._cut)}
        trainers = [*self._stock["ner"].trainers, *(exact["ner"].trainers if exact else ())]
        _watch(processors["tokenize"].trainer, self._note_tokenizer_batch)
        for trainer in trainers:
            _watch(trainer, self._note_ner_batch)
        self._saved_batch = int(processors["tokenize"].trainer.args[BATCH_SIZE])
        self._use(exact or self._stock, exact=bool(exact))

    def _use(self, processors: Mapping[str, Any], *, exact: bool) -> None:
        self._pipeline.processors.update(processors)
        self._whole_calls = exact and self._on_gpu  # on a CPU their padding costs more than it saves

    @property
    def _is_exact(self) -> bool:
        return self._shortcuts.get(SHORTCUTS) == EXACT

    def _cap_tokenizer(self, paragraphs: Sequence[str]) -> None:
        """Set the tokenizer's batch for a call, in the arguments that it reads.

        ``output_predictions`` of ``stanza/models/tokenization/utils.py`` takes the number that was saved with
        the model, 32, which makes many small batches of a call: a shortcut takes the call as one.
        """
        size = self._saved_batch
        longest = 1 + max(map(len, paragraphs), default=0)  # it pads each by one at least
        budget = self._params.get(PADDED, TOKENIZER_CHARS if self._whole_calls else None)
        if self._whole_calls:
            size = max(size, len(paragraphs))
        if budget:
            size = min(size, max(1, budget // longest))
        arguments = self._pipeline.processors["tokenize"].trainer.args
        arguments[BATCH_SIZE] = min(size, self._params.get("tokenizer_batch", size))

    def _note_tokenizer_batch(self, batch: Any) -> None:  # noqa: ANN401 - Stanza is untyped
        paragraphs, _ = batch[0].shape
        self._note("tokenizer_batch", paragraphs)

    def _note_ner_batch(self, batch: Any) -> None:  # noqa: ANN401 - Stanza is untyped
        _directions, sentences, characters = batch[3].shape
        self._shapes.append((sentences, characters))
        self._note("sentences_per_ner_batch", sentences)

    def _keep_heaviest(self, documents: Sequence[Any]) -> None:
        """Keep the sentences of this call's heaviest NER batch if none was heavier before."""
        shapes = self._shapes
        place = max(range(len(shapes)), key=lambda at: shapes[at][0] * shapes[at][1], default=0)
        rows, columns = shapes[place] if shapes else (0, 0)
        if rows * columns > self._heaviest[0]:
            first = sum(before for before, _ in shapes[:place])
            sentences = self._cut.arranged(s for document in documents for s in document.sentences)
            self._heaviest = rows * columns, sentences[first : first + rows]


def _watch(trainer: Any, note: Callable[[Any], None]) -> None:  # noqa: ANN401 - Stanza is untyped
    predict = trainer.predict

    def predict_watched(batch: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        note(batch)
        return predict(batch, *args, **kwargs)

    trainer.predict = predict_watched


def _difference(stock: Sequence[Any], other: Sequence[Any]) -> str:
    """Return how two taggings of the same paragraphs differ; empty if they do not."""
    names = ("sentences, tokens or tags", "entities")
    for tokens_or_entities, name in enumerate(names):
        pairs = [
            (one[tokens_or_entities], two[tokens_or_entities]) for one, two in zip(stock, other, strict=True)
        ]
        if differ := sum(one != two for one, two in pairs):
            return f"in {differ} of {len(pairs)} paragraphs their {name} differ from those of stock Stanza"
    return ""


def _entity(number: int, paragraph: str, entity: Any) -> Entity:  # noqa: ANN401 - Stanza is untyped
    """Return Stanza's entity as a row; refuse one whose text differs from the text at its offsets."""
    for token in entity.tokens:
        there = paragraph[token.start_char : token.end_char]
        if token.text != _TOO_LONG and _BLANK.sub("", there) != _BLANK.sub("", token.text):
            where = f"paragraph {number} of the call, {token.start_char}:{token.end_char}"
            raise ValueError(f"{where}: {there!r} stands where Stanza found {token.text!r}")
    start, end = entity.start_char, entity.end_char
    return Entity(number, paragraph[start:end], entity.type, start, end)


def language_of(model: Path) -> str:
    """Return the language of a model folder."""
    try:
        languages = json.loads((model / "resources.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobkitError(
            f"model {model}: no readable resources.json: {error}",
            hint="jobkit models fetch en",
        ) from error
    found = sorted(entry.name for entry in model.iterdir() if entry.is_dir() and entry.name in languages)
    if len(found) != 1:
        raise JobkitError(
            f"model {model}: holds {', '.join(found) or 'no language'}, where one language is expected",
            hint="stage one language's folder and resources.json, as job.sh does",
        )
    return found[0]
