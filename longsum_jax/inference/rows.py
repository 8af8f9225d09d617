"""Computes logits of many rows of ids or pairs of texts, batched by length.

A text that is too long for the model is read in windows.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from longsum_jax.inference.model import LoadedModel
from longsum_jax.inference.padding import (
    FINE_BUCKET,
    batches_by_length,
    bucket_length,
    pad_rows,
)
from longsum_jax.models.config import takes_token_types
from longsum_jax.models.heads import TOKEN_HEADS
from longsum_jax.tokenizers.special_tokens import TokenPair
from longsum_jax.typing import Array

BATCHES_AT_ONCE = 64  # batches that small groups of pairs are collected into


def row_logits(
    model: LoadedModel,
    rows: Sequence[Sequence[int]],
    *,
    batch_size: int,
    reduce: Callable[[Any], Any] = np.asarray,
) -> list[np.ndarray]:
    """Returns the logits of the model's head for every row.

    Args:
        model: model with a head, see ``Model.logits``.
        rows: rows of ids, including special tokens.
        batch_size: maximum number of rows of similar length that are read
            together.
        reduce: function applied to the logits of a batch on its device, such as
            an argmax over the axis.

    Returns:
        For every row [length, outputs], or [outputs] if the head applies to the
        whole text.
    """
    return _logits(model, rows, None, batch_size, reduce)


def pair_logits(
    model: LoadedModel, pairs: Sequence[TokenPair], *, batch_size: int
) -> list[np.ndarray]:
    """Returns the logits of the model's head for every pair of texts; see ``row_logits``."""
    rows = [pair.ids for pair in pairs]
    types = None
    if takes_token_types(model.config):
        types = [pair.token_type_ids for pair in pairs]
    return _logits(model, rows, types, batch_size, np.asarray)


def _logits(
    model: LoadedModel,
    rows: Sequence[Sequence[int]],
    types: Sequence[Sequence[int]] | None,
    batch_size: int,
    reduce: Callable[[Any], Any],
) -> list[np.ndarray]:
    outputs: list[Any] = [None] * len(rows)
    is_by_token = model.config.head in TOKEN_HEADS
    lengths = [bucket_length(len(row), FINE_BUCKET) for row in rows]
    for batch in batches_by_length(lengths, batch_size):
        ids, mask = pad_rows(
            [rows[i] for i in batch], batch_size, model.config.pad_token_id
        )
        inputs: dict[str, Any] = {"bucket": FINE_BUCKET}
        if types is not None:
            inputs["token_type_ids"], _ = pad_rows(
                [types[i] for i in batch], batch_size, 0
            )
        # [batch, length, outputs] for token heads, else [batch, outputs]
        logits = np.asarray(reduce(model.logits(ids, mask, **inputs)))
        # Drop the rows that fill up the batch, and each row's padding.
        for i, of_row in zip(batch, logits, strict=False):
            if is_by_token:
                outputs[i] = of_row[: len(rows[i])]
            else:
                outputs[i] = of_row
    return outputs


def pair_probabilities(
    model: LoadedModel,
    groups: Iterable[Sequence[TokenPair]],
    *,
    batch_size: int,
) -> Iterator[np.ndarray]:
    """Yields the probabilities of a classifier's labels for every group of pairs of texts.

    Small groups are read together.

    Args:
        model: model with a head for whole texts.
        groups: groups of any number of pairs; may be a generator.
        batch_size: pairs read together.

    Yields:
        float32 [pairs, labels] for every group.
    """
    waiting: list[Sequence[TokenPair]] = []
    for group in groups:
        waiting.append(group)
        # Enough pairs to form batches of similar lengths.
        if sum(map(len, waiting)) >= BATCHES_AT_ONCE * batch_size:
            yield from _group_probabilities(model, waiting, batch_size)
            waiting = []
    yield from _group_probabilities(model, waiting, batch_size)


def _group_probabilities(
    model: LoadedModel, groups: Sequence[Sequence[TokenPair]], batch_size: int
) -> Iterator[np.ndarray]:
    pairs = list(itertools.chain(*groups))
    of_pairs = pair_logits(model, pairs, batch_size=batch_size)
    logits = np.reshape(of_pairs, (len(pairs), model.config.num_labels))
    # Softmax over labels, [pairs, labels].
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = powers / powers.sum(-1, keepdims=True)
    # Split the rows back into their groups.
    ends = np.cumsum([len(group) for group in groups])
    yield from np.split(probabilities, ends[:-1]) if groups else ()


def most_likely(logits: Array) -> Array:
    """Returns the most likely label of every token, int [batch, length], on the device."""
    return jnp.argmax(logits, axis=-1)


class Window(NamedTuple):
    """A part of a text that is read in one input.

    Attributes:
        start, stop: token range of the window.
        first, last: token range whose states are used, the last one exclusive.
    """

    start: int
    stop: int
    first: int
    last: int


def text_windows(length: int, size: int | None) -> list[Window]:
    """Returns windows that overlap by half, the last of which ends with the text.

        tokens   0 1 2 3 4 5 6 7 8       windows of 4
                [0 1 2]3
                     2[3 4]5             in brackets the tokens whose states are used: each
                         4[5]6 7         one in the window with the most context around it
                           5[6 7 8]

    Args:
        length: token count of the text.
        size: maximum tokens of a window; None for the whole text.
    """
    if size is None or length <= size:
        return [Window(0, length, 0, length)]
    # The last window is moved back to end with the text.
    starts = [*range(0, length - size, max(size // 2, 1)), length - size]
    # Split the overlap of two windows in the middle.
    middles = [
        (previous + size + start) // 2
        for previous, start in itertools.pairwise(starts)
    ]
    ranges = itertools.pairwise([0, *middles, length])
    return [
        Window(start, start + size, *ends)
        for start, ends in zip(starts, ranges, strict=True)
    ]
