"""Attention to windows, spans, global tokens, strides and random blocks, or combinations of them.

The fixed patterns of Huang et al. (2021, section 2.1) and adaptive spans
(Sukhbaatar et al. 2019), in one softmax. A key in several patterns counts once:
it belongs to the first of global, window, stride, random. Keys of query 5 among
ten tokens, with one global token, a window of radius 1, a stride of 3 and
random blocks of two tokens, of which tokens 6 and 7 were drawn:

    key       0  1  2  3  4  5  6  7  8  9
    global    g
    window                w  w  w
    stride          s                 s         5 already belongs to the window
    random                         r            so does 6

Without strides, cost is linear in the length; with a stride S, every query has
length / S keys.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.ops.attention.blocks import from_blocks, neighbors, to_blocks
from longsum_jax.ops.attention.blockwise import (
    attend_key_sets,
    attend_partially,
)
from longsum_jax.ops.attention.dense import QKV, Scale
from longsum_jax.ops.attention.fused import FusedAttention
from longsum_jax.ops.attention.key_sets import (
    FOLDED_MASK,
    KeySet,
    LazyBias,
    PartialSoftmax,
    WeightDropout,
    merge_partial_softmaxes,
    merge_shards,
    sliced_bias,
)
from longsum_jax.ops.attention.local import (
    local_attention,
    local_block_size,
    local_distances,
)
from longsum_jax.ops.attention.longformer import (
    gather_positions,
    scatter_positions,
)
from longsum_jax.ops.attention.relative_position import (
    StepBias,
    distance_entries,
    first_entries,
)
from longsum_jax.ops.padding import zero_padding
from longsum_jax.ops.sequence_sharding import Axes, count_shards, first_position
from longsum_jax.typing import AnyArray

STRIDE_BLOCK = 64  # queries of one residue class computed together
GLOBAL_BLOCK = 64  # global tokens computed together


class KeyPattern(NamedTuple):
    """The keys that a query attends to; patterns that are None or 0 are left out.

    Attributes:
        radius: tokens of a window on either side; may be traced if
            ``max_radius`` is given.
        max_radius: upper bound of ``radius``; defaults to ``radius``.
        span: adaptive span of each head inside the window, float [heads], in
            tokens (``soft_span``).
        ramp: number of tokens over which the weights of a span fall to 0.
        num_global: number of global tokens, the first tokens of the sequence:
            all queries attend to them, and they attend to all keys.
        stride: distance between keys; token i attends to all j with (i - j) mod
            stride = 0.
        draws: random numbers [batch or 1, num_blocks, heads, count] in [0, 1).
            Every block of queries attends to ``count`` blocks of keys, drawn
            among the real blocks (``drawn_blocks``).
        block_size: number of tokens of a block for ``draws``; the window then
            uses the same blocks.
    """

    radius: int | AnyArray | None = None
    max_radius: int | None = None
    span: AnyArray | None = None
    ramp: int = 16
    num_global: int = 0
    stride: int = 0
    draws: AnyArray | None = None
    block_size: int = 64

    @property
    def radius_bound(self) -> int:
        """Largest value that ``radius`` can have, for a pattern with a window."""
        if self.max_radius is None:
            return cast(int, self.radius)
        return self.max_radius

    @property
    def query_block_size(self) -> int:
        """Number of queries of a block."""
        if self.draws is not None or self.radius is None:
            return self.block_size
        return local_block_size(self.radius_bound)

    @property
    def is_shardable(self) -> bool:
        """True if a sequence may be sharded: only with windows and global tokens."""
        return not self.stride and self.draws is None

    @property
    def is_fusable(self) -> bool:
        """True for a window of static radius, with or without global tokens."""
        return (
            self.is_shardable
            and isinstance(self.radius, int)
            and self.span is None
        )

    def in_window(
        self, i: Int[AnyArray, "..."], j: Int[AnyArray, "..."]
    ) -> Bool[Array, "..."]:
        """Returns True if key ``j`` is in the window of query ``i``; both broadcast."""
        if self.radius is None:
            return jnp.zeros_like(i - j, bool)
        return jnp.abs(i - j) <= self.radius

    def in_stride(
        self, i: Int[AnyArray, "..."], j: Int[AnyArray, "..."]
    ) -> Bool[Array, "..."]:
        """Returns True if query ``i`` and key ``j`` are a multiple of the stride apart."""
        if not self.stride:
            return jnp.zeros_like(i - j, bool)
        return (i - j) % self.stride == 0


def soft_span(
    distance: Int[AnyArray, "block_size num_keys"],
    span: Float[AnyArray, " heads"],
    ramp: int,
) -> Float[Array, "heads block_size num_keys"]:
    """Returns the weights in [0, 1] of keys under adaptive spans.

    Sukhbaatar et al. 2019, equation 6: 1 up to one token beyond the span, as in
    the published code of Hepos, then falling to 0 over ``ramp`` tokens.

    Args:
        distance: key position - query position.
        span: span of every head in tokens.
        ramp: number of tokens over which the weights fall.
    """
    reach = jnp.maximum(jnp.abs(distance) - 1, 0)
    return jnp.clip((span[:, None, None] - reach) / ramp + 1, 0, 1)


def drawn_blocks(
    draws: Float[AnyArray, "#batch num_blocks heads count"],
    mask: Bool[AnyArray, "batch length"],
    block_size: int,
) -> Int[Array, "batch num_blocks heads count"]:
    """Converts draws in [0, 1) to indices of blocks with real tokens, independently of the padding.

    Args:
        draws: positions among the real blocks, as fractions of their number.
        mask: True on real tokens, padding on the right.
        block_size: number of tokens of a block.
    """
    # Number of blocks with real tokens, [batch, 1, 1, 1].
    num_real = -(-mask.sum(1) // block_size)[:, None, None, None]
    return jnp.clip(
        (draws * num_real).astype(jnp.int32), 0, jnp.maximum(num_real - 1, 0)
    )


class _Inputs(NamedTuple):
    """Arguments of ``pattern_attention``."""

    qkv: QKV
    mask: AnyArray
    distance_bias: AnyArray | None
    scale: Scale
    axes: Axes


def pattern_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    pattern: KeyPattern,
    *,
    distance_bias: Float[AnyArray, "heads distances"] | None = None,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
    fused: FusedAttention | None = None,
    steps: Sequence[StepBias] = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends to the union of the keys of all patterns; each key counts once.

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens, padding on the right.
        pattern: keys of every query.
        distance_bias: bias by key position - query position, from 1 - length to
            length
            - 1, so that ``distances`` is 2 length - 1; the length of the whole
            sequence if it is sharded.
        scale: factor of the query-key products.
        dropout: dropout of the weights.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``), in
            shards of whole blocks (``pattern.query_block_size``); only for
            shardable patterns.
        fused: kernel for all queries except global tokens; for fusable
            patterns.
        steps: ``distance_bias`` as steps, for ``fused``.

    Returns:
        The attended values in the type of ``v``; zeros for padding and for
        queries without a key.
    """
    stride_dropout, block_dropout, global_dropout = [None] * 3
    if dropout is not None:
        # Independent draws for the three softmaxes.
        stride_dropout, block_dropout, global_dropout = [
            dropout.fold(i) for i in range(3)
        ]
    length = q.shape[1]
    if distance_bias is not None and axes:
        # Shards of whole blocks may end beyond the sequence, for which the bias
        # has no entries.
        total = length * count_shards(axes)
        missing = total - 1 - distance_bias.shape[1] // 2
        distance_bias = jnp.pad(
            distance_bias, ((0, 0), (missing, missing)), mode="edge"
        )
    x = _Inputs(QKV(q, k, v), mask, distance_bias, scale, axes)
    if fused is not None:
        out = _fused_window(x, pattern, fused, steps, block_dropout)
    else:
        out = _attend_to_union(x, pattern, stride_dropout, block_dropout)
    if pattern.num_global:
        global_q = _first_rows(q, pattern.num_global, axes)
        rows = _attend_from_globals(x, global_q, global_dropout)
        out = _replace_first_rows(out, rows, axes)
    return zero_padding(out, mask)


def _fused_window(
    x: _Inputs,
    pattern: KeyPattern,
    fused: FusedAttention,
    steps: Sequence[StepBias],
    dropout: WeightDropout | None,
) -> Array:
    """Computes a window and global tokens by a kernel."""
    length = x.mask.shape[1]
    assert pattern.radius is not None
    positions = jnp.arange(length) + first_position(length, x.axes)
    queries = jnp.broadcast_to(positions, x.mask.shape)
    of_globals = [replace(step, queries=queries) for step in steps]
    # Global tokens are extra keys, and therefore masked in the window.
    return local_attention(
        *x.qkv,
        x.mask,
        radius=pattern.radius,
        key_mask=x.mask & (positions >= pattern.num_global),
        extra=[_global_keys(x, pattern)] if pattern.num_global else [],
        scale=x.scale,
        dropout=dropout,
        axes=x.axes,
        fused=fused,
        steps=[*steps, *of_globals] if pattern.num_global else steps,
    )


def _attend_to_union(
    x: _Inputs,
    pattern: KeyPattern,
    stride_dropout: WeightDropout | None,
    block_dropout: WeightDropout | None,
) -> Array:
    """Attends from all tokens, global tokens included, to the keys of all patterns."""
    (q, _, v), length = x.qkv, x.mask.shape[1]
    key_sets = _block_key_sets(x, pattern)
    blocks = to_blocks(q, pattern.query_block_size)
    if not pattern.stride:
        out = attend_key_sets(
            blocks, key_sets, scale=x.scale, dropout=block_dropout
        )
        return from_blocks(out, length)
    # Strided keys have a different layout, so two partial softmaxes are merged.
    softmaxes = [_attend_strided(x, pattern, stride_dropout)]
    if key_sets:
        softmax = attend_partially(
            blocks, key_sets, scale=x.scale, dropout=block_dropout
        )
        softmaxes.append(softmax.map(lambda x: from_blocks(x, length)))
    return merge_partial_softmaxes(softmaxes).astype(v.dtype)


def _block_key_sets(x: _Inputs, pattern: KeyPattern) -> list[KeySet]:
    """Returns the keys of blocks of neighboring queries: global tokens, window, random blocks."""
    size, length = pattern.query_block_size, x.mask.shape[1]
    num_blocks = -(-length // size)
    positions = jnp.arange(num_blocks * size).reshape(1, num_blocks, size)
    positions = positions + first_position(length, x.axes)
    key_sets = []
    if pattern.num_global:
        key_sets.append(_global_keys(x, pattern, positions))
    if pattern.radius is not None:
        key_sets.append(_window_keys(x, pattern))
    if pattern.draws is not None:
        key_sets.append(_random_keys(x, pattern, positions))
    return key_sets


def _global_keys(
    x: _Inputs, pattern: KeyPattern, positions: AnyArray | None = None
) -> KeySet:
    """Returns the global tokens as keys of all queries; a bias needs the queries' ``positions``."""
    arrays = (x.qkv.k, x.qkv.v, x.mask)
    k, v, mask = (
        _first_rows(array, pattern.num_global, x.axes) for array in arrays
    )
    bias = None
    if x.distance_bias is not None and positions is not None:
        starts = first_entries(x.distance_bias, positions)
        bias = sliced_bias(x.distance_bias, starts, k.shape[1])
    return KeySet(k, v, mask[:, None, None, None], bias)


def _window_keys(x: _Inputs, pattern: KeyPattern) -> KeySet:
    """Returns the keys within the radius, without the global tokens."""
    size, length = pattern.query_block_size, x.mask.shape[1]
    assert pattern.radius is not None
    # neighboring blocks on either side
    sides = -(-pattern.radius_bound // size)

    def window(array: AnyArray) -> Array:
        return neighbors(to_blocks(array, size), sides, sides, x.axes)

    distances = jnp.asarray(local_distances(size, pattern.radius_bound))
    in_reach = jnp.abs(distances) <= pattern.radius
    if x.distance_bias is None:
        bias = jnp.float32(0)
    else:
        bias = _bias_at(x.distance_bias, distances)
    if pattern.span is not None:
        soft = soft_span(distances, pattern.span, pattern.ramp)
        in_reach = in_reach & (soft > 0)
        bias = bias + jnp.log(jnp.where(soft > 0, soft, 1.0))
    # The reach is a bias, as in ``local.local_attention``, so that the mask
    # depends on keys only.
    bias = jnp.where(in_reach, bias, FOLDED_MASK)
    positions = jnp.arange(length) + first_position(length, x.axes)
    mask = window(x.mask & (positions >= pattern.num_global))[:, :, None, None]
    bias = bias.reshape(1, 1, -1, *bias.shape[-2:])  # the same for all blocks
    return KeySet(window(x.qkv.k), window(x.qkv.v), mask, bias)


def _random_keys(
    x: _Inputs, pattern: KeyPattern, positions: AnyArray
) -> KeySet:
    """Returns the drawn blocks of keys, without the keys that another pattern has.

    Args:
        positions: positions of the queries, int [1, num_blocks, block_size].
    """
    size, batch = pattern.block_size, x.mask.shape[0]
    assert pattern.draws is not None
    # [batch, num_blocks, heads, count]
    block_ids = drawn_blocks(pattern.draws, x.mask, size)
    num_blocks, heads, count = block_ids.shape[1:]
    # Every head gathers other blocks. For each sequence: [num_blocks, size,
    # heads, head_dim] and [num_blocks, heads, count] -> [num_blocks, count,
    # size, heads, head_dim].
    take = jax.vmap(jax.vmap(lambda x, ids: x[ids], in_axes=(2, 1), out_axes=3))

    def gather(array: AnyArray) -> Array:
        blocks = take(to_blocks(array, size), block_ids)
        return blocks.reshape(batch, num_blocks, count * size, *array.shape[2:])

    k, v = gather(x.qkv.k), gather(x.qkv.v)
    # Below, arrays broadcast to [batch, num_blocks, heads, queries of a block,
    # keys].
    key_positions = block_ids[..., None] * size + jnp.arange(size)
    key_positions = key_positions.reshape(batch, num_blocks, heads, 1, -1)
    is_real = jax.vmap(lambda mask, ids: mask[ids])(
        to_blocks(x.mask, size), block_ids
    )
    is_real = is_real.reshape(key_positions.shape)
    is_equal = block_ids[..., :, None] == block_ids[..., None, :]
    # an earlier draw is the same block
    is_repeated = jnp.tril(is_equal, -1).any(-1)
    mask = is_real & (key_positions >= pattern.num_global)
    # Each key counts once: drop keys of repeated draws, of the window and of
    # the stride.
    mask = mask & ~jnp.repeat(is_repeated, size, -1)[..., None, :]
    query_positions = positions[:, :, None, :, None]
    mask = mask & ~pattern.in_window(query_positions, key_positions)
    mask = mask & ~pattern.in_stride(query_positions, key_positions)
    if x.distance_bias is None:
        return KeySet(k, v, mask)
    # Distance from the first query of a block to the first key of a drawn
    # block.
    offsets = block_ids * size - positions[:, :, None, :1]
    bias = LazyBias(_bias_of_offsets(size), offsets, (x.distance_bias,))
    return KeySet(k, v, mask, bias)


def _attend_strided(
    x: _Inputs, pattern: KeyPattern, dropout: WeightDropout | None
) -> PartialSoftmax:
    """Attends to the keys of the query's residue class, without the window and global tokens.

    With a stride of 3, the classes of ten tokens are 0 3 6 9, 1 4 7 and 2 5 8;
    each becomes a separate sequence with dense attention.
    """
    (batch, length), stride = x.mask.shape, pattern.stride
    num_keys = -(-length // stride)
    mask = x.mask & (jnp.arange(length) >= pattern.num_global)

    # [batch, length, ...] -> [batch stride, num_keys, ...]
    def to_classes(array: AnyArray) -> Array:
        rows = to_blocks(array, stride).swapaxes(1, 2)
        return rows.reshape(batch * stride, -1, *array.shape[2:])

    def from_classes(blocks: Array) -> Array:
        rows = from_blocks(blocks, num_keys)
        rows = rows.reshape(
            batch, stride, num_keys, *blocks.shape[3:]
        ).swapaxes(1, 2)
        return rows.reshape(batch, -1, *blocks.shape[3:])[:, :length]

    blocks = to_blocks(to_classes(x.qkv.q), min(STRIDE_BLOCK, num_keys))
    # Indices of the queries within their class, [1, num_blocks, 1, block_size].
    indices = jnp.arange(blocks.shape[1] * blocks.shape[2]).reshape(
        1, -1, 1, blocks.shape[2]
    )
    table: tuple[AnyArray, ...] = ()
    if x.distance_bias is not None:
        table = (
            _bias_at(
                x.distance_bias, stride * jnp.arange(1 - num_keys, num_keys)
            ),
        )
    # A radius of -1 excludes no key.
    radius = jnp.asarray([-1 if pattern.radius is None else pattern.radius])

    def mask_or_bias(indices: AnyArray, radius: Any, *table: AnyArray) -> Array:
        """Returns FOLDED_MASK inside the window, the bias outside it.

        Its shape is [1, num_blocks, heads or 1, block_size, num_keys].
        """
        distances = (jnp.arange(num_keys) - indices[..., None]) * stride
        in_window = jnp.abs(distances) <= radius[0]
        if not table:
            return jnp.where(in_window, FOLDED_MASK, 0.0)
        starts = jnp.maximum(num_keys - 1 - indices[:, :, 0], 0)
        return jnp.where(
            in_window, FOLDED_MASK, sliced_bias(table[0], starts, num_keys)()
        )

    bias = None
    if pattern.radius is not None or x.distance_bias is not None:
        bias = LazyBias(mask_or_bias, indices, (radius, *table))
    k, v = to_classes(x.qkv.k), to_classes(x.qkv.v)
    keys = KeySet(k, v, to_classes(mask)[:, None, None, None], bias)
    return attend_partially(blocks, [keys], scale=x.scale, dropout=dropout).map(
        from_classes
    )


def _attend_from_globals(
    x: _Inputs, global_q: AnyArray, dropout: WeightDropout | None
) -> Array:
    """Attends from global tokens to all tokens, with the same projections as all tokens.

    Args:
        global_q: [batch, num_globals, heads, head_dim].
    """
    num_globals, length = global_q.shape[1], x.mask.shape[1]
    blocks = to_blocks(global_q, min(GLOBAL_BLOCK, num_globals))
    positions = jnp.arange(blocks.shape[1] * blocks.shape[2]).reshape(
        1, *blocks.shape[1:3]
    )
    start = first_position(length, x.axes)
    bias = None
    if x.distance_bias is not None:
        # The keys of this shard begin at position ``start``.
        starts = first_entries(x.distance_bias, positions) + start
        bias = sliced_bias(x.distance_bias, starts, length)
    keys = [KeySet(x.qkv.k, x.qkv.v, x.mask[:, None, None, None], bias)]
    if not x.axes:
        out = attend_key_sets(blocks, keys, scale=x.scale, dropout=dropout)
        return from_blocks(out, num_globals)
    # Each shard attends to its own keys; the partial softmaxes are merged.
    softmax = attend_partially(blocks, keys, scale=x.scale, dropout=dropout)
    out = merge_shards(softmax, x.axes).out
    return from_blocks(out.astype(x.qkv.v.dtype), num_globals)


# The first tokens of a sequence, which are on the first shards


def _first_rows(x: AnyArray, count: int, axes: Axes) -> AnyArray:
    """Returns the first ``count`` rows of the sequence: [batch, count, ...]."""
    if axes:
        return gather_positions(x, _first_indices(x, count), axes)
    return x[:, :count]


def _replace_first_rows(x: AnyArray, rows: AnyArray, axes: Axes) -> Array:
    """Replaces the first rows of the sequence with ``rows``."""
    if axes:
        return scatter_positions(
            x, rows, _first_indices(x, rows.shape[1]), axes
        )
    return jnp.concatenate([rows, x[:, rows.shape[1] :]], 1)


def _first_indices(x: AnyArray, count: int) -> Array:
    return jnp.broadcast_to(jnp.arange(count), (x.shape[0], count))


# Entries of a distance bias [heads, 2 length - 1]


def _bias_at(bias: AnyArray, distances: AnyArray) -> AnyArray:
    """Returns the entries [heads, ...] at ``distances``."""
    return bias[:, distance_entries(bias, distances)]


def _bias_of_offsets(size: int) -> Callable[[Array, Array], Array]:
    """Returns the function of a LazyBias for drawn blocks of ``size`` tokens."""

    def bias_of_offsets(offsets: AnyArray, bias: AnyArray) -> Array:
        """Returns the bias [batch, num_blocks, heads, size, count * size] of drawn blocks.

        Args:
            offsets: distances from first query to first key, [batch,
                num_blocks, heads, count].
            bias: bias table [heads, distances].
        """
        positions = jnp.arange(size)
        # Distance of each query of a block to each key of a drawn block,
        # flattened over the draws.
        distances = (
            offsets[:, :, :, None, :, None]
            + positions
            - positions[:, None, None]
        )
        distances = distances.reshape(*distances.shape[:4], -1)

        def of_head(bias: AnyArray, distances: AnyArray) -> Array:
            return _bias_at(bias[None], distances)[0]

        return jax.vmap(of_head, in_axes=(0, 2), out_axes=2)(bias, distances)

    return bias_of_offsets
