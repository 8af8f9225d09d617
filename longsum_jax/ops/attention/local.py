"""Local and transient-global attention of LongT5."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.blocks import from_blocks, neighbors, to_blocks
from longsum_jax.ops.attention.blockwise import (
    Dropout,
    KeySet,
    attend_key_sets,
    sliced_bias,
)
from longsum_jax.ops.sequence_sharding import Axes, count_shards, sum_over
from longsum_jax.typing import Array

# A window of one block and its neighbors


def local_block_size(radius: int) -> int:
    """Returns the default block size of ``local_attention``: ``radius`` rounded up to a multiple of
    8."""
    return max(8, radius + -radius % 8)


def local_distances(block_size: int, radius: int) -> np.ndarray:
    """Returns key position - query position in the block layout of ``local_attention``: int [C, W].

    A bias for that function is one float per head and entry of this array. W = C (1 + 2 ceil(radius
    / C)); entries farther than ``radius`` are never seen.
    """
    sides = -(-radius // block_size)
    keys = np.arange(-sides * block_size, (sides + 1) * block_size)
    return keys - np.arange(block_size)[:, None]


def local_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    *,
    radius: int | Array,
    max_radius: int | None = None,
    block_size: int | None = None,
    bias: Array | None = None,
    key_mask: Array | None = None,
    extra: Sequence[KeySet] = (),
    scale: float = 1.0,
    dropout: Dropout | None = None,
    axes: Axes = (),
) -> Array:
    """Attends to the tokens within ``radius`` positions and to ``extra`` keys, in one softmax.

    The local attention of LongT5 (Guo et al. 2022, section 3.1) and, with ``extra``, the core of
    its transient global attention and of Longformer's (Beltagy et al. 2020, section 3.1).

    Args:
        q, k, v: [B, L, H, K].   mask: bool [B, L].
        radius: tokens to each side; may be traced if ``max_radius`` is given.
        max_radius: upper bound of a traced ``radius``; it decides the layout in blocks.
        block_size: ``local_block_size`` of the (maximal) radius when not given.
        bias: float [H, C, W], per entry of ``local_distances(block_size, max_radius or radius)``.
        key_mask: bool [B, L], True on tokens that may be attended to; default ``mask``.
        extra: more keys, with a mask of their own: [B, G, H, K] for all tokens, or [B, N, G, H,
            K] per block.

    Returns:
        [B, L, H, K] in the type of ``v``.
    """
    widest = radius if max_radius is None else max_radius
    size = local_block_size(widest) if block_size is None else block_size
    check_sizes(widest, size)
    distances = local_distances(size, widest)
    sides, blocks = -(-widest // size), -(-q.shape[1] // size) * count_shards(axes)
    unused = max(0, sides - (blocks - 1)) * size  # keys that lie beyond both ends for every block
    seen = slice(unused, distances.shape[1] - unused)
    window = lambda x: neighbors(to_blocks(x, size), *[sides - unused // size] * 2, axes)  # noqa: E731
    near = jnp.abs(distances[:, seen]) <= radius
    real = window(mask if key_mask is None else key_mask)[:, :, None, None]
    bias = None if bias is None else bias[None, None, :, :, seen]
    key_sets = [KeySet(window(k), window(v), real & near, bias), *extra]
    return _attend_blocks(q, size, key_sets, mask, scale, dropout)


def _attend_blocks(
    q: Array,
    size: int,
    key_sets: Sequence[KeySet],
    mask: Array,
    scale: float,
    dropout: Dropout | None,
) -> Array:
    out = attend_key_sets(to_blocks(q, size), key_sets, scale=scale, dropout=dropout)
    return zero_padding(from_blocks(out, q.shape[1]), mask)


def zero_padding(x: Array, mask: Array) -> Array:
    return jnp.where(mask[..., None, None], x, 0)


def split_dropout(dropout: Dropout | None) -> tuple[Dropout | None, Dropout | None]:
    """Returns independent dropouts for the two softmaxes of an attention."""
    return (dropout.fold(0), dropout.fold(1)) if dropout else (None, None)


def check_sizes(radius: int, block_size: int) -> None:
    if radius < 0:
        raise InputError(f"the attention radius is {radius}; it must be 0 or more tokens")
    if block_size < 1:
        raise InputError(f"the attention block size is {block_size}; it must be 1 or more tokens")


# LongT5: a window and one transient global token per fixed block


def transient_blocks(mask: Array, size: int) -> tuple[Array, Array]:
    """Assigns tokens to blocks of ``size``, whose sums are LongT5's global tokens.

    Guo et al. 2022, section 3.2.

    Tokens after the last full block of their row belong to that block; a row without a full block
    has none.

    Args:
        mask: bool [B, L], True on real tokens, padding on the right.

    Returns:
        block_ids: int32 [B, L], -1 for padding and for tokens without a block.
        present: bool [B, G], G = L // size; True on the blocks that the row fills.
    """
    position = jnp.arange(mask.shape[1])
    full = (mask & (position % size == size - 1)).sum(1)
    block_ids = jnp.where(mask, jnp.minimum(position // size, full[:, None] - 1), -1)
    present = jnp.arange(mask.shape[1] // size) <= block_ids.max(1)[:, None]
    return block_ids.astype(jnp.int32), present


def block_sums(x: Array, block_ids: Array, num_blocks: int, axes: Axes = ()) -> Array:
    """Sums the vectors of each block, in float32.

    Args:
        x: [B, L, D].
        block_ids: int [B, L]; ids outside 0 .. G - 1 are left out.
        num_blocks: G.
        axes: mesh axes that shard the sequence.

    Returns:
        [B, G, D] in the type of ``x``.
    """
    ids = jnp.where(block_ids < 0, num_blocks, block_ids)
    add = lambda x, ids: jax.ops.segment_sum(x, ids, num_blocks)  # noqa: E731
    return sum_over(jax.vmap(add)(x.astype(jnp.float32), ids), axes).astype(x.dtype)


def side_distances(num_globals: int) -> np.ndarray:
    """Returns all values of global block - block of the query: int [2 G], from 1 - G to G.

    A query without a block counts as block -1. A ``side_bias`` is one float per head and entry of
    this array.
    """
    return np.arange(2 * num_globals) - (num_globals - 1)


def transient_global_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    block_ids: Array,
    present: Array,
    global_k: Array,
    global_v: Array,
    *,
    radius: int,
    block_size: int | None = None,
    bias: Array | None = None,
    side_bias: Array | None = None,
    scale: float = 1.0,
    dropout: Dropout | None = None,
    axes: Axes = (),
) -> Array:
    """Attends to a window and all transient global tokens, in one softmax.

    Guo et al. 2022, section 3.2.

    Args:
        q, k, v, mask, radius, block_size, bias: see ``local_attention``.
        block_ids, present: [B, L] and [B, G] from ``transient_blocks``.
        global_k, global_v: [B, G, H, K], keys and values of the (normalised) ``block_sums``.
        side_bias: float [H, 2 G], per entry of ``side_distances``.

    Returns:
        [B, L, H, K] in the type of ``v``.
    """
    size = local_block_size(radius) if block_size is None else block_size
    count = present.shape[1]
    side = (
        None
        if side_bias is None
        else sliced_bias(side_bias, count - 1 - to_blocks(block_ids, size), count)
    )
    extra = (
        [KeySet(global_k, global_v, present[:, None, None, None], side)]
        if global_k.shape[1]
        else []
    )
    sizes = {"radius": radius, "block_size": size}
    return local_attention(
        q, k, v, mask, **sizes, bias=bias, extra=extra, scale=scale, dropout=dropout, axes=axes
    )
