"""Local and transient-global attention of LongT5."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.blocks import (
    check_block_size,
    from_blocks,
    neighbors,
    overlapping,
    to_blocks,
)
from longsum_jax.ops.attention.blockwise import attend_key_sets
from longsum_jax.ops.attention.dense import QKV, Scale
from longsum_jax.ops.attention.fused import (
    FusedAttention,
    fused_key_sets,
    row_size,
)
from longsum_jax.ops.attention.key_sets import (
    FOLDED_MASK,
    KeySet,
    WeightDropout,
    sliced_bias,
)
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.packing import SegmentIds, same_segment
from longsum_jax.ops.padding import append_zeros, zero_padding
from longsum_jax.ops.sequence_sharding import (
    Axes,
    count_shards,
    first_position,
    sum_over,
)
from longsum_jax.typing import AnyArray

# A window of one block and its neighbors


def local_block_size(radius: int) -> int:
    """Returns the default block size for a radius: ``radius`` rounded up to a multiple of 8."""
    return max(8, radius + -radius % 8)


def local_distances(
    block_size: int, radius: int
) -> Int[np.ndarray, "block_size window"]:
    """Returns key position - query position in the block layout of ``local_attention``.

    A bias for ``local_attention`` is one float per head and entry of this
    array. ``window`` is block_size (1 + 2 ceil(radius / block_size)); keys
    farther than ``radius`` are masked.
    """
    sides = -(-radius // block_size)
    keys = np.arange(-sides * block_size, (sides + 1) * block_size)
    return keys - np.arange(block_size)[:, None]


def local_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    radius: int | Int[AnyArray, ""],
    max_radius: int | None = None,
    is_even: bool = False,
    block_size: int | None = None,
    bias: Float[AnyArray, "heads block_size window"] | None = None,
    key_mask: Bool[AnyArray, "batch length"] | None = None,
    segment_ids: Int[AnyArray, "batch length"] | None = None,
    extra: Sequence[KeySet] = (),
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
    fused: FusedAttention | None = None,
    steps: Sequence[StepBias] = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends to the tokens within ``radius`` positions and to ``extra`` keys, in one softmax.

    This is the local attention of LongT5 (Guo et al. 2022, section 3.1) and,
    with ``extra``, the core of its transient global attention and of
    Longformer's attention (Beltagy et al. 2020, section 3.1).

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens.
        radius: number of tokens to each side; may be traced if ``max_radius``
            is given.
        max_radius: upper bound of a traced ``radius``; it determines the layout
            in blocks.
        is_even: True to leave out the farthest token on the left, so that a
            window has ``2 radius`` tokens.
        block_size: number of tokens of a block; defaults to
            ``local_block_size`` of the maximum radius.
        bias: bias of the window's scores, one float per head and entry of
            ``local_distances(block_size, max_radius or radius)``.
        key_mask: True on tokens that may be attended to; default ``mask``.
        segment_ids: segment ids of packed rows, whose queries only read tokens
            of their segment; None for one segment.
        extra: additional keys, for all tokens or for each block (``KeySet``),
            with mask and bias.
        scale: factor of the query-key products.
        dropout: dropout of the weights.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``), in
            shards of whole blocks.
        fused: kernel for this attention; not with a traced ``radius``, and only
            for ``extra`` keys that all tokens share, none with
            ``segment_ids``.
        steps: all biases by distance, for ``fused``: the bias of the window and,
            with ``queries`` [batch, length], the bias of ``extra``.

    Returns:
        The attended values in the type of ``v``; zeros for padding.

    Raises:
        InputError: a negative radius, or a block size below 1.
    """
    if fused is not None:
        tokens, key_mask = QKV(q, k, v), mask if key_mask is None else key_mask
        fused = functools.partial(fused, dropout=dropout, scale=scale)
        reach = cast(int, radius) - is_even, cast(int, radius)
        out = _attend_in_rows(
            tokens, key_mask, segment_ids, reach, extra, fused, steps, axes
        )
        return zero_padding(out, mask)
    if max_radius is None:
        widest = cast(int, radius)
    else:
        widest = max_radius
    if block_size is None:
        block_size = local_block_size(widest)
    if widest < 0:
        raise InputError(
            f"the attention radius is {widest}; it must be 0 or more tokens"
        )
    check_block_size(block_size)
    distances = local_distances(block_size, widest)
    sides = -(-widest // block_size)
    num_blocks = -(-q.shape[1] // block_size) * count_shards(axes)
    # Neighbors that are beyond both ends of the sequence for every block are
    # left out.
    unused_blocks = max(0, sides - (num_blocks - 1))
    sides = sides - unused_blocks
    unused = unused_blocks * block_size
    window = slice(unused, distances.shape[1] - unused)

    def windows(x: AnyArray) -> Array:
        return neighbors(to_blocks(x, block_size), sides, sides, axes)

    # The radius is a bias, the same for all blocks. The boolean mask then
    # depends on keys only, and ``blockwise`` folds it into the products on
    # CPUs.
    offsets = distances[:, window]
    within_radius = (offsets >= is_even - radius) & (offsets <= radius)
    window_bias = 0.0 if bias is None else bias[:, :, window]
    reach_bias = jnp.where(within_radius, window_bias, FOLDED_MASK)
    window_mask = windows(mask if key_mask is None else key_mask)[
        :, :, None, None
    ]
    if segment_ids is not None:
        block_ids = to_blocks(segment_ids, block_size)
        is_same = same_segment(block_ids, windows(segment_ids))
        window_mask = window_mask & is_same[:, :, None]
    window_keys = KeySet(windows(k), windows(v), window_mask, reach_bias)
    blocks = to_blocks(q, block_size)
    out = attend_key_sets(
        blocks, [window_keys, *extra], scale=scale, dropout=dropout
    )
    return zero_padding(from_blocks(out, q.shape[1]), mask)


class _WindowPattern(NamedTuple):
    """The pattern of a window (``fused.Pattern``): keys in its reach, and all extra keys.

    Attributes:
        sides: number of tokens to the left and to the right.
        margin: number of keys of a row before its first query.
        num_keys: number of keys of the text in a row; extra keys follow.
    """

    sides: tuple[int, int]
    margin: int
    num_keys: int

    def __call__(self, queries: AnyArray, keys: AnyArray) -> AnyArray:
        distances = keys - queries - self.margin
        left, right = self.sides
        in_reach = (distances >= -left) & (distances <= right)
        return in_reach | (keys >= self.num_keys)


def _attend_in_rows(
    tokens: QKV,
    key_mask: Bool[AnyArray, "batch length"],
    segment_ids: Int[AnyArray, "batch length"] | None,
    sides: tuple[int, int],
    extra: Sequence[KeySet],
    fused: FusedAttention,
    steps: Sequence[StepBias],
    axes: Axes,
) -> Float[Array, "batch length heads head_dim"]:
    """Computes ``local_attention`` by a kernel; zeros for queries without a key."""
    length, radius = key_mask.shape[1], max(sides)
    size = row_size(length, margin=2 * radius)
    num_rows = -(-length // size)
    # a single row has no neighbors
    if num_rows * count_shards(axes) > 1:
        margin = radius
    else:
        margin = 0

    # [batch, length, ...] -> [batch, num_rows, size + 2 margin, ...]
    def rows(x: AnyArray) -> Array:
        return overlapping(
            x, -margin, size, 2 * margin, num_rows, axes
        ).swapaxes(0, 1)

    text = KeySet(
        rows(tokens.k), rows(tokens.v), rows(key_mask)[:, :, None, None]
    )
    num_keys = size + 2 * margin
    end = num_keys if extra else None
    biases = [replace(x, origin=margin, end_key=end) for x in steps[:1]]

    # [batch, length] -> [batch * num_rows, size]
    def of_queries(x: AnyArray) -> Array:
        return to_blocks(x, size).reshape(-1, size)

    for bias in steps[1:]:
        assert bias.queries is not None
        positions = of_queries(bias.queries)
        bias = replace(bias, origin=num_keys, queries=positions)
        biases.append(replace(bias, first_key=num_keys))
    segments = None
    if segment_ids is not None:
        assert not extra
        of_keys = rows(segment_ids).reshape(-1, num_keys)
        segments = SegmentIds(of_keys, of_queries(segment_ids))
    out = fused_key_sets(
        to_blocks(tokens.q, size),
        [text, *extra],
        fused,
        pattern=_WindowPattern(sides, margin, num_keys),
        biases=biases,
        segment_ids=segments,
    )
    return from_blocks(out, length)


# LongT5: a window and one transient global token per fixed block


def transient_blocks(
    mask: Bool[AnyArray, "batch length"], size: int
) -> tuple[Int[Array, "batch length"], Bool[Array, "batch num_globals"]]:
    """Assigns tokens to blocks of ``size``, whose sums are LongT5's global tokens.

    Guo et al. 2022, section 3.2. Tokens after the last full block of their row
    belong to that block; a row without a full block has none. A block is full
    if its last token is real, and the first blocks count as the full ones, as
    in transformers.

    Args:
        mask: True on real tokens.
        size: number of tokens of a block; ``num_globals`` is length // size.

    Returns:
        block_ids: int32 block of every token, -1 for padding and for tokens
            without a block.
        global_mask: True on the blocks that the row fills.
    """
    position = jnp.arange(mask.shape[1])
    num_full = (mask & _ends_block(position, size)).sum(1)
    block_ids = jnp.where(
        mask, jnp.minimum(position // size, num_full[:, None] - 1), -1
    )
    global_mask = jnp.arange(mask.shape[1] // size) <= block_ids.max(1)[:, None]
    return block_ids.astype(jnp.int32), global_mask


def _ends_block(
    positions: Int[AnyArray, " length"], size: int
) -> Bool[Array, " length"]:
    """Returns True for the last position of each block."""
    return positions % size == size - 1


def block_sums(
    x: Float[AnyArray, "batch length *features"],
    mask: Bool[AnyArray, "batch length"],
    size: int,
    num_blocks: int,
    axes: Axes = (),
) -> Float[Array, "batch num_blocks *features"]:
    """Sums the vectors of each block of ``transient_blocks``, in float32.

        tokens   a b c d | e f g h | i j - -      size 4; i and j join the second full block
        sums     a+b+c+d   e+f+g+h+i+j

    Args:
        x: vectors of tokens.
        mask: True on real tokens.
        size: number of tokens of a block.
        num_blocks: number of blocks.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``).

    Returns:
        The sums in the type of ``x``; zeros for blocks that are not full.
    """
    positions = first_position(mask.shape[1], axes) + jnp.arange(mask.shape[1])
    ends_of_blocks = jnp.sum(mask & _ends_block(positions, size), 1)
    num_full = sum_over(ends_of_blocks, axes)[:, None]
    # Tokens after the last full block are added to it.
    sums = _aligned_sums(
        jnp.where(_columns(mask, x), x, 0), size, num_blocks + 1, axes
    )
    is_full = _columns(jnp.arange(num_blocks + 1) < num_full, sums)
    rest = jnp.where(is_full, 0, sums).sum(1, keepdims=True)
    is_last = _columns(jnp.arange(num_blocks) == num_full - 1, sums)
    full = jnp.where(is_full, sums, 0)[:, :-1]
    rest = jnp.where(is_last, rest, 0)
    return (full + rest).astype(x.dtype)


def _aligned_sums(
    x: Float[AnyArray, "batch length *features"],
    size: int,
    count: int,
    axes: Axes,
) -> Float[Array, "batch count *features"]:
    """Sums every ``size`` tokens of the sequence, in float32; returns the first ``count`` sums."""
    batch, length, *features = x.shape
    local_count = -(-length // size)
    offset: Array | int = 0
    if axes:  # shards may begin and end inside a block
        first = first_position(length, axes)
        # Pads the shard so that its first token is at the right offset within a
        # block.
        local_count = length // size + 2
        offset = first // size
        padded = jnp.zeros((batch, local_count * size, *features), x.dtype)
        x = lax.dynamic_update_slice_in_dim(padded, x, first % size, 1)
    x = append_zeros(x, local_count * size - x.shape[1])
    local = x.reshape(batch, local_count, size, *features).sum(
        2, dtype=jnp.float32
    )
    # Adds the partial sums of all shards at the offset of their first block.
    whole = max(count, count_shards(axes) * length // size + 2)
    sums = jnp.zeros((batch, whole, *features), jnp.float32)
    sums = lax.dynamic_update_slice_in_dim(sums, local, offset, 1)
    return sum_over(sums, axes)[:, :count]


def _columns(mask: AnyArray, x: AnyArray) -> AnyArray:
    """Returns ``mask`` [batch, length] and axes of size 1, as many axes as ``x``."""
    return mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))


def side_distances(num_globals: int) -> Int[np.ndarray, " entries"]:
    """Returns all values of global block - query block, from 1 - num_globals to num_globals.

    A query without a block counts as block -1. A ``side_bias`` is one float per
    head and entry of this array, which has 2 num_globals entries.
    """
    return np.arange(2 * num_globals) - (num_globals - 1)


def transient_global_attention(
    tokens: QKV,
    mask: Bool[AnyArray, "batch length"],
    block_ids: Int[AnyArray, "batch length"],
    global_keys: KeySet,
    *,
    radius: int,
    block_size: int | None = None,
    bias: Float[AnyArray, "heads block_size window"] | None = None,
    side_bias: Float[AnyArray, "heads entries"] | None = None,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
    fused: FusedAttention | None = None,
    steps: Sequence[StepBias] = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends to a window and all transient global tokens, in one softmax.

    Guo et al. 2022, section 3.2.

    Args:
        tokens: arrays [batch, length, heads, head_dim].
        mask, radius, block_size, bias, scale, dropout, axes, fused: see
            ``local_attention``.
        block_ids: blocks of the tokens, from ``transient_blocks``.
        global_keys: keys and values [batch, num_globals, heads, head_dim] of
            the (normalized) ``block_sums``, masked by the ``global_mask`` of
            ``transient_blocks``.
        side_bias: bias of the scores of global tokens, one float per head and
            entry of ``side_distances(num_globals)``.
        steps: ``bias`` and ``side_bias`` by distance, for ``fused``.

    Returns:
        The attended values in the type of ``tokens.v``; zeros for padding.
    """
    if block_size is None:
        block_size = local_block_size(radius)
    num_globals = global_keys.k.shape[1]
    if side_bias is not None:
        # entry of global block 0
        starts = num_globals - 1 - to_blocks(block_ids, block_size)
        global_keys = global_keys._replace(
            bias=sliced_bias(side_bias, starts, num_globals)
        )
    return local_attention(
        *tokens,
        mask,
        radius=radius,
        block_size=block_size,
        bias=bias,
        extra=[global_keys] if num_globals else [],
        scale=scale,
        dropout=dropout,
        axes=axes,
        fused=fused,
        steps=[*steps[:1], *(replace(x, queries=block_ids) for x in steps[1:])],
    )
