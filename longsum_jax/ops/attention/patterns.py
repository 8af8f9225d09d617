"""Windows, spans, global tokens, strides and random blocks, alone or together, in one softmax
(Huang et al. 2021).

Fixed patterns of section 2.1 and adaptive spans (Sukhbaatar et al. 2019). A key that several
patterns hold is seen
once: it belongs to the first of global, window, stride, random. No array of the size [L, L] is
    formed, except that a
stride S leaves L / S keys for every query.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from longsum_jax.ops.attention.blocks import from_blocks, neighbors, to_blocks
from longsum_jax.ops.attention.blockwise import (
    MASK_VALUE,
    Dropout,
    KeySet,
    LazyBias,
    PartialSoftmax,
    attend_key_sets,
    attend_partially,
    merge_partial_softmaxes,
    merge_shards,
    sliced_bias,
)
from longsum_jax.ops.attention.local import local_block_size, local_distances
from longsum_jax.ops.attention.longformer import gather_positions, scatter_positions
from longsum_jax.ops.sequence_sharding import Axes, count_shards, first_position
from longsum_jax.typing import Array

STRIDE_BLOCK = 64  # queries of one residue class that are computed together
GLOBAL_BLOCK = 64


class KeyPattern(NamedTuple):
    """Which keys a query sees; what is None or 0 is left out.

    Attributes:
        radius: tokens of a window on either side; may be traced if ``max_radius`` is given.
        max_radius: upper bound of ``radius``, ``radius`` itself when None.
        span: float [H], soft reach of every head inside the window, in tokens (``soft_span``).
        ramp: tokens over which a span fades out.
        num_global: the first tokens of the text, which all tokens see and which see all.
        stride: token i sees all j with (i - j) mod stride = 0.
        draws: float [B or 1, N, H, R] in [0, 1): block n of queries sees R blocks of keys, the
            share ``draws`` of the way through the row's real blocks.
        block_size: tokens of a block for ``draws``; the window then works in the same blocks.
    """

    radius: int | Array | None = None
    max_radius: int | None = None
    span: Array | None = None
    ramp: int = 16
    num_global: int = 0
    stride: int = 0
    draws: Array | None = None
    block_size: int = 64

    @property
    def widest(self) -> int | None:
        return self.radius if self.max_radius is None else self.max_radius

    @property
    def layout(self) -> int:
        """Queries per block."""
        if self.draws is not None or self.radius is None:
            return self.block_size
        return local_block_size(self.widest)

    @property
    def near(self) -> bool:
        """Whether there are windows and global tokens alone, which a text cut over devices can
        have."""
        return not self.stride and self.draws is None

    def in_window(self, i: Array, j: Array) -> Array:
        return jnp.zeros_like(i - j, bool) if self.radius is None else jnp.abs(i - j) <= self.radius

    def in_stride(self, i: Array, j: Array) -> Array:
        return (i - j) % self.stride == 0 if self.stride else jnp.zeros_like(i - j, bool)


def soft_span(distance: Array, span: Array, ramp: int) -> Array:
    """Weights in [0, 1] of keys at ``distance`` [C, W] for spans [H]: [H, C, W] (Sukhbaatar et al.
    2019, equation 6).

    1 up to one token beyond the span, as in the published code of Hepos, then falling to 0 over
    ``ramp`` tokens.
    """
    reach = jnp.maximum(jnp.abs(distance) - 1, 0)
    return jnp.clip((span[:, None, None] - reach) / ramp + 1, 0, 1)


def pattern_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    pattern: KeyPattern,
    *,
    distance_bias: Array | None = None,
    scale: float = 1.0,
    dropout: Dropout | None = None,
    axes: Axes = (),
) -> Array:
    """Attention over the union of the patterns' keys, each key once.

    Args:
        q, k, v: [B, L, H, K].   mask: bool [B, L], True on real tokens, padding on the right.
        distance_bias: float [H, 2 L - 1], added by key position - query position, from 1 - L to L -
            1.
        axes: of a text cut over devices (``ops.sequence_sharding``), for patterns that are ``near``
            alone, in parts of whole blocks (``layout``); ``distance_bias`` is of the whole text.

    Returns:
        [B, L, H, K] in the type of ``v``; zeros for padding and for queries without a key.
    """
    drop = [None] * 3 if dropout is None else [dropout.fold(i) for i in range(3)]
    if distance_bias is not None and axes:  # parts of whole blocks may end behind the text
        total = q.shape[1] * count_shards(axes)
        distance_bias = jnp.pad(
            distance_bias, ((0, 0), (total - 1 - distance_bias.shape[1] // 2,) * 2), mode="edge"
        )
    sets = _block_sets(k, v, mask, pattern, distance_bias, axes)
    blocks, length = to_blocks(q, pattern.layout), q.shape[1]
    if pattern.stride:
        parts = [_strided(q, k, v, mask, pattern, distance_bias, scale, drop[0])]
        if sets:
            part = attend_partially(blocks, sets, scale=scale, dropout=drop[1])
            parts.append(part.map(lambda x: from_blocks(x, length)))
        out = merge_partial_softmaxes(parts).astype(v.dtype)
    else:
        out = from_blocks(attend_key_sets(blocks, sets, scale=scale, dropout=drop[1]), length)
    if pattern.num_global:
        first = _first_rows(q, pattern.num_global, axes)
        rows = _global_rows(first, k, v, mask, distance_bias, scale, drop[2], axes)
        out = _with_first_rows(out, rows, axes)
    return jnp.where(mask[..., None, None], out, 0)


def pattern_mask(length: int, blocks: Array | None, pattern: KeyPattern) -> Array:
    """The slow twin: which keys each query sees, bool [B or 1, H or 1, L, L], without padding or
    spans.

    ``blocks``: int [B, N, H, R], the blocks that were drawn (``drawn_blocks``).
    """
    i, j = jnp.arange(length)[:, None], jnp.arange(length)
    seen = (
        pattern.in_window(i, j)
        | pattern.in_stride(i, j)
        | (j < pattern.num_global)
        | (i < pattern.num_global)
    )
    seen = seen[None, None]
    if blocks is not None:
        of_query = jnp.moveaxis(blocks, 2, 1)[
            :, :, jnp.arange(length) // pattern.block_size
        ]  # [B, H, L, R]
        seen = seen | (of_query[..., None] == j // pattern.block_size).any(3)
    return seen


def drawn_blocks(draws: Array, mask: Array, block_size: int) -> Array:
    """Which blocks ``draws`` [B or 1, N, H, R] stand for, whatever the padding: int32 [B, N, H,
    R]."""
    real = -(-mask.sum(1) // block_size)[:, None, None, None]
    return jnp.clip((draws * real).astype(jnp.int32), 0, jnp.maximum(real - 1, 0))


def _block_sets(
    k: Array, v: Array, mask: Array, p: KeyPattern, bias: Array | None, axes: Axes
) -> list[KeySet]:
    """What blocks of neighbouring queries see: global tokens, window, random blocks."""
    size, blocks = p.layout, -(-k.shape[1] // p.layout)
    i = jnp.arange(blocks * size).reshape(1, blocks, size) + first_position(k.shape[1], axes)
    sets = []
    if p.num_global:
        first = [_first_rows(x, p.num_global, axes) for x in (k, v, mask)]
        run = None if bias is None else sliced_bias(bias, _zero_start(i, bias), first[0].shape[1])
        sets.append(KeySet(*first[:2], first[2][:, None, None, None], run))
    if p.radius is not None:
        sets.append(_window(k, v, mask, p, bias, axes))
    if p.draws is not None:
        sets.append(_random(k, v, mask, p, bias, i))
    return sets


def _first_rows(x: Array, count: int, axes: Axes) -> Array:
    """The first ``count`` rows of the whole text: [B, L, ...] -> [B, count, ...]."""
    return gather_positions(x, _numbered(x, count), axes) if axes else x[:, :count]


def _with_first_rows(x: Array, rows: Array, axes: Axes) -> Array:
    if axes:
        return scatter_positions(x, rows, _numbered(x, rows.shape[1]), axes)
    return jnp.concatenate([rows, x[:, rows.shape[1] :]], 1)


def _numbered(x: Array, count: int) -> Array:
    return jnp.broadcast_to(jnp.arange(count), (x.shape[0], count))


def _zero_start(i: Array, bias: Array) -> Array:
    """Where in a distance bias [H, 2 L - 1] the key at position 0 is, for queries at ``i``."""
    return jnp.maximum(bias.shape[1] // 2 - i, 0)


def _of_distance(bias: Array, distance: Array) -> Array:
    """Entries [H, ...] of a distance bias; farther keys do not exist."""
    last = bias.shape[1] // 2
    return bias[:, jnp.clip(distance, -last, last) + last]


def _window(
    k: Array, v: Array, mask: Array, p: KeyPattern, bias: Array | None, axes: Axes
) -> KeySet:
    size = p.layout
    sides = -(-p.widest // size)
    distances = jnp.asarray(local_distances(size, p.widest))
    window = lambda x: neighbors(to_blocks(x, size), sides, sides, axes)  # noqa: E731
    near = jnp.abs(distances) <= p.radius
    added = None if bias is None else _of_distance(bias, distances)
    if p.span is not None:
        soft = soft_span(distances, p.span, p.ramp)
        near = near & (soft > 0)
        fade = jnp.log(jnp.where(soft > 0, soft, 1.0))
        added = fade if added is None else added + fade
    position = jnp.arange(mask.shape[1]) + first_position(mask.shape[1], axes)
    shown = window(mask & (position >= p.num_global))[:, :, None, None]
    return KeySet(window(k), window(v), shown & near, None if added is None else added[None, None])


def _random(k: Array, v: Array, mask: Array, p: KeyPattern, bias: Array | None, i: Array) -> KeySet:
    size, batch = p.block_size, k.shape[0]
    blocks = drawn_blocks(p.draws, mask, size)
    rows, heads, count = blocks.shape[1:]
    take = jax.vmap(jax.vmap(lambda x, b: x[b], in_axes=(2, 1), out_axes=3))
    k, v = (
        take(to_blocks(x, size), blocks).reshape(batch, rows, count * size, *x.shape[2:])
        for x in (k, v)
    )
    j = (blocks[..., None] * size + jnp.arange(size)).reshape(batch, rows, heads, 1, -1)
    real = jax.vmap(lambda m, b: m[b])(to_blocks(mask, size), blocks).reshape(j.shape)
    again = jnp.tril(blocks[..., :, None] == blocks[..., None, :], -1).any(-1)  # drawn before
    own = real & (j >= p.num_global) & ~jnp.repeat(again, size, -1)[..., None, :]
    at = i[:, :, None, :, None]
    seen = own & ~p.in_window(at, j) & ~p.in_stride(at, j)
    if bias is None:
        return KeySet(k, v, seen)
    apart = (
        blocks * size - i[:, :, None, :1]
    )  # from the first query of a block to the first key of a drawn one

    def of_blocks(apart: Array, bias: Array) -> Array:
        place = jnp.arange(size)
        distance = apart[:, :, :, None] + place - place[:, None, None]  # [B, n, H, C, R, C]
        distance = distance.reshape(*distance.shape[:4], -1)
        return jax.vmap(lambda b, d: _of_distance(b[None], d)[0], in_axes=(0, 2), out_axes=2)(
            bias, distance
        )

    return KeySet(k, v, seen, LazyBias(of_blocks, apart[..., None], (bias,)))


def _strided(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    p: KeyPattern,
    bias: Array | None,
    scale: float,
    dropout: Dropout | None,
) -> PartialSoftmax:
    """Each residue class by itself: all of its queries see all of its keys that no window or global
    token shows."""
    batch, length, stride = q.shape[0], q.shape[1], p.stride
    own = mask & (jnp.arange(length) >= p.num_global)

    def classes(x: Array) -> Array:  # [B, L, ...] -> [B S, n, ...]
        return to_blocks(x, stride).swapaxes(1, 2).reshape(batch * stride, -1, *x.shape[2:])

    def positions(x: Array) -> Array:
        x = from_blocks(x, keys).reshape(batch, stride, keys, *x.shape[3:]).swapaxes(1, 2)
        return x.reshape(batch, -1, *x.shape[3:])[:, :length]

    keys = -(-length // stride)
    blocks = to_blocks(classes(q), min(STRIDE_BLOCK, keys))
    place = jnp.arange(blocks.shape[1] * blocks.shape[2]).reshape(1, *blocks.shape[1:3], 1, 1)
    table = () if bias is None else (_of_distance(bias, stride * jnp.arange(1 - keys, keys)),)
    radius = jnp.asarray(-1 if p.radius is None else p.radius)

    def hidden_or_biased(
        place: Array, radius: Array, *table: Array
    ) -> Array:  # -> [1, n, H or 1, C, keys]
        apart = (jnp.arange(keys) - place[..., 0]) * stride
        near = (jnp.abs(apart) <= radius)[:, :, None]
        if not table:
            return jnp.where(near, MASK_VALUE, 0.0)
        return jnp.where(
            near,
            MASK_VALUE,
            sliced_bias(*table, jnp.maximum(keys - 1 - place[..., 0, 0], 0), keys)(),
        )

    needs = p.radius is not None or bias is not None
    key_set = KeySet(
        classes(k),
        classes(v),
        classes(own)[:, None, None, None],
        LazyBias(hidden_or_biased, place, (radius, *table)) if needs else None,
    )
    return attend_partially(blocks, [key_set], scale=scale, dropout=dropout).map(positions)


def _global_rows(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array | None,
    scale: float,
    dropout: Dropout | None,
    axes: Axes,
) -> Array:
    """Global tokens see all, with the projections of all tokens."""
    count, length = q.shape[1], k.shape[1]
    blocks = to_blocks(q, min(GLOBAL_BLOCK, count))
    i = jnp.arange(blocks.shape[1] * blocks.shape[2]).reshape(1, *blocks.shape[1:3])
    start = first_position(length, axes)
    run = None if bias is None else sliced_bias(bias, _zero_start(i, bias) + start, length)
    everything = KeySet(k, v, mask[:, None, None, None], run)
    if not axes:
        return from_blocks(
            attend_key_sets(blocks, [everything], scale=scale, dropout=dropout), count
        )
    out = merge_shards(
        attend_partially(blocks, [everything], scale=scale, dropout=dropout), axes
    ).out
    return from_blocks(out.astype(v.dtype), count)
