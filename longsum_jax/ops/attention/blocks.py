"""Sequences as rows of equal blocks, and blocks together with their neighbours."""

import jax.numpy as jnp

from longsum_jax.ops.sequence_sharding import Axes, halo_exchange
from longsum_jax.typing import Array


def to_blocks(x: Array, size: int) -> Array:
    """[B, L, ...] -> [B, N, C, ...] with C = ``size`` and N = ceil(L / C); zeros (False) pad the
    last block."""
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size)) + ((0, 0),) * (x.ndim - 2))
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])


def from_blocks(x: Array, length: int) -> Array:
    """[B, N, C, ...] -> [B, L, ...]: what ``to_blocks`` did, undone for the first ``length``
    positions."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])[:, :length]


def neighbours(x: Array, left: int, right: int, axes: Axes = ()) -> Array:
    """Every block with the ``left`` blocks before and the ``right`` blocks after it, in order of
    position.

    [B, N, C, ...] -> [B, N, (left + 1 + right) C, ...]; zeros (False) stand beyond both ends.
    ``axes``: see ``ops.sequence_sharding``.
    """
    blocks = x.shape[1]
    x = halo_exchange(x, left, right, axes)
    return jnp.concatenate([x[:, i : i + blocks] for i in range(left + 1 + right)], axis=2)
