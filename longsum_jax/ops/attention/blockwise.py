"""Blockwise attention: one softmax over several sets of keys, without an array [length, length].

All block-sparse attentions of this package are built on it. Queries come in
blocks, and the keys of a block come in sets (``KeySet``): separate keys for
each block, such as a window, or keys that all blocks share, such as global
tokens. Tokens 0 to 7 in blocks of two, with two global tokens and a window of
three blocks:

    queries           set 1, shared     set 2, a window of each block
    block 0   [0 1]   [g0 g1]           [. . 0 1 2 3]
    block 1   [2 3]   [g0 g1]           [0 1 2 3 4 5]
    block 2   [4 5]   [g0 g1]           [2 3 4 5 6 7]
    block 3   [6 7]   [g0 g1]           [4 5 6 7 . .]

Every block has scores [block_size, 2] and [block_size, 6] under one softmax
(``block_softmax``): the maximum score of a query and its sum of exponentials
are taken over all sets. The weights of each set are multiplied with its values,
and the products are added. Padding (.) is masked.

Pieces. If the scores of all blocks take too much memory, a loop
(``block_loops``) runs over pieces of a few blocks, and the scores of a piece
are freed before the next one:

    piece 0   blocks 0 1   ->   scores, softmax, product with the values   ->   out of blocks 0 1
    piece 1   blocks 2 3   ->   scores, softmax, product with the values   ->   out of blocks 2 3

On CPUs a piece is one block of one head of one sequence.

Merging. Sets of keys that need the queries in different orders, such as windows
and strides, or rounds of hashing, cannot share scores. ``attend_partially``
attends to each of them, and ``key_sets.merge_partial_softmaxes`` merges the
results.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from longsum_jax.ops.attention.block_loops import (
    BATCH,
    BLOCKS,
    HEADS,
    loop_over,
)
from longsum_jax.ops.attention.block_softmax import (
    Attend,
    BlockInputs,
    attend_at_once,
    attend_one_block,
    prepare,
    with_folded_masks,
)
from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.dense import Scale
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    PartialSoftmax,
    WeightDropout,
    merge_shards,
)
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import define_gradient
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.sequence_sharding import Axes
from longsum_jax.typing import AnyArray

# Upper bound of the float32 scores in memory at once.
MAX_SCORE_BYTES = 2**28
# Scores that fit the cache of a CPU take half the time, gradients included.
MAX_SCORE_BYTES_CPU = 2**23


# Public API


def attend_key_sets(
    q: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
) -> Float[Array, "batch num_blocks block_size heads head_dim"]:
    """Computes softmax(scale q k + bias) v over all ``key_sets``, scores and softmax in float32.

    A key in two sets counts twice. A query without a key gets zeros.

    Args:
        q: queries in blocks.
        key_sets: keys, values, masks and biases; each set may have any number
            of keys.
        scale: factor of the query-key products.
        dropout: dropout of the weights.

    Returns:
        The attended values in the type of the values.
    """
    return _attend(q, key_sets, scale, dropout, key_sets[0].v.dtype).out


def attend_partially(
    q: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
) -> PartialSoftmax:
    """Computes ``attend_key_sets`` in a form that can be merged with attention to other keys.

    Args:
        q, key_sets, scale, dropout: arguments as for ``attend_key_sets``.

    Returns:
        ``out`` as float32 [batch, num_blocks, block_size, heads, head_dim], and
        the log-sum-exp of the scores [batch, num_blocks, block_size, heads].
    """
    return _attend(q, key_sets, scale, dropout, jnp.float32)


def attend_shared_keys(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    replicated: Sequence[KeySet] = (),
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
) -> Float[Array, "batch query_length heads head_dim"]:
    """Computes ``attend_key_sets`` for queries that all attend to the same keys.

    Such queries are, for example, global tokens. The queries are cut into one
    block per piece.

    Args:
        q: queries of a sequence; every shard has all of them.
        key_sets: keys that all blocks share; only the keys of this shard.
        replicated: additional shared keys that are the same on every shard;
            they count once.
        scale, dropout: see ``attend_key_sets``.
        axes: mesh axes that shard the keys (``ops.sequence_sharding``).
    """
    length = q.shape[1]
    if axes:
        replicated = [_on_first_shard(key_set, axes) for key_set in replicated]
    key_sets = [*replicated, *key_sets]
    blocks, key_sets = _shared_blocks(q, key_sets)
    if not axes:
        out = attend_key_sets(blocks, key_sets, scale=scale, dropout=dropout)
        return from_blocks(out, length)
    softmax = attend_partially(blocks, key_sets, scale=scale, dropout=dropout)
    out = merge_shards(softmax, axes).out
    return from_blocks(out.astype(key_sets[-1].v.dtype), length)


def attend_shared_partially(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
) -> PartialSoftmax:
    """Computes ``attend_shared_keys`` in a form that can be merged with attention to other keys.

    Args:
        q, key_sets, scale, dropout, axes: see ``attend_shared_keys``.

    Returns:
        ``out`` as float32 [batch, query_length, heads, head_dim], and the
        log-sum-exp of the scores [batch, query_length, heads], over the keys of
        all shards.
    """
    length = q.shape[1]
    blocks, key_sets = _shared_blocks(q, key_sets)
    softmax = attend_partially(blocks, key_sets, scale=scale, dropout=dropout)
    if axes:
        softmax = merge_shards(softmax, axes)
    return softmax.map(lambda x: from_blocks(x, length))


def _shared_blocks(
    q: AnyArray, key_sets: Sequence[KeySet]
) -> tuple[Array, Sequence[KeySet]]:
    """Cuts queries, and masks that differ by query, into one block per piece.

    Args:
        q: queries [batch, query_length, heads, head_dim].
        key_sets: shared keys; masks that differ by query are [batch, 1, heads,
            query_length, num_keys].
    """
    size = _queries_per_block(q, key_sets)

    def in_blocks(key_set: KeySet) -> KeySet:
        mask = key_set.mask
        if mask is None or mask.ndim < 5 or mask.shape[-2] == 1:
            return key_set
        # [batch, query_length, heads, num_keys]
        by_query = mask[:, 0].swapaxes(1, 2)
        mask = to_blocks(by_query, size).swapaxes(2, 3)
        return key_set._replace(mask=mask)

    return to_blocks(q, size), [in_blocks(key_set) for key_set in key_sets]


def _on_first_shard(key_set: KeySet, axes: Axes) -> KeySet:
    """Masks the keys on all shards but the first."""
    is_first = (lax.axis_index(axes) == 0).reshape(1, 1, 1, 1, 1)
    mask = is_first if key_set.mask is None else key_set.mask & is_first
    return key_set._replace(mask=mask)


def max_score_bytes() -> int:
    """Returns the number of bytes of scores above which attention is computed in pieces."""
    if _on_cpu():
        return min(MAX_SCORE_BYTES, MAX_SCORE_BYTES_CPU)
    return MAX_SCORE_BYTES


# The softmax with its gradients


def _attend(
    q: AnyArray,
    key_sets: Sequence[KeySet],
    scale: Scale,
    dropout: WeightDropout | None,
    dtype: Any,
) -> PartialSoftmax:
    """Computes attention, with gradients from the saved output; ``out`` has type ``dtype``.

    The forward pass saves two arrays: the output and the log-sum-exp of the
    scores of each query. The backward pass recomputes the scores piece by
    piece, and gets the weights without another softmax (FlashAttention, Dao et
    al. 2022, appendix B):

        forward    q, keys -> scores -> softmax                    -> weights -> out, log_sum_exp
        backward   q, keys -> scores -> exp(scores - log_sum_exp)  -> weights -> out, their sum

    Differentiating the second line gives the gradients, without special rules
    for masks, biases and dropout. The gradient of a score is

        weight * (out_gradient . v  -  out_gradient . out  +  log_gradient)

    The first term comes from the product with the values, the other two from
    the sum of the weights.

    NumPy arrays in ``key_sets`` become constants of the compiled program.
    """
    attend_blocks = _choose_loops(q, key_sets)
    rate = 0.0 if dropout is None else dropout.rate
    leaves, tree = jax.tree.flatten([prepare(key_set) for key_set in key_sets])
    # others are functions of lazy biases
    is_array = [hasattr(x, "dtype") for x in leaves]

    def compute(
        q: AnyArray,
        arrays: Sequence[Any],
        rng: Array | None,
        log_sum_exp: AnyArray | None = None,
    ) -> PartialSoftmax:
        prepared = jax.tree.unflatten(tree, _replace(leaves, is_array, arrays))
        if rng is None:
            of_weights = None
        else:
            of_weights = WeightDropout(rng, rate)
        return attend_blocks(
            BlockInputs(q, prepared, log_sum_exp, scale, of_weights)
        )

    def forward(
        q: AnyArray, arrays: Sequence[Any], rng: Array | None
    ) -> tuple[PartialSoftmax, Any]:
        softmax = compute(*_widen_outside_jit(q, arrays, q), rng)
        out = save_for_backward(softmax.out.astype(dtype))
        softmax = PartialSoftmax(out, save_for_backward(softmax.log_sum_exp))
        return softmax, (q, arrays, rng, softmax)

    def backward(saved: Any, gradient: PartialSoftmax) -> tuple[Any, ...]:
        q, arrays, rng, softmax = saved
        is_float = [jnp.issubdtype(x.dtype, jnp.inexact) for x in arrays]

        def recompute(q: AnyArray, floats: Sequence[Any]) -> PartialSoftmax:
            every = _replace(arrays, is_float, floats)
            inputs = _widen_outside_jit(q, every, softmax.out)
            return compute(*inputs, rng, softmax.log_sum_exp)

        _, pull_back = jax.vjp(recompute, q, _select(arrays, is_float))
        out_gradient = gradient.out.astype(jnp.float32)
        # inner = out_gradient . out of each query, [batch, num_blocks,
        # block_size, heads]
        inner = jnp.einsum(
            "bnchk,bnchk->bnch", out_gradient, softmax.out.astype(jnp.float32)
        )
        # ``recompute`` returns the sum of the weights in place of
        # ``log_sum_exp``.
        cotangent = PartialSoftmax(out_gradient, gradient.log_sum_exp - inner)
        q_gradient, float_gradients = pull_back(cotangent)
        return (
            q_gradient,
            _replace([None] * len(arrays), is_float, float_gradients),
            None,
        )

    @jax.custom_vjp
    def attend(
        q: AnyArray, arrays: Sequence[Any], rng: Array | None
    ) -> PartialSoftmax:
        return forward(q, arrays, rng)[0]

    define_gradient(attend, forward, backward)
    return attend(
        q, _select(leaves, is_array), None if dropout is None else dropout.rng
    )


def _widen_outside_jit(
    q: AnyArray, arrays: Sequence[Any], probe: AnyArray
) -> tuple[AnyArray, Sequence[Any]]:
    """Casts bfloat16 arrays to float32 on CPUs if ``probe`` is an array, not a tracer.

    XLA on CPUs cannot run some layouts of a product of bfloat16 arrays with a
    float32 result if the product is a program of only that operation
    ("Unsupported element type for DotThunk").
    """
    if isinstance(probe, jax.core.Tracer) or not _on_cpu():
        return q, arrays
    return _widen(q), [_widen(x) for x in arrays]


def _widen(x: Any) -> Any:
    if x.dtype == jnp.bfloat16:
        return x.astype(jnp.float32)
    return x


def _select(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Returns the flagged items."""
    return [item for item, flag in zip(items, flags, strict=True) if flag]


def _replace(
    items: Sequence[Any], flags: Sequence[bool], values: Sequence[Any]
) -> list[Any]:
    """Returns ``items`` with ``values`` in place of the flagged items."""
    rest = iter(values)
    return [
        next(rest) if flag else item
        for item, flag in zip(items, flags, strict=True)
    ]


# The number of pieces


def _choose_loops(q: AnyArray, key_sets: Sequence[KeySet]) -> Attend:
    """Returns the attention function, in a loop over pieces if there are many scores.

    On CPUs the loops run over sequences, heads and blocks. XLA runs the plain
    matrix products of one block on all cores, but products with batch
    dimensions inside a loop on a single core, which takes twice the time; and
    the keys of a head stay in the cache for all of its blocks.
    """
    num_pieces = _count_pieces(q, key_sets)
    if num_pieces == 1:
        return attend_at_once
    if _on_cpu():
        attend_head = loop_over(BLOCKS, attend_one_block, recompute=True)
        attend_sequence = loop_over(HEADS, attend_head)
        return with_folded_masks(loop_over(BATCH, attend_sequence))
    num_blocks = q.shape[1]
    size = -(-num_blocks // num_pieces)
    return loop_over(BLOCKS, attend_at_once, size, recompute=True)


def _queries_per_block(q: AnyArray, key_sets: Sequence[KeySet]) -> int:
    """Returns the block size for queries [batch, query_length, ...], one block per piece."""
    length = q.shape[1]
    num_pieces = _count_pieces(q[:, :, None], key_sets)
    size = max(1, -(-length // num_pieces))
    if num_pieces > 1 and _on_cpu():  # a piece is then one block of one head
        in_cache = max_score_bytes() // (4 * _count_keys(key_sets))
        # A single block would be computed for all heads at once.
        size = max(size, min(-(-length // 2), in_cache))
    return size


def _count_pieces(q: AnyArray, key_sets: Sequence[KeySet]) -> int:
    """Returns the number of pieces such that the scores of one fit into ``max_score_bytes``."""
    batch, num_blocks, size, heads, _ = q.shape
    score_bytes = 4 * batch * num_blocks * heads * size * _count_keys(key_sets)
    return max(1, min(num_blocks, -(-score_bytes // max_score_bytes())))


def _count_keys(key_sets: Sequence[KeySet]) -> int:
    return sum(key_set.k.shape[-3] for key_set in key_sets)


def _on_cpu() -> bool:
    return target_platform() == "cpu"
