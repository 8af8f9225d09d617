"""Disentangled attention: scores from contents and from relative positions (He et al. 2021).

A query and a key have two vectors each, one for the content and one for the
relative position. The score is the sum of three products (DeBERTa, equation 2,
without the product of two positions):

    content to content      q_i k_j
    content to position     q_i position_k[entry(i - j)]
    position to content     k_j position_q[entry(i - j)]

entry(i - j) is the row of a table for the bucket of a distance: small distances
have a bucket each, larger ones share buckets of logarithmic size (DeBERTaV3's
published code).
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.blockwise import attend_key_sets
from longsum_jax.ops.attention.dense import Scale, product_factor
from longsum_jax.ops.attention.full import FULL_BLOCK
from longsum_jax.ops.attention.key_sets import KeySet, LazyBias, WeightDropout
from longsum_jax.typing import AnyArray


def distance_buckets(
    distances: Int[np.ndarray, "..."], num_buckets: int, max_distance: int
) -> Int[np.ndarray, "..."]:
    """Returns the bucket of every distance, from -num_buckets to num_buckets.

    Args:
        distances: query positions minus key positions.
        num_buckets: number of buckets on either side; distances up to half of
            it have a bucket each.
        max_distance: distance in tokens, above ``num_buckets`` / 2, at which
            the logarithmic buckets end.
    """
    exact = num_buckets // 2
    distances = np.asarray(distances)
    # Small distances have no logarithmic bucket; a valid value replaces them.
    magnitude = np.maximum(np.abs(distances), exact).astype(np.float64)
    ratio = np.log(magnitude / exact) / np.log((max_distance - 1) / exact)
    # Values above an integer by a rounding error are rounded down to it.
    ranges = np.ceil(ratio * (exact - 1) - 1e-6).astype(np.int64) + exact
    is_exact = np.abs(distances) <= exact
    return np.where(is_exact, distances, np.sign(distances) * ranges)


def table_entries(
    distances: Int[np.ndarray, "..."], num_buckets: int, max_distance: int
) -> Int[np.ndarray, "..."]:
    """Returns the row of every distance in a table of relative positions.

    A table has 2 ``num_buckets`` rows; the middle one is for distance 0.

    Args:
        distances, num_buckets, max_distance: see ``distance_buckets``.
    """
    buckets = distance_buckets(distances, num_buckets, max_distance)
    rows = np.clip(buckets + num_buckets, 0, 2 * num_buckets - 1)
    return rows.astype(np.int32)


def disentangled_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    position_q: Float[AnyArray, "rows heads head_dim"],
    position_k: Float[AnyArray, "rows heads head_dim"],
    max_distance: int,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Attends to all tokens, by contents and relative positions, a few scores at a time.

    Args:
        q, k, v: queries, keys and values of the contents.
        mask: True on real tokens.
        position_q, position_k: queries and keys of the relative positions, in
            the rows of the table.
        max_distance: see ``distance_buckets``.
        scale: factor of all products; a soft cap only applies to the product of
            the contents.
        dropout: dropout of the weights.

    Returns:
        The attended values in the type of ``v``.
    """
    length = q.shape[1]
    blocks = to_blocks(q, min(length, FULL_BLOCK))
    bias = _position_scores(
        blocks, k, position_q, position_k, max_distance, product_factor(scale)
    )
    keys = KeySet(k, v, mask[:, None, None, None], bias)
    out = attend_key_sets(blocks, [keys], scale=scale, dropout=dropout)
    return from_blocks(out, length)


def _position_scores(
    q: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    position_q: Float[AnyArray, "rows heads head_dim"],
    position_k: Float[AnyArray, "rows heads head_dim"],
    max_distance: int,
    factor: float,
) -> LazyBias:
    """Returns ``factor`` times content-to-position and position-to-content products."""
    _, num_blocks, block_size, *_ = q.shape
    num_rows, length = len(position_q), k.shape[1]
    last = num_blocks * block_size - 1
    # Entries of all distances, the greatest first: the entries of query i and
    # the keys 0, 1, ... begin at last - i.
    entries = table_entries(
        np.arange(last, -length, -1), num_rows // 2, max_distance
    )
    starts = last - np.arange(last + 1, dtype=np.int32)
    starts = starts.reshape(1, num_blocks, 1, block_size)
    # Keys are the last axis, because neighboring keys mostly read neighboring
    # entries.
    contract_head_dim, by_head = ((2,), (3,)), ((1,), (2,))
    # [heads, rows, batch, length] -> [batch, 1, heads, rows, length]
    position_to_content = lax.dot_general(
        position_q,
        k,
        (contract_head_dim, by_head),
        preferred_element_type=jnp.float32,
    )
    position_to_content = jnp.moveaxis(position_to_content, 2, 0)[:, None]

    def scores(blocks: Any, position_k: AnyArray) -> Array:
        q, position_to_content, starts = blocks
        # [batch, num_blocks, heads, block_size, rows]
        content_to_position = jnp.matmul(
            q,
            jnp.swapaxes(position_k, -1, -2),
            preferred_element_type=jnp.float32,
        )
        # [1, num_blocks, 1, block_size, length]
        rows = jnp.take(
            jnp.asarray(entries),
            starts[..., None] + np.arange(length, dtype=np.int32),
            mode="clip",
        )
        of_queries = _select(content_to_position, rows, -1)
        of_keys = _select(position_to_content, rows, -2)
        return factor * (of_queries + of_keys)

    blocks = (
        jnp.moveaxis(q, 3, 2),
        position_to_content,
        jnp.asarray(starts),
    )
    return LazyBias(scores, blocks, (jnp.swapaxes(position_k, 0, 1),))


def _select(
    x: Float[AnyArray, "..."], rows: Int[AnyArray, "..."], axis: int
) -> Float[Array, "..."]:
    """Returns the entries ``rows`` of ``x`` along ``axis``, which exist."""
    select = partial(jnp.take_along_axis, axis=axis, mode="promise_in_bounds")
    if max(*x.shape[:-2], *rows.shape[:-2]) > 1:
        return select(x, rows)
    # One block of one head: XLA on CPUs computes indices of two axes faster.
    y = select(x.reshape(x.shape[-2:]), rows.reshape(rows.shape[-2:]))
    return y.reshape(*x.shape[:-2], *y.shape)
