"""One softmax over several sets of keys: what every block-sparse attention is built of.

Queries come in blocks. A set of keys is either one row of keys per block (a window, blocks chosen
at random) or one row that all blocks share (global tokens). No array of the size [L, L] is ever
formed, and blocks whose scores would take too much memory at once go through in pieces. Gradients
keep the result and the sums of exponentials and compute the scores again (Dao et al. 2022, appendix
B). Sets of keys that want queries in different orders, such as windows and strides, or rounds of
hashing, are attended to one by one and merged by their sums of exponentials.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.dense import masked_exponentials
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.sequence_sharding import Axes
from longsum_jax.typing import Array

MAX_SCORE_BYTES = 2**28  # float32 scores that may be in memory at once
FULL_BLOCK = 128  # queries per block of ``full_attention``
MAX_SCORE_BYTES_CPU = (
    2**23
)  # scores that stay in the cache are computed twice as fast, gradients too
MASK_VALUE = (
    -1e30
)  # a score that no other can be lower than; finite, so that differences stay numbers


def max_score_bytes() -> int:
    """Beyond how many bytes scores are computed in pieces on this machine."""
    return min(MAX_SCORE_BYTES, MAX_SCORE_BYTES_CPU) if _on_cpu() else MAX_SCORE_BYTES


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


class LazyBias(NamedTuple):
    """A bias made where it is needed, for bias arrays that are as large as the scores.

    ``function`` gets the rows of ``blocks`` that belong to a piece, [B, n, C, ...], and all of
    ``arrays``. It returns floats that broadcast to [B, n, H, C, W]. Gradients flow into ``arrays``;
    it closes over none.
    """

    function: Callable[..., Array]
    blocks: Array  # [B, N, C, ...]
    arrays: tuple[Array, ...] = ()

    def __call__(self) -> Array:
        """The bias of all blocks."""
        return self.function(self.blocks, *self.arrays)


class KeySet(NamedTuple):
    """Keys that blocks of queries see, with their values.

    Attributes:
        k, v: [B, N, W, H, K], each block its own, or [B, W, H, K], all blocks the same.
        mask: bool, broadcastable to [B, N, H, C, W]; True where a query may look. None allows all.
        bias: float, broadcastable to [B, N, H, C, W], or a LazyBias.
    """

    k: Array
    v: Array
    mask: Array | None = None
    bias: Array | LazyBias | None = None


class PartialSoftmax(NamedTuple):
    """The softmax over some keys: out [..., H, K], and the log of the sum of exponentials [..., H],
    both float32."""

    out: Array
    log_total: Array

    def map(self, function: Callable[[Array], Array]) -> "PartialSoftmax":
        """Both arrays reordered alike; ``function`` sees [..., H, K] and [..., H, 1]."""
        return PartialSoftmax(function(self.out), function(self.log_total[..., None])[..., 0])


class Dropout(NamedTuple):
    """Dropout of attention weights, for functions without Flax; ``rate`` is in [0, 1)."""

    rng: Array
    rate: float

    def __call__(self, weights: Array) -> Array:
        """``weights`` with entries set to zero at the rate, the others scaled up so that the mean
        stays."""
        if self.rate == 0:
            return weights
        kept = jax.random.bernoulli(self.rng, 1 - self.rate, weights.shape)
        return jnp.where(kept, weights / (1 - self.rate), 0).astype(weights.dtype)

    def fold(self, number: Array | int) -> "Dropout":
        """An independent dropout of the same rate."""
        return self._replace(rng=jax.random.fold_in(self.rng, number))


def attend_key_sets(
    q: Array, key_sets: Sequence[KeySet], *, scale: float = 1.0, dropout: Dropout | None = None
) -> Array:
    """softmax(scale q k + bias) v over the union of ``key_sets``, scores and softmax in float32.

    A key that two sets hold counts twice; a query that sees no key gets zeros.

    Args:
        q: [B, N, C, H, K].
        key_sets: see KeySet; any number of keys W each.
        scale: factor of the products.
        dropout: applied to the weights.

    Returns:
        [B, N, C, H, K] in the type of the values.
    """
    return _attend(q, key_sets, scale, dropout, key_sets[0].v.dtype).out


def attend_partially(
    q: Array, key_sets: Sequence[KeySet], *, scale: float = 1.0, dropout: Dropout | None = None
) -> PartialSoftmax:
    """``attend_key_sets`` with what is needed to merge it with other sets: [B, N, C, H, K] and [B,
    N, C, H]."""
    return _attend(q, key_sets, scale, dropout, jnp.float32)


def merge_partial_softmaxes(parts: Sequence[PartialSoftmax]) -> Array:
    """The mean of the values under one softmax over the keys of all parts, float32; zeros where
    none saw a key."""
    shares = jax.nn.softmax(jnp.stack([part.log_total for part in parts]), axis=0)
    return sum(part.out * share[..., None] for part, share in zip(parts, shares, strict=True))


def merge_shards(part: PartialSoftmax, axes: Axes) -> PartialSoftmax:
    """The softmax over the keys of all parts of a text, from that over the keys of this one; see
    ``ops.sequence_sharding``."""
    largest = lax.pmax(lax.stop_gradient(part.log_total), axes)
    share = jnp.exp(part.log_total - largest)
    out, total = lax.psum((part.out * share[..., None], share), axes)
    return PartialSoftmax(out / total[..., None], largest + jnp.log(total))


def attend_all(
    q: Array,
    key_sets: Sequence[KeySet],
    *,
    replicated: Sequence[KeySet] = (),
    scale: float = 1.0,
    dropout: Dropout | None = None,
    axes: Axes = (),
) -> Array:
    """``attend_key_sets`` for queries [B, T, H, K] that all see the same keys, such as global
    tokens.

    Args:
        replicated: more keys, which in a text cut over ``axes`` (``ops.sequence_sharding``)
            every device has, and one counts.
    """
    length = q.shape[1]
    if axes:
        replicated = [_of_first_part(key_set, axes) for key_set in replicated]
    key_sets = [*replicated, *key_sets]
    size = max(1, -(-length // _count_pieces(q[:, :, None], key_sets)))
    blocks = to_blocks(q, size)
    if not axes:
        return from_blocks(attend_key_sets(blocks, key_sets, scale=scale, dropout=dropout), length)
    out = merge_shards(attend_partially(blocks, key_sets, scale=scale, dropout=dropout), axes).out
    return from_blocks(out.astype(key_sets[-1].v.dtype), length)


def _of_first_part(key_set: KeySet, axes: Axes) -> KeySet:
    first = (lax.axis_index(axes) == 0).reshape(1, 1, 1, 1, 1)
    return key_set._replace(mask=first if key_set.mask is None else key_set.mask & first)


def sliced_bias(table: Array, starts: Array, width: int) -> LazyBias:
    """A bias whose rows are runs of ``table``: query (b, n, c) has table[:, starts[b, n, c] + (0 ..
    width - 1)].

    Args:
        table: float [H, any].   starts: int [B, N, C].   width: W.
    """

    def rows(starts: Array, table: Array) -> Array:
        run = lambda start: lax.dynamic_slice_in_dim(table, start, width, 1)  # noqa: E731
        return jnp.moveaxis(
            jax.vmap(run)(starts.reshape(-1)).reshape(*starts.shape, -1, width), 3, 2
        )

    return LazyBias(rows, starts, (table,))


def full_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    *,
    distance_bias: Array | None = None,
    extra: Sequence[KeySet] = (),
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> Array:
    """Dense self-attention for long inputs: all scores are computed, few of them at a time.

    Args:
        q, k, v: [B, L, H, K].   mask: bool [B, L], True on real tokens.
        distance_bias: float [H, 2 L - 1], added by key position - query position, from 1 - L to L -
            1.
        extra: keys that all queries see besides.

    Returns:
        [B, L, H, K] in the type of ``v``.
    """
    length, blocks = q.shape[1], to_blocks(q, FULL_BLOCK)
    bias = None
    if distance_bias is not None:
        positions = jnp.arange(blocks.shape[1] * FULL_BLOCK).reshape(1, -1, FULL_BLOCK)
        bias = sliced_bias(distance_bias, jnp.maximum(length - 1 - positions, 0), length)
    keys = KeySet(k, v, mask[:, None, None, None], bias)
    return from_blocks(
        attend_key_sets(blocks, [*extra, keys], scale=scale, dropout=dropout), length
    )


def _attend(
    q: Array, key_sets: Sequence[KeySet], scale: float, dropout: Dropout | None, dtype: Any
) -> PartialSoftmax:
    """The softmax with its gradients; ``out`` in ``dtype``."""
    pieces, rate = _count_pieces(q, key_sets), 0.0 if dropout is None else dropout.rate
    leaves, tree = jax.tree.flatten([_prepared(key_set) for key_set in key_sets])
    is_array = [hasattr(x, "dtype") for x in leaves]  # the others are functions

    def run(
        q: Array, arrays: Sequence[Array], rng: Array | None, log_total: Array | None = None
    ) -> PartialSoftmax:
        rest = iter(arrays)
        sets = jax.tree.unflatten(
            tree, [next(rest) if known else x for x, known in zip(leaves, is_array, strict=True)]
        )
        options = (q, sets, log_total, scale, None if rng is None else Dropout(rng, rate))
        if pieces == 1:
            return _at_once(*options)
        return (
            _attend_on_cpu(*options) if _on_cpu() else _piece_by_piece(_at_once, pieces, *options)
        )

    def forward(q: Array, arrays: Sequence[Array], rng: Array | None) -> tuple[PartialSoftmax, Any]:
        part = run(q, arrays, rng)
        part = PartialSoftmax(
            save_for_backward(part.out.astype(dtype)), save_for_backward(part.log_total)
        )
        return part, (q, arrays, rng, part)

    def backward(saved: Any, gradient: PartialSoftmax) -> tuple[Any, ...]:
        q, arrays, rng, part = saved
        is_float = [jnp.issubdtype(x.dtype, jnp.inexact) for x in arrays]

        def again(q: Array, floats: Sequence[Array]) -> PartialSoftmax:
            rest = iter(floats)
            every = [next(rest) if known else x for x, known in zip(arrays, is_float, strict=True)]
            return run(q, every, rng, part.log_total)

        _, pull_back = jax.vjp(
            again, q, [x for x, known in zip(arrays, is_float, strict=True) if known]
        )
        out = gradient.out.astype(jnp.float32)
        shared = jnp.einsum("bnchk,bnchk->bnch", out, part.out.astype(jnp.float32))
        q_gradient, found = pull_back(PartialSoftmax(out, gradient.log_total - shared))
        rest = iter(found)
        return q_gradient, [next(rest) if known else None for known in is_float], None

    attend = jax.custom_vjp(lambda *arguments: forward(*arguments)[0])
    attend.defvjp(forward, backward)
    return attend(
        q, [x for x, known in zip(leaves, is_array, strict=True) if known], dropout and dropout.rng
    )


def _count_pieces(q: Array, key_sets: Sequence[KeySet]) -> int:
    """In how many pieces the blocks of ``q`` go through, so that the scores of each stay below the
    maximum."""
    batch, blocks, size, heads, _ = q.shape
    score_bytes = (
        4 * batch * blocks * heads * size * sum(key_set.k.shape[-3] for key_set in key_sets)
    )
    return max(1, min(blocks, -(-score_bytes // max_score_bytes())))


def _piece_by_piece(
    attend: Callable[..., PartialSoftmax],
    pieces: int,
    q: Array,
    key_sets: Sequence[KeySet],
    log_total: Array | None,
    scale: float,
    dropout: Dropout | None,
) -> PartialSoftmax:
    """What ``attend`` gives, arrays [B, N, C, ...], for some blocks at a time, computed again for
    gradients."""
    blocks = q.shape[1]
    arrays = [q, *([] if log_total is None else [log_total]), *_rows(key_sets, 1, blocks)]

    def attend_piece(piece: Any) -> PartialSoftmax:
        number, q, *arrays = piece
        known = None if log_total is None else arrays.pop(0)
        sets = _with_rows(key_sets, 1, blocks, arrays)
        return attend(q, sets, known, scale, dropout and dropout.fold(number))

    size = -(-blocks // pieces)
    xs = [to_blocks(x, size).swapaxes(0, 1) for x in arrays]
    # The loop itself keeps a piece from being merged with its second computation.
    out = lax.map(
        jax.checkpoint(attend_piece, prevent_cse=False), (jnp.arange(xs[0].shape[0]), *xs)
    )
    return jax.tree.map(lambda x: from_blocks(x.swapaxes(0, 1), blocks), out)


def _attend_on_cpu(
    q: Array,
    key_sets: Sequence[KeySet],
    log_total: Array | None,
    scale: float,
    dropout: Dropout | None,
) -> PartialSoftmax:
    """One document, one block and one head after another, for CPUs.

    These are plain matrix products, which XLA spreads over all cores; products with batch
    dimensions inside a loop stay on one, and take twice the time.
    """
    batch = q.shape[0]

    def one(row: Any) -> PartialSoftmax:
        number, *arrays = row
        q, *arrays = (x[None] for x in arrays)
        known = None if log_total is None else arrays.pop(0)
        # Heads of shared keys are cut out once, not in every block.
        sets = [_cut_heads(s) for s in _with_rows(key_sets, 0, batch, arrays)]
        out = _piece_by_piece(
            _by_heads, q.shape[1], q, sets, known, scale, dropout and dropout.fold(number)
        )
        return jax.tree.map(lambda x: x[0], out)

    xs = (
        jnp.arange(batch),
        q,
        *([] if log_total is None else [log_total]),
        *_rows(key_sets, 0, batch),
    )
    return (
        jax.tree.map(lambda x: x[None], one([x[0] for x in xs])) if batch == 1 else lax.map(one, xs)
    )


def _by_heads(
    q: Array,
    key_sets: Sequence[KeySet],
    log_total: Array | None,
    scale: float,
    dropout: Dropout | None,
) -> PartialSoftmax:
    """``_at_once`` for a single block, q [1, 1, C, H, K], head by head without any batch
    dimension."""
    mix = partial(jnp.dot, preferred_element_type=jnp.float32)
    key_sets = [s._replace(bias=_bias(s)) for s in key_sets]
    heads = []
    for h in range(q.shape[3]):
        sets = [_of_head(s, h) for s in key_sets]
        products = [
            jnp.dot(q[0, 0, :, h], s.k.T, preferred_element_type=jnp.float32) * scale for s in sets
        ]
        scores = [x if s.bias is None else x + s.bias for x, s in zip(products, sets, strict=True)]
        known = None if log_total is None else log_total[0, 0, :, h]
        heads.append(_weighted(scores, sets, known, dropout and dropout.fold(h), mix))
    return jax.tree.map(lambda *x: jnp.stack(x, 1)[None, None], *heads)


def _cut_heads(key_set: KeySet) -> KeySet:
    """Shared keys and values [1, H, W, K] as H arrays [W, K]."""
    if key_set.k.ndim == 5:
        return key_set
    return key_set._replace(k=tuple(key_set.k[0]), v=tuple(key_set.v[0]))


def _of_head(key_set: KeySet, head: int) -> KeySet:
    """Arrays of one head of one block: k and v [W, K], mask and bias [C or 1, W]."""
    take = lambda x: x if x is None else x[0, 0, head if x.shape[2] > 1 else 0]  # noqa: E731
    k, v = (x[head] if isinstance(x, tuple) else x[0, 0, :, head] for x in key_set[:2])
    return KeySet(k, v, take(key_set.mask), take(key_set.bias))


def _rows(key_sets: Sequence[KeySet], axis: int, size: int) -> list[Array]:
    """The arrays that have a row for each of ``size`` documents (axis 0) or blocks (axis 1)."""
    arrays: list[Array] = []
    for key_set in key_sets:
        _map_rows(arrays.append, key_set, axis, size)
    return arrays


def _with_rows(
    key_sets: Sequence[KeySet], axis: int, size: int, arrays: Sequence[Array]
) -> list[KeySet]:
    """``key_sets`` with ``arrays`` in place of ``_rows``."""
    rest = iter(arrays)
    return [_map_rows(lambda _: next(rest), key_set, axis, size) for key_set in key_sets]


def _map_rows(function: Callable[[Array], Any], key_set: KeySet, axis: int, size: int) -> KeySet:
    def visit(x: Any) -> Any:
        if isinstance(x, LazyBias):
            return x._replace(blocks=visit(x.blocks))
        if (
            x is None or isinstance(x, tuple) or (axis == 1 and x.ndim == 4)
        ):  # keys that all blocks share
            return x
        return function(x) if x.shape[axis] == size else x

    return KeySet(*map(visit, key_set))


def _prepared(key_set: KeySet) -> KeySet:
    """Masks and biases with all five axes; keys that all blocks share as [B, H, W, K], turned once
    for all pieces."""
    all_axes = lambda x: x.reshape((1,) * (5 - x.ndim) + x.shape) if hasattr(x, "ndim") else x  # noqa: E731
    k, v, mask, bias = key_set
    if k.ndim == 4:
        k, v = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
    return KeySet(k, v, all_axes(mask), all_axes(bias))


def _bias(key_set: KeySet) -> Array | None:
    return key_set.bias() if isinstance(key_set.bias, LazyBias) else key_set.bias


def _at_once(
    q: Array,
    key_sets: Sequence[KeySet],
    log_total: Array | None,
    scale: float,
    dropout: Dropout | None,
) -> PartialSoftmax:
    """``_weighted`` for all blocks and heads: [B, N, C, H, K] and [B, N, C, H]."""

    def mix(weights: Array, v: Array) -> Array:
        values = "bnwhk" if v.ndim == 5 else "bhwk"
        return jnp.einsum(f"bnhcw,{values}->bnhck", weights, v, preferred_element_type=jnp.float32)

    scores = [_scores(q, key_set, scale) for key_set in key_sets]
    known = None if log_total is None else log_total.swapaxes(2, 3)
    return PartialSoftmax(
        *(jnp.moveaxis(x, 2, 3) for x in _weighted(scores, key_sets, known, dropout, mix))
    )


def _weighted(
    scores: Sequence[Array],
    key_sets: Sequence[KeySet],
    log_total: Array | None,
    dropout: Dropout | None,
    mix: Callable[[Array, Array], Array],
) -> PartialSoftmax:
    """One softmax over the scores [..., C, W] of all sets: the mean of the values [..., C, K], the
    log sum [..., C].

    With ``log_total`` [..., C] at hand: the same mean, and the sum of the weights, which is 1.
    Their gradients, for d out and (d log_total - d out . out), are those of the softmax, and need
    neither maxima nor sums.
    """
    widths = [part.shape[-1] for part in scores]
    scores, mask = jnp.concatenate(scores, -1), _union_mask(key_sets, widths)
    if log_total is None:
        weights, total = masked_exponentials(scores, mask)
        second = _log_total(scores, mask, total)
    else:
        scores = scores if mask is None else jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
        weights, total = jnp.exp(scores - log_total[..., None]), 1.0
        second = weights.sum(-1)
    weights = weights.astype(key_sets[0].v[0].dtype)
    if dropout is not None:
        weights = dropout(weights)
    out, start = 0.0, 0
    for width, key_set in zip(widths, key_sets, strict=True):
        out += mix(weights[..., start : start + width], key_set.v)
        start += width
    return PartialSoftmax(out / total, second)


def _log_total(scores: Array, mask: Array | None, total: Array) -> Array:
    """The log of the sum of exponentials, from the sum [..., 1] that is relative to the largest;
    MASK_VALUE of nothing."""
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    found = lax.stop_gradient(scores.max(-1)) + jnp.log(total[..., 0])
    return found if mask is None else jnp.where(mask.any(-1), found, MASK_VALUE)


def _scores(q: Array, key_set: KeySet, scale: float) -> Array:
    """[B, N, H, C, W] float32."""
    keys = "bnwhk" if key_set.k.ndim == 5 else "bhwk"
    scores = (
        jnp.einsum(f"bnchk,{keys}->bnhcw", q, key_set.k, preferred_element_type=jnp.float32) * scale
    )
    bias = _bias(key_set)
    return scores if bias is None else scores + bias.astype(jnp.float32)


def _union_mask(key_sets: Sequence[KeySet], widths: Sequence[int]) -> Array | None:
    """The masks of all sets side by side, no wider in the other dimensions than they need to be."""
    if all(key_set.mask is None for key_set in key_sets):
        return None
    masks = [jnp.ones((1,), bool) if key_set.mask is None else key_set.mask for key_set in key_sets]
    shape = jnp.broadcast_shapes(*(mask.shape[:-1] for mask in masks))
    return jnp.concatenate(
        [jnp.broadcast_to(m, (*shape, w)) for m, w in zip(masks, widths, strict=True)], -1
    )
