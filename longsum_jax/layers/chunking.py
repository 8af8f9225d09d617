"""Applies position-wise layers to a sequence chunk by chunk, to bound memory."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from longsum_jax.layers.partitioning import active_sequence_sharding, is_on_one_cpu
from longsum_jax.typing import AnyArray

CPU_ROWS = 512  # rows of a dense map at a time, see ``map_over_length``
RECOMPUTED_ROWS = 2**15  # the same where chunks are computed again for their gradients


def map_over_length(
    module: nn.Module,
    fn: Callable[..., Any],
    chunk: int,
    *arrays: Shaped[AnyArray, "batch length ..."],
    is_trained: bool = False,
    recompute: bool = False,
) -> Any:
    """Computes ``fn(module, *arrays)`` chunk by chunk, for a ``fn`` that treats positions alike.

    Where a mesh shards the sequence, every device goes through its own shard:

        positions         0 1 2 3 | 4 5 6 7        two shards, chunk = 2
        1st call of fn    0 1       4 5
        2nd call of fn        2 3       6 7

    Args:
        module: module whose parameters ``fn`` uses.
        fn: (module, *arrays [batch, chunk, ...]) -> [batch, chunk, ...], or a tree of such arrays;
            must reach parameters and dropout through its argument.
        chunk: most positions of a chunk; 0 or at least the length does all of them at once. On a
            CPU chunks have at most CPU_ROWS rows, so that the values between two maps stay in its
            caches.
        arrays: inputs of ``fn``.
        is_trained: the values between maps are kept for gradients, and leave the caches anyway:
            CPUs then have no smaller chunks, each of which would be copied to the kept values.
        recompute: gradients compute every chunk again, so that they hold the values between two
            maps for one chunk. On one device it then has at most RECOMPUTED_ROWS rows.

    Returns:
        The outputs of ``fn`` at all positions.
    """
    batch, length = arrays[0].shape[:2]
    sharding = active_sequence_sharding(batch)
    num_shards = 1
    if sharding is not None and length % sharding.num_shards == 0:
        num_shards = sharding.num_shards
    shard_length = length // num_shards
    chunk = _chunk_length(chunk, batch, shard_length, is_trained=is_trained, recompute=recompute)
    if length <= chunk * num_shards or module.is_initializing():
        return fn(module, *arrays)
    chunks = tuple(_split_chunks(x, chunk, num_shards) for x in arrays)
    # The loop already keeps a chunk from being merged with its repetition.
    of_chunk = nn.remat(fn, prevent_cse=False) if recompute else fn
    scan = nn.scan(
        lambda module, carry, xs: (carry, of_chunk(module, *xs)),
        variable_broadcast="params",
        split_rngs={"params": False, "dropout": True},
        check_constancy_invariants=False,  # so that ``fn`` is traced once, not twice
    )
    _, out = scan(module, (), chunks)
    return jax.tree.map(lambda x: _join_chunks(x, chunk, num_shards, shard_length), out)


def _chunk_length(
    chunk: int, batch: int, length: int, *, is_trained: bool = False, recompute: bool = False
) -> int:
    """Returns the positions of a chunk, such that chunks are about equal."""
    rows = 0
    if is_on_one_cpu():
        rows = 0 if is_trained else CPU_ROWS
    elif recompute and jax.sharding.get_abstract_mesh().size <= 1:
        # On a mesh every chunk would gather its weights and add up their gradients anew.
        rows = RECOMPUTED_ROWS
    if rows:
        chunk = min(chunk or length, max(1, rows // batch))
    count = -(-length // chunk) if chunk else 1
    return -(-length // count)


def _split_chunks(x: AnyArray, chunk: int, num_shards: int) -> Array:
    """Splits [batch, length, ...] into [chunks, batch, shards * chunk, ...], zeros at the end."""
    x = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
    x = jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % chunk)) + ((0, 0),) * (x.ndim - 3))
    x = x.reshape(*x.shape[:2], -1, chunk, *x.shape[3:])
    x = jnp.moveaxis(x, 2, 0)
    return x.reshape(*x.shape[:2], num_shards * chunk, *x.shape[4:])


def _join_chunks(x: AnyArray, chunk: int, num_shards: int, shard_length: int) -> Array:
    """Joins [chunks, batch, shards * chunk, ...] to [batch, length, ...], without the padding."""
    x = x.reshape(*x.shape[:2], num_shards, chunk, *x.shape[3:])
    x = jnp.moveaxis(x, 0, 2)
    x = x.reshape(*x.shape[:2], -1, *x.shape[4:])
    x = x[:, :, :shard_length]
    return x.reshape(x.shape[0], -1, *x.shape[3:])
