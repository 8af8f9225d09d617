"""Blockwise attention: one softmax over several sets of keys, never an array [length, length].

All block-sparse attentions of this package are made of it. Queries come in blocks, and the keys of
a block come in sets (``KeySet``): keys of its own, such as a window, or keys that all blocks share,
such as global tokens. Tokens 0 to 7 in blocks of two, with two global tokens and a window of three
blocks:

    queries           set 1, shared     set 2, a window of each block
    block 0   [0 1]   [g0 g1]           [. . 0 1 2 3]
    block 1   [2 3]   [g0 g1]           [0 1 2 3 4 5]
    block 2   [4 5]   [g0 g1]           [2 3 4 5 6 7]
    block 3   [6 7]   [g0 g1]           [4 5 6 7 . .]

Every block has scores [block_size, 2] and [block_size, 6], under one softmax: the largest score of
a query and the sum of its exponentials are those of all sets. The weights of each set are
multiplied with its values, and the products added. Padding (.) is masked.

Pieces. The scores of all blocks may take too much memory. Then a loop goes over pieces of a few
blocks, and no scores outlive their piece:

    piece 0   blocks 0 1   ->   scores, softmax, product with the values   ->   out of blocks 0 1
    piece 1   blocks 2 3   ->   scores, softmax, product with the values   ->   out of blocks 2 3

On CPUs a piece is one block of one head of one sequence.

Gradients. The forward pass saves two things for each query: its output, and the log-sum-exp of its
scores. The backward pass recomputes the scores, piece by piece, and gets the weights without
another softmax: exp(scores - log_sum_exp) (FlashAttention, Dao et al. 2022, appendix B).

Merging. Sets of keys that need the queries in different orders, such as windows and strides, or
rounds of hashing, cannot share scores. ``attend_partially`` attends to each of them, and
``key_sets.merge_partial_softmaxes`` merges the results.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.key_sets import (
    FOLDED_MASK,
    Dropout,
    KeySet,
    LazyBias,
    PartialSoftmax,
    merge_shards,
    sliced_bias,
    softmax_of_values,
)
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import define_gradient
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.sequence_sharding import Axes
from longsum_jax.typing import AnyArray

MAX_SCORE_BYTES = 2**28  # float32 scores in memory at once
# Scores that stay in the cache of a CPU take half the time, gradients included.
MAX_SCORE_BYTES_CPU = 2**23
FULL_BLOCK = 256  # queries of a block in ``full_attention``


def max_score_bytes() -> int:
    """Returns the size above which scores are computed in pieces on the target's devices."""
    return min(MAX_SCORE_BYTES, MAX_SCORE_BYTES_CPU) if _on_cpu() else MAX_SCORE_BYTES


def _on_cpu() -> bool:
    return target_platform() == "cpu"


# What other modules call


def attend_key_sets(
    q: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> Float[Array, "batch num_blocks block_size heads head_dim"]:
    """Computes softmax(scale q k + bias) v over all ``key_sets``, scores and softmax in float32.

    A key in two sets counts twice. A query without a key gets zeros.

    Args:
        q: queries in blocks.
        key_sets: keys, values, masks and biases; any number of keys each.
        scale: factor of the products.
        dropout: applied to the weights.

    Returns:
        The attended values in the type of the values.
    """
    return _attend(q, key_sets, scale, dropout, key_sets[0].v.dtype).out


def attend_partially(
    q: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> PartialSoftmax:
    """Computes ``attend_key_sets`` in a form that can be merged with attention to other keys.

    Returns:
        float32 [batch, num_blocks, block_size, heads, head_dim], and the log-sum-exp of the scores
        [batch, num_blocks, block_size, heads].
    """
    return _attend(q, key_sets, scale, dropout, jnp.float32)


def attend_all(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    replicated: Sequence[KeySet] = (),
    scale: float = 1.0,
    dropout: Dropout | None = None,
    axes: Axes = (),
) -> Float[Array, "batch query_length heads head_dim"]:
    """Computes ``attend_key_sets`` for queries that all attend to the same keys.

    Such queries are global tokens, for example. They are cut into one block for each piece.

    Args:
        q: queries of a sequence; every shard has all of them.
        key_sets: keys that all blocks share, those of this shard alone.
        replicated: more such keys, the same on every shard; they count once.
        scale, dropout: see ``attend_key_sets``.
        axes: mesh axes that shard the keys (``ops.sequence_sharding``).
    """
    length = q.shape[1]
    if axes:
        replicated = [_on_first_shard(key_set, axes) for key_set in replicated]
    key_sets = [*replicated, *key_sets]
    num_pieces = _count_pieces(q[:, :, None], key_sets)
    size = max(1, -(-length // num_pieces))
    if num_pieces > 1 and _on_cpu():  # where a piece is one block of one head
        in_cache = max_score_bytes() // (4 * _count_keys(key_sets))
        # One block alone would go through with all heads at once.
        size = max(size, min(-(-length // 2), in_cache))
    blocks = to_blocks(q, size)
    if not axes:
        out = attend_key_sets(blocks, key_sets, scale=scale, dropout=dropout)
        return from_blocks(out, length)
    softmax = attend_partially(blocks, key_sets, scale=scale, dropout=dropout)
    out = merge_shards(softmax, axes).out
    return from_blocks(out.astype(key_sets[-1].v.dtype), length)


def _on_first_shard(key_set: KeySet, axes: Axes) -> KeySet:
    """Masks the keys on all shards but the first."""
    is_first = (lax.axis_index(axes) == 0).reshape(1, 1, 1, 1, 1)
    mask = is_first if key_set.mask is None else key_set.mask & is_first
    return key_set._replace(mask=mask)


def full_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    distance_bias: Float[AnyArray, "heads distances"] | None = None,
    extra: Sequence[KeySet] = (),
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Computes dense self-attention of long inputs: all scores, few of them at a time.

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens.
        distance_bias: added by key position - query position, from 1 - length to length - 1, so
            that ``distances`` is 2 length - 1.
        extra: more keys that all queries attend to.
        scale, dropout: see ``attend_key_sets``.

    Returns:
        The attended values in the type of ``v``.
    """
    length = q.shape[1]
    blocks = to_blocks(q, FULL_BLOCK)
    bias = None
    if distance_bias is not None:
        # The first key is at distance -i from query i: entry length - 1 - i of the table.
        positions = jnp.arange(blocks.shape[1] * FULL_BLOCK).reshape(1, -1, FULL_BLOCK)
        bias = sliced_bias(distance_bias, jnp.maximum(length - 1 - positions, 0), length)
    keys = KeySet(k, v, mask[:, None, None, None], bias)
    out = attend_key_sets(blocks, [*extra, keys], scale=scale, dropout=dropout)
    return from_blocks(out, length)


# The softmax with its gradients


def _attend(
    q: AnyArray, key_sets: Sequence[KeySet], scale: float, dropout: Dropout | None, dtype: Any
) -> PartialSoftmax:
    """Computes attention, with gradients from the saved output; ``out`` has type ``dtype``.

    NumPy arrays in ``key_sets`` become constants of the compiled program.
    """
    num_pieces = _count_pieces(q, key_sets)
    rate = 0.0 if dropout is None else dropout.rate
    leaves, tree = jax.tree.flatten([_prepare(key_set) for key_set in key_sets])
    is_array = [hasattr(x, "dtype") for x in leaves]  # the others are functions of lazy biases

    def compute(
        q: AnyArray, arrays: Sequence[Any], rng: Array | None, log_sum_exp: AnyArray | None = None
    ) -> PartialSoftmax:
        sets = jax.tree.unflatten(tree, _replace(leaves, is_array, arrays))
        arguments = (q, sets, log_sum_exp, scale, None if rng is None else Dropout(rng, rate))
        if num_pieces == 1:
            return _attend_at_once(*arguments)
        return _attend_piece_by_piece(num_pieces, q.shape[1])(*arguments)

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
        # The gradient of a score is weight * (out_gradient v - out_gradient out + log_gradient).
        # The first term comes from the product with the values, the other two from the sum of the
        # weights, which ``recompute`` returns in place of ``log_sum_exp``.
        out_gradient = gradient.out.astype(jnp.float32)
        inner = jnp.einsum("bnchk,bnchk->bnch", out_gradient, softmax.out.astype(jnp.float32))
        cotangent = PartialSoftmax(out_gradient, gradient.log_sum_exp - inner)
        q_gradient, float_gradients = pull_back(cotangent)
        return q_gradient, _replace([None] * len(arrays), is_float, float_gradients), None

    @jax.custom_vjp
    def attend(q: AnyArray, arrays: Sequence[Any], rng: Array | None) -> PartialSoftmax:
        return forward(q, arrays, rng)[0]

    define_gradient(attend, forward, backward)
    return attend(q, _select(leaves, is_array), None if dropout is None else dropout.rng)


def _widen_outside_jit(
    q: AnyArray, arrays: Sequence[Any], probe: AnyArray
) -> tuple[Array, Sequence[Any]]:
    """Casts bfloat16 arrays to float32 on CPUs where ``probe`` is an array, not a tracer.

    XLA on CPUs cannot run some layouts of a product of bfloat16 arrays with a float32 result if
    that product is a program of its own ("Unsupported element type for DotThunk").
    """
    if isinstance(probe, jax.core.Tracer) or not _on_cpu():
        return q, arrays
    return _widen(q), [_widen(x) for x in arrays]


def _widen(x: Any) -> Any:
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def _select(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Returns the flagged items."""
    return [item for item, flag in zip(items, flags, strict=True) if flag]


def _replace(items: Sequence[Any], flags: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """Returns ``items`` with ``values`` in place of the flagged ones."""
    values = iter(values)
    return [next(values) if flag else item for item, flag in zip(items, flags, strict=True)]


def _prepare(key_set: KeySet) -> KeySet:
    """Transposes the arrays to the layouts of the functions below, once for all pieces.

    Masks and biases get all five axes. Shared keys become [batch, heads, head_dim, num_keys], the
    form of which products are fastest on CPUs, their values [batch, heads, num_keys, head_dim].
    """
    k, v, mask, bias = key_set
    if k.ndim == 4:
        k, v = jnp.transpose(k, (0, 2, 3, 1)), jnp.swapaxes(v, 1, 2)
    return KeySet(k, v, _with_five_axes(mask), _with_five_axes(bias))


def _with_five_axes(x: Any) -> Any:
    return x.reshape((1,) * (5 - x.ndim) + x.shape) if hasattr(x, "ndim") else x


# All blocks at once


def _attend_at_once(
    q: AnyArray,
    key_sets: Sequence[KeySet],
    log_sum_exp: AnyArray | None,
    scale: float,
    dropout: Dropout | None,
) -> PartialSoftmax:
    """Computes ``softmax_of_values`` for all blocks and heads of prepared ``key_sets``.

    Args:
        q: [batch, num_blocks, block_size, heads, head_dim].
        log_sum_exp: [batch, num_blocks, block_size, heads] of the forward pass, or None.

    Returns:
        Arrays in the layouts of ``q`` and ``log_sum_exp``.
    """

    def mix(weights: AnyArray, v: AnyArray) -> Array:
        values = "bnwhk" if v.ndim == 5 else "bhwk"
        return jnp.einsum(f"bnhcw,{values}->bnhck", weights, v, preferred_element_type=jnp.float32)

    scores = [_scores(q, key_set, scale) for key_set in key_sets]
    log_sum_exp = None if log_sum_exp is None else log_sum_exp.swapaxes(2, 3)
    softmax = softmax_of_values(scores, key_sets, log_sum_exp, dropout, mix)
    return PartialSoftmax(*(jnp.moveaxis(x, 2, 3) for x in softmax))


def _scores(q: AnyArray, key_set: KeySet, scale: float) -> Array:
    """Returns float32 scores [batch, num_blocks, heads, block_size, num_keys]."""
    keys = "bnwhk" if key_set.k.ndim == 5 else "bhkw"
    products = jnp.einsum(f"bnchk,{keys}->bnhcw", q, key_set.k, preferred_element_type=jnp.float32)
    scores = products * scale
    return _biased(scores, _evaluate_bias(key_set))


def _biased(scores: AnyArray, bias: AnyArray | None) -> Array:
    return scores if bias is None else scores + bias.astype(jnp.float32)


def _evaluate_bias(key_set: KeySet) -> Any:
    return key_set.bias() if isinstance(key_set.bias, LazyBias) else key_set.bias


# In pieces


class _Axis(NamedTuple):
    """The index of an axis in each kind of array; None in those that never have it."""

    queries: int  # [batch, num_blocks, block_size, heads, ...]
    shared_keys: int | None  # [batch, heads, ...]
    own_keys: int  # [batch, num_blocks, num_keys, heads, head_dim]
    scores: int  # masks and biases [batch, num_blocks, heads, block_size, num_keys]
    bias_arrays: int | None  # arrays of a LazyBias, [heads, ...]


_BATCH = _Axis(0, 0, 0, 0, None)
_BLOCKS = _Axis(1, None, 1, 1, None)
_HEADS = _Axis(3, 1, 3, 2, 0)

# Computes attention from queries, prepared key sets, log_sum_exp, scale and dropout.
_Attend = Callable[..., PartialSoftmax]


def _count_keys(key_sets: Sequence[KeySet]) -> int:
    return sum(key_set.k.shape[-3] for key_set in key_sets)


def _count_pieces(q: AnyArray, key_sets: Sequence[KeySet]) -> int:
    """Returns the number of pieces for which the scores of one fit into ``max_score_bytes``."""
    batch, num_blocks, size, heads, _ = q.shape
    score_bytes = 4 * batch * num_blocks * heads * size * _count_keys(key_sets)
    return max(1, min(num_blocks, -(-score_bytes // max_score_bytes())))


def _loop(attend: _Attend, axis: _Axis, size: int = 1, *, recompute: bool = False) -> _Attend:
    """Returns ``attend`` in a loop over an axis, for ``size`` entries at a time.

    With ``recompute``, the backward pass recomputes each piece, and nothing of it is saved.
    """

    def attend_in_pieces(
        q: AnyArray,
        key_sets: Sequence[KeySet],
        log_sum_exp: AnyArray | None,
        scale: float,
        dropout: Dropout | None,
    ) -> PartialSoftmax:
        length = q.shape[axis.queries]
        if length <= size:
            return attend(q, key_sets, log_sum_exp, scale, dropout)

        def attend_piece(piece: Any) -> PartialSoftmax:
            number, q, log_sum_exp, arrays = piece
            q = _from_front(q, axis.queries)
            log_sum_exp = None if log_sum_exp is None else _from_front(log_sum_exp, axis.queries)
            sets = _with_looped_arrays(key_sets, axis, length, arrays)
            softmax = attend(q, sets, log_sum_exp, scale, dropout and dropout.fold(number))
            return jax.tree.map(lambda x: jnp.moveaxis(x, axis.queries, 0), softmax)

        if recompute:
            # The loop itself keeps XLA from merging a piece with its recomputation.
            attend_piece = jax.checkpoint(attend_piece, prevent_cse=False)

        def split(x: AnyArray, place: int) -> Array:
            x = jnp.moveaxis(x, place, 0)
            return to_blocks(x[None], size)[0]

        def join(x: AnyArray) -> Array:
            return jnp.moveaxis(from_blocks(x[None], length)[0], 0, axis.queries)

        arrays = [split(*x) for x in _looped_arrays(key_sets, axis, length)]
        log_sums = None if log_sum_exp is None else split(log_sum_exp, axis.queries)
        queries = split(q, axis.queries)
        pieces = (jnp.arange(len(queries)), queries, log_sums, arrays)
        return jax.tree.map(join, lax.map(attend_piece, pieces))

    return attend_in_pieces


def _from_front(x: AnyArray, place: int) -> Array:
    return jnp.moveaxis(x, 0, place)


def _looped_arrays(
    key_sets: Sequence[KeySet], axis: _Axis, length: int
) -> list[tuple[AnyArray, int]]:
    """Returns the arrays that a loop must slice, and the index of the axis in each.

    They have ``length`` entries along it; others are broadcast along it, or do not have it.
    """
    arrays: list[tuple[AnyArray, int]] = []

    def note(x: AnyArray, place: int) -> None:
        arrays.append((x, place))

    for key_set in key_sets:
        _map_looped(note, key_set, axis, length)
    return arrays


def _with_looped_arrays(
    key_sets: Sequence[KeySet], axis: _Axis, length: int, arrays: Sequence[AnyArray]
) -> list[KeySet]:
    """Returns ``key_sets`` with ``arrays`` (looped axis first) in place of ``_looped_arrays``."""
    values = iter(arrays)

    def replace(_: AnyArray, place: int) -> Array:
        return _from_front(next(values), place)

    return [_map_looped(replace, key_set, axis, length) for key_set in key_sets]


def _map_looped(
    function: Callable[[AnyArray, int], Any], key_set: KeySet, axis: _Axis, length: int
) -> KeySet:
    """Applies ``function`` to each array that the loop slices, and to the index of its axis."""

    def visit(x: AnyArray | None, place: int | None) -> Any:
        if x is None or place is None or x.ndim <= place or x.shape[place] != length:
            return x
        return function(x, place)

    k, v, mask, bias = key_set
    keys_place = axis.own_keys if k.ndim == 5 else axis.shared_keys
    k, v, mask = visit(k, keys_place), visit(v, keys_place), visit(mask, axis.scores)
    if not isinstance(bias, LazyBias):
        return KeySet(k, v, mask, visit(bias, axis.scores))
    arrays = tuple(visit(x, axis.bias_arrays) for x in bias.arrays)
    return KeySet(k, v, mask, LazyBias(bias.function, visit(bias.blocks, axis.scores), arrays))


def _attend_piece_by_piece(num_pieces: int, num_blocks: int) -> _Attend:
    """Returns ``_attend_at_once`` in a loop over pieces.

    On CPUs the loops are over sequences, heads and blocks. XLA runs the plain matrix products of
    one block on all cores, but products with batch dimensions inside a loop on a single one, which
    takes twice the time; and the keys of a head stay in the cache for all of its blocks.
    """
    if _on_cpu():
        attend_head = _loop(_attend_one_block, _BLOCKS, recompute=True)
        return _with_folded_masks(_loop(_loop(attend_head, _HEADS), _BATCH))
    size = -(-num_blocks // num_pieces)
    return _loop(_attend_at_once, _BLOCKS, size, recompute=True)


def _with_folded_masks(attend: _Attend) -> _Attend:
    """Returns ``attend`` with scale and key masks folded into the products of queries and keys.

    On CPUs, XLA does not fuse them with the matrix product or the maximum: each would be one more
    pass over the scores. So the queries are scaled beforehand and get one more feature, 1. Keys get
    0 as that feature, or a huge negative number m where they are masked:

        (a b 1) . (c d 0) = a c + b d            (a b 1) . (c d m) = m, up to rounding
    """

    def attend_folded(
        q: AnyArray,
        key_sets: Sequence[KeySet],
        log_sum_exp: AnyArray | None,
        scale: float,
        dropout: Dropout | None,
    ) -> PartialSoftmax:
        if q.dtype != jnp.float32 or not any(map(_is_mask_of_keys, key_sets)):
            return attend(q, key_sets, log_sum_exp, scale, dropout)
        q = jnp.concatenate([q * scale, jnp.ones_like(q[..., :1])], -1)
        key_sets = [_fold_mask(key_set) for key_set in key_sets]
        return attend(q, key_sets, log_sum_exp, 1.0, dropout)

    return attend_folded


def _is_mask_of_keys(key_set: KeySet) -> bool:
    """Tells whether a prepared mask is the same for all queries that have these keys."""
    if key_set.mask is None:
        return False
    _, num_blocks, heads, size, _ = key_set.mask.shape
    return heads == size == 1 and (num_blocks == 1 or key_set.k.ndim == 5)


def _fold_mask(key_set: KeySet) -> KeySet:
    """Returns prepared keys with one more feature, which replaces a mask of keys."""
    k, mask = key_set.k, key_set.mask
    is_folded = _is_mask_of_keys(key_set)
    feature = jnp.where(mask, 0.0, FOLDED_MASK) if is_folded else jnp.zeros((1,) * 5)
    if k.ndim == 5:  # [batch, num_blocks, num_keys, heads, head_dim]
        feature, axis = jnp.moveaxis(feature, 4, 2), 4
    else:  # [batch, heads, head_dim, num_keys]
        feature, axis = feature[:, 0], 2
    shape = [1 if i == axis else size for i, size in enumerate(k.shape)]
    k = jnp.concatenate([k, jnp.broadcast_to(feature, shape).astype(k.dtype)], axis)
    return key_set._replace(k=k, mask=None if is_folded else mask)


def _attend_one_block(
    q: AnyArray,
    key_sets: Sequence[KeySet],
    log_sum_exp: AnyArray | None,
    scale: float,
    dropout: Dropout | None,
) -> PartialSoftmax:
    """Computes ``_attend_at_once`` for one block of one head, without batch dimensions.

    Args:
        q: [1, 1, block_size, 1, head_dim].
    """
    dot = partial(jnp.dot, preferred_element_type=jnp.float32)
    sets = [_of_one_block(key_set) for key_set in key_sets]
    products = [dot(q[0, 0, :, 0], s.k) * scale for s in sets]
    scores = [_biased(x, s.bias) for x, s in zip(products, sets, strict=True)]
    log_sum_exp = None if log_sum_exp is None else log_sum_exp[0, 0, :, 0]
    softmax = softmax_of_values(scores, sets, log_sum_exp, dropout, dot)
    return jax.tree.map(lambda x: x[None, None, :, None], softmax)


def _of_one_block(key_set: KeySet) -> KeySet:
    """Squeezes the axes of size 1.

    Returns:
        k [head_dim, num_keys], v [num_keys, head_dim], mask and bias [block_size or 1, num_keys].
    """
    k, v, mask, bias = key_set._replace(bias=_evaluate_bias(key_set))
    k, v = (k[0, 0, :, 0].T, v[0, 0, :, 0]) if k.ndim == 5 else (k[0, 0], v[0, 0])
    mask, bias = (None if x is None else x[0, 0, 0] for x in (mask, bias))
    return KeySet(k, v, mask, bias)
