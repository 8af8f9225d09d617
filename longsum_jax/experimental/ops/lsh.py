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

A fused kernel computes all chunks but the first of each round, whose keys of
another round may include the token itself.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from longsum_jax.errors import check_whole
from longsum_jax.ops.attention.blocks import (
    from_blocks,
    overlapping,
    to_blocks,
)
from longsum_jax.ops.attention.blockwise import attend_partially
from longsum_jax.ops.attention.fused import FusedPart, permute, row_size
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    LazyBias,
    PartialSoftmax,
    WeightDropout,
    merge_partial_softmaxes,
    split_dropout,
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
    fused: FusedPart | None = None,
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
        fused: kernel, for rows of ``lsh_row``, chunks of a power of two tokens,
            and no ``distance_bias``; None for the reference.

    Returns:
        The attended values in the type of ``v``; zeros for padding.

    Raises:
        InputError: ``chunk_length`` is below 1.
    """
    check_whole("lsh_chunk_length", chunk_length, 1)
    batch, heads, rounds, length = buckets.shape
    # Every head and round becomes a sequence of one head: S = batch heads
    # rounds. By bucket, then by position:
    order = jnp.argsort(buckets, -1, stable=True).reshape(-1, length)
    inverse = jnp.argsort(order, 1)

    # [batch, length, heads, K] -> [S, length, 1, K]
    def sort(x: AnyArray) -> Array:
        x = jnp.moveaxis(x, 2, 1)[:, :, None]
        x = jnp.broadcast_to(x, (batch, heads, rounds, *x.shape[3:]))
        return permute(x.reshape(-1, length, 1, x.shape[-1]), order, inverse)

    num_real = jnp.repeat(mask.sum(1), heads * rounds)
    bias = None
    if distance_bias is not None:
        bias = _bias_rows(distance_bias, batch, rounds)
    q, v_sorted = sort(vectors), sort(v)
    k = jnp.asarray(q / sort(_norms(vectors)), q.dtype)
    key_sets = _chunk_key_sets(
        to_blocks(k, chunk_length),
        to_blocks(v_sorted, chunk_length),
        order,
        num_real,
        rounds,
        bias,
    )
    blocks = to_blocks(q, chunk_length)
    if fused is None:
        softmax = attend_partially(blocks, key_sets, dropout=dropout)
        softmax = softmax.map(lambda x: from_blocks(x, length))
    else:
        assert bias is None
        of_first, of_others = split_dropout(dropout)
        first = attend_partially(
            blocks[:, :1],
            [_of_first_chunk(keys) for keys in key_sets],
            dropout=of_first,
        )
        others = _attend_in_rows(
            q, k, v_sorted, num_real, chunk_length, fused, of_others
        )
        joined = []
        for x, y in zip(first, others, strict=True):
            y = y[:, chunk_length:]
            y = jnp.concatenate([x[:, 0].astype(y.dtype), y], 1)
            joined.append(y[:, :length])
        softmax = PartialSoftmax(*joined)

    # [S, length, 1, ...] -> [rounds, batch, length, heads, ...]
    def unsort(x: Array) -> Array:
        x = permute(x, inverse, order)
        x = x.reshape(batch, heads, rounds, length, -1)
        return jnp.moveaxis(x, (2, 0, 3, 1), (0, 1, 2, 3))

    softmax = softmax.map(unsort)
    of_rounds = [
        PartialSoftmax(softmax.out[r], softmax.log_sum_exp[r])
        for r in range(rounds)
    ]
    out = merge_partial_softmaxes(of_rounds)
    return zero_padding(out, mask).astype(v.dtype)


def _norms(vectors: AnyArray) -> Array:
    """Returns float32 norms [..., 1], at least a lower bound."""
    squares = jnp.sum(vectors.astype(jnp.float32) ** 2, axis=-1, keepdims=True)
    # The clamp keeps the gradient of the square root finite for a vector of
    # zeros.
    return jnp.sqrt(jnp.maximum(squares, LEAST_SQUARE))


class _ChunkPattern(NamedTuple):
    """The pattern of rows (``fused.Pattern``): a chunk, and the chunk before it; no token itself.

    Attributes:
        size: number of tokens of a chunk, a power of two. Keys begin as many
            tokens before the queries.
    """

    size: int

    def __call__(self, queries: AnyArray, keys: AnyArray) -> AnyArray:
        first = queries & -self.size  # of the keys of the chunk before
        is_near = (keys >= first) & (keys < first + 2 * self.size)
        return is_near & (keys != queries + self.size)


def lsh_row(length: int, chunk_length: int) -> tuple[int, int]:
    """Returns the numbers of queries and of keys per row of a kernel, whole chunks."""
    size = row_size(length, margin=chunk_length, multiple=chunk_length)
    return size, size + chunk_length


def _attend_in_rows(
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    num_real: AnyArray,
    chunk_length: int,
    fused: FusedPart,
    dropout: WeightDropout | None,
) -> PartialSoftmax:
    """Attends by a kernel to the keys of each chunk, and of the chunk before it in its round.

    Args:
        q, k, v: [S, length, 1, head_dim], sorted.
        num_real: [S], numbers of real tokens.
        chunk_length, fused, dropout: see ``lsh_attention``.

    Returns:
        ``out`` [S, length, 1, head_dim] and the log-sum-exp [S, length, 1].
    """
    length = q.shape[1]
    size, _ = lsh_row(length, chunk_length)
    num_rows = -(-length // size)

    # [S, length, ...] -> [S num_rows, chunk_length + size, ...]
    def with_margin(x: AnyArray) -> Array:
        x = overlapping(x, -chunk_length, size, chunk_length, num_rows)
        return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])

    # [S, num_rows, size, ...]
    queries = to_blocks(q, size)
    is_real = jnp.arange(length) < num_real[:, None]
    softmax = fused(
        queries.reshape(-1, *queries.shape[2:]),
        with_margin(k),
        with_margin(v),
        with_margin(is_real)[:, None],
        pattern=_ChunkPattern(chunk_length),
        dropout=dropout,
    )
    return softmax.map(
        lambda x: from_blocks(
            x.reshape(*queries.shape[:3], *x.shape[2:]), length
        )
    )


def _of_first_chunk(keys: KeySet) -> KeySet:
    """Returns the keys of the first chunk of every sequence; ``keys`` is of all chunks."""
    bias = keys.bias
    if isinstance(bias, LazyBias):
        bias = bias._replace(blocks=bias.blocks[:, :1])
    assert keys.mask is not None
    return KeySet(keys.k[:, :1], keys.v[:, :1], keys.mask[:, :1], bias)


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
