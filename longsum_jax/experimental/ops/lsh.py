"""Attention among tokens with similar hashes (Reformer, Kitaev et al. 2020, section 2).

This is the variant used by Hepos. Queries and keys are the same vectors. In
each round tokens are sorted by bucket, and every chunk attends to itself and to
the previous chunk; the first chunk of a round attends to the last chunk of the
previous round (in the first round, of the last round):

    position      0  1  2  3  4  5
    bucket        1  0  1  2  0  0
    sorted        1  4 | 5  0 | 2  3         chunks of two; 5 attends to 1 4 5 0
    buckets       0  0 | 0  1 | 1  2

Rounds are merged by their log-sum-exp. Tokens of a chunk attend to each other
even if they are in different buckets.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from longsum_jax.errors import check_whole
from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.blockwise import attend_partially
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    LazyBias,
    PartialSoftmax,
    WeightDropout,
    merge_partial_softmaxes,
)
from longsum_jax.ops.attention.relative_position import distance_entries
from longsum_jax.ops.padding import zero_padding
from longsum_jax.typing import AnyArray

# Lower bound of the squared norm of a vector that is scaled to length 1.
LEAST_SQUARE = 1e-12
# A token attends to itself only if it has no other key.
SELF_BIAS = -1e5


def draw_rotations(
    rng: PRNGKeyArray, heads: int, head_dim: int, rounds: int, buckets: int
) -> Float[Array, "heads head_dim rounds half_buckets"]:
    """Draws standard normal projections for ``hash_buckets``."""
    return jax.random.normal(
        rng, (heads, head_dim, rounds, buckets // 2), jnp.float32
    )


def hash_buckets(
    vectors: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    rotations: Float[AnyArray, "heads head_dim rounds half_buckets"],
) -> Int[Array, "batch heads rounds length"]:
    """Returns the bucket of every token in every round, without gradients.

    Args:
        vectors: queries, which are also the keys.
        mask: True on real tokens; padding has a separate bucket after the
            others.
        rotations: projections from ``draw_rotations``. The bucket is the index
            of the largest among the products with them and the negatives of
            these products.
    """
    vectors = lax.stop_gradient(vectors).astype(jnp.float32)
    # [batch, heads, rounds, length, half_buckets]
    rotated = jnp.einsum("blhk,hkrn->bhrln", vectors, rotations)
    buckets = jnp.argmax(jnp.concatenate([rotated, -rotated], -1), -1).astype(
        jnp.int32
    )
    return jnp.where(mask[:, None, None], buckets, 2 * rotations.shape[-1])


def lsh_attention(
    vectors: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    buckets: Int[AnyArray, "batch heads rounds length"],
    *,
    chunk_length: int,
    distance_bias: Float[AnyArray, "heads distances"] | None = None,
    dropout: WeightDropout | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Attends within sorted chunks and merges the rounds.

    Keys are ``vectors`` scaled to length 1; products are not scaled. The last
    chunk of a round is the last with real tokens, so that padding changes
    nothing. A text of one chunk attends only to itself.

    Args:
        vectors: queries, which are also the keys.
        v: values.
        mask: True on real tokens.
        buckets: from ``hash_buckets``.
        chunk_length: number of tokens of a chunk.
        distance_bias: bias by key position - query position, from 1 - length to
            length
            - 1, so that ``distances`` is 2 length - 1.
        dropout: dropout of the weights.

    Returns:
        The attended values in the type of ``v``; zeros for padding.

    Raises:
        InputError: ``chunk_length`` is below 1.
    """
    check_whole("lsh_chunk_length", chunk_length, 1)
    batch, heads, rounds, length = buckets.shape
    order = jnp.argsort(buckets, -1, stable=True)  # by bucket, then by position

    # Every head and round becomes a sequence of one head: S = batch heads
    # rounds. [batch, length, heads, K] -> [S, num_chunks, C, 1, K]
    def sort(x: AnyArray) -> Array:
        x = jnp.take_along_axis(
            jnp.moveaxis(x, 2, 1)[:, :, None], order[..., None], 3
        )
        return to_blocks(x.reshape(-1, length, 1, x.shape[-1]), chunk_length)

    # The clamp keeps the gradient of the square root finite for a vector of
    # zeros.
    squares = jnp.sum(vectors.astype(jnp.float32) ** 2, axis=-1, keepdims=True)
    keys = (vectors / jnp.sqrt(jnp.maximum(squares, LEAST_SQUARE))).astype(
        vectors.dtype
    )
    num_real = jnp.repeat(mask.sum(1), heads * rounds)
    if distance_bias is None:
        bias = None
    else:
        bias = _bias_rows(distance_bias, batch, rounds)
    positions = order.reshape(-1, length)
    key_sets = _chunk_key_sets(
        sort(keys), sort(v), positions, num_real, rounds, bias
    )
    softmax = attend_partially(sort(vectors), key_sets, dropout=dropout)
    # The inverse permutation restores the order of the text.
    inverse = jnp.argsort(order, -1)[..., None]

    # [S, num_chunks, C, 1, ...] -> [rounds, batch, length, heads, ...]
    def unsort(x: Array) -> Array:
        x = from_blocks(x, length).reshape(batch, heads, rounds, length, -1)
        return jnp.moveaxis(
            jnp.take_along_axis(x, inverse, 3), (2, 0, 3, 1), (0, 1, 2, 3)
        )

    softmax = softmax.map(unsort)
    of_rounds = [
        PartialSoftmax(softmax.out[r], softmax.log_sum_exp[r])
        for r in range(rounds)
    ]
    out = merge_partial_softmaxes(of_rounds)
    return zero_padding(out, mask).astype(v.dtype)


def _bias_rows(
    bias: AnyArray, batch: int, rounds: int
) -> tuple[AnyArray, Array]:
    """Returns the table and, for each of batch heads rounds sequences, the row of its head."""
    heads = jnp.repeat(jnp.arange(bias.shape[0]), rounds)
    return bias, jnp.tile(heads, batch)


def _chunk_key_sets(
    k: AnyArray,
    v: AnyArray,
    positions: AnyArray,
    num_real: AnyArray,
    rounds: int,
    bias: tuple[AnyArray, AnyArray] | None,
) -> tuple[KeySet, KeySet]:
    """Returns the keys of each chunk, and the keys of the previous chunk.

    Args:
        k, v: [S, num_chunks, C, 1, head_dim], sorted.
        positions: [S, length], positions in the text of the sorted tokens.
        num_real: [S], numbers of real tokens.
        rounds: number of rounds, which follow one another in S.
        bias: result of ``_bias_rows``.
    """
    num_chunks, size = k.shape[1:3]
    # the last chunk with real tokens
    last = jnp.maximum(-(-num_real // size) - 1, 0)
    indices = jnp.arange(num_chunks * size).reshape(1, num_chunks, size)
    mask = indices < num_real[:, None, None]  # real tokens come first
    positions = to_blocks(positions, size)

    # Chunk n gets chunk n - 1; chunk 0 gets the last real chunk of the previous
    # round.
    def before(x: AnyArray) -> Array:
        first = jnp.take_along_axis(
            x, last.reshape(-1, *(1,) * (x.ndim - 1)), 1
        )
        of_rounds = first.reshape(-1, rounds, *first.shape[1:])
        first = jnp.roll(of_rounds, 1, axis=1).reshape(first.shape)
        return jnp.concatenate([first, x[:, :-1]], 1)

    # False for a single chunk
    has_before = (jnp.arange(num_chunks) > 0) | (last[:, None] > 0)
    before_mask = (before(mask) & has_before[..., None])[:, :, None, None]
    biases = _position_biases(positions, before(positions), rounds, bias)
    chunk_keys = KeySet(k, v, mask[:, :, None, None], biases[0])
    return chunk_keys, KeySet(before(k), before(v), before_mask, biases[1])


def _position_biases(
    positions: AnyArray,
    positions_before: AnyArray,
    rounds: int,
    bias: tuple[AnyArray, AnyArray] | None,
) -> tuple[LazyBias, LazyBias | None]:
    """Returns the biases by distance and of a token itself, for the keys of a chunk and of the
    previous one.

    In the last chunk of another round a token may meet itself.

    Args:
        positions, positions_before: [S, num_chunks, C].
        rounds, bias: see ``_chunk_key_sets``.
    """
    if bias is not None:
        chunk_bias = _distance_bias(*bias, positions, positions)
        return chunk_bias, _distance_bias(*bias, positions, positions_before)
    chunk_bias = _self_bias(positions, positions)
    return chunk_bias, _self_bias(
        positions, positions_before
    ) if rounds > 1 else None


def _self_bias(queries: AnyArray, keys: AnyArray) -> LazyBias:
    """Returns the bias of a token's attention to itself.

    Args:
        queries, keys: positions [S, num_chunks, C].
    """

    def compare(blocks: AnyArray) -> Array:
        return _of_itself(blocks[..., 0, :], blocks[..., 1, :])

    return LazyBias(compare, jnp.stack([queries, keys], 2)[:, :, None])


def _of_itself(queries: AnyArray, keys: AnyArray) -> Array:
    """Returns SELF_BIAS if positions [..., C] of queries and of keys are equal, [..., C, C]."""
    return jnp.where(queries[..., None] == keys[..., None, :], SELF_BIAS, 0.0)


def _distance_bias(
    table: AnyArray, rows: AnyArray, queries: AnyArray, keys: AnyArray
) -> LazyBias:
    """Returns the bias by distance, plus the bias of a token's attention to itself.

    Args:
        table: [heads, 2 length - 1].
        rows: row of the table for each sequence, [S].
        queries, keys: positions [S, num_chunks, C].
    """
    rows = jnp.broadcast_to(rows[:, None, None], queries.shape)

    def look_up(blocks: AnyArray, table: AnyArray) -> Array:
        queries, keys, rows = (
            blocks[..., 0, 0],
            blocks[..., 1, 0],
            blocks[:, :, :1, 2, 0],
        )
        entries = distance_entries(table, keys[:, :, None] - queries[..., None])
        of_distance = table[rows[..., None], entries]
        return (of_distance + _of_itself(queries, keys))[:, :, None]

    return LazyBias(
        look_up, jnp.stack([queries, keys, rows], -1)[..., None], (table,)
    )
