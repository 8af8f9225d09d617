"""Segment ids of packed rows, in which several pairs of document and summary follow each other.

A row of a document of three tokens, one of two tokens, and padding:

    segment ids   1 1 1 2 2 0 0
    positions     0 1 2 0 1 0 1
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from longsum_jax.typing import AnyArray


class SegmentIds(NamedTuple):
    """The segment ids of the sources and targets of a batch, or of the keys and queries of an
    attention.

    Attributes:
        source: number of each token's pair in its row, from 1; 0 on padding.
        target: the same for the targets.
    """

    source: Int[AnyArray, "batch length"]
    target: Int[AnyArray, "batch target_length"]

    def mask(self) -> Bool[Array, "batch 1 target_length length"]:
        """Returns True for the keys in the segment of each query, for all heads."""
        return same_segment(self.target, self.source)[:, None]


def segment_positions(
    segment_ids: Int[AnyArray, "*batch length"],
) -> Int[Array, "*batch length"]:
    """Returns the position of every token in its segment."""
    indices = jnp.arange(segment_ids.shape[-1])
    before = jnp.roll(segment_ids, 1, axis=-1)
    is_first = (segment_ids != before) | (indices == 0)
    starts = jnp.where(is_first, indices, 0)
    return indices - jax.lax.cummax(starts, axis=starts.ndim - 1)


def same_segment(
    queries: Int[AnyArray, "*batch query_length"],
    keys: Int[AnyArray, "*batch num_keys"],
) -> Bool[Array, "*batch query_length num_keys"]:
    """Returns True for the keys in the segment of each query.

    Args:
        queries, keys: segment ids.
    """
    return jnp.asarray(queries[..., :, None] == keys[..., None, :])
