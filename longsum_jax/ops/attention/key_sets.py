"""Sets of keys for blocks of queries, and partial softmaxes, each over some keys of a query."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from longsum_jax.ops.attention.dense import (
    LEAST_SCORE,
    Scale,
    key_products,
    scaled_scores,
    weighted_values,
)
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.random_masks import drop_randomly
from longsum_jax.ops.sequence_sharding import Axes
from longsum_jax.typing import AnyArray

# The log-sum-exp of a query without keys: below every score, and finite, so
# that differences of two such values are not NaN.
MASK_VALUE = -1e30
# The score of a key that is masked by a bias or by an additional feature of the
# key, not by a boolean mask. It is so far below MASK_VALUE that exp(FOLDED_MASK
# - MASK_VALUE) is 0.
FOLDED_MASK = 2 * MASK_VALUE


class LazyBias(NamedTuple):
    """A bias that is computed on demand, for biases as large as the scores.

    Attributes:
        function: function of ``blocks`` and ``arrays`` for some sequences,
            blocks and heads that returns floats broadcastable to [batch,
            num_blocks, heads, block_size, num_keys]. It must not close over
            arrays that need gradients.
        blocks: pytree of arguments of ``function`` per block, [batch or 1,
            num_blocks or 1, heads or 1, ...]; gradients flow into floats.
        arrays: additional arguments of ``function``, [heads or 1, ...];
            gradients flow into them.
    """

    function: Callable[..., Array]
    blocks: Any
    arrays: tuple[AnyArray, ...] = ()

    def __call__(self) -> Array:
        """Returns the bias of all blocks."""
        return self.function(self.blocks, *self.arrays)


class KeySet(NamedTuple):
    """Keys and values that blocks of queries attend to.

    Attributes:
        k, v: keys and values: [batch, num_blocks, num_keys, heads, head_dim],
            different for every block, or [batch, num_keys, heads, head_dim],
            the same for all blocks.
        mask: boolean mask, broadcastable to [batch, num_blocks, heads,
            block_size, num_keys]; True where a query attends to a key. None
            allows all keys.
        bias: float bias, broadcastable to the same shape, or a LazyBias.
    """

    k: AnyArray
    v: AnyArray
    mask: AnyArray | None = None
    bias: AnyArray | LazyBias | None = None

    def bias_of_all(self) -> AnyArray | None:
        """Returns the bias of all blocks, computed if it is lazy."""
        if isinstance(self.bias, LazyBias):
            return self.bias()
        return self.bias


class PartialSoftmax(NamedTuple):
    """Attention to some of the keys, and the log-sum-exp needed to merge it with other partial
    results.

    Attributes:
        out: mean of the values under the softmax over these keys, [..., heads,
            head_dim].
        log_sum_exp: log-sum-exp of their scores, float32 [..., heads];
            at most LEAST_SCORE without a key.
    """

    out: Array
    log_sum_exp: Array

    def map(self, function: Callable[[Array], Array]) -> "PartialSoftmax":
        """Reorders both arrays with ``function``, which gets [..., heads, head_dim or 1]."""
        out = function(self.out)
        return PartialSoftmax(
            out, function(self.log_sum_exp[..., None])[..., 0]
        )


class WeightDropout(NamedTuple):
    """Dropout of attention weights for functions without Flax; ``rate`` is in [0, 1)."""

    rng: PRNGKeyArray
    rate: float

    def __call__(self, weights: Float[Array, "..."]) -> Float[Array, "..."]:
        """Sets weights to zero at the given rate, and scales the others by 1 / (1 - rate)."""
        if self.rate == 0:
            return weights
        return drop_randomly(weights, self.rng, self.rate)

    def fold(self, number: Int[AnyArray, ""] | int) -> "WeightDropout":
        """Returns an independent dropout with the same rate."""
        return self._replace(rng=jax.random.fold_in(self.rng, number))


Dropout = WeightDropout  # public name before version 0.3


def split_dropout(
    dropout: WeightDropout | None,
) -> tuple[WeightDropout | None, WeightDropout | None]:
    """Returns independent dropouts for the two softmaxes of an attention."""
    if dropout:
        return (dropout.fold(0), dropout.fold(1))
    return (None, None)


def softmax_of_values(
    scores: Sequence[Float[Array, "..."]],
    key_sets: Sequence[KeySet],
    log_sum_exp: Float[AnyArray, "*rows block_size"] | None,
    dropout: WeightDropout | None,
    mix: Callable[[Array, AnyArray], Array],
) -> PartialSoftmax:
    """Applies one softmax over the scores of all sets to their values.

    Args:
        scores: scores of each set, [..., block_size, num_keys].
        key_sets: sets with the masks and values.
        log_sum_exp: log-sum-exp of the forward pass, [..., block_size], or None
            in the forward pass.
        dropout: dropout of the weights.
        mix: product of the weights and values of a set.

    Returns:
        The weighted mean of the values [..., block_size, head_dim], and the
        log-sum-exp [..., block_size]. If ``log_sum_exp`` is given, the sum of
        the weights (1) is returned in its place, because the backward pass only
        needs its gradient.
    """
    scores = [_masked(*pair) for pair in zip(scores, key_sets, strict=True)]
    total: Array | float
    if log_sum_exp is None:
        maxima = [x.max(-1, keepdims=True, initial=MASK_VALUE) for x in scores]
        largest = lax.stop_gradient(functools.reduce(jnp.maximum, maxima))
        # Above every masked score, so that its exponential is 0 even in a fully
        # masked row.
        bound = jnp.maximum(largest, LEAST_SCORE)
        weights = [jnp.exp(x - bound) for x in scores]
        total = _sum_of_rows(weights)
        total = jnp.where(total > 0, total, 1.0)
        log_or_sum = (largest + jnp.log(total))[..., 0]
    else:
        # Neither maximum nor sum is needed. Without a key, log_sum_exp is
        # MASK_VALUE, far above the masked scores, so that their exponentials
        # are 0.
        weights = [jnp.exp(x - log_sum_exp[..., None]) for x in scores]
        total = 1.0
        log_or_sum = _sum_of_rows(weights)[..., 0]
    weights = [x.astype(key_sets[0].v.dtype) for x in weights]
    # One draw for the weights of all sets, which are split again.
    if dropout is not None:
        ends = np.cumsum([x.shape[-1] for x in weights])
        weights = jnp.split(
            dropout(jnp.concatenate(weights, -1)), ends[:-1], -1
        )
    products = [
        mix(x, key_set.v) for x, key_set in zip(weights, key_sets, strict=True)
    ]
    return PartialSoftmax(
        functools.reduce(operator.add, products) / total, log_or_sum
    )


def _masked(scores: Array, key_set: KeySet) -> Array:
    if key_set.mask is None:
        return scores
    return jnp.where(key_set.mask, scores, jnp.finfo(scores.dtype).min)


def _sum_of_rows(weights: Sequence[Array]) -> Array:
    """Returns the sum of every row over all sets, [..., block_size, 1]."""
    return functools.reduce(
        operator.add, [x.sum(-1, keepdims=True) for x in weights]
    )


def attend_jointly(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    key_sets: Sequence[KeySet],
    *,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
) -> Float[Array, "batch query_length heads head_dim"]:
    """Attends to the keys of all sets under one softmax, without concatenating them.

    Args:
        q: queries, not in blocks.
        key_sets: keys [batch, num_keys, heads, head_dim], possibly with fewer
            heads (see ``dense.dot_product_attention``); masks and biases
            broadcast to [batch, heads, query_length, num_keys].
        scale: factor of the query-key products, possibly with a soft cap.
        dropout: dropout of the weights.
    """
    scores = []
    for x in key_sets:
        products = scaled_scores(key_products(q, x.k), scale)
        # XLA for GPUs merges products of the same queries, for which it copies
        # all keys into one array.
        if target_platform() == "gpu":
            q = lax.optimization_barrier(q)
        bias = x.bias_of_all()
        scores.append(products if bias is None else products + bias)

    def mix(weights: Array, v: AnyArray) -> Array:
        # The axes of ``dot_product_attention``, swapped afterwards: with
        # "bhtk", XLA on CPUs would transpose the values of a decoder's cache.
        return weighted_values(weights, v).swapaxes(1, 2)

    softmax = softmax_of_values(scores, key_sets, None, dropout, mix)
    return softmax.out.swapaxes(1, 2)


def merge_partial_softmaxes(
    softmaxes: Sequence[PartialSoftmax],
) -> Float[Array, "..."]:
    """Merges attention to several sets of keys into attention under one softmax.

    Each output is weighted by its share of the sum of all exponentials.

    Returns:
        float32 [..., heads, head_dim]; zeros if no set has a key.
    """
    shares = jax.nn.softmax(
        jnp.stack([softmax.log_sum_exp for softmax in softmaxes]), axis=0
    )
    weighted = [
        x.out * share[..., None]
        for x, share in zip(softmaxes, shares, strict=True)
    ]
    return sum(weighted[1:], start=weighted[0])


def merge_shards(softmax: PartialSoftmax, axes: Axes) -> PartialSoftmax:
    """Merges the softmaxes over the keys of each shard into the softmax over the keys of all
    shards.

    Args:
        softmax: softmax over the keys of this shard.
        axes: mesh axes that shard the keys (``ops.sequence_sharding``).
    """
    # Relative to the maximum of all shards, so that no exponential overflows.
    largest = lax.pmax(lax.stop_gradient(softmax.log_sum_exp), axes)
    share = jnp.exp(softmax.log_sum_exp - largest)
    out, total = lax.psum((softmax.out * share[..., None], share), axes)
    return PartialSoftmax(out / total[..., None], largest + jnp.log(total))


def sliced_bias(
    table: Float[AnyArray, "heads entries"],
    starts: Int[AnyArray, "batch num_blocks block_size"],
    num_keys: int,
) -> LazyBias:
    """Returns a bias whose rows are slices of ``table``.

    Query (b, n, c) gets ``table[:, s : s + num_keys]`` with ``s = starts[b, n,
    c]``.
    """

    def slice_table(starts: AnyArray, table: AnyArray) -> Array:
        starts = starts[:, :, 0]  # [batch, num_blocks, block_size]

        def slice_at(start: AnyArray) -> Array:
            return lax.dynamic_slice_in_dim(table, start, num_keys, 1)

        rows = jax.vmap(slice_at)(starts.reshape(-1))
        rows = rows.reshape(*starts.shape, -1, num_keys)
        # [batch, num_blocks, heads, block_size, num_keys]
        return jnp.moveaxis(rows, 3, 2)

    return LazyBias(slice_table, starts[:, :, None], (table,))
