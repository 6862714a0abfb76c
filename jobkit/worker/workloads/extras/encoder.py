"""An encoder at the speed of a GPU: what token classification and sentence embeddings share.

It imports numpy, tokenizers and torch.

The pipeline of transformers and ``encode`` of sentence-transformers spend their time in Python for each text,
and tokenize in turn with the GPU. Here the texts of the next call are tokenized meanwhile, with the
tokenizer's own threads. A call is a window: its texts are sorted by tokens, the longest first, and cut into
batches by a budget of padded tokens. What a batch gives is copied to the host without waiting, and read while
the GPU works on the next batch.

Entities are aggregated for a whole batch at a time. The steps are those of
``transformers/pipelines/token_classification.py``, read in 5.23.0: ``gather_pre_entities``,
``aggregate_words``, ``group_entities`` and ``aggregate_overlapping_entities``.
"""

from __future__ import annotations

import inspect
import itertools
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import itemgetter
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from jobkit.core.knobs import CUDA
from jobkit.worker import process
from jobkit.worker.paragraphs import cut_by_budget
from jobkit.worker.workloads.base import Entity

PART_CHARS = 2**21
"""Characters of the texts that are tokenized and cut into batches together. The last batch of a part is not
full, so a quarter of this makes vectors in bf16 a fifth slower on an H100."""
TOGETHER = 512
"""Texts of one piece whose token ids are read, and whose encodings are freed, before more are tokenized: they
are in a cache then. If a batch reads its ids, the thread that launches has six times the work (two cores, no
model). On an H100 vectors in bf16 are 5 % slower then, with 128 texts 18 % slower, with 2,048 as fast:
medians of 8 runs, which scatter by 10 %."""


class Batch(NamedTuple):
    """Texts as pieces for the model, those with the most tokens first, and what the model gave."""

    encodings: Sequence[Any]  # of each piece what the tokenizer returned; empty without a stride
    texts: Any  # of each piece the number of its text
    cut: set[int]  # the texts of several pieces
    lengths: Any  # of each piece in tokens
    ids: Any  # the tokens of all pieces, one after the other
    outputs: Sequence[Any] = ()  # of each piece or token


Part = tuple[Batch, Any, Sequence[int]]
"""A part of a call, as one batch; where the first token of each piece is in its ids, which are in the order
of the texts; and how many pieces each batch holds. With encodings a batch reads its own ids."""


class Encoder:
    """Texts to what a model gives, batch by batch.

    ``tokenizer``: A fast one of transformers; a batch is padded on its side.
    ``run``: takes token ids and attention mask, each of shape (pieces, tokens of the longest), and the places
        of the tokens in the flattened batch; returns tensors.
    ``most_tokens``, ``stride``: of a piece, and tokens that two pieces of a text have in common; without a
        stride a text is one piece.
    ``prompt``: stands before each text.
    ``causal``: whether tokens see none after them, so that a batch can be padded on the right without a mask.

    Its ``budget`` is the most padded tokens of a batch; without a budget ``size`` is the pieces of a batch.
    """

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401 - transformers is untyped
        run: Callable[[Any, Any, Any], Sequence[Any]],
        device: str,
        *,
        most_tokens: int,
        stride: int | None = None,
        prompt: str = "",
        causal: bool = False,
    ) -> None:
        if device == CUDA:  # cuDNN's attention makes a plan for each new shape: 0.3 s on an H100, torch 2.11
            torch.backends.cuda.enable_cudnn_sdp(False)  # noqa: FBT003 - as torch has it
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_padding()
        self._backend.encode_special_tokens = tokenizer.split_special_tokens  # not in its JSON
        self._backend.enable_truncation(most_tokens, stride=stride or 0)
        self._encode = self._backend.encode_batch if stride else self._backend.encode_batch_fast
        self._whole = stride is None
        self._pad, self._left = tokenizer.pad_token_id or 0, tokenizer.padding_side == "left" and not causal
        self._prompt = prompt
        self._run, self._device = run, device
        self.budget: int | None = None
        self.size = 1
        # a second thread takes Python's lock from the launches: 20 % slower for vectors in bf16 on an H100
        self._thread = ThreadPoolExecutor(1)
        self._ahead: dict[tuple[str, ...], deque[Future[Part]]] = {}
        self._copies: Any = torch.cuda.Stream() if device == CUDA else None

    def tokenize_ahead(self, *calls: Sequence[str]) -> None:
        """Tokenize the texts of calls in a thread, part by part, and forget all other calls.

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
                    sizes = cut_by_budget(map(len, texts), PART_CHARS, pads=False)
                    if texts and not self._ahead:  # the GPU waits for the first part
                        first, *_ = cut_by_budget(map(len, texts), PART_CHARS // 8, pads=False)
                        sizes = [first, *cut_by_budget(map(len, texts[first:]), PART_CHARS, pads=False)]
                    edges = itertools.pairwise(itertools.accumulate(sizes, initial=0))
                    parts = ((texts[first:end], first) for first, end in edges)
                    self._ahead[texts] = deque(self._thread.submit(self._part, *part) for part in parts)

    def batches(self, texts: Sequence[str]) -> Iterator[Batch]:
        """Yield the batches of a call; each is read while the model runs the next one."""
        if (call := tuple(texts)) not in self._ahead:
            self.tokenize_ahead(call)
        parts, last = self._ahead.pop(call), None
        with torch.inference_mode():
            while parts:
                for launched in self._launch(parts.popleft().result()):
                    if last:
                        yield self._read(*last)
                    last = launched
            if last:
                yield self._read(*last)

    def _part(self, texts: Sequence[str], first: int) -> Part:
        """Return texts from the number ``first`` of a call on.

        It runs in the thread. Its Python is short, as it holds the lock that a launch waits for.
        """
        # the pipeline of transformers switches the tokenizer's threads off for the whole process
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        encodings, cut, ids, ends = list[Any](), set[int](), array("i"), [0]
        owners: Sequence[int] = range(len(texts))
        if self._whole:
            for at in owners[::TOGETHER]:
                for one in self._encode([self._prompt + text for text in texts[at : at + TOGETHER]]):
                    ids.fromlist(one.ids)
                    ends.append(len(ids))
            lengths = np.diff(ends)
        else:
            encodings = self._encode(list(texts))
            more = [(part, at) for at, one in enumerate(encodings) for part in one.overflowing]
            owners, cut = [*owners, *(at for _, at in more)], {first + at for _, at in more}
            encodings += [part for part, _ in more]
            lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        order = np.argsort(-lengths, kind="stable")
        lengths, numbers = lengths[order], first + np.array(owners)[order]
        sizes = [min(self.size, len(order) - at) for at in range(0, len(order), self.size)]
        if self.budget:
            sizes = cut_by_budget(lengths.tolist(), self.budget)
        in_order = [encodings[at] for at in order.tolist()] if encodings else []
        whole = Batch(in_order, numbers, cut, lengths, np.asarray(ids))
        return whole, np.array(ends[:-1])[order] if self._whole else None, sizes

    def _launch(self, part: Part) -> Iterator[tuple[Batch, Any]]:
        """Start each batch; yield it with the event that its outputs are on the host."""
        whole, starts, sizes = part
        for size, end in zip(sizes, itertools.accumulate(sizes), strict=True):
            some = slice(end - size, end)
            encodings, lengths = whole.encodings[some], whole.lengths[some]
            tokens, columns, cells = int(lengths.sum()), int(lengths[0]), size * int(lengths[0])
            within = np.arange(tokens) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            if encodings:
                each = itertools.chain.from_iterable(one.ids for one in encodings)
                own = np.fromiter(each, np.int64, tokens)
            else:
                own = whole.ids[np.repeat(starts[some], lengths) + within]
            # not pinned: writing into pinned memory costs more than its copy saves (8 % on an H100)
            sent = torch.zeros(2 * cells + tokens, dtype=torch.int64)
            ids, mask, places = np.split(sent.numpy(), [cells, 2 * cells])
            first = columns - lengths if self._left else 0  # the column of the first token
            places[:] = np.repeat(np.arange(size) * columns + first, lengths) + within
            ids[:], ids[places], mask[places] = self._pad, own, 1
            flat = sent.to(self._device, non_blocking=True)
            ids, mask, where = flat.split([cells, cells, tokens])
            outputs = self._run(ids.view(size, columns), mask.view(size, columns), where)
            event = torch.cuda.current_stream().record_event() if self._copies else None
            yield Batch(encodings, whole.texts[some], whole.cut, lengths, own, outputs), event

    def _read(self, batch: Batch, event: Any) -> Batch:  # noqa: ANN401 - as above
        """Return a batch with its outputs on the host, in a stream that does not wait for the next batch."""
        if not event:
            return batch._replace(outputs=[one.numpy() for one in batch.outputs])
        self._copies.wait_event(event)
        with torch.cuda.stream(self._copies):
            return batch._replace(outputs=[one.cpu().numpy() for one in batch.outputs])


def is_causal(network: Any) -> bool:  # noqa: ANN401 - transformers is untyped
    """Return whether no token of a network sees the tokens after it, and positions are rotary.

    Two texts that differ in their last token are run: in a causal network their other tokens are bit for bit
    alike. With rotary positions it does not matter on which side a text is padded; with a table of positions
    it does.
    """
    if getattr(network.config, "rope_parameters", None) is None:
        return False
    ids = torch.tensor([[3, 4, 5, 6], [3, 4, 5, 7]], device=network.device)
    with torch.inference_mode():
        one, other = network(input_ids=ids).last_hidden_state[:, :3]
    return bool(torch.equal(one, other))


def fuse(network: Any) -> list[Any]:  # noqa: ANN401 - as above
    """Have RMSNorms and rotary positions run in fewer kernels if that gives what their own steps give.

    Their own steps, one kernel each, read and write the whole batch several times. Returns the modules that
    have a ``forward`` of their own now.
    """
    fused = []
    for module in network.modules():
        if "forward" not in vars(module) and (made := _norm(module) or _rotary(module)):
            module.forward = made
            fused.append(module)
    return fused


def _norm(module: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - as above
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    weight = getattr(module, "weight", None)
    if not type(module).__name__.endswith("RMSNorm") or eps is None or weight is None or weight.ndim != 1:
        return None

    def forward(states: Any) -> Any:  # noqa: ANN401
        return torch.nn.functional.rms_norm(states, weight.shape, weight, eps)

    states = torch.linspace(-3, 3, 4 * len(weight), device=weight.device).view(4, -1).to(weight.dtype)
    with torch.inference_mode():
        own, other = module(states).double(), forward(states).double()
    near = (own - other).abs() <= 4 * torch.finfo(weight.dtype).eps * own.abs()
    return forward if near.all() else None


ROTATE = "apply_rotary_pos_emb"


def _rotary(module: Any) -> Callable[..., Any] | None:  # noqa: ANN401 - as above
    """Return the ``forward`` of a module in which another function turns queries and keys."""
    forward, weight = type(module).forward, next(module.parameters(), None)
    if weight is None or ROTATE not in getattr(getattr(forward, "__code__", None), "co_names", ()):
        return None
    own = forward.__globals__[ROTATE]

    def turned(states: Any, cos: Any, sin: Any) -> Any:  # noqa: ANN401
        half = states.shape[-1] // 2
        found = states * cos
        found[..., :half].addcmul_(states[..., half:], sin[..., :half], value=-1)
        found[..., half:].addcmul_(states[..., :half], sin[..., half:])
        return found

    def rotate(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:  # noqa: ANN401
        if {(one.dtype, one.shape[-1]) for one in (k, cos, sin)} != {(q.dtype, q.shape[-1])}:
            return own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return turned(q, cos, sin), turned(k, cos, sin)

    if [*inspect.signature(own).parameters] != [*inspect.signature(rotate).parameters]:
        return None
    angles = torch.linspace(0, 3, 24, device=weight.device).view(1, 3, 8)
    turns = [angles.cos().to(weight.dtype), angles.sin().to(weight.dtype)]
    states = torch.linspace(-3, 3, 48, device=weight.device).view(1, 2, 3, 8).to(weight.dtype)
    try:
        before = own(states, -states, *turns)
    except RuntimeError:  # it takes the angles of half the columns
        return None
    after = rotate(states, -states, *turns)
    distances = [(one.double() - two.double()).abs().max() for one, two in zip(before, after, strict=True)]
    if max(distances) > 8 * torch.finfo(weight.dtype).eps:  # in bf16 they round at another place
        return None
    names = {**forward.__globals__, ROTATE: rotate}
    made = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    made.__kwdefaults__ = forward.__kwdefaults__
    return MethodType(made, module)


# -- the entities of tokens

Found = tuple[int, int, str, float]
"""Start, end and label of an entity of a text, and the mean score of its tokens or words."""


class Aggregation:
    """Tokens to entities.

    ``strategy``: How transformers joins tokens: ``simple``, ``first``, ``average`` or ``max``.
    ``tokenizer``: A fast one of transformers.
    ``labels``: the names of the labels by number.
    """

    def __init__(self, strategy: str, tokenizer: Any, labels: Mapping[int, str]) -> None:  # noqa: ANN401
        self._strategy = strategy
        names = [labels[at] for at in range(len(labels))]
        tags = [name[2:] if name.startswith(("B-", "I-")) else name for name in names]
        self._tags = np.array([tags.index(tag) for tag in tags])
        self._begins = np.array([name.startswith("B-") for name in names])
        self._names = [name.split("-", 1)[-1] for name in names]
        self._outside = np.array([name == "O" for name in self._names])
        backend = tokenizer.backend_tokenizer
        self._prefixed = bool(getattr(backend.model, "continuing_subword_prefix", None))
        self._unknown = tokenizer.unk_token_id
        self._sizes = np.zeros(0)  # characters of each token
        if strategy != "simple" and self._prefixed:
            words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
            self._sizes = np.array([len(word or "") for word in words])

    def outputs(self, logits: Any) -> Sequence[Any]:  # noqa: ANN401 - torch is untyped
        """Return label and score of each token, or all scores, as one tensor where the logits are."""
        scores = logits.float().softmax(-1)
        if self._strategy == "average":
            return [scores]
        labels = scores.argmax(-1, keepdim=True)  # the first one of several, as numpy's
        return [torch.cat([labels.float(), scores.gather(-1, labels)], dim=-1)]

    def add(
        self, batch: Batch, texts: Sequence[str], whole: list[Entity], cut: dict[int, list[Found]]
    ) -> None:
        """Add the entities of a batch: of texts of one piece, and of those of several."""
        pieces = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
        columns = np.arange(len(pieces)) - np.repeat(np.cumsum(batch.lengths) - batch.lengths, batch.lengths)
        # of the longest piece; all have the same at its ends
        special = batch.encodings[0].special_tokens_mask
        if 0 not in special:
            return
        before, after = special.index(0), special[::-1].index(0)
        inside = (columns >= before) & (columns < batch.lengths[pieces] - after)
        pieces, first, ids, found = (one[inside] for one in (pieces, columns, batch.ids, batch.outputs[0]))
        last, labels, scores = first, found[:, 0].astype(np.int64), found[:, 1]
        if self._strategy != "simple":
            begin = _changes(pieces) | ~self._subwords(batch, texts, pieces, first, ids)
            starts = np.flatnonzero(begin)
            counts = np.diff(starts, append=len(pieces))
            labels, scores = self._of_words(found, starts, counts)
            pieces, first, last = pieces[starts], first[starts], last[starts + counts - 1]
        starts = np.flatnonzero(_changes(pieces) | _changes(self._tags[labels]) | self._begins[labels])
        counts = np.diff(starts, append=len(pieces))
        means = np.add.reduceat(scores, starts) / counts
        of = pieces[starts]
        rows = (of, batch.texts[of], first[starts], last[starts + counts - 1], labels[starts], means)
        wanted, names = ~self._outside[labels[starts]], self._names
        for piece, number, begins, ends, label, score in zip(
            *(row[wanted].tolist() for row in rows), strict=True
        ):
            chars = batch.encodings[piece].token_to_chars
            start, end = chars(begins)[0], chars(ends)[1]
            if number in batch.cut:
                cut.setdefault(number, []).append((start, end, names[label], score))
            else:
                whole.append(Entity(number, texts[number][start:end], names[label], start, end))

    def _subwords(self, batch: Batch, texts: Sequence[str], pieces: Any, columns: Any, ids: Any) -> Any:  # noqa: ANN401
        """Return of each token whether it continues the word of the token before it."""
        offsets = np.concatenate([np.array(one.offsets).reshape(-1, 2) for one in batch.encodings])
        at = np.cumsum(batch.lengths) - batch.lengths
        starts, ends = offsets[at[pieces] + columns].T
        if self._prefixed:
            return (self._sizes[ids] != ends - starts) & (ids != self._unknown)
        of_pieces = [texts[text] for text in batch.texts.tolist()]
        codes = np.frombuffer("".join(of_pieces).encode("utf-32-le", "surrogatepass"), np.uint32)
        sizes = np.array([len(text) for text in of_pieces])
        places = (np.cumsum(sizes) - sizes)[pieces] + starts
        spaces = np.append(codes == ord(" "), False)
        after = spaces[places] & (starts < sizes[pieces])
        return (starts > 0) & ~spaces[places - 1] & ~after & (ids != self._unknown)

    def _of_words(self, found: Any, starts: Any, counts: Any) -> tuple[Any, Any]:  # noqa: ANN401
        if self._strategy == "average":
            means = np.add.reduceat(found, starts, axis=0) / counts[:, None]
            labels = means.argmax(-1)
            return labels, means[np.arange(len(means)), labels]
        labels, scores, chosen = found[:, 0].astype(np.int64), found[:, 1], starts
        if self._strategy == "max":
            best = np.repeat(np.maximum.reduceat(scores, starts), counts)
            places = np.where(scores == best, np.arange(len(scores)), len(scores))
            chosen = np.minimum.reduceat(places, starts)
        return labels[chosen], scores[chosen]


def _changes(values: Any) -> Any:  # noqa: ANN401 - numpy is imported late
    """Return of each value whether it differs from the one before it; the first one does."""
    return np.append(True, values[1:] != values[:-1])


def without_overlaps(found: Iterable[Found]) -> Sequence[Found]:
    """Return the entities of a text of several pieces: of two that overlap the longer, then the surer one."""
    ordered = sorted(found, key=itemgetter(0))
    kept = ordered[:1]  # and once more if it has no length, as the pipeline has it
    for one in ordered:
        start, end, _, score = one
        last_start, last_end, _, last_score = kept[-1]
        if not last_start <= start < last_end:
            kept.append(one)
        elif (end - start, score) > (last_end - last_start, last_score):
            kept[-1] = one
    return kept
