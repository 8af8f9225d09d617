"""Hepos: cross-attention in which every head attends to every s-th position.

Huang et al. 2021, section 3.1. Head h attends to encoder position i if (i - h) mod s == 0, both
counted from 0: equation (1). Positions become rows of s neighbors, of which head h reads column
h mod s, so that keys, values and scores are s times smaller than without.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from longsum_jax.ops.attention.blocks import to_blocks
from longsum_jax.ops.attention.dense import masked_softmax
from longsum_jax.ops.sequence_sharding import Axes, sum_over
from longsum_jax.typing import Array


def strided_length(length: int, stride: int) -> int:
    """Returns the number of keys of every head, padding included: ceil(length / stride)."""
    return -(-length // stride)


def strided_key_mask(mask: Array, heads: int, stride: int) -> Array:
    """Returns the key mask of every head.

    Args:
        mask: bool [batch, length], True on real tokens.
        heads: number of heads.
        stride: distance of the positions of one head.

    Returns:
        bool [batch, heads, ceil(length / stride)].
    """
    columns = to_blocks(mask, stride)[:, :, np.arange(heads) % stride]
    return columns.swapaxes(1, 2)


def project_strided(x: Array, kernel: Array, stride: int) -> Array:
    """Projects, for each head, the positions that it attends to.

    Args:
        x: [B, L, D].   kernel: [D, H, K].   stride: S >= 1.

    Returns:
        [B, ceil(L / S), H, K]; row n of head h is of position n S + h mod S, zero where that is not
        below L.
    """
    rows = to_blocks(x, stride)
    parts = []
    for heads, columns in _groups(kernel.shape[1], stride):
        grouped = kernel[:, heads].reshape(kernel.shape[0], -1, columns, kernel.shape[2])
        part = jnp.einsum("bnsd,dgsk->bngsk", rows[:, :, :columns], grouped)
        parts.append(part.reshape(*part.shape[:2], -1, kernel.shape[2]))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, 2)


def mix_strided(
    q: Array, states: Array, mask: Array, stride: int, *, scale: float = 1.0, axes: Axes = ()
) -> Array:
    """Averages, for each head, the states at its positions by softmax(scale q states) in float32.

    Args:
        q: [B, T, H, D], queries in the space of the states.   states: [B, L, D].
        mask: bool [B, H, 1, ceil(L / S)], ``strided_key_mask`` with an axis for queries.
        axes: of states that are cut over devices, in parts of whole strides; see
            ``ops.sequence_sharding``.

    Returns:
        [B, T, H, D] in the type of ``states``; zeros where a head sees nothing.
    """
    batch, length, _, width = q.shape
    rows = to_blocks(states, stride)
    parts = []
    for heads, columns in _groups(q.shape[2], stride):
        grouped, seen = (
            q[:, :, heads].reshape(batch, length, -1, columns, width),
            rows[:, :, :columns],
        )
        scores = (
            jnp.einsum("btgsd,bnsd->bgstn", grouped, seen, preferred_element_type=jnp.float32)
            * scale
        )
        weights = masked_softmax(
            scores, mask[:, heads].reshape(batch, -1, columns, 1, rows.shape[1]), axes
        )
        part = sum_over(jnp.einsum("bgstn,bnsd->btgsd", weights.astype(states.dtype), seen), axes)
        parts.append(part.reshape(batch, length, -1, width))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, 2)


def _groups(heads: int, stride: int) -> Iterator[tuple[slice, int]]:
    """Yields groups of heads with the number of columns that a group reads.

    The first group has as many heads as fill all columns evenly, the second one the rest.
    """
    even = heads - heads % stride
    if even:
        yield slice(0, even), stride
    if heads > even:
        yield slice(even, heads), heads - even
