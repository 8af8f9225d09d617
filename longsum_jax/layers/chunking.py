"""Applies position-wise layers to a sequence chunk by chunk, to bound memory."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from longsum_jax.layers.partitioning import active_sequence_sharding, is_on_one_cpu
from longsum_jax.typing import AnyArray

CPU_ROWS = 512  # rows of a dense map at a time, see ``map_over_length``


def map_over_length(
    module: nn.Module,
    fn: Callable[..., Array],
    chunk: int,
    *arrays: Shaped[AnyArray, "batch length ..."],
    is_trained: bool = False,
) -> Shaped[Array, "batch length *output"]:
    """Computes ``fn(module, *arrays)`` chunk by chunk, for a ``fn`` that treats positions alike.

    Where a mesh cuts the sequence, every device goes through its own shard:

        positions         0 1 2 3 | 4 5 6 7        two shards, chunk = 2
        1st call of fn    0 1       4 5
        2nd call of fn        2 3       6 7

    Args:
        module: module whose parameters ``fn`` uses.
        fn: (module, *arrays [batch, chunk, ...]) -> [batch, chunk, ...]; must reach parameters and
            dropout through its argument.
        chunk: most positions of a chunk; 0 or at least the length does all of them at once. On a
            CPU chunks have at most CPU_ROWS rows, so that the values between two maps stay in its
            caches.
        arrays: inputs of ``fn``.
        is_trained: the values between maps are kept for gradients, and leave the caches anyway:
            CPUs then have no smaller chunks, each of which would be copied to the kept values.
    """
    batch, length = arrays[0].shape[:2]
    sharding = active_sequence_sharding(batch)
    is_cut = sharding is not None and length % sharding.num_shards == 0
    num_shards = sharding.num_shards if is_cut else 1
    shard_length = length // num_shards
    chunk = _chunk_length(chunk, batch, shard_length, is_trained)
    if length <= chunk * num_shards or module.is_initializing():
        return fn(module, *arrays)
    chunks = tuple(_split_chunks(x, chunk, num_shards) for x in arrays)
    scan = nn.scan(
        lambda module, carry, xs: (carry, fn(module, *xs)),
        variable_broadcast="params",
        split_rngs={"params": False, "dropout": True},
    )
    _, out = scan(module, (), chunks)  # [chunks, batch, shards * chunk, ...]
    out = out.reshape(*out.shape[:2], num_shards, chunk, *out.shape[3:])
    out = jnp.moveaxis(out, 0, 2).reshape(batch, num_shards, -1, *out.shape[4:])
    return out[:, :, :shard_length].reshape(batch, length, *out.shape[3:])


def _chunk_length(chunk: int, batch: int, length: int, is_trained: bool = False) -> int:
    """Returns the positions of a chunk, such that chunks are about equal."""
    if is_on_one_cpu() and not is_trained:
        chunk = min(chunk or length, max(1, CPU_ROWS // batch))
    count = -(-length // chunk) if chunk else 1
    return -(-length // count)


def _split_chunks(x: AnyArray, chunk: int, num_shards: int) -> Array:
    """[batch, length, ...] -> [chunks, batch, shards * chunk, ...], padded with zeros."""
    x = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
    x = jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % chunk)) + ((0, 0),) * (x.ndim - 3))
    x = x.reshape(*x.shape[:2], -1, chunk, *x.shape[3:])
    x = jnp.moveaxis(x, 2, 0)
    return x.reshape(*x.shape[:2], num_shards * chunk, *x.shape[4:])
