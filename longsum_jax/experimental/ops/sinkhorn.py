"""Sinkhorn attention: every block attends to itself and to a softly sorted block.

After Tay et al. (2020), in the variant used by Hepos (Huang et al. 2021).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.blockwise import attend_key_sets
from longsum_jax.ops.attention.dense import Scale
from longsum_jax.ops.attention.fused import (
    FusedAttention,
    fused_key_sets,
    row_size,
)
from longsum_jax.ops.attention.key_sets import MASK_VALUE, KeySet, WeightDropout
from longsum_jax.ops.attention.local import local_distances
from longsum_jax.ops.attention.relative_position import distance_entries
from longsum_jax.ops.padding import zero_padding
from longsum_jax.typing import AnyArray


def soft_permutation(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    block_size: int,
    iterations: int = 7,
    temperature: float = 0.7,
    noise: Float[AnyArray, "batch heads num_blocks num_blocks"] | None = None,
) -> Float[Array, "batch heads num_blocks num_blocks"]:
    """Computes a nearly doubly stochastic matrix over blocks (Tay et al. 2020, section 3.1).

    Blocks are compared by the means of their queries and keys, without
    parameters. Rows and then columns are normalized ``iterations`` times.

    Args:
        q, k: queries and keys.
        mask: True on real tokens; rows and columns of blocks of padding are
            zeros.
        block_size: number of tokens of a block.
        iterations: number of normalizations of rows and columns.
        temperature: divisor of the log scores.
        noise: Gumbel noise, added in training.

    Returns:
        float32; row n has the weights of all blocks of keys for block n of
        queries.
    """
    token_mask = to_blocks(mask, block_size)
    means = [_block_means(to_blocks(x, block_size), token_mask) for x in (q, k)]
    # [batch, heads, num_blocks, num_blocks], from queries to keys.
    similarity = jax.nn.relu(
        jnp.einsum("bihk,bjhk->bhij", *means) * q.shape[-1] ** -0.5
    )
    scores = (
        jnp.log(similarity + 1e-6) + (0 if noise is None else noise)
    ) / temperature
    block_mask = token_mask.any(-1)
    # Sinkhorn iterations in log space, over pairs of blocks with real tokens.
    pair_mask = (block_mask[:, :, None] & block_mask[:, None])[:, None]
    for _ in range(iterations):
        for axis in (-1, -2):
            scores = jnp.where(pair_mask, scores, MASK_VALUE)
            scores = scores - jax.nn.logsumexp(scores, axis, keepdims=True)
    return jnp.where(pair_mask, jnp.exp(jnp.where(pair_mask, scores, 0)), 0)


def _block_means(
    x: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    mask: Bool[AnyArray, "batch num_blocks block_size"],
) -> Float[Array, "batch num_blocks heads head_dim"]:
    """Computes float32 means of the real tokens of every block, zeros for blocks of padding."""
    total = jnp.where(mask[..., None, None], x, 0).astype(jnp.float32).sum(2)
    return total / jnp.maximum(mask.sum(-1), 1)[..., None, None]


def sinkhorn_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    permutation: Float[AnyArray, "batch heads num_blocks num_blocks"],
    *,
    block_size: int,
    distance_bias: Float[AnyArray, "heads distances"] | None = None,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    fused: FusedAttention | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Attends from every block to itself and to a mixture of blocks, in one softmax.

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens.
        permutation: weights of the mixtures, from ``soft_permutation``. Mixed
            keys have the mask of the block with the largest weight.
        block_size: number of tokens of a block.
        distance_bias: bias by key position - query position, from 1 - length to
            length
            - 1, so that ``distances`` is 2 length - 1; mixed keys have no bias.
        scale: factor of the query-key products.
        dropout: dropout of the weights.
        fused: kernel, for rows of ``sinkhorn_row``, blocks of a power of two
            tokens, and no ``distance_bias``; None for the reference.

    Returns:
        The attended values in the type of ``v``; zeros for padding.
    """
    token_mask = to_blocks(mask, block_size)
    q, k, v = (to_blocks(zero_padding(x, mask), block_size) for x in (q, k, v))

    def mix(x: AnyArray) -> Array:
        return jnp.einsum("bhij,bjchk->bichk", permutation.astype(x.dtype), x)

    # [batch, num_blocks, heads]
    heaviest = jnp.moveaxis(jnp.argmax(permutation, -1), 1, 2)
    mixed_mask = jax.vmap(lambda mask, ids: mask[ids])(token_mask, heaviest)[
        :, :, :, None
    ]
    bias = None
    if distance_bias is not None:
        entries = distance_entries(
            distance_bias, local_distances(block_size, 0)
        )
        bias = distance_bias[:, entries][None, None]
    # One softmax over the mixture and the block itself.
    mixed = KeySet(mix(k), mix(v), mixed_mask)
    block_keys = KeySet(k, v, token_mask[:, :, None, None], bias)
    key_sets = [mixed, block_keys]
    if fused is None:
        out = attend_key_sets(q, key_sets, scale=scale, dropout=dropout)
    else:
        assert bias is None
        size, _ = sinkhorn_row(mask.shape[1], block_size)
        out = fused_key_sets(
            _rows(q, size),
            [_keys_of_rows(keys, size) for keys in key_sets],
            fused,
            pattern=_BlockPattern(block_size, size),
            scale=scale,
            dropout=dropout,
        )
    out = from_blocks(out, mask.shape[1])
    return zero_padding(out, mask)


def sinkhorn_row(length: int, block_size: int) -> tuple[int, int]:
    """Returns the numbers of queries and of keys per row of a kernel, whole blocks."""
    size = row_size(length, margin=0, multiple=block_size)
    return size, 2 * size


class _BlockPattern(NamedTuple):
    """The pattern of rows (``fused.Pattern``): the same block of mixed keys and of keys.

    Attributes:
        size: number of tokens of a block, a power of two.
        row: number of queries of a row, and of mixed keys, which come first.
    """

    size: int
    row: int

    def __call__(self, queries: AnyArray, keys: AnyArray) -> AnyArray:
        first = queries & -self.size
        is_mixed = (keys >= first) & (keys < first + self.size)
        first = first + self.row
        return is_mixed | ((keys >= first) & (keys < first + self.size))


def _rows(
    x: AnyArray, size: int
) -> Float[Array, "batch num_rows row_size heads head_dim"]:
    """Joins blocks [batch, num_blocks, block_size, heads, head_dim] to rows of ``size`` tokens."""
    rows = to_blocks(x, size // x.shape[2])
    return rows.reshape(*rows.shape[:2], size, *x.shape[3:])


def _keys_of_rows(keys: KeySet, size: int) -> KeySet:
    """Joins the keys and masks of blocks to rows of ``size`` tokens."""
    assert keys.mask is not None
    # [batch, num_rows, blocks, mask_heads, 1, block_size]
    mask = to_blocks(keys.mask, size // keys.mask.shape[-1])
    mask = jnp.moveaxis(mask, 2, 4)
    mask = mask.reshape(*mask.shape[:4], size)
    return KeySet(_rows(keys.k, size), _rows(keys.v, size), mask)
