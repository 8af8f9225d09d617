"""Sequences in blocks of equal size, and blocks together with their neighbours."""

import jax.numpy as jnp
from jaxtyping import Array, Shaped

from longsum_jax.ops.sequence_sharding import Axes, halo_exchange
from longsum_jax.typing import AnyArray


def to_blocks(
    x: Shaped[AnyArray, "batch length ..."], size: int
) -> Shaped[Array, "batch num_blocks block_size ..."]:
    """Splits a sequence into ceil(length / size) blocks; zeros (False) fill the last one."""
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size)) + ((0, 0),) * (x.ndim - 2))
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])


def from_blocks(
    x: Shaped[AnyArray, "batch num_blocks block_size ..."], length: int
) -> Shaped[Array, "batch length ..."]:
    """Joins blocks to a sequence and cuts it to ``length`` tokens: the inverse of ``to_blocks``."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])[:, :length]


def neighbors(
    x: Shaped[AnyArray, "batch num_blocks block_size ..."], left: int, right: int, axes: Axes = ()
) -> Shaped[Array, "batch num_blocks window ..."]:
    """Joins every block to the ``left`` blocks before and the ``right`` blocks after it.

    Args:
        x: blocks of a sequence, or of one shard of it.
        left, right: numbers of blocks.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``).

    Returns:
        ``(left + 1 + right) * block_size`` tokens for every block, in order of position; zeros
        (False) beyond both ends of the sequence.
    """
    num_blocks = x.shape[1]
    x = halo_exchange(x, left, right, axes)
    shifted = [x[:, i : i + num_blocks] for i in range(left + 1 + right)]
    return jnp.concatenate(shifted, axis=2)
