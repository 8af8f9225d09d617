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

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

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
    length: int, num_buckets: int, max_distance: int
) -> Int[np.ndarray, "length length"]:
    """Returns the table row of every query (first axis) and key.

    A table of relative positions has 2 ``num_buckets`` rows; the middle one is
    for distance 0.
    """
    positions = np.arange(length)
    distances = positions[:, None] - positions
    buckets = distance_buckets(distances, num_buckets, max_distance)
    return np.clip(buckets + num_buckets, 0, 2 * num_buckets - 1)


def position_scores(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    position_q: Float[AnyArray, "rows heads head_dim"],
    position_k: Float[AnyArray, "rows heads head_dim"],
    entries: Int[np.ndarray, "length length"],
) -> Float[Array, "batch heads length length"]:
    """Returns the sum of content-to-position and position-to-content products, not scaled.

    Args:
        q, k: queries and keys of the contents.
        position_q, position_k: queries and keys of the relative positions, in
            the rows of the table.
        entries: table row of every query and key, see ``table_entries``.
    """
    # [batch, heads, length, rows]
    content_to_position = _products(q, position_k)
    position_to_content = _products(k, position_q)
    rows = jnp.asarray(entries)[None, None]
    of_queries = jnp.take_along_axis(content_to_position, rows, axis=-1)
    # For every key (third axis), the rows of its distances from the queries.
    by_key = rows.swapaxes(-1, -2)
    of_keys = jnp.take_along_axis(position_to_content, by_key, axis=-1)
    return of_queries + of_keys.swapaxes(-1, -2)


def _products(
    x: Float[AnyArray, "batch length heads head_dim"],
    table: Float[AnyArray, "rows heads head_dim"],
) -> Float[Array, "batch heads length rows"]:
    return jnp.einsum(
        "blhk,rhk->bhlr", x, table, preferred_element_type=jnp.float32
    )
