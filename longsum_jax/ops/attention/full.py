"""Full self-attention of long inputs: dense scores, computed a few at a time."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.blockwise import attend_key_sets
from longsum_jax.ops.attention.dense import Scale
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    LazyBias,
    WeightDropout,
    sliced_bias,
)
from longsum_jax.ops.attention.relative_position import first_entries
from longsum_jax.ops.packing import same_segment
from longsum_jax.typing import AnyArray

FULL_BLOCK = 256  # queries of a block


def full_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    segment_ids: Int[AnyArray, "batch length"] | None = None,
    distance_bias: Float[AnyArray, "heads distances"] | None = None,
    extra: Sequence[KeySet] = (),
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Computes dense self-attention of long inputs, a few scores at a time.

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens.
        segment_ids: segment ids of packed rows, whose queries only read keys of
            their segment; None for one segment.
        distance_bias: bias by key position - query position, from 1 - length to
            length - 1; ``distances`` is 2 length - 1.
        extra: additional keys that all queries attend to.
        scale, dropout: see ``attend_key_sets``.

    Returns:
        The attended values in the type of ``v``.
    """
    length = q.shape[1]
    blocks = to_blocks(q, FULL_BLOCK)
    bias = None
    if distance_bias is not None:
        bias = _bias_of_queries(
            distance_bias, length, num_blocks=blocks.shape[1]
        )
    # [batch, num_blocks, heads, block_size, num_keys]
    key_mask = mask[:, None, None, None]
    if segment_ids is not None:
        block_ids = to_blocks(segment_ids, FULL_BLOCK)
        is_same = same_segment(block_ids, segment_ids[:, None])
        key_mask = key_mask & is_same[:, :, None]
    keys = KeySet(k, v, key_mask, bias)
    out = attend_key_sets(blocks, [*extra, keys], scale=scale, dropout=dropout)
    return from_blocks(out, length)


def _bias_of_queries(table: AnyArray, length: int, num_blocks: int) -> LazyBias:
    """Returns the bias of every query, a slice of ``table``.

    Four tokens have seven distances; a query reads four of them:

        distance   -3 -2 -1  0  1  2  3
        query 0             [.  .  .  .]
        query 1          [.  .  .  .]
        query 2       [.  .  .  .]
        query 3    [.  .  .  .]
    """
    positions = jnp.arange(num_blocks * FULL_BLOCK).reshape(1, -1, FULL_BLOCK)
    return sliced_bias(table, first_entries(table, positions), length)
