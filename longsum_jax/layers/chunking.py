"""Applies position-wise layers to a sequence chunk by chunk, to bound memory."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from longsum_jax.layers.partitioning import (
    active_sequence_sharding,
    is_on_one_cpu,
)
from longsum_jax.ops.device_memory import times_memory
from longsum_jax.typing import AnyArray

CPU_ROWS = 512  # maximum rows of a dense map at a time, see ``map_over_length``
# The same for chunks that are recomputed for their gradients, for each 32 GiB of
# a device; twice as many rows of several documents. More chunks of these copy
# more: they are cut from the length, and rows of a batch are not next to each
# other.
RECOMPUTED_ROWS = 2**15
_MEMORY_OF_ROWS, _MEMORY_OF_ROWS_OF_DOCUMENTS = 2**35, 2**34


def map_over_length(
    module: nn.Module,
    fn: Callable[..., Any],
    chunk: int,
    *arrays: Shaped[AnyArray, "batch length ..."],
    is_trained: bool = False,
    recompute: bool = False,
) -> Any:
    """Computes ``fn(module, *arrays)`` chunk by chunk, for a position-wise ``fn``.

    If a mesh shards the sequence, every device loops over its own shard:

        positions         0 1 2 3 | 4 5 6 7        two shards, chunk = 2
        1st call of fn    0 1       4 5
        2nd call of fn        2 3       6 7

    Args:
        module: module whose parameters ``fn`` uses.
        fn: function (module, *arrays [batch, chunk, ...]) -> [batch, chunk,
            ...], or a pytree of such arrays; it must access parameters and
            dropout through its argument.
        chunk: maximum number of positions of a chunk; 0 or at least the length
            computes all of them at once. On a CPU chunks have at most CPU_ROWS
            rows, so that the intermediate values of ``fn`` stay in its caches.
        arrays: inputs of ``fn``.
        is_trained: True if the intermediate values of ``fn`` are saved for
            gradients. They leave the caches anyway, and smaller chunks
            would only add copies, so that CPUs then use none.
        recompute: True to recompute every chunk in the backward pass, so that
            only one chunk's intermediate values are in memory. On one device a
            chunk then has at most RECOMPUTED_ROWS rows for each 32 GiB of its
            memory, or for each 16 GiB if there are several documents.

    Returns:
        The outputs of ``fn`` at all positions.
    """
    batch, length = arrays[0].shape[:2]
    if batch == 0:
        return fn(module, *arrays)
    sharding = active_sequence_sharding(batch)
    # The shards of a length that does not divide evenly are not looped over
    # separately.
    num_shards = 1
    if sharding is not None and length % sharding.num_shards == 0:
        num_shards = sharding.num_shards
    shard_length = length // num_shards
    chunk = _chunk_length(
        chunk, batch, shard_length, is_trained=is_trained, recompute=recompute
    )
    # Parameters must be created outside of the scan.
    if length <= chunk * num_shards or module.is_initializing():
        return fn(module, *arrays)
    chunks = tuple(_split_chunks(x, chunk, num_shards) for x in arrays)
    # The loop already keeps XLA from merging a chunk with its recomputation.
    if recompute:
        of_chunk = nn.remat(fn, prevent_cse=False)
    else:
        of_chunk = fn
    scan = nn.scan(
        # Chunks are independent: nothing is carried from one to the next.
        lambda module, carry, xs: (carry, of_chunk(module, *xs)),
        variable_broadcast="params",
        split_rngs={"params": False, "dropout": True},
        # so that ``fn`` is traced once, not twice
        check_constancy_invariants=False,
    )
    _, out = scan(module, (), chunks)
    return jax.tree.map(
        lambda x: _join_chunks(x, chunk, num_shards, shard_length), out
    )


def _chunk_length(
    chunk: int,
    batch: int,
    length: int,
    *,
    is_trained: bool = False,
    recompute: bool = False,
) -> int:
    """Returns the number of positions per chunk, such that chunks are about equal."""
    rows = 0
    if is_on_one_cpu():
        rows = 0 if is_trained else CPU_ROWS
    elif recompute and jax.sharding.get_abstract_mesh().size <= 1:
        # On a mesh every chunk would gather its weights and reduce their
        # gradients again.
        if batch > 1:
            memory = _MEMORY_OF_ROWS_OF_DOCUMENTS
        else:
            memory = _MEMORY_OF_ROWS
        rows = RECOMPUTED_ROWS * times_memory(memory)
    if rows:
        chunk = min(chunk or length, max(1, rows // batch))
    # The same number of chunks, but of nearly equal length, needs less padding.
    count = -(-length // chunk) if chunk else 1
    return -(-length // count)


def _split_chunks(x: AnyArray, chunk: int, num_shards: int) -> Array:
    """Splits [batch, length, ...] into [chunks, batch, shards * chunk, ...], padded with zeros."""
    # [batch, shards, shard_length, ...]; every shard is padded to whole chunks.
    x = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
    x = jnp.pad(
        x, ((0, 0), (0, 0), (0, -x.shape[2] % chunk)) + ((0, 0),) * (x.ndim - 3)
    )
    # [batch, shards, chunks, chunk, ...]
    x = x.reshape(*x.shape[:2], -1, chunk, *x.shape[3:])
    x = jnp.moveaxis(x, 2, 0)
    # Chunk i of all shards together: a step of the loop keeps every device
    # busy.
    return x.reshape(*x.shape[:2], num_shards * chunk, *x.shape[4:])


def _join_chunks(
    x: AnyArray, chunk: int, num_shards: int, shard_length: int
) -> Array:
    """Joins [chunks, batch, shards * chunk, ...] to [batch, length, ...], without the padding."""
    x = x.reshape(*x.shape[:2], num_shards, chunk, *x.shape[3:])
    x = jnp.moveaxis(x, 0, 2)  # [batch, shards, chunks, chunk, ...]
    x = x.reshape(*x.shape[:2], -1, *x.shape[4:])
    x = x[:, :, :shard_length]
    return x.reshape(x.shape[0], -1, *x.shape[3:])
