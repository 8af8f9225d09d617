"""Hepos: cross-attention in which every head attends to every s-th position.

Huang et al. 2021, section 3. Head h attends to encoder position i if (i - h)
mod s == 0, both counted from 0: equation (1). Positions are arranged in rows of
s neighbors, of which head h reads column h mod s, so that keys, values and
scores are s times smaller.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.attention.blocks import to_blocks
from longsum_jax.ops.attention.dense import Scale, masked_softmax, scaled_scores
from longsum_jax.ops.sequence_sharding import Axes, sum_over
from longsum_jax.typing import AnyArray


def strided_length(length: int, stride: int) -> int:
    """Returns the number of keys of every head, padding included: ceil(length / stride)."""
    return -(-length // stride)


def strided_key_mask(
    mask: Bool[AnyArray, "batch length"], heads: int, stride: int
) -> Bool[Array, "batch heads num_keys"]:
    """Returns the key mask of every head.

    Args:
        mask: True on real tokens.
        heads: number of heads.
        stride: distance between the positions of one head; ``num_keys`` is
            ceil(length / stride).
    """
    # Column h mod stride of every row: [batch, num_keys, heads].
    columns = to_blocks(mask, stride)[:, :, np.arange(heads) % stride]
    return columns.swapaxes(1, 2)


def project_strided(
    x: Float[AnyArray, "batch length d_model"],
    kernel: Float[AnyArray, "d_model heads head_dim"],
    stride: int,
) -> Float[Array, "batch num_keys heads head_dim"]:
    """Projects, for each head, the positions that it attends to.

    Args:
        x: states of all positions.
        kernel: weights of the projection.
        stride: distance between the positions of one head, 1 or more.

    Returns:
        ceil(length / stride) keys of each head; key n of head h is the key of
        position ``n * stride + h % stride``, or zero beyond the length.
    """
    rows = to_blocks(x, stride)
    d_model, heads, head_dim = kernel.shape
    outputs = []
    for group, columns in _head_groups(heads, stride):
        # Head h of a group reads column h mod stride.
        group_kernel = kernel[:, group].reshape(d_model, -1, columns, head_dim)
        out = jnp.einsum("bnsd,dgsk->bngsk", rows[:, :, :columns], group_kernel)
        outputs.append(lax.collapse(out, 2, 4))
    if len(outputs) == 1:
        return outputs[0]
    return jnp.concatenate(outputs, 2)


def mix_strided(
    q: Float[AnyArray, "batch query_length heads d_model"],
    states: Float[AnyArray, "batch length d_model"],
    mask: Bool[AnyArray, "batch heads 1 num_keys"],
    stride: int,
    *,
    scale: Scale = 1.0,
    axes: Axes = (),
) -> Float[Array, "batch query_length heads d_model"]:
    """Averages, for each head, the states at its positions by softmax(scale q states) in float32.

    Args:
        q: queries in the space of the states.
        states: states of all positions.
        mask: ``strided_key_mask`` with an axis for queries.
        stride: distance between the positions of one head.
        scale: factor of the query-key products.
        axes: mesh axes that shard the states, in shards of whole strides
            (``ops.sequence_sharding``).

    Returns:
        The means in the type of ``states``; zeros for heads without a key.
    """
    batch, query_length, heads, d_model = q.shape
    rows = to_blocks(states, stride)
    outputs = []
    for group, columns in _head_groups(heads, stride):
        num_groups = (group.stop - group.start) // columns
        group_q = q[:, :, group].reshape(
            batch, query_length, num_groups, columns, d_model
        )
        keys = rows[:, :, :columns]
        # [batch, groups, columns, query_length, num_keys]
        scores = jnp.einsum(
            "btgsd,bnsd->bgstn",
            group_q,
            keys,
            preferred_element_type=jnp.float32,
        )
        group_mask = mask[:, group].reshape(
            batch, num_groups, columns, 1, rows.shape[1]
        )
        weights = masked_softmax(
            scaled_scores(scores, scale), group_mask, axes
        ).astype(states.dtype)
        out = sum_over(jnp.einsum("bgstn,bnsd->btgsd", weights, keys), axes)
        outputs.append(lax.collapse(out, 2, 4))
    if len(outputs) == 1:
        return outputs[0]
    return jnp.concatenate(outputs, 2)


def _head_groups(heads: int, stride: int) -> Iterator[tuple[slice, int]]:
    """Yields groups of heads with the number of columns that a group reads.

    The first group is the largest number of heads that is a multiple of the
    stride, the second the remaining heads.
    """
    even = heads - heads % stride
    if even:
        yield slice(0, even), stride
    if heads > even:
        yield slice(even, heads), heads - even
