# ruff: noqa: F722, RUF100
"""Sets of keys for blocks of queries, and softmaxes over some of the keys of a query."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from longsum_jax.ops.sequence_sharding import Axes

# The log of a sum of no exponentials. Below every score, and finite, so that differences of two
# such values are numbers.
MASK_VALUE = -1e30


class LazyBias(NamedTuple):
    """A bias computed where it is needed, for biases as large as the scores.

    Attributes:
        function: takes the rows of ``blocks`` for some blocks, [batch, n, block_size, ...], and all
            of ``arrays``; returns floats that broadcast to [batch, n, heads, block_size, num_keys].
            It must not close over arrays that need gradients.
        blocks: [batch or 1, num_blocks, block_size, ...].
        arrays: other arguments of ``function``; gradients flow into them.
    """

    function: Callable[..., Array]
    blocks: Array
    arrays: tuple[Array, ...] = ()

    def __call__(self) -> Array:
        """Returns the bias of all blocks."""
        return self.function(self.blocks, *self.arrays)


class KeySet(NamedTuple):
    """Keys and values that blocks of queries attend to.

    Attributes:
        k, v: [batch, num_blocks, num_keys, heads, head_dim], different keys for every block, or
            [batch, num_keys, heads, head_dim], the same keys for all blocks.
        mask: bool, broadcastable to [batch, num_blocks, heads, block_size, num_keys]; True where a
            query attends to a key. None allows all.
        bias: float, broadcastable to the same shape, or a LazyBias.
    """

    k: Array
    v: Array
    mask: Array | None = None
    bias: Array | LazyBias | None = None


class PartialSoftmax(NamedTuple):
    """Attention to some of the keys, with what is needed to merge it with attention to others.

    Attributes:
        out: [..., heads, head_dim], mean of the values under the softmax over these keys.
        log_total: float32 [..., heads], log of the sum of the exponentials of their scores;
            MASK_VALUE without a key.
    """

    out: Array
    log_total: Array

    def map(self, function: Callable[[Array], Array]) -> "PartialSoftmax":
        """Reorders both arrays with ``function``, which gets [..., heads, head_dim or 1]."""
        out = function(self.out)
        return PartialSoftmax(out, function(self.log_total[..., None])[..., 0])


class Dropout(NamedTuple):
    """Dropout of attention weights for functions without Flax; ``rate`` is in [0, 1)."""

    rng: PRNGKeyArray
    rate: float

    def __call__(self, weights: Float[Array, "..."]) -> Float[Array, "..."]:
        """Sets weights to zero at the rate and scales up the others, so that the mean stays."""
        if self.rate == 0:
            return weights
        keep = jax.random.bernoulli(self.rng, 1 - self.rate, weights.shape)
        return jnp.where(keep, weights / (1 - self.rate), 0).astype(weights.dtype)

    def fold(self, number: Int[Array, ""] | int) -> "Dropout":
        """Returns an independent dropout of the same rate."""
        return self._replace(rng=jax.random.fold_in(self.rng, number))


def merge_partial_softmaxes(softmaxes: Sequence[PartialSoftmax]) -> Float[Array, "..."]:
    """Returns attention to the keys of all ``softmaxes`` together, under one softmax.

    Each is weighted by its share of the sum of all exponentials.

    Returns:
        float32 [..., heads, head_dim]; zeros where none has a key.
    """
    shares = jax.nn.softmax(jnp.stack([softmax.log_total for softmax in softmaxes]), axis=0)
    return sum(x.out * share[..., None] for x, share in zip(softmaxes, shares, strict=True))


def merge_shards(softmax: PartialSoftmax, axes: Axes) -> PartialSoftmax:
    """Returns the softmax over the keys of all shards from those over the keys of each shard.

    Args:
        softmax: that of this shard.
        axes: mesh axes that shard the keys (``ops.sequence_sharding``).
    """
    largest = lax.pmax(lax.stop_gradient(softmax.log_total), axes)
    share = jnp.exp(softmax.log_total - largest)
    out, total = lax.psum((softmax.out * share[..., None], share), axes)
    return PartialSoftmax(out / total[..., None], largest + jnp.log(total))


def sliced_bias(
    table: Float[Array, "heads entries"],
    starts: Int[Array, "batch num_blocks block_size"],
    num_keys: int,
) -> LazyBias:
    """Returns a bias whose rows are slices of ``table``.

    Query (b, n, c) gets ``table[:, s : s + num_keys]`` with ``s = starts[b, n, c]``.
    """

    def slice_table(starts: Array, table: Array) -> Array:
        def slice_at(start: Array) -> Array:
            return lax.dynamic_slice_in_dim(table, start, num_keys, 1)

        rows = jax.vmap(slice_at)(starts.reshape(-1))
        rows = rows.reshape(*starts.shape, -1, num_keys)
        return jnp.moveaxis(rows, 3, 2)

    return LazyBias(slice_table, starts, (table,))
