"""Attention to the own block and to a softly sorted one (Sinkhorn attention, Tay et al. 2020), as
Hepos uses it."""

import jax
import jax.numpy as jnp

from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.blockwise import MASK_VALUE, Dropout, KeySet, attend_key_sets
from longsum_jax.ops.attention.local import local_distances
from longsum_jax.typing import Array


def soft_order(
    q: Array,
    k: Array,
    mask: Array,
    *,
    block_size: int,
    iterations: int = 7,
    temperature: float = 0.7,
    noise: Array | None = None,
) -> Array:
    """A nearly doubly stochastic matrix over blocks: which block each block is to see (Tay et al.
    2020, section 3.1).

    Blocks are compared by the means of their queries and keys; there are no parameters. Rows, then
    columns are normalised ``iterations`` times. Blocks of padding take no part.

    Args:
        q, k: [B, L, H, K].   mask: bool [B, L].
        noise: float [B, H, N, N], Gumbel noise in training.

    Returns:
        float32 [B, H, N, N]; row n weighs the blocks of keys for block n of queries.
    """
    real = to_blocks(mask, block_size)
    means = [_block_means(to_blocks(x, block_size), real) for x in (q, k)]
    fit = jax.nn.relu(jnp.einsum("bihk,bjhk->bhij", *means) * q.shape[-1] ** -0.5)
    scores = (jnp.log(fit + 1e-6) + (0 if noise is None else noise)) / temperature
    present = real.any(-1)
    pairs = (present[:, :, None] & present[:, None])[:, None]
    for _ in range(iterations):
        for axis in (-1, -2):
            scores = jnp.where(pairs, scores, MASK_VALUE)
            scores = scores - jax.nn.logsumexp(scores, axis, keepdims=True)
    return jnp.where(pairs, jnp.exp(jnp.where(pairs, scores, 0)), 0)


def _block_means(x: Array, real: Array) -> Array:
    """[B, N, C, H, K], bool [B, N, C] -> float32 [B, N, H, K], zeros for blocks of padding."""
    total = jnp.where(real[..., None, None], x, 0).astype(jnp.float32).sum(2)
    return total / jnp.maximum(real.sum(-1), 1)[..., None, None]


def sinkhorn_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    order: Array,
    *,
    block_size: int,
    distance_bias: Array | None = None,
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> Array:
    """Every block sees itself and the blocks that ``order`` mixes for it, in one softmax.

    Which of the mixed keys are padding is taken from the block that weighs most.

    Args:
        q, k, v: [B, L, H, K].   mask: bool [B, L].   order: [B, H, N, N] from ``soft_order``.
        distance_bias: float [H, 2 L - 1], by key position - query position; mixed keys have none.

    Returns:
        [B, L, H, K] in the type of ``v``.
    """
    real = to_blocks(mask, block_size)
    q, k, v = (to_blocks(jnp.where(mask[..., None, None], x, 0), block_size) for x in (q, k, v))
    mix = lambda x: jnp.einsum("bhij,bjchk->bichk", order.astype(x.dtype), x)  # noqa: E731
    heaviest = jnp.moveaxis(jnp.argmax(order, -1), 1, 2)  # [B, N, H]
    mixed_real = jax.vmap(lambda r, i: r[i])(real, heaviest)[:, :, :, None]
    bias = None
    if distance_bias is not None:
        last = distance_bias.shape[1] // 2
        bias = distance_bias[:, jnp.clip(local_distances(block_size, 0), -last, last) + last][
            None, None
        ]
    sets = [KeySet(mix(k), mix(v), mixed_real), KeySet(k, v, real[:, :, None, None], bias)]
    out = from_blocks(attend_key_sets(q, sets, scale=scale, dropout=dropout), mask.shape[1])
    return jnp.where(mask[..., None, None], out, 0)
