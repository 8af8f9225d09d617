"""Attention among tokens that hash alike (Reformer, Kitaev et al. 2020, section 2), as Hepos uses
it.

Queries and keys are the same vectors. In each round, tokens are sorted by bucket, and every chunk
sees itself and the chunk before it; rounds are merged by their sums of exponentials. Nothing asks
whether two tokens are in one bucket.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.blockwise import (
    Dropout,
    KeySet,
    LazyBias,
    PartialSoftmax,
    attend_partially,
    merge_partial_softmaxes,
)
from longsum_jax.typing import Array

SELF_BIAS = -1e5  # a token sees itself where it sees nothing else


def hash_buckets(vectors: Array, mask: Array, rotations: Array) -> Array:
    """The bucket of every token in every round; padding has a bucket of its own, behind the others.

    Args:
        vectors: [B, L, H, K].   mask: bool [B, L].
        rotations: float [H, K, rounds, buckets / 2]; the bucket is the largest of the products and
            their negatives.

    Returns:
        int32 [B, H, rounds, L].
    """
    rotated = jnp.einsum(
        "blhk,hkrn->bhrln", lax.stop_gradient(vectors).astype(jnp.float32), rotations
    )
    buckets = jnp.argmax(jnp.concatenate([rotated, -rotated], -1), -1).astype(jnp.int32)
    return jnp.where(mask[:, None, None], buckets, 2 * rotations.shape[-1])


def lsh_attention(
    vectors: Array,
    v: Array,
    mask: Array,
    buckets: Array,
    *,
    chunk_length: int,
    distance_bias: Array | None = None,
    dropout: Dropout | None = None,
) -> Array:
    """Sorted, chunked attention, merged over rounds.

    Keys are ``vectors`` of length 1, products are not scaled. The first chunk sees the last one
    that has real tokens, so that padding changes nothing.

    Args:
        vectors: [B, L, H, K], queries and keys.   v: [B, L, H, K].   mask: bool [B, L].
        buckets: int [B, H, rounds, L] from ``hash_buckets``.
        chunk_length: C.
        distance_bias: float [H, 2 L - 1], added by key position - query position, from 1 - L to L -
            1.

    Returns:
        [B, L, H, K] in the type of ``v``.

    Raises:
        InputError: a chunk_length below 1.
    """
    if chunk_length < 1:
        raise InputError(f"lsh_chunk_length is {chunk_length}; it must be at least 1")
    batch, heads, rounds, length = buckets.shape
    order = jnp.argsort(buckets * length + jnp.arange(length), -1)

    def in_order(x: Array) -> Array:  # [B, L, H, K] -> [B H rounds, N, C, 1, K]
        x = jnp.take_along_axis(jnp.moveaxis(x, 2, 1)[:, :, None], order[..., None], 3)
        return to_blocks(x.reshape(-1, length, 1, x.shape[-1]), chunk_length)

    norms = jnp.linalg.norm(vectors.astype(jnp.float32), axis=-1, keepdims=True)
    keys = (vectors / jnp.maximum(norms, 1e-6)).astype(vectors.dtype)
    real = jnp.repeat(mask.sum(1), heads * rounds)
    bias = None if distance_bias is None else _head_rows(distance_bias, batch, rounds)
    sets = _own_and_before(in_order(keys), in_order(v), order.reshape(-1, length), real, bias)
    part = attend_partially(in_order(vectors), sets, dropout=dropout)
    back = jnp.argsort(order, -1)[..., None]

    def as_text(x: Array) -> Array:  # [B H rounds, N, C, 1, ...] -> [rounds, B, L, H, ...]
        x = from_blocks(x, length).reshape(batch, heads, rounds, length, -1)
        return jnp.moveaxis(jnp.take_along_axis(x, back, 3), (2, 0, 3, 1), (0, 1, 2, 3))

    part = part.map(as_text)
    out = merge_partial_softmaxes(
        [PartialSoftmax(part.out[r], part.log_total[r]) for r in range(rounds)]
    )
    return jnp.where(mask[..., None, None], out, 0).astype(v.dtype)


def _head_rows(bias: Array, batch: int, rounds: int) -> tuple[Array, Array]:
    """The table, and which of its rows each of B x H x rounds sequences reads."""
    heads = jnp.repeat(jnp.arange(bias.shape[0]), rounds)
    return bias, jnp.tile(heads, batch)


def _own_and_before(
    k: Array, v: Array, positions: Array, real: Array, bias: tuple[Array, Array] | None
) -> tuple[KeySet, KeySet]:
    """Each chunk's own keys, and those of the chunk before it: k, v [S, N, C, 1, K]; positions [S,
    L]; real [S]."""
    chunks, size = k.shape[1:3]
    last = jnp.maximum(-(-real // size) - 1, 0)
    places = jnp.arange(chunks * size).reshape(1, chunks, size)
    seen = places < real[:, None, None]  # sorted: real tokens come first
    positions = to_blocks(positions, size)

    def before(x: Array) -> Array:
        first = jnp.take_along_axis(x, last.reshape(-1, *(1,) * (x.ndim - 1)), 1)
        return jnp.concatenate([first, x[:, :-1]], 1)

    other = (jnp.arange(chunks) > 0) | (last[:, None] > 0)  # a single chunk has none before it
    own_bias = SELF_BIAS * np.eye(size, dtype=np.float32)[None, None, None]
    before_mask = (before(seen) & other[..., None])[:, :, None, None]
    if bias is None:
        return KeySet(k, v, seen[:, :, None, None], own_bias), KeySet(
            before(k), before(v), before_mask
        )
    by_distance = [_distance_bias(*bias, positions, x) for x in (positions, before(positions))]
    own = by_distance[0]
    own = own._replace(function=lambda *arrays: by_distance[0].function(*arrays) + own_bias)
    return KeySet(k, v, seen[:, :, None, None], own), KeySet(
        before(k), before(v), before_mask, by_distance[1]
    )


def _distance_bias(table: Array, rows: Array, queries: Array, keys: Array) -> LazyBias:
    """Entries of ``table`` [H, 2 L - 1] for positions [S, N, C] of queries and keys of head
    ``rows`` [S]."""
    last = table.shape[1] // 2
    heads = jnp.broadcast_to(rows[:, None, None], queries.shape)

    def function(blocks: Array, table: Array) -> Array:
        queries, keys, heads = blocks[..., 0, 0], blocks[..., 1, 0], blocks[:, :, :1, 2, 0]
        distance = jnp.clip(keys[:, :, None] - queries[..., None], -last, last) + last
        return table[heads[..., None], distance][:, :, None]

    return LazyBias(function, jnp.stack([queries, keys, heads], -1)[..., None], (table,))


def draw_rotations(key: Array, heads: int, d_kv: int, rounds: int, buckets: int) -> Array:
    """Standard normal [H, K, rounds, buckets / 2] for ``hash_buckets``."""
    return jax.random.normal(key, (heads, d_kv, rounds, buckets // 2))
