"""An encoder at the speed of a GPU: what token classification and sentence embeddings share.

Standard library only at import.

The pipeline of transformers and ``encode`` of sentence-transformers spend their time in Python for each text,
and tokenize in turn with the GPU. Here a thread tokenizes the texts of the next call with the tokenizer's own
threads. A call is a window: its texts are sorted by tokens, the longest first, and cut into batches by a
budget of padded tokens. What a batch gives is copied to the host without waiting, and read while the GPU
works on the next batch.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobkit.core.knobs import CPU, CUDA
from jobkit.worker import process
from jobkit.worker.paragraphs import cut_by_budget

WINDOW = {CUDA: 10_000, CPU: 100}
"""Texts of a call by device, unless the setting has a number."""
PART_CHARS = 2**19
"""Characters of the texts that are tokenized and cut into batches together."""
THREADS = ("TOKENIZERS_PARALLELISM", "true")
"""The pipeline of transformers switches the tokenizer's threads off for the whole process."""


def _parts(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first text of each part of a window, and the one after its last."""
    first = characters = 0
    for at, text in enumerate(texts):
        characters += len(text)
        if characters >= PART_CHARS or at == len(texts) - 1:
            yield first, at + 1
            first, characters = at + 1, 0


@dataclass(frozen=True, slots=True)
class Pieces:
    """The texts of a window as pieces that the model takes, those with the most tokens first."""

    # `encodings`, `texts`: of each piece what the tokenizer returned, and the number of its text
    encodings: Sequence[Any]
    texts: Any
    cut: set[int]  # the texts of several pieces
    lengths: Any  # of each piece in tokens
    ids: Any  # the tokens of all pieces, one after the other
    sizes: Sequence[int]  # pieces of each batch


class Batch(NamedTuple):
    """Pieces that went through the model together, and what it gave for each piece or token."""

    encodings: Sequence[Any]
    texts: Any
    cut: set[int]
    lengths: Any
    ids: Any
    outputs: Sequence[Any]


class Encoder:
    """Texts to what a model gives, batch by batch.

    ``tokenizer``: A fast one of transformers.
    ``run``: takes token ids and attention mask, each of shape (pieces, tokens of the longest), and the places
        of the tokens in the flattened batch; returns tensors.
    ``most_tokens``, ``stride``: of a piece, and tokens that two pieces of a text have in common; without a
        stride a text is one piece.
    ``budget``, ``size``: the most padded tokens of a batch; without a budget the pieces of a batch.
    """

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401 - transformers is untyped
        run: Callable[[Any, Any, Any], Sequence[Any]],
        *,
        device: str,
        most_tokens: int,
        stride: int | None = None,
        budget: int | None = None,
        size: int = 1,
    ) -> None:
        import torch
        from tokenizers import Tokenizer

        if device == CUDA:  # cuDNN's attention makes a plan for each new shape: 0.3 s on an H100, torch 2.11
            torch.backends.cuda.enable_cudnn_sdp(False)  # noqa: FBT003 - as torch has it
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_padding()
        self._backend.enable_truncation(most_tokens, stride=stride or 0)
        self._encode = self._backend.encode_batch if stride else self._backend.encode_batch_fast
        self._whole = stride is None
        self._pad = tokenizer.pad_token_id or 0
        self._run, self._device, self._budget, self._size = run, device, budget, size
        self._thread = ThreadPoolExecutor(1)
        self._ahead: dict[tuple[str, ...], deque[Future[Pieces]]] = {}
        self._copies: Any = torch.cuda.Stream() if device == CUDA else None

    def tokenize_ahead(self, *calls: Sequence[str]) -> None:
        """Tokenize the texts of calls in a thread, one part after the other, and forget all other calls.

        Without calls the thread ends.
        """
        wanted = [*map(tuple, calls)]
        for texts in self._ahead.keys() - {*wanted}:
            for part in self._ahead.pop(texts):
                part.cancel()
        if not calls:
            self._thread.shutdown()
            self._thread = ThreadPoolExecutor(1)  # has no thread before it has work
        with process.signals_blocked():
            for texts in wanted:
                if texts not in self._ahead:
                    parts = [(texts[first:end], first) for first, end in _parts(texts)]
                    self._ahead[texts] = deque(self._thread.submit(self._pieces, *part) for part in parts)

    def batches(self, texts: Sequence[str]) -> Iterator[Batch]:
        """Yield the batches of a call; each is read while the model runs the next one."""
        import torch

        if (call := tuple(texts)) not in self._ahead:
            self.tokenize_ahead(call)
        parts, last = self._ahead.pop(call), None
        with torch.inference_mode():
            while parts:
                for launched in self._launch(parts.popleft().result(), torch):
                    if last:
                        yield self._read(*last, torch)
                    last = launched
            if last:
                yield self._read(*last, torch)

    def _pieces(self, texts: Sequence[str], first: int) -> Pieces:
        import numpy as np

        os.environ.update([THREADS])
        found = self._encode(list(texts))
        owners = [(one, at) for at, one in enumerate(found, first)]
        cut: set[int] = set()
        if not self._whole:
            parts = [(part, at) for one, at in owners for part in one.overflowing]
            owners, cut = owners + parts, {at for _, at in parts}
        owners.sort(key=lambda pair: len(pair[0]), reverse=True)
        encodings = [one for one, _ in owners]
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = np.fromiter(
            itertools.chain.from_iterable(one.ids for one in encodings), np.int64, lengths.sum()
        )
        cuts = range(0, len(encodings), self._size)
        sizes = [min(self._size, len(encodings) - at) for at in cuts]
        if self._budget:
            sizes = cut_by_budget(lengths.tolist(), self._budget)
        return Pieces(encodings, np.array([at for _, at in owners], np.int64), cut, lengths, ids, sizes)

    def _launch(self, pieces: Pieces, torch: Any) -> Iterator[tuple[Batch, Any]]:  # noqa: ANN401 - torch is untyped
        """Start each batch; yield it with the event that its outputs are on the host."""
        import numpy as np

        first = token = 0
        encodings = pieces.encodings if not self._whole else ()
        for size in pieces.sizes:
            part = slice(first, first + size)
            lengths = pieces.lengths[part]
            end, columns = token + int(lengths.sum()), int(lengths[0])
            starts = np.arange(size) * columns - (np.cumsum(lengths) - lengths)
            places = np.repeat(starts, lengths) + np.arange(end - token)
            ids = np.full(size * columns, self._pad)
            ids[places] = pieces.ids[token:end]
            mask = np.zeros(size * columns, np.int64)
            mask[places] = 1
            flat = torch.from_numpy(np.stack([ids, mask]).reshape(2, size, columns))
            flat = flat.to(self._device, non_blocking=True)
            where = torch.from_numpy(places).to(self._device, non_blocking=True)
            outputs = self._run(flat[0], flat[1], where)
            event = torch.cuda.current_stream().record_event() if self._copies else None
            of_batch = encodings[part], pieces.texts[part], pieces.cut, lengths, pieces.ids[token:end]
            yield Batch(*of_batch, outputs), event
            first, token = first + size, end

    def _read(self, batch: Batch, event: Any, torch: Any) -> Batch:  # noqa: ANN401 - as above
        """Return a batch with its outputs on the host, in a stream that does not wait for the next batch."""
        if not event:
            return batch._replace(outputs=[one.numpy() for one in batch.outputs])
        self._copies.wait_event(event)
        with torch.cuda.stream(self._copies):
            return batch._replace(outputs=[one.cpu().numpy() for one in batch.outputs])
