"""Watch the batches that enter a PyTorch model: their shapes, and the heaviest to run again.

Standard library only at import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import (
    BATCH_SIZE,
    CPU,
    EXACT,
    FP32,
    OFF,
    PADDED,
    PRECISION,
    SHORTCUTS,
    Knob,
    Value,
    numbers,
)
from jobkit.worker.workloads import stanza_batches
from jobkit.worker.workloads.base import Heavy
from jobkit.worker.workloads.extras.encoder import WINDOW, Encoder

DEFAULT_BATCH_SIZE = 32
"""Paragraphs per call if the sweep does not set it: the default of ``encode``; that of the pipeline is 1."""
SHARES = (1.0, 0.85, 0.7)
"""Parts of the heaviest batch that run again, as in `jobkit.worker.workloads.stanza_tagging`."""
DEFAULT_BUDGET = 2**14
"""Padded tokens of a batch of an encoder, if the setting has neither a budget nor a batch size."""
CONTROL_SIZE = 8
"""The other batch size with which the framework is compared with itself."""
SILENT_TOKENIZERS = ("TOKENIZERS_PARALLELISM", "false")
"""The tokenizers' threads cannot be used after a fork; the pipeline sets this too."""
ENCODER_KNOBS = (BATCH_SIZE, stanza_batches.KNOB, Knob(name=SHORTCUTS, words=(OFF, EXACT)))
INPUT = "input_ids"
"""The tensor of token ids, of shape (texts, tokens of the longest)."""


class Difference(NamedTuple):
    """How two findings differ: in words, as a number, and what is permitted in fp32 and in the others."""

    words: str
    distance: float
    exact: float
    near: float


class WatchedModel:
    """A model whose batches are watched.

    ``model``: A torch module that takes the tensors of a batch by name, or as one mapping.

    ``shapes``: Of the batches since the last `clear`: texts, and tokens of the longest.
    ``largest``: The most texts of a batch so far; ``None`` before the first.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - torch is untyped
        self.shapes: list[tuple[int, int]] = []
        self.largest: int | None = None
        self._model = model
        self._by_name = True
        self._heaviest: tuple[int, Mapping[str, Any]] = (0, {})
        model.register_forward_pre_hook(self._note, with_kwargs=True)

    def on_output(self, look: Callable[[Mapping[str, Any], Any], object]) -> None:
        """Have a function look at the inputs and the output of every batch."""

        def hook(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:  # noqa: ANN401
            del model
            look(kwargs or args[0], output)

        self._model.register_forward_hook(hook, with_kwargs=True)

    def clear(self) -> None:
        """Forget the shapes."""
        self.shapes.clear()

    @property
    def load(self) -> int:
        """The largest texts x tokens of the longest since the last `clear`."""
        return max((rows * columns for rows, columns in self.shapes), default=0)

    @property
    def attempted_load(self) -> int:
        """The load of the batch that began last."""
        rows, columns = self.shapes[-1] if self.shapes else (0, 0)
        return rows * columns

    def heaviest(self) -> Sequence[Heavy]:
        """Return the heaviest batch so far, whole and in part; each part has the columns of the whole."""
        load, inputs = self._heaviest
        if not load:
            return []
        rows, columns = inputs[INPUT].shape
        counts = {max(1, round(share * rows)): None for share in SHARES}
        return [Heavy(count * columns, partial(self._again, inputs, count)) for count in counts]

    def _note(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:  # noqa: ANN401
        del model
        self._by_name = INPUT in kwargs
        inputs = kwargs if self._by_name else args[0]
        rows, columns = inputs[INPUT].shape
        self.shapes.append((rows, columns))
        self.largest = max(self.largest or 0, rows)
        if rows * columns > self._heaviest[0]:
            kept = {name: value.cpu() for name, value in inputs.items() if hasattr(value, "cpu")}
            self._heaviest = rows * columns, kept

    def _again(self, inputs: Mapping[str, Any], count: int) -> None:
        import torch

        device = next(self._model.parameters()).device
        batch = {name: value[:count].to(device) for name, value in inputs.items()}
        with torch.inference_mode():
            if self._by_name:
                self._model(**batch)
            else:
                self._model(batch)


class WatchedWorkload:
    """What workloads on one `WatchedModel` share: batch size, precision, shortcuts, and what was seen.

    With ``shortcuts: exact`` the work is done by an `Encoder`, else by the framework. A subclass has the
    methods of both: `encoder`, `encoded`, and `stock`.
    """

    WINDOW: ClassVar[Mapping[str, int]] = WINDOW
    cuts_calls = False  # whether it cuts its calls into batches of ``padded`` itself
    checked = ""  # what the check of the shortcuts found

    def __init__(self) -> None:
        self._folder = Path()
        self._device = CPU
        self._params: Mapping[str, Value] = {}
        self._effective: dict[str, Value] = {}  # what takes effect of precision and shortcuts, if named
        self._watched: Any = None
        self._encoder: Encoder | None = None

    def open(self, folder: Path, dtype: str) -> Any:  # noqa: ANN401 - the frameworks are untyped
        """Load the model of a folder, with weights of one of torch's types, and return what is watched."""
        raise NotImplementedError

    def encoder(self, **limits: Any) -> Encoder | str:  # noqa: ANN401 - `Encoder` has their types
        """Return an encoder with the model, or why it cannot do what the framework does."""
        raise NotImplementedError

    def encoded(self, paragraphs: Sequence[str], encoder: Encoder) -> tuple[Any, int]:
        """Return what the encoder finds in paragraphs, and their tokens."""
        raise NotImplementedError

    def stock(self, paragraphs: Sequence[str], batch_size: int) -> Any:  # noqa: ANN401 - as `encoded`
        """Return what the framework finds, in the form of `encoded`."""
        raise NotImplementedError

    def difference(self, one: Any, other: Any) -> Difference:  # noqa: ANN401 - as `encoded`
        """Return how two findings of the same paragraphs differ."""
        raise NotImplementedError

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
            self._effective[PRECISION] = stanza_batches.set_tf32(precision, device)
        self._watched = WatchedModel(self.open(self._folder, stanza_batches.DTYPES.get(precision, "float32")))
        if wanted := str(params.get(SHORTCUTS, "")):
            made = self._make_encoder() if wanted == EXACT else wanted
            refused = made if isinstance(made, str) else ""
            self._encoder = None if isinstance(made, str) else made
            self.cuts_calls = self._encoder is not None
            self._effective[SHORTCUTS] = f"{OFF}: {refused}" if refused and wanted == EXACT else wanted

    def _make_encoder(self) -> Encoder | str:
        sizes = numbers(self._params)
        budget = sizes.get(PADDED, None if BATCH_SIZE in sizes else DEFAULT_BUDGET)
        return self.encoder(device=self._device, budget=budget, size=sizes.get(BATCH_SIZE, 1))

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs; with a budget those of a window."""
        sizes = numbers(self._params)
        if self._encoder and (PADDED in sizes or BATCH_SIZE not in sizes):
            return sizes.get("paragraphs_per_call", WINDOW[self._device])
        return sizes.get(BATCH_SIZE, DEFAULT_BATCH_SIZE)

    def prepare(self, paragraphs: Sequence[str]) -> None:
        """Tokenize the paragraphs of the next call while this one runs."""
        if self._encoder:
            self._encoder.prepare(paragraphs)

    def find(self, paragraphs: Sequence[str]) -> tuple[Any, int | None]:
        """Return what the encoder or the framework finds in the paragraphs of a call, and their tokens."""
        self._watched.clear()
        if self._encoder:
            return self.encoded(paragraphs, self._encoder)
        return self.stock(paragraphs, self.items_per_call()), None

    def check_shortcuts(self, paragraphs: Sequence[str]) -> str:
        """Return why the encoder must not be used; empty if it finds what the framework finds.

        The control is the framework with another batch size: in another batch kernels add in another order.
        In fp32 the encoder may differ as much as the control. In another precision both are compared with
        the framework in fp32, and the encoder may be twice as far from it as the framework is, or, if the
        weights are rounded (fp16, bf16), as far as `Difference.near` permits.
        """
        if not self._encoder:
            return str(self._effective.get(SHORTCUTS, OFF)).removeprefix(f"{OFF}: ")
        found, _ = self.encoded(paragraphs, self._encoder)
        precision = str(self._effective.get(PRECISION, FP32))
        if precision == FP32:
            control, name = self.stock(paragraphs, CONTROL_SIZE), f"in batches of {CONTROL_SIZE}"
        else:
            control, name = self.stock(paragraphs, DEFAULT_BATCH_SIZE), f"in {precision}"
            stanza_batches.set_tf32(FP32, self._device)
            self.open(self._folder, "float32")
        reference = self.stock(paragraphs, DEFAULT_BATCH_SIZE)
        own, of_control = self.difference(found, reference), self.difference(control, reference)
        self.checked = (
            f"{len(paragraphs)} paragraphs against the framework in fp32: {own.words}; "
            f"the framework {name}: {of_control.words}"
        )
        permitted = max(of_control.distance, own.exact)
        if precision != FP32:
            least = own.near if precision in stanza_batches.DTYPES else own.exact
            permitted = max(2 * of_control.distance, least)
        return "" if own.distance <= permitted else self.checked

    def heaviest(self) -> Sequence[Heavy]:
        """Return the heaviest batch so far, whole and in part."""
        heavy: Sequence[Heavy] = self._watched.heaviest()
        return heavy

    def attempted_load(self) -> int:
        """Return the load of the batch that began last; after an error, of the batch that failed."""
        return int(self._watched.attempted_load) if self._watched else 0

    def effective(self) -> Mapping[str, Value | None]:
        """Return the most texts of a batch that entered the model, and what else was asked for."""
        return {BATCH_SIZE: self._watched.largest if self._watched else None, **self._effective}


def model_folder(model: Path | None) -> Path:
    """Return the folder of a model."""
    if model is None:
        raise JobkitError("this workload needs a model", hint="see `model` in the spec")
    return model


def torch_versions(*modules: Any) -> dict[str, str]:  # noqa: ANN401 - modules of frameworks
    """Return the versions of torch, of these modules, and of CUDA and cuDNN if torch has them."""
    import numpy as np
    import tokenizers
    import torch

    versions = {module.__name__: module.__version__ for module in (torch, *modules, tokenizers, np)}
    if torch.version.cuda:
        versions |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {name: str(version) for name, version in versions.items()}
