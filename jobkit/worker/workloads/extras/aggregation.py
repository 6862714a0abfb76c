"""The entities of tokens, as the pipeline of transformers aggregates them, for a whole batch at a time.

Standard library only at import. The steps are those of ``transformers/pipelines/token_classification.py``,
read in 5.23.0: ``gather_pre_entities``, ``aggregate_words``, ``group_entities`` and
``aggregate_overlapping_entities``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from jobkit.core.knobs import Knob
from jobkit.worker.workloads.base import Entity
from jobkit.worker.workloads.extras.encoder import Batch

SIMPLE, FIRST, AVERAGE, MAX = "simple", "first", "average", "max"
KNOB = Knob(name="aggregation", words=(SIMPLE, FIRST, AVERAGE, MAX))
"""The ``aggregation_strategy`` of the pipeline."""
OUTSIDE = "O"


Found = tuple[int, int, str, float]
"""Start, end and label of an entity of a text, and the mean score of its tokens or words."""


class Aggregation:
    """Tokens to entities.

    ``strategy``: A word of `KNOB`.
    ``tokenizer``: A fast one of transformers.
    ``labels``: the names of the labels by number.
    """

    def __init__(self, strategy: str, tokenizer: Any, labels: Mapping[int, str]) -> None:  # noqa: ANN401
        import numpy as np

        self._strategy = strategy
        names = [labels[at] for at in range(len(labels))]
        tags = [name[2:] if name.startswith(("B-", "I-")) else name for name in names]
        self._tags = np.array([tags.index(tag) for tag in tags])
        self._begins = np.array([name.startswith("B-") for name in names])
        self._names = [name.split("-", 1)[-1] for name in names]
        self._outside = np.array([name == OUTSIDE for name in self._names])
        backend = tokenizer.backend_tokenizer
        mask = backend.encode("a").special_tokens_mask
        self._before, self._after = mask.index(0), mask[::-1].index(0)
        self._prefixed = bool(getattr(backend.model, "continuing_subword_prefix", None))
        self._unknown = tokenizer.unk_token_id
        self._sizes = np.zeros(0)  # characters of each token
        if strategy != SIMPLE and self._prefixed:
            words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
            self._sizes = np.array([len(word or "") for word in words])

    def outputs(self, logits: Any) -> Sequence[Any]:  # noqa: ANN401 - torch is untyped
        """Return label and score of each token, or all scores, as one tensor where the logits are."""
        import torch

        scores = logits.float().softmax(-1)
        if self._strategy == AVERAGE:
            return [scores]
        labels = scores.argmax(-1, keepdim=True)  # the first one of several, as numpy's
        return [torch.cat([labels.float(), scores.gather(-1, labels)], dim=-1)]

    def add(
        self, batch: Batch, texts: Sequence[str], whole: list[Entity], cut: dict[int, list[Found]]
    ) -> None:
        """Add the entities of a batch: of texts of one piece, and of those of several."""
        import numpy as np

        pieces = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
        columns = np.arange(len(pieces)) - np.repeat(np.cumsum(batch.lengths) - batch.lengths, batch.lengths)
        inside = (columns >= self._before) & (columns < batch.lengths[pieces] - self._after)
        if not inside.any():
            return
        pieces, first, ids, found = (one[inside] for one in (pieces, columns, batch.ids, batch.outputs[0]))
        last, labels, scores = first, found[:, 0].astype(np.int64), found[:, 1]
        if self._strategy != SIMPLE:
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
        import numpy as np

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
        import numpy as np

        if self._strategy == AVERAGE:
            means = np.add.reduceat(found, starts, axis=0) / counts[:, None]
            labels = means.argmax(-1)
            return labels, means[np.arange(len(means)), labels]
        labels, scores, chosen = found[:, 0].astype(np.int64), found[:, 1], starts
        if self._strategy == MAX:
            best = np.repeat(np.maximum.reduceat(scores, starts), counts)
            places = np.where(scores == best, np.arange(len(scores)), len(scores))
            chosen = np.minimum.reduceat(places, starts)
        return labels[chosen], scores[chosen]


def _changes(values: Any) -> Any:  # noqa: ANN401 - numpy is imported late
    """Return of each value whether it differs from the one before it; the first one does."""
    import numpy as np

    return np.append(True, values[1:] != values[:-1])


def without_overlaps(found: Iterable[Found]) -> Sequence[Found]:
    """Return the entities of a text of several pieces: of two that overlap the longer, then the surer one."""
    kept: list[Found] = []
    for one in sorted(found, key=itemgetter(0)):
        start, end, _, score = one
        last_start, last_end, _, last_score = kept[-1] if kept else (0, 0, "", 0.0)
        if not last_start <= start < last_end:
            kept.append(one)
        elif (end - start, score) > (last_end - last_start, last_score):
            kept[-1] = one
    return kept
