"""Watch the batches that enter a PyTorch model: their shapes, and the heaviest to run again.

Standard library only at import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jobkit.core.knobs import BATCH_SIZE, PRECISION, Value, numbers
from jobkit.worker.workloads import stanza_batches
from jobkit.worker.workloads.base import Heavy

DEFAULT_BATCH_SIZE = 32
"""Paragraphs per call if the sweep does not set it: the default of ``encode``; that of the pipeline is 1."""
SHARES = (1.0, 0.85, 0.7)
"""Parts of the heaviest batch that run again, as in `jobkit.worker.workloads.stanza_tagging`."""
INPUT = "input_ids"
"""The tensor of token ids, of shape (texts, tokens of the longest)."""


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
        """Run the first texts of a batch again, and discard what comes out."""
        import torch

        device = next(self._model.parameters()).device
        batch = {name: value[:count].to(device) for name, value in inputs.items()}
        with torch.inference_mode():
            if self._by_name:
                self._model(**batch)
            else:
                self._model(batch)


class WatchedWorkload:
    """What workloads on one `WatchedModel` share: batch size, precision, and what was seen of batches."""

    def __init__(self) -> None:
        self._batch_size = DEFAULT_BATCH_SIZE
        self._precision: dict[str, Value] = {}
        self._watched: Any = None

    def choose(self, params: Mapping[str, Value], device: str, threads: int) -> str:
        """Take the values of the knobs and the threads; return torch's name of the type of the weights."""
        import torch

        torch.set_num_threads(threads)
        self._batch_size = numbers(params).get(BATCH_SIZE, DEFAULT_BATCH_SIZE)
        if precision := str(params.get(PRECISION, "")):
            self._precision = {PRECISION: stanza_batches.set_tf32(precision, device)}
        return stanza_batches.DTYPES.get(precision, "float32")

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs."""
        return self._batch_size

    def heaviest(self) -> Sequence[Heavy]:
        """Return the heaviest batch so far, whole and in part."""
        heavy: Sequence[Heavy] = self._watched.heaviest()
        return heavy

    def attempted_load(self) -> int:
        """Return the load of the batch that began last; after an error, of the batch that failed."""
        return int(self._watched.attempted_load) if self._watched else 0

    def effective(self) -> Mapping[str, Value | None]:
        """Return the most texts of a batch that entered the model, and the precision if one was asked for."""
        return {BATCH_SIZE: self._watched.largest if self._watched else None, **self._precision}


def torch_versions(*modules: Any) -> dict[str, str]:  # noqa: ANN401 - modules of frameworks
    """Return the versions of torch, of these modules, and of CUDA and cuDNN if torch has them."""
    import numpy as np
    import tokenizers
    import torch

    versions = {module.__name__: module.__version__ for module in (torch, *modules, tokenizers, np)}
    if torch.version.cuda:
        versions |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {name: str(version) for name, version in versions.items()}
