"""Workloads on an encoder of transformers: entities by token classification, and sentence embeddings.

Standard library only at import.

With ``shortcuts: exact`` an `Encoder` does the work, and finds what the framework finds; with ``off`` the
framework does it. ``precision`` is the type of the model's weights; for ``tf32`` they stay fp32.

**Entities.** The pipeline (``transformers/pipelines/token_classification.py``, read in 5.23.0) takes texts
in their order, ``batch_size`` at a time, and pads each batch to its longest text. ``aggregation`` is its
strategy. Without ``stride`` it drops, without a message, all tokens of a text after the model's maximum; so
both ways have it: a longer text becomes several pieces that overlap, and each piece is an item of a batch.

**Embeddings.** ``encode`` (``sentence_transformer/model.py``, read in 6.2.0) sorts the texts that it gets by
their characters, the longest first, takes ``batch_size`` at a time and pads each batch to its longest text,
in tokens. It drops, without a message, all tokens of a text after the model's ``max_seq_length``. With
``exact`` the model's own modules pool the batches, as its configuration says; a module that is not one of
`MODULES` is refused. (``encode`` has a ``precision`` of its own: how its results are rounded. It saves no
memory of the GPU, and is not this knob.) ``vectors`` is the type of the numbers that are written.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import (
    BATCH_SIZE,
    CPU,
    CUDA,
    EXACT,
    FP16,
    FP32,
    LEFT_OUT,
    OFF,
    PADDED,
    PRECISION,
    PRECISIONS,
    PROMPT,
    SHORTCUTS,
    Knob,
    Value,
    numbers,
)
from jobkit.core.records import MODEL_OPTIONS, ModelRef
from jobkit.worker.paragraphs import cut_by_budget
from jobkit.worker.workloads.base import DEFAULT_BATCH_SIZE, Entity, Heavy, Result
from jobkit.worker.workloads.extras import token_counts
from jobkit.worker.workloads.imports import import_without
from jobkit.worker.workloads.model import (
    DTYPES,
    EMBEDDER_SETTINGS,
    MODULES,
    NO_LIMIT,
    SAVED,
    TOKENIZER_SETTINGS,
    model_folder,
    parts_of,
    set_tf32,
    torch_versions,
    unlimited,
)

if TYPE_CHECKING:
    from jobkit.worker.workloads.extras.encoder import Encoder, Found

SILENT_TOKENIZERS = ("TOKENIZERS_PARALLELISM", "false")
"""The tokenizers' threads cannot be used after a fork; the pipeline sets this too."""
EVALUATION = ("scipy", "sklearn")
"""What the frameworks import to score and to search; pandas comes with it."""
INPUT = "input_ids"
"""The tensor of token ids, of shape (texts, tokens of the longest)."""


class Difference(NamedTuple):
    """How two findings differ: in words, as a number, and what is permitted in fp32 and in the others."""

    words: str
    distance: float
    exact: float
    near: float


class EncoderWorkload:
    """What both workloads share: batch size, precision, shortcuts, and the batches that entered the model.

    A subclass has the methods of both ways:

    ``open``: loads the model of a folder, with weights of one of torch's types or ``auto``, and returns the
        network.
    ``encoder``: returns an encoder with the model, or why it cannot do what the framework does.
    ``encoded``: returns what the encoder finds in paragraphs, and their tokens.
    ``stock``: returns what the framework finds in batches of so many paragraphs, in the form of `encoded`.
    ``difference``: returns how two findings of the same paragraphs differ.
    """

    open: Callable[[Path, str], Any]
    encoder: Callable[[], Encoder | str]
    encoded: Callable[[Sequence[str], Encoder], tuple[Any, int]]
    stock: Callable[[Sequence[str], int], Any]
    difference: Callable[[Any, Any], Difference]

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (
        BATCH_SIZE,
        PRECISIONS,
        LEFT_OUT,
    )
    NEEDS_MODEL: ClassVar[bool] = True
    LOAD_UNIT: ClassVar[str] = "padded tokens"
    WINDOW: ClassVar[Mapping[str, int]] = {CUDA: 10_000, CPU: 100}
    BUDGET: ClassVar[Mapping[str, int]] = {CUDA: 2**14, CPU: 1_000}  # more leave the caches of a CPU
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ("transformers", "tokenizers")
    # tokenizes the texts of calls; ``None`` if the framework works, which does not cut calls by ``padded``
    tokenize_ahead: Callable[..., None] | None = None
    checked = ""  # what the check of the shortcuts found

    def __init__(self) -> None:
        self._folder = Path()
        self._device = CPU
        self._params: Mapping[str, Value] = {}
        self._effective: dict[str, Value] = {}  # what takes effect of precision and shortcuts, if named
        self._tokenizer: Any = None  # of transformers
        self._network: Any = None  # a torch module that takes a batch's tensors by name, or as one mapping
        self._encoder: Encoder | None = None
        self._changed: list[Any] = []  # modules that have a forward of their own for the encoder
        # of the batches of the last call: texts, and tokens of the longest
        self._shapes: list[tuple[int, int]] = []
        self._largest: int | None = None  # the most texts of a batch so far
        self._heaviest: tuple[int, Mapping[str, Any], bool] = (0, {}, True)  # load, tensors, and if by name
        self._is_warm = False

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load the model from a folder, without network, on exactly this device.

        ``model``: A folder that the framework loads.
        ``device``: ``cpu`` or ``cuda``.
        ``params``: values of the knobs. ``shortcuts`` may be ``off`` with a reason.
        ``threads``: for torch on the CPU.
        """
        self._folder = model_folder(model)
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self._device, self._params = device, params
        if precision := str(params.get(PRECISION, "")):
            self._effective[PRECISION] = set_tf32(precision, device)
        dtype = DTYPES.get(precision, "float32") if precision else "auto"  # the checkpoint's own
        self._network = self.open(self._folder, dtype)
        words = {f"torch.{dtype}": word for word, dtype in {FP32: "float32", **DTYPES}.items()}
        if not precision and (loaded := words.get(str(self._network.dtype))):
            self._effective[PRECISION] = loaded
        self._network.register_forward_pre_hook(self._note, with_kwargs=True)
        if wanted := str(params.get(SHORTCUTS, "")):
            self._effective[SHORTCUTS] = wanted
        if wanted == EXACT:
            from jobkit.worker.workloads.extras.encoder import fuse

            made = self.encoder()
            if isinstance(made, str):
                self._effective[SHORTCUTS] = f"{OFF}: {made}"
            else:
                self._encoder, self.tokenize_ahead = made, made.tokenize_ahead
                self._changed += fuse(self._network)
        self.change(params)

    def change(self, params: Mapping[str, Value]) -> None:
        """Take other sizes of batches, with what is loaded."""
        self._params, sizes = params, numbers(params)
        self._largest, self._heaviest = None, (0, {}, True)
        if self._encoder:
            usual = None if BATCH_SIZE in sizes else self.BUDGET[self._device]
            self._encoder.budget = sizes.get(PADDED, usual)
            self._encoder.size = sizes.get(BATCH_SIZE, 1)

    def _note(self, network: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:  # noqa: ANN401
        inputs = kwargs if INPUT in kwargs else args[0]
        ids = inputs[INPUT]
        if of_static := ids.ndim == 1:  # the texts of a batch of StaticEmbedding, one after the other
            edges = [*inputs["offsets"].tolist(), len(ids)]
            rows, columns = len(edges) - 1, max(end - start for start, end in pairwise(edges))
        else:
            rows, columns = ids.shape
        self._shapes.append((rows, columns))
        self._largest = max(self._largest or 0, rows)
        if rows * columns > self._heaviest[0] and not of_static:
            kept = {name: value.cpu() for name, value in inputs.items() if hasattr(value, "cpu")}
            self._heaviest = rows * columns, kept, INPUT in kwargs

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs; with a budget those of a window."""
        sizes = numbers(self._params)
        if self._encoder and (PADDED in sizes or BATCH_SIZE not in sizes):
            return sizes.get("paragraphs_per_call", self.WINDOW[self._device])
        return sizes.get(BATCH_SIZE, DEFAULT_BATCH_SIZE)

    def find(self, paragraphs: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        """Return what is found in the paragraphs of a call, and other fields of its `Result`.

        The load is the largest ``items x tokens of the longest`` of a batch.
        """
        self._shapes.clear()
        if self._encoder:
            found, tokens = self.encoded(paragraphs, self._encoder)
        else:
            found, tokens = self.stock(paragraphs, self.items_per_call()), None
        load = max((rows * columns for rows, columns in self._shapes), default=0)
        return found, {"load": load, "tokens": tokens}

    def tag_heaviest(self, paragraphs: Sequence[str]) -> None:
        """Run the first batches of a call; in a new process on a GPU also the others, for a second.

        A GPU loads kernels and maps memory when they are first used. Only the texts of these batches are
        tokenized, so that the first call need not wait for others.
        """
        if self._encoder:
            from jobkit.worker.workloads.extras.encoder import PART_CHARS

            sizes = cut_by_budget(map(len, paragraphs), PART_CHARS, pads=False)
            edges = pairwise(accumulate(sizes, initial=0))
            parts = (self._encoder.batches(paragraphs[first:end]) for first, end in edges)
            # on an H100 the first 10,000 vectors in bf16 take 0.43 to 0.62 s, then 0.35 to 0.37 s
            until = time.monotonic() + (1.0 if self._device == CUDA and not self._is_warm else 0)
            for number, _ in enumerate(chain.from_iterable(parts), 1):
                # the first part of a call, and its batch, is a short one; the second batch is full
                if number >= 2 and time.monotonic() >= until:
                    break
            self._is_warm = True

    def check_shortcuts(self, paragraphs: Sequence[str], long: Sequence[str] = ()) -> str:
        """Return why the encoder must not be used; empty if it finds what the framework finds.

        Of the texts ``long`` the one with the most tokens is compared too, and texts of no token, of one,
        and of the tokenizer's special ones.

        The control is the framework with another batch size: in another batch kernels add in another order.
        In fp32 the encoder may differ as much as the control, unless that differs more than `Difference.near`
        permits: what a model gives then depends on the batch. In another precision both are compared with
        the framework in fp32, and the encoder may be twice as far from it as the framework is, or as far as
        `Difference.near` permits.
        """
        if not self._encoder:
            return str(self._effective.get(SHORTCUTS, OFF)).removeprefix(f"{OFF}: ")
        special = " ".join(["a", *self._tokenizer.all_special_tokens, "a"])
        tokens = self._tokenizer([*long, ""], truncation=False, padding=False)[INPUT]
        longest = max(range(len(tokens)), key=lambda place: len(tokens[place]))
        empty = [""] * bool(tokens[-1])  # the framework fails on no token at all
        paragraphs = [*paragraphs, *long[longest : longest + 1], *empty, "a", special]
        found, _ = self.encoded(paragraphs, self._encoder)
        for module in self._changed:
            del module.forward
        precision = str(self._effective.get(PRECISION, FP32))
        if precision == FP32:
            control, name = self.stock(paragraphs, 8), "in batches of 8"
        else:
            control, name = self.stock(paragraphs, DEFAULT_BATCH_SIZE), f"in {precision}"
            set_tf32(FP32, self._device)
            self.open(self._folder, "float32")
        reference = self.stock(paragraphs, DEFAULT_BATCH_SIZE)
        own, of_control = self.difference(found, reference), self.difference(control, reference)
        self.checked = (
            f"{len(paragraphs)} paragraphs against the framework in fp32: {own.words}; "
            f"the framework {name}: {of_control.words}"
        )
        permitted = max(own.exact, of_control.distance if of_control.distance <= own.near else 0)
        if precision != FP32:
            permitted = max(2 * of_control.distance, own.near)
        return "" if own.distance <= permitted else self.checked

    def heaviest(self) -> Sequence[Heavy]:
        """Return the heaviest batch so far, whole and in part; each part has the columns of the whole."""
        load, inputs, by_name = self._heaviest
        if not load:
            return []
        import torch

        rows, columns = inputs[INPUT].shape

        def again(count: int) -> None:
            batch = {name: value[:count].to(self._device) for name, value in inputs.items()}
            with torch.inference_mode():
                self._network(**batch) if by_name else self._network(batch)

        return [Heavy(count * columns, partial(again, count)) for count in parts_of(rows)]

    def attempted_load(self) -> int:
        """Return the load of the batch that began last; after an error, of the batch that failed."""
        rows, columns = self._shapes[-1] if self._shapes else (0, 0)
        return rows * columns

    def effective(self) -> Mapping[str, Value | None]:
        """Return the most texts of a batch that entered the model, and what else was asked for."""
        return {BATCH_SIZE: self._largest, **self._effective}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of torch, of `FRAMEWORKS`, and of numpy, CUDA and cuDNN."""
        return torch_versions(*map(importlib.import_module, self.FRAMEWORKS))


def unknown_inputs(tokenizer: Any, network: Any) -> Iterator[str]:  # noqa: ANN401 - transformers is untyped
    """Yield why an encoder cannot make the input of a model."""
    from transformers import PreTrainedTokenizerFast as Usual

    if "attention_mask" not in inspect.signature(network.forward).parameters:
        yield f"{type(network).__name__} takes no mask, so padding changes what it finds"
    kind, inputs = type(tokenizer), tokenizer.model_input_names
    encodes = ("__call__", "_encode_plus", "pad", "_pad")  # an encoder does not call them
    if any(getattr(kind, name) is not getattr(Usual, name) for name in encodes):
        yield f"{kind.__name__} has an encoding of its own"
    known = TOKENIZER_SETTINGS.union(*(inspect.signature(one).parameters for one in kind.__mro__[:-1]))
    for name in sorted({name for name, value in tokenizer.init_kwargs.items() if value is not None} - known):
        if not name.endswith(("_token", "_tokens", "_file")):
            yield f"the tokenizer has a setting {name}"
    if {*inputs} - {"token_type_ids"} != {INPUT, "attention_mask"}:
        yield f"{kind.__name__} makes the inputs {', '.join(inputs)}"
    if tokenizer.truncation_side != "right":
        yield f"{kind.__name__} cuts on the left"
    words = " ".join([*tokenizer.get_vocab()][:100])
    if any(tokenizer.backend_tokenizer.encode(words).type_ids):
        yield f"{kind.__name__} has types of tokens"


# -- entities

AGGREGATION = Knob(name="aggregation", words=("simple", "first", "average", "max"))
"""The ``aggregation_strategy`` of the pipeline."""


class TokenClassification(EncoderWorkload):
    """Tag entities with a model of transformers; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (*EncoderWorkload.KNOBS, AGGREGATION)

    @staticmethod
    def preload() -> None:
        """Import what loading and tagging import: with the pipeline 1,500 modules."""
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import_without("transformers.pipelines", EVALUATION)

    def open(self, folder: Path, dtype: str) -> Any:  # noqa: ANN401 - transformers is untyped
        """Load tokenizer and model into a pipeline, and return the model."""
        self.preload()
        import torch
        from transformers import AutoModelForTokenClassification, TokenClassificationPipeline

        trusted = bool(self._params.get("trust_remote_code"))
        how = {"local_files_only": True, "trust_remote_code": trusted, "dtype": dtype}
        network = AutoModelForTokenClassification.from_pretrained(folder, **how).to(self._device)
        self._strategy = str(self._params.get(AGGREGATION.name, "simple"))
        self._tokenizer = tokenizer_of(folder, trusted=trusted)
        self._pipeline = TokenClassificationPipeline(
            model=network,
            tokenizer=self._tokenizer,
            device=torch.device(self._device),
            aggregation_strategy=self._strategy,
            stride=stride_of(self._tokenizer.model_max_length),
        )
        return network

    def encoder(self) -> Encoder | str:
        """Return an encoder with the model, or why it cannot do what the pipeline does."""
        from jobkit.worker.workloads.extras.encoder import Aggregation, Encoder

        tokenizer, network = self._tokenizer, self._pipeline.model
        if refused := next(unknown_inputs(tokenizer, network), ""):
            return refused
        self._aggregation = Aggregation(self._strategy, tokenizer, network.config.id2label)

        def run(ids: Any, mask: Any, places: Any) -> Sequence[Any]:  # noqa: ANN401 - torch is untyped
            logits = network(input_ids=ids, attention_mask=mask).logits
            return self._aggregation.outputs(logits.flatten(0, 1)[places])

        most = tokenizer.model_max_length
        return Encoder(tokenizer, run, self._device, most_tokens=most, stride=stride_of(most))

    def encoded(self, paragraphs: Sequence[str], encoder: Encoder) -> tuple[list[Entity], int]:
        """Return the entities that the encoder finds, and the tokens."""
        from jobkit.worker.workloads.extras.encoder import without_overlaps

        found: list[Entity] = []
        cut: dict[int, list[Found]] = {}
        tokens = 0
        for batch in encoder.batches(paragraphs):
            self._aggregation.add(batch, paragraphs, found, cut)
            tokens += len(batch.ids)
        for number, several in cut.items():
            for start, end, label, _ in without_overlaps(several):
                found.append(Entity(number, paragraphs[number][start:end], label, start, end))
        return found, tokens

    def stock(self, paragraphs: Sequence[str], batch_size: int) -> list[Entity]:
        """Return the entities that the pipeline finds."""
        budget = numbers(self._params).get(PADDED)
        if budget and len(paragraphs) == 1:  # the pieces of a text that is longer than the budget
            batch_size = max(1, budget // self._pipeline.tokenizer.model_max_length)
        found = self._pipeline(list(paragraphs), batch_size=batch_size) if paragraphs else []
        return [
            Entity(
                number, text[one["start"] : one["end"]], str(one["entity_group"]), one["start"], one["end"]
            )
            for number, (text, some) in enumerate(zip(paragraphs, found, strict=True))
            for one in some
        ]

    def difference(self, one: Sequence[Entity], other: Sequence[Entity]) -> Difference:
        """Return the entities that differ, and the F1 score of the first ones."""
        counts, others = Counter(one), Counter(other)
        same, differ = (counts & others).total(), ((counts - others) + (others - counts)).total()
        score = 2 * same / (len(one) + len(other)) if one or other else 1.0
        words = f"{differ} of {len(other)} entities differ, F1 {score:.4f}"
        return Difference(words, differ, 0, 0.05 * len(other))

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Tag these paragraphs."""
        entities, more = self.find(paragraphs)
        return Result(entities=tuple(entities), **more)

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return the padded length, in tokens, of every piece of every paragraph, by the tokenizer alone."""
        found = token_counts.count(paragraphs, token_counts.of_tagger(model_folder(model), stride_of))
        if found is not None:
            return [[max(row)] * len(row) for row in found]
        tokenizer = tokenizer_of(
            model_folder(model), trusted=bool(options_of(model).get("trust_remote_code"))
        )
        cut = tokenizer(
            list(paragraphs),
            truncation=True,
            return_overflowing_tokens=True,
            stride=stride_of(tokenizer.model_max_length),
            padding=False,
        )
        pieces = Counter(cut["overflow_to_sample_mapping"])
        longest = [0] * len(paragraphs)
        for at, tokens in zip(cut["overflow_to_sample_mapping"], cut["input_ids"], strict=True):
            longest[at] = max(longest[at], len(tokens))
        return [[longest[at]] * pieces[at] for at in range(len(paragraphs))]


@lru_cache(maxsize=2)
def tokenizer_of(folder: Path, *, trusted: bool = False) -> Any:  # noqa: ANN401 - transformers is untyped
    """Return the tokenizer of a folder, with the maximum of the model if it names none itself.

    It pads with some token, which the mask hides, and by no setting of its tokenizer.json: such a setting
    counts until the first call only, so a check would see another tokenizer than the work after it.
    """
    os.environ.setdefault(*SILENT_TOKENIZERS)
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
    if not tokenizer.is_fast:
        hint = "save it again as a fast one: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        raise JobkitError(f"model {folder}: its tokenizer is not a fast one (no tokenizer.json)", hint=hint)
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    give_padding(tokenizer)
    if tokenizer.model_max_length > NO_LIMIT:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
        positions = getattr(config, "max_position_embeddings", 0) or getattr(config, "n_positions", 0)
        if positions <= token_counts.FIRST_POSITIONS:
            raise unlimited(folder)
        tokenizer.model_max_length = positions - token_counts.FIRST_POSITIONS
    return tokenizer


def give_padding(tokenizer: Any) -> None:  # noqa: ANN401 - as above
    """Have a tokenizer pad with some token if it has none for that: a mask hides it."""
    if getattr(tokenizer, "pad_token", "") is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)


def stride_of(most: int) -> int:
    """Return how many tokens two pieces of a text share, so that an entity at an edge is whole in one."""
    return 64 if most >= 64 + 3 else most // 4  # two special tokens, and one more


# -- embeddings

STORED = Knob(name="vectors", words=(FP32, FP16))
"""The type of the numbers that are written."""
ROUNDING, NEAR_VECTORS = 1e-5, 1e-2
"""The largest difference of two numbers that is rounding in fp32, and in another precision."""


class SentenceEmbedding(EncoderWorkload):
    """Embed each paragraph; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (*EncoderWorkload.KNOBS, STORED)
    COLUMNS: ClassVar[tuple[str, ...]] = ("embedding",)
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ("sentence_transformers", *EncoderWorkload.FRAMEWORKS)

    @staticmethod
    def preload() -> None:
        """Import what loading and encoding import."""
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import_without("sentence_transformers", EVALUATION)
        from transformers import AutoTokenizer  # noqa: F401 - imported for its side effect

    def open(self, folder: Path, dtype: str) -> Any:  # noqa: ANN401 - the framework is untyped
        """Load the model, and return it."""
        if stored := self._params.get(STORED.name):
            self._effective[STORED.name] = stored
        options: Any = {key: self._params[key] for key in MODEL_OPTIONS if key in self._params}
        self._model = open_model(folder, self._device, dtype, **options)
        self._tokenizer = self._model.tokenizer
        return self._model

    def encoder(self) -> Encoder | str:
        """Return an encoder with the model, or why it cannot do what ``encode`` does."""
        from jobkit.worker.workloads.extras.encoder import Encoder, is_causal

        model = self._model
        for module in model:
            if type(module).__name__ not in MODULES:
                return f"the model has a module {type(module).__name__}"
        if unknown := unknown_setting(model[0], self._folder):
            return f"the model has a setting {unknown}"
        if not 0 < most_tokens(model) < NO_LIMIT:
            return "the model names no largest number of tokens"
        if refused := next(unknown_inputs(model.tokenizer, model[0].auto_model), ""):
            return refused
        prompt = prompt_of(model)
        if prompt and not all(getattr(module, "include_prompt", True) for module in model):
            return "the model leaves the tokens of its prompt out of the mean"

        def unmasked(found: dict[str, Any], **_: object) -> dict[str, Any]:
            vectors = model[0].auto_model(input_ids=found[INPUT]).last_hidden_state
            return {**found, "token_embeddings": vectors}

        def run(ids: Any, mask: Any, places: Any) -> Sequence[Any]:  # noqa: ANN401 - torch is untyped
            vectors = model({INPUT: ids, "attention_mask": mask})["sentence_embedding"]
            return [vectors[:, : model.truncate_dim].float()]

        if causal := model[0].module_output_name == "token_embeddings" and is_causal(model[0].auto_model):
            model[0].forward = unmasked
            model[0].auto_model.config.use_cache = False  # keys and values are not read again
            self._changed.append(model[0])

        most = most_tokens(model)
        return Encoder(model.tokenizer, run, self._device, most_tokens=most, prompt=prompt, causal=causal)

    def encoded(self, paragraphs: Sequence[str], encoder: Encoder) -> tuple[Any, int]:
        """Return the vectors that the encoder finds, and the tokens."""
        import numpy as np

        vectors, tokens = np.zeros((len(paragraphs), 0), np.float32), 0
        for batch in encoder.batches(paragraphs):
            [found] = batch.outputs
            if not vectors.size:
                vectors = np.empty((len(paragraphs), found.shape[1]), np.float32)
            vectors[batch.texts] = found
            tokens += len(batch.ids)
        return vectors, tokens

    def stock(self, paragraphs: Sequence[str], batch_size: int) -> Any:  # noqa: ANN401 - numpy is untyped here
        """Return the vectors that ``encode`` finds."""
        how = {"batch_size": batch_size, "show_progress_bar": False, "convert_to_tensor": True}
        return self._model.encode(list(paragraphs), **how).float().cpu().numpy()

    def difference(self, one: Any, other: Any) -> Difference:  # noqa: ANN401 - as above
        """Return the distances of vectors, by their numbers."""
        distances = abs(one - other)
        mean, largest = float(distances.mean()), float(distances.max())
        words = f"vectors differ by {mean:.1e} on average, by {largest:.1e} at most"
        return Difference(words, largest, ROUNDING, NEAR_VECTORS)

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Embed these paragraphs."""
        vectors, more = self.find(paragraphs)
        if self._params.get(STORED.name) == FP16:
            vectors = vectors.astype("float16")
        return Result(vectors=vectors, **more)

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return each paragraph as one item with its tokens, by the tokenizer of the model."""
        files = token_counts.of_embedder(model_folder(model), options_of(model))
        if (found := token_counts.count(paragraphs, files)) is not None:
            return found
        loaded = _kept_model(model_folder(model), CPU, "float32", **options_of(model))
        texts = [prompt_of(loaded) + text for text in paragraphs]
        if not callable(loaded.tokenizer):  # of a StaticEmbedding
            return [[len(one.ids)] for one in loaded.tokenizer.encode_batch(texts, add_special_tokens=False)]
        tokens = loaded.tokenizer(texts, truncation=True, max_length=most_tokens(loaded))
        return [[len(ids)] for ids in tokens["input_ids"]]


def text_settings(module: Any) -> dict[str, Any]:  # noqa: ANN401 - the framework is untyped
    """Return with what a module Transformer calls its tokenizer, beyond what is usual."""
    settings = getattr(module, "processing_kwargs", None) or {}
    return {**settings.get("common", {}), **settings.get("text", {})}


def unknown_setting(module: Any, folder: Path) -> str:  # noqa: ANN401 - as above
    """Return the first setting of a module Transformer, or of a folder, that an encoder does not honour."""
    saved = module.get_config_dict()
    named = {key for key, value in saved.items() if value and key not in MODULES["Transformer"]}
    if "message" in saved.get("modality_config", {}):
        named.add("chat_template")
    # an encoder keeps the one, and a mask makes the other harmless
    named |= {f"processing_kwargs {key}" for key in text_settings(module).keys() - {"max_length", "padding"}}
    if (file := folder / "config_sentence_transformers.json").is_file():
        of_folder = json.loads(file.read_text(encoding="utf-8"))
        if of_folder.get("model_type", SAVED) == SAVED:  # of another one the library reads none
            named |= of_folder.keys() - EMBEDDER_SETTINGS
    return min(named, default="")


def most_tokens(model: Any) -> int:  # noqa: ANN401 - as above
    """Return the largest number of tokens of a text; 0 if the model names none."""
    return int(text_settings(model[0]).get("max_length") or model.max_seq_length or 0)


def options_of(model: ModelRef | Path | None) -> dict[str, Any]:
    """Return what a spec asks for besides the folder."""
    return model.options if isinstance(model, ModelRef) else {}


def prompt_of(model: Any) -> str:  # noqa: ANN401 - as below
    """Return what ``encode`` puts before each text."""
    return model.prompts.get(model.default_prompt_name) or ""


def open_model(folder: Path, device: str, dtype: str, **options: Any) -> Any:  # noqa: ANN401 - as above
    """Return a model of a folder, without network, with weights of one of torch's types, or ``auto``.

    ``options``: of a `ModelRef`; a pooling is of a folder that is no sentence embedder, and a prompt, by its
        name or as it is, takes the place of the model's own.
    """
    os.environ.setdefault(*SILENT_TOKENIZERS)
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = import_without("sentence_transformers", EVALUATION).SentenceTransformer(
        str(folder),
        device=device,
        local_files_only=True,
        trust_remote_code=bool(options.get("trust_remote_code")),
        model_kwargs={"dtype": dtype},
    )
    give_padding(model.tokenizer)
    if (prompt := options.get(PROMPT)) is not None:
        model.prompts.setdefault(prompt, prompt)
        model.default_prompt_name = prompt
    if pooling := options.get("pooling"):  # the library has made it of the folder's tokens and their mean
        _, mean = model
        model[1] = type(mean)(mean.pooling_output_dimension, pooling_mode=pooling)
    return model


_kept_model = lru_cache(maxsize=1)(open_model)
