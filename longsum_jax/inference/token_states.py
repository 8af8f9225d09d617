"""Encoder states of the tokens of texts; texts that are too long are read in windows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.inference.model import LoadedModel
from longsum_jax.inference.padding import (
    FINE_BUCKET,
    batches_by_length,
    bucket_length,
    pad_rows,
)
from longsum_jax.inference.rows import Window, text_windows
from longsum_jax.layers.attention.global_tokens import without_globals


class SurroundingTokens(NamedTuple):
    """The special tokens around every window of a text.

    Attributes:
        before, after: ids before and after the tokens of the window.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def number(self) -> int:
        """Number of special tokens."""
        return len(self.before) + len(self.after)

    def around(self, ids: Sequence[int]) -> list[int]:
        """Returns ids with the special tokens around them."""
        return [*self.before, *ids, *self.after]


def token_states(
    model: LoadedModel,
    texts: Sequence[Sequence[int]],
    special: SurroundingTokens,
    *,
    limit: int | None,
    layer: int | None,
    batch_size: int,
) -> list[np.ndarray]:
    """Returns the states of all tokens of every text and of the special tokens around it.

    Args:
        model: model whose encoder is used.
        texts: ids without special tokens.
        special: special tokens around every window.
        limit: maximum tokens read at once, including special tokens; None for
            no limit.
        layer: layer of the encoder, see ``Model.encode``.
        batch_size: maximum number of windows read together.

    Returns:
        For each text float32 [tokens, d_model], including special tokens.
    """
    # Special tokens take up part of every window.
    if limit is None:
        size = None
    else:
        size = limit - special.number
    numbered_windows: list[tuple[int, Window]] = []
    for number, text in enumerate(texts):
        # An empty text of a model without special tokens has no states.
        if len(text) + special.number:
            numbered_windows += [
                (number, window) for window in text_windows(len(text), size)
            ]
    rows = [
        special.around(texts[i][window.start : window.stop])
        for i, window in numbered_windows
    ]
    # Including the states of special tokens around the text.
    shapes = [
        (len(ids) + special.number, model.config.d_model) for ids in texts
    ]
    states = [np.zeros(shape, np.float32) for shape in shapes]
    # Read windows of similar length together.
    lengths = [bucket_length(len(row), FINE_BUCKET) for row in rows]
    for batch in batches_by_length(lengths, batch_size):
        ids, mask = pad_rows(
            [rows[i] for i in batch], batch_size, model.config.pad_token_id
        )
        encoded = np.asarray(
            model.encode(ids, mask, layer=layer, bucket=FINE_BUCKET)
        )
        window_states = without_globals(encoded, ids.shape[1])
        # Without the rows that fill up the batch.
        for index, read in zip(batch, window_states[: len(batch)], strict=True):
            number, window = numbered_windows[index]
            part = _window_rows(window, len(texts[number]), special)
            # From positions in the text to positions in the window.
            states[number][part] = read[
                part.start - window.start : part.stop - window.start
            ]
    return states


def _window_rows(
    window: Window, length: int, special: SurroundingTokens
) -> slice:
    """Returns the rows of a text's states that a window provides.

    The first window also provides the special tokens before the text, the last
    one the special tokens after it.
    """
    before, after = len(special.before), len(special.after)
    first = before + window.first if window.first else 0
    last = before + window.last
    return slice(first, last + after if window.last == length else last)
