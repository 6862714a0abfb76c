"""Stanza's tokenizer and named-entity tagger as a workload.

Standard library only at import; torch and stanza are imported by `StanzaNer.preload` and `load`.

One number in Stanza means three things, so each has its own knob. ``paragraphs_per_call`` is the number of
paragraphs that go through the pipeline together. ``sentences_per_ner_batch`` is the number of sentences
that the tagger pads together; they come in text order and from one call, so a call with few sentences
limits it. ``padded`` takes its place: it caps sentences x characters of the longest of every NER
batch, and of the tokenizer's batches. ``tokenizer_batch`` is the tokenizer's batch in paragraphs. The
tokenizer reads it from the arguments of the saved model: the pipeline's ``tokenize_batch_size`` has no
effect, so this module sets it on the trainer.

With ``precision`` fp16 and bf16 the tagger's whole network is converted: word vectors, character models,
LSTMs and classifiers. Its scores are converted back to fp32, so that the CRF in torch and the Viterbi
search in numpy compute as always: numpy has no bfloat16, and under ``torch.autocast`` the CRF of Stanza
1.15.0 fails, because ``masked_scatter_`` (``stanza/models/common/crf.py``) takes no two types. The
tokenizer stays fp32. ``shortcuts: exact`` leaves out what inference does not need
(`jobkit.worker.workloads.stanza_shortcuts`), and makes no object of a token
(`jobkit.worker.workloads.stanza_arrays`); then the tokenizer on a GPU takes a call as one batch, unless
``tokenizer_batch`` or ``padded`` limits it.

The length of a sentence is the number of columns it takes, as read in ``stanza/models/ner/data.py`` (1.15.0),
``DataLoader.process_chars``: a sentence is a start symbol, then the characters of every token and
one symbol after each. So ``batch[3]``, what the tagger pads, has as many columns as the longest
``1 + sum(len(token) + 1)`` of its sentences.

Results do not depend on the batch sizes, except for rounding: in another batch a sentence is padded
differently, kernels add in another order, and two tags with scores equal to the last digit of a 32-bit
float may swap. Tags are attached to the sentences themselves, so their order inside a call changes nothing.
The tokenizer pads too, over the paragraphs that it gets together, and may very rarely cut a sentence
elsewhere if it is next to other text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.frozen import keyed
from jobkit.core.knobs import (
    BATCH_SIZE,
    CPU,
    CUDA,
    CUT_BY,
    EXACT,
    LEFT_OUT,
    OFF,
    ORDER,
    PADDED,
    PRECISION,
    PRECISIONS,
    SHORTCUTS,
    SORTED,
    Knob,
    Value,
    numbers,
)
from jobkit.core.records import ModelRef
from jobkit.worker.paragraphs import cut_by_budget
from jobkit.worker.workloads.base import DEFAULT_BATCH_SIZE, Entity, Heavy, Result
from jobkit.worker.workloads.imports import import_without
from jobkit.worker.workloads.model import (
    DTYPES,
    PROCESSORS,
    language_of,
    model_folder,
    parts_of,
    set_tf32,
    torch_versions,
)

SLEEP_WHILE_WAITING = ("OMP_WAIT_POLICY", "PASSIVE")
"""OpenMP's threads spin while they wait for each other, and the tagger's LSTMs make them wait at
every character. If another process needs a core, spinning turned 11 s of tagging into 417 s; sleeping
costs almost nothing. torch reads it once, when it is first imported; a value set by the user stays. https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html"""
_CUTS = (*CUT_BY, "tokenizer_batch")
_BLANK = re.compile(r"[\s\u0080-\u009f]+")
"""Characters that Stanza reads as white space, and writes as a space in a token's text."""

TOKENIZER_CHARS = 2**18
"""Padded characters of a batch of the tokenizer, if it takes whole calls and the setting has no limit."""


def columns_of(sentence: Any) -> int:  # noqa: ANN401 - Stanza is untyped
    """Return the columns that a tokenised sentence takes in a batch."""
    return 1 + sum(len(token.text) + 1 for token in sentence.tokens)


@keyed
class SentenceCut:
    """How sentences are arranged and cut."""

    size: int = 1  # sentences of a batch
    # the limit of sentences x characters of the longest, in place of ``size``; ``None`` for no limit
    budget: int | None = None
    by_length: bool = False  # whether the longest sentences of a call come first

    def arranged(self, sentences: Iterable[Any]) -> list[Any]:
        """Return the sentences of a call in the order in which they are cut."""
        return sorted(sentences, key=columns_of, reverse=True) if self.by_length else list(sentences)

    def sizes(self, columns: Sequence[int]) -> list[int]:
        """Return how many sentences each batch holds, by the columns of each sentence."""
        if self.budget:
            return cut_by_budget(columns, self.budget)
        return [min(self.size, len(columns) - at) for at in range(0, len(columns), self.size)]

    def sizes_of(self, sentences: Iterable[Any]) -> list[int]:
        """Return how many of some arranged sentences each batch holds."""
        return self.sizes([*map(columns_of, sentences)])

    def batches(self, sentences: Iterable[Any]) -> list[list[Any]]:
        """Return the batches of a call."""
        ordered = self.arranged(sentences)
        left = iter(ordered)
        return [list(islice(left, size)) for size in self.sizes_of(ordered)]


class StanzaNer:
    """Tag named entities with a Stanza pipeline; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (
        BATCH_SIZE,
        *_CUTS,
        PADDED,
        PRECISIONS,
        LEFT_OUT,
    )
    NEEDS_MODEL: ClassVar[bool] = True

    def __init__(self) -> None:
        self._cut = SentenceCut()
        self._params: Mapping[str, int] = {}  # those that are whole numbers
        self._effective: dict[str, Value] = {}  # what takes effect of precision and shortcuts, if named
        self._pipeline: Any = None
        self._stock: dict[str, Any] = {}  # the processors of stock Stanza
        self._shapes: list[tuple[int, int]] = []  # of the NER batches of a call: sentences, characters
        self._largest: dict[str, int] = {}  # by knob
        self._saved_batch = 0  # of the tokenizer
        self._whole_calls = self._on_gpu = False  # for the tokenizer
        self._arrays: Any = None  # the tagger of `stanza_arrays`; ``None`` if it does not serve these models
        self._in_use: Any = None  # the same, while the shortcuts are in use
        self._heaviest: tuple[int, list[Any]] = (0, [])  # load and sentences of an NER batch

    @staticmethod
    def preload() -> None:
        """Import all that loading and tagging import, without a parallel computation and without CUDA."""
        os.environ.setdefault(*SLEEP_WHILE_WAITING)
        _import_stanza()

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load the pipeline from a folder, without network, on exactly this device.

        In ``params`` ``batch_size`` stands for ``paragraphs_per_call`` and ``sentences_per_ner_batch`` if
        these are not given. Without ``precision`` torch keeps its own.
        """
        folder = model_folder(model)
        os.environ.setdefault(*SLEEP_WHILE_WAITING)  # also in a child, whose environment is another
        import torch

        torch.set_num_threads(threads)
        self._on_gpu = device == CUDA
        self.change(params)
        if precision := str(params.get(PRECISION, "")):
            self._effective[PRECISION] = set_tf32(precision, device)
        size = self._cut.size
        self._pipeline = _pipeline(folder, language_of(folder), PROCESSORS, device, ner_batch_size=size)
        _convert(self._pipeline.processors["ner"], precision)
        self._set_up(str(params.get(SHORTCUTS, "")))

    def change(self, params: Mapping[str, Value]) -> None:
        """Take other sizes of batches and another order, with what is loaded."""
        self._params = numbers(params)
        self._largest, self._heaviest = {}, (0, [])
        self._cut = SentenceCut(
            size=self._knob("sentences_per_ner_batch"),
            budget=self._params.get(PADDED),
            by_length=params.get(ORDER) == SORTED,
        )
        for tagger in (self._stock["ner"], self._tagger) if self._stock else ():
            tagger.cut = self._cut
            for config in tagger.configs:  # which Stanza's own way reads
                config[BATCH_SIZE] = self._cut.size

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
        work = self._by_arrays if self._in_use else self._by_documents
        entities, sentences, tokens = work(paragraphs)
        self._note("paragraphs_per_call", len(paragraphs))
        loads = [rows * columns for rows, columns in self._shapes]
        return Result(
            entities=tuple(entities),
            load=max(loads, default=0),
            sentences=sentences,
            tokens=tokens,
            longest_sentence_chars=max((columns for _, columns in self._shapes), default=0),
            padded_chars=sum(loads),
        )

    def _by_arrays(self, paragraphs: Sequence[str]) -> tuple[Sequence[Entity], int, int]:
        tokens, batches, tags = self._arrays.tag(paragraphs)
        if place := self._new_heaviest():
            from stanza.models.common.doc import ID, TEXT, Document

            bounds = [tokens.sentences[at : at + 2] for at in batches[place - 1]]
            words = [tokens.words[first:end] for first, end in bounds]
            rows = [[{ID: (at,), TEXT: word} for at, word in enumerate(some, 1)] for some in words]
            self._heaviest = self._heaviest[0], Document(rows).sentences
        entities = self._arrays.entities(paragraphs, tokens, tags)
        return entities, len(tokens.columns), len(tokens.words)

    def _by_documents(self, paragraphs: Sequence[str]) -> tuple[Sequence[Entity], int, int]:
        documents = self._pipeline.bulk_process(list(paragraphs))
        entities = [
            _entity(number, paragraph, entity)
            for number, (paragraph, document) in enumerate(zip(paragraphs, documents, strict=True))
            for entity in document.ents
        ]
        many = [sentence for document in documents for sentence in document.sentences]
        if place := self._new_heaviest():
            first, rows = sum(before for before, _ in self._shapes[: place - 1]), self._shapes[place - 1][0]
            self._heaviest = self._heaviest[0], self._cut.arranged(many)[first : first + rows]
        return entities, len(many), sum(len(sentence.tokens) for sentence in many)

    def _new_heaviest(self) -> int:
        """Return which batch of a call is the heaviest so far, from 1, and keep its load; 0 if none is."""
        loads = [rows * columns for rows, columns in self._shapes]
        if not loads or max(loads) <= self._heaviest[0]:
            return 0
        self._heaviest = max(loads), []
        return 1 + loads.index(max(loads))

    def heaviest(self) -> Sequence[Heavy]:
        """Return the heaviest NER batch so far, whole and in part.

        Each part has its longest sentence, so that the load falls with the number of sentences.
        """
        load, sentences = self._heaviest
        return self.again(sentences, load // len(sentences)) if sentences else []

    def again(self, sentences: Sequence[Any], columns: int) -> Sequence[Heavy]:
        """Return an NER batch to tag again, whole and in part; ``columns`` has its longest sentence."""
        longest = max(range(len(sentences)), key=lambda at: columns_of(sentences[at]))
        ordered = [sentences[longest], *sentences[:longest], *sentences[longest + 1 :]]
        counts = parts_of(len(ordered))
        return [Heavy(count * columns, self._tagger.again(ordered[:count])) for count in counts]

    def tag_heaviest(self, paragraphs: Sequence[str]) -> None:
        """Tag the heaviest NER batch of these paragraphs alone, and discard the result."""
        sentences = [sentence for many in self.tokenised(paragraphs) for sentence in many]
        if batches := self._cut.batches(sentences):
            self._tagger.again(max(batches, key=lambda batch: len(batch) * max(map(columns_of, batch))))()

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

    def effective(self) -> Mapping[str, Value | None]:
        """Return the largest batches that entered the models, and precision and shortcuts if asked for.

        A batch is ``None`` before the first call. The value of ``batch_size`` is the smaller of the two
        knobs that it stands for.
        """
        largest = {name: self._largest.get(name) for name in _CUTS}
        if BATCH_SIZE not in self._params:
            return {**largest, **self._effective}
        values = [largest[name] for name in CUT_BY if name not in self._params]
        smaller = min((value for value in values if value is not None), default=None)
        return {BATCH_SIZE: smaller, **largest, **self._effective}

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return the columns of every sentence of every paragraph, by Stanza's tokenizer on the CPU.

        A paragraph that occurs again is cut once.
        """
        folder = model_folder(model)
        os.environ.setdefault(*SLEEP_WHILE_WAITING)
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(min(threads, 2))  # users share a login node
        try:
            pipeline = _pipeline(folder, model.name if model else "", "tokenize", CPU)
            once = list(dict.fromkeys(paragraphs))
            few = 200  # small calls keep memory small
            calls = (once[first : first + few] for first in range(0, len(once), few))
            documents = (document for call in calls for document in pipeline.bulk_process(call))
            rows = ([columns_of(sentence) for sentence in document.sentences] for document in documents)
            lengths = dict(zip(once, rows, strict=True))
            return [lengths[paragraph] for paragraph in paragraphs]
        finally:
            torch.set_num_threads(threads)

    def versions(self) -> Mapping[str, str]:
        """Return the versions of torch, stanza, numpy, and of CUDA and cuDNN if torch has them."""
        import stanza

        return torch_versions(stanza)

    def _knob(self, name: str) -> int:
        return self._params.get(name, self._params.get(BATCH_SIZE, DEFAULT_BATCH_SIZE))

    def _note(self, knob: str, size: int) -> None:
        self._largest[knob] = max(self._largest.get(knob, 0), size)

    def check_shortcuts(self, paragraphs: Sequence[str]) -> str:
        """Return why the shortcuts must be off; empty if they find in these paragraphs what Stanza finds."""
        if not self._is_exact:
            return str(self._effective.get(SHORTCUTS, OFF)).removeprefix(f"{OFF}: ")
        exact = dict(self._pipeline.processors)
        with_shortcuts = self._everything(paragraphs)
        self._use(self._stock, exact=False)
        stock = self._everything(paragraphs)
        self._use(exact, exact=True)
        for place, name in enumerate(("sentences, tokens or tags", "entities")):
            pairs = zip(stock, with_shortcuts, strict=True)
            if differ := sum(one[place] != other[place] for one, other in pairs):
                where = f"in {differ} of {len(stock)} paragraphs"
                return f"{where} their {name} differ from those of stock Stanza"
        return ""

    def _everything(self, paragraphs: Sequence[str]) -> list[tuple[Any, Any]]:
        self._cap_tokenizer(paragraphs)
        if self._in_use:
            found: list[tuple[Any, Any]] = self._arrays.everything(paragraphs)
            return found
        documents = self._pipeline.bulk_process(list(paragraphs))
        return [
            (
                [
                    [(t.text, t.start_char, t.end_char, t.ner) for t in one.tokens]
                    for one in document.sentences
                ],
                [(one.text, one.type, one.start_char, one.end_char) for one in document.ents],
            )
            for document in documents
        ]

    @property
    def _tagger(self) -> Any:  # noqa: ANN401 - Stanza is untyped
        return self._pipeline.processors["ner"]

    def _set_up(self, wanted: str) -> None:
        from jobkit.worker.workloads import stanza_arrays, stanza_shortcuts

        processors = self._pipeline.processors
        refused = stanza_shortcuts.refusal(self._pipeline) if wanted == EXACT else ""
        if wanted:
            self._effective[SHORTCUTS] = f"{OFF}: {refused}" if refused else wanted
        exact = stanza_shortcuts.processors(self._pipeline, self._cut) if self._is_exact else {}
        self._stock = {**processors, "ner": stanza_shortcuts.Tagger.of(processors["ner"], self._cut)}
        trainers = [*self._stock["ner"].trainers, *(exact["ner"].trainers if exact else ())]
        _watch(processors["tokenize"].trainer, lambda batch: self._note("tokenizer_batch", batch[0].shape[0]))
        for trainer in trainers:
            _watch(trainer, self._note_ner_batch)
        self._arrays = stanza_arrays.array_tagger(exact) if exact else None
        if self._arrays:
            _watch(self._arrays.trainer, self._note_ner_batch)
        self._saved_batch = int(processors["tokenize"].trainer.args[BATCH_SIZE])
        self._use(exact or self._stock, exact=bool(exact))

    def _use(self, processors: Mapping[str, Any], *, exact: bool) -> None:
        self._pipeline.processors.update(processors)
        self._in_use = self._arrays if exact else None
        self._whole_calls = exact and self._on_gpu  # on a CPU their padding costs more than it saves

    @property
    def _is_exact(self) -> bool:
        return self._effective.get(SHORTCUTS) == EXACT

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

    def _note_ner_batch(self, batch: Any) -> None:  # noqa: ANN401 - Stanza is untyped
        _directions, sentences, characters = batch[3].shape
        self._shapes.append((sentences, characters))
        self._note("sentences_per_ner_batch", sentences)


def _import_stanza() -> Any:  # noqa: ANN401 - Stanza is untyped
    """Import Stanza without transformers, a third of its import, and without the graphs of its parser.

    A model that holds a transformer imports it when it is loaded.
    """
    hidden = {"transformers"} - set(sys.modules)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be imported
    try:
        return import_without("stanza", ("networkx",))
    finally:
        for name in hidden:
            del sys.modules[name]


def _pipeline(folder: Path, language: str, processors: str, device: str, **more: int) -> Any:  # noqa: ANN401
    """Load a pipeline; no optimizer is made with the tokenizer, for the first imports a third of torch."""
    stanza = _import_stanza()
    from stanza.models.common import utils

    made_by, utils.get_optimizer = utils.get_optimizer, lambda *_, **_options: None
    try:
        return stanza.Pipeline(
            lang=language,
            dir=str(folder),
            processors=processors,
            download_method=None,
            device=device,
            verbose=False,
            **more,
        )
    finally:
        utils.get_optimizer = made_by


def _watch(trainer: Any, note: Callable[[Any], None]) -> None:  # noqa: ANN401 - Stanza is untyped
    predict = trainer.predict

    def predict_watched(batch: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        note(batch)
        return predict(batch, *args, **kwargs)

    trainer.predict = predict_watched


def _convert(processor: Any, precision: str) -> None:  # noqa: ANN401 - Stanza is untyped
    """Convert the tagger's network to fp16 or bf16, and its scores back; fp32 and TF32 need no conversion."""
    if precision not in DTYPES:
        return
    import torch

    def as_weights(classifier: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401 - torch is untyped
        """Convert what enters a classifier: with several, the scores of one enter the next."""
        return tuple(value.to(classifier.weight.dtype) for value in inputs)

    for trainer in processor.trainers:
        network = trainer.model
        network.to(getattr(torch, DTYPES[precision]))
        network.crits.float()
        for classifier in network.tag_clfs:
            classifier.register_forward_pre_hook(as_weights)
            classifier.register_forward_hook(lambda classifier, inputs, scores: scores.float())
    torch.cuda.empty_cache()  # the memory of the fp32 weights; does nothing if no GPU is in use


def _entity(number: int, paragraph: str, entity: Any) -> Entity:  # noqa: ANN401 - Stanza is untyped
    """Return Stanza's entity as a row; refuse one whose text differs from the text at its offsets."""
    for token in entity.tokens:
        there = paragraph[token.start_char : token.end_char]
        if token.text != "<UNK>" and _BLANK.sub("", there) != _BLANK.sub("", token.text):
            where = f"paragraph {number} of the call, {token.start_char}:{token.end_char}"
            raise ValueError(f"{where}: {there!r} stands where Stanza found {token.text!r}")
    start, end = entity.start_char, entity.end_char
    return Entity(number, paragraph[start:end], entity.type, start, end)
