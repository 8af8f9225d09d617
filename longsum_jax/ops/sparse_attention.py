"""Encoder attentions with memory linear in the length: windows, global tokens, staggered blocks, random blocks.

All take queries, keys and values [B, L, H, K] and a mask [B, L] that is True on real tokens, for any L >= 1; padding to
whole blocks happens inside. Padding is not seen, and its own outputs are zeros. ``scale`` is the factor of the products
and ``dropout`` acts on the weights, see ``ops.key_sets``. Those with ``axes`` also work on one part of a text that is
cut over devices, if L is a multiple of the block size, see ``ops.parts``.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from longsum_jax.errors import InputError
from longsum_jax.ops.blocks import from_blocks, neighbours, to_blocks
from longsum_jax.ops.key_sets import Dropout, KeySet, attend_all, attend_key_sets, run_bias
from longsum_jax.ops.parts import Axes, count_parts, extended, first_position, sum_over
from longsum_jax.typing import Array

# A window of one block and its neighbours


def local_block_size(radius: int) -> int:
    """The block size of ``local_attention`` when none is given: ``radius`` rounded up to a multiple of 8."""
    return max(8, radius + -radius % 8)


def local_distances(block_size: int, radius: int) -> np.ndarray:
    """Key position - query position in the block layout of ``local_attention``: int [C, W].

    A bias for that function is one float per head and entry of this array. W = C (1 + 2 ceil(radius / C)); entries
    farther than ``radius`` are never seen.
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
    """Token i sees the real tokens j with |i - j| <= radius and the keys of ``extra``, in one softmax.

    The local attention of LongT5 (Guo et al. 2022, section 3.1) and, with ``extra``, the core of its transient global
    attention and of Longformer's (Beltagy et al. 2020, section 3.1).

    Args:
        q, k, v: [B, L, H, K].   mask: bool [B, L].
        radius: tokens to each side; may be traced if ``max_radius`` is given.
        max_radius: upper bound of a traced ``radius``; it decides the layout in blocks.
        block_size: ``local_block_size`` of the (maximal) radius when not given.
        bias: float [H, C, W], per entry of ``local_distances(block_size, max_radius or radius)``.
        key_mask: bool [B, L], True on tokens that a window may show; ``mask`` when not given.
        extra: further keys, with a mask of their own: [B, G, H, K] for all tokens, or [B, N, G, H, K] per block.

    Returns:
        [B, L, H, K] in the type of ``v``.
    """
    widest = radius if max_radius is None else max_radius
    size = local_block_size(widest) if block_size is None else block_size
    _check_sizes(widest, size)
    distances = local_distances(size, widest)
    sides, blocks = -(-widest // size), -(-q.shape[1] // size) * count_parts(axes)
    unused = max(0, sides - (blocks - 1)) * size  # keys that lie beyond both ends for every block
    seen = slice(unused, distances.shape[1] - unused)
    window = lambda x: neighbours(to_blocks(x, size), *[sides - unused // size] * 2, axes)  # noqa: E731
    near = jnp.abs(distances[:, seen]) <= radius
    real = window(mask if key_mask is None else key_mask)[:, :, None, None]
    bias = None if bias is None else bias[None, None, :, :, seen]
    key_sets = [KeySet(window(k), window(v), real & near, bias), *extra]
    return _attend_blocks(q, size, key_sets, mask, scale, dropout)


def _attend_blocks(
    q: Array, size: int, key_sets: Sequence[KeySet], mask: Array, scale: float, dropout: Dropout | None
) -> Array:
    out = attend_key_sets(to_blocks(q, size), key_sets, scale=scale, dropout=dropout)
    return _only_real(from_blocks(out, q.shape[1]), mask)


def _only_real(x: Array, mask: Array) -> Array:
    return jnp.where(mask[..., None, None], x, 0)


def _two_dropouts(dropout: Dropout | None) -> tuple[Dropout | None, Dropout | None]:
    """Independent ones for the two softmaxes of an attention."""
    return (dropout.fold(0), dropout.fold(1)) if dropout else (None, None)


def _check_sizes(radius: int, block_size: int) -> None:
    if radius < 0:
        raise InputError(f"the attention radius is {radius}; it must be 0 or more tokens")
    if block_size < 1:
        raise InputError(f"the attention block size is {block_size}; it must be 1 or more tokens")


# LongT5: a window and one transient global token per fixed block


def transient_blocks(mask: Array, size: int) -> tuple[Array, Array]:
    """The fixed blocks of ``size`` tokens whose sums are LongT5's global tokens (Guo et al. 2022, section 3.2).

    Tokens after the last full block of their row belong to that block; a row without a full block has none.

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
    """Sum of the vectors of each block: [B, L, D], int [B, L] -> [B, G, D] with G = ``num_blocks``, in the type of x.

    Ids outside 0 .. G - 1 take no part. Sums are made in float32.
    """
    ids = jnp.where(block_ids < 0, num_blocks, block_ids)
    add = lambda x, ids: jax.ops.segment_sum(x, ids, num_blocks)  # noqa: E731
    return sum_over(jax.vmap(add)(x.astype(jnp.float32), ids), axes).astype(x.dtype)


def side_distances(num_globals: int) -> np.ndarray:
    """Global block - block of the query, every value that occurs: int [2 G], from 1 - G to G.

    A query without a block counts as block -1. A ``side_bias`` is one float per head and entry of this array.
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
    """Tokens see a window and all transient global tokens, in one softmax (Guo et al. 2022, section 3.2).

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
    side = None if side_bias is None else run_bias(side_bias, count - 1 - to_blocks(block_ids, size), count)
    extra = [KeySet(global_k, global_v, present[:, None, None, None], side)] if global_k.shape[1] else []
    sizes = {"radius": radius, "block_size": size}
    return local_attention(q, k, v, mask, **sizes, bias=bias, extra=extra, scale=scale, dropout=dropout, axes=axes)


# PEGASUS-X: own block and global tokens, every other layer by half a block shifted


def block_staggered_attention(
    q: Array,
    k: Array,
    v: Array,
    global_q: Array,
    global_k: Array,
    global_v: Array,
    mask: Array,
    *,
    block_size: int,
    stagger: bool | Array,
    bias: Array | None = None,
    scale: float = 1.0,
    dropout: Dropout | None = None,
    axes: Axes = (),
) -> tuple[Array, Array]:
    """Tokens see their block and all global tokens; global tokens see all (PEGASUS-X, Phang et al. 2022, section 4.1).

    Args:
        q, k, v: [B, L, H, K] of tokens.   global_q, global_k, global_v: [B, G, H, K].   mask: bool [B, L].
        block_size: C.
        stagger: whether blocks begin half a block earlier, so that they cross the borders of plain blocks; may be
            traced, because it alternates from layer to layer.
        bias: float [H, C, C], per place of the query and of the key in a block; global keys have none.

    Returns:
        tokens [B, L, H, K] and global tokens [B, G, H, K], in the type of ``v``.
    """
    _check_sizes(0, block_size)
    length, half = q.shape[1], block_size // 2
    shift = jnp.where(stagger, half, 0) if isinstance(stagger, jax.Array) else half * bool(stagger)
    # The same number of blocks with and without a shift if it is not known yet; the next part's tokens where it is cut.
    more = block_size if axes else shift if isinstance(shift, int) else half
    longest = length + more

    def blocked(x: Array) -> Array:
        return to_blocks(lax.dynamic_slice_in_dim(extended(x, half, more, axes), half - shift, longest, 1), block_size)

    token_dropout, global_dropout = _two_dropouts(dropout)
    global_keys = KeySet(global_k, global_v)
    bias = None if bias is None else bias[None, None]
    key_sets = [global_keys, KeySet(blocked(k), blocked(v), blocked(mask)[:, :, None, None], bias)]
    tokens = attend_key_sets(blocked(q), key_sets, scale=scale, dropout=token_dropout)
    tokens = lax.dynamic_slice_in_dim(from_blocks(tokens, longest), shift, length, 1)
    text, options = [KeySet(k, v, mask[:, None, None, None])], {"scale": scale, "dropout": global_dropout}
    return _only_real(tokens, mask), attend_all(global_q, text, everywhere=[global_keys], axes=axes, **options)


# LED and Longformer: a window and chosen global tokens


def gather_positions(x: Array, indices: Array, axes: Axes = ()) -> Array:
    """Rows of ``x`` [B, L, ...] at ``indices`` int [B, G] -> [B, G, ...]; zeros (False) where the index is negative.

    In a text cut over ``axes`` indices count in all of it, here and below, and every part gets the rows.
    """
    indices = _own_positions(indices, x.shape[1], axes)
    rows = jax.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=0))(x, indices)
    return sum_over(rows.astype(jnp.int8), axes).astype(bool) if axes and x.dtype == bool else sum_over(rows, axes)


def scatter_positions(x: Array, rows: Array, indices: Array, axes: Axes = ()) -> Array:
    """``x`` [B, L, ...] with ``rows`` [B, G, ...] in place of those at ``indices`` [B, G]; negative: skipped."""
    indices = _own_positions(indices, x.shape[1], axes)
    return jax.vmap(lambda x, r, i: x.at[i].set(r.astype(x.dtype), mode="drop"))(x, rows, indices)


def _own_positions(indices: Array, length: int, axes: Axes) -> Array:
    """``indices`` from the beginning of this part; ``length`` for those that it does not have."""
    own = indices - first_position(length, axes)
    return jnp.where((own < 0) | (own >= length), length, own)


def longformer_attention(
    q: Array,
    k: Array,
    v: Array,
    global_q: Array,
    global_k: Array,
    global_v: Array,
    mask: Array,
    global_indices: Array,
    *,
    radius: int | Array,
    max_radius: int | None = None,
    block_size: int | None = None,
    bias: Array | None = None,
    scale: float = 1.0,
    dropout: Dropout | None = None,
    axes: Axes = (),
) -> Array:
    """Tokens see a window and the global tokens; global tokens see all, by their own projections (Beltagy et al. 2020).

    Section 3.1 of the paper. A global token inside a window is seen once.

    Args:
        q, k, v: [B, L, H, K], projections for local attention.   mask: bool [B, L].
        global_q: [B, G, H, K], the global query projection of the rows at ``global_indices`` (``gather_positions``).
        global_k, global_v: [B, L, H, K], the global projections of all tokens.
        global_indices: int [B, G], no index twice in a row; -1, or the index of padding, stands for none.
        radius: half of Hugging Face's ``attention_window``; it, ``max_radius``, ``block_size`` and ``bias`` (of the
            window; global keys have none) as in ``local_attention``.

    Returns:
        [B, L, H, K] in the type of ``v``.
    """
    present = gather_positions(mask, global_indices, axes)
    indices = jnp.where(present, global_indices, -1)
    key_mask = scatter_positions(mask, jnp.zeros_like(present), indices, axes)
    extra = KeySet(*(gather_positions(x, indices, axes) for x in (k, v)), present[:, None, None, None])
    local_dropout, global_dropout = _two_dropouts(dropout)
    options = {"radius": radius, "max_radius": max_radius, "block_size": block_size, "bias": bias}
    options |= {"key_mask": key_mask, "extra": [extra], "dropout": local_dropout}
    out = local_attention(q, k, v, mask, **options, scale=scale, axes=axes)
    everything = [KeySet(global_k, global_v, mask[:, None, None, None])]
    rows = attend_all(global_q, everything, scale=scale, dropout=global_dropout, axes=axes)
    return scatter_positions(out, rows, indices, axes)


# BigBird: a window of three blocks, the first and the last block, blocks at random

MIN_BIGBIRD_BLOCKS = 4  # first, second, second last and last block have to be different ones


def bigbird_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    *,
    block_size: int,
    random_blocks: Array | np.ndarray | int,
    bias: Array | None = None,
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> Array:
    """The first and the last block see all; others see these two, three blocks around them and random ones.

    Block-sparse attention of BigBird (Zaheer et al. 2020, section 2 and appendix D). The last block is that of the
    padded sequence, so that outputs depend on L. A random block that is also seen for another reason counts again.

    Args:
        q, k, v: [B, L, H, K].   mask: bool [B, L].
        block_size: C.
        random_blocks: int [H, N - 2, R], blocks that blocks 1 .. N - 2 see besides (``random_block_plan``), where
            N = ceil(L / C). A number R stands for R times the first block, which is what transformers evaluates with.
        bias: float [H, C, 3 C], per entry of ``local_distances(C, C)``, for the window of three blocks alone.

    Returns:
        [B, L, H, K] in the type of ``v``.

    Raises:
        InputError: there are fewer than 4 blocks.
    """
    _check_sizes(0, block_size)
    qb, kb, vb, real = (to_blocks(x, block_size) for x in (q, k, v, mask))
    _check_bigbird_blocks(q.shape[1], qb.shape[1], block_size)
    ends = lambda x: jnp.concatenate([x[:, 0], x[:, -1]], axis=1)  # noqa: E731
    window = lambda x: neighbours(x[:, 1:-1], 1, 1)  # noqa: E731  (the ends are in `ends`)
    copies = 1 + random_blocks if isinstance(random_blocks, int) else 1
    count_bias = None if copies == 1 else jnp.log(jnp.repeat(jnp.array([copies, 1.0]), block_size))
    key_sets = [
        KeySet(ends(kb), ends(vb), ends(real)[:, None, None, None], count_bias),
        KeySet(window(kb), window(vb), window(real)[:, :, None, None], None if bias is None else bias[None, None]),
    ]
    if not isinstance(random_blocks, int):
        key_sets.append(_random_keys(kb, vb, real, random_blocks))
    middle_dropout, ends_dropout = _two_dropouts(dropout)
    middle = attend_key_sets(qb[:, 1:-1], key_sets, scale=scale, dropout=middle_dropout)
    everything = [KeySet(k, v, mask[:, None, None, None])]
    outer = to_blocks(attend_all(ends(qb), everything, scale=scale, dropout=ends_dropout), block_size)
    out = jnp.concatenate([outer[:, :1], middle, outer[:, 1:]], axis=1)
    return _only_real(from_blocks(out, q.shape[1]), mask)


def _random_keys(k: Array, v: Array, real: Array, random_blocks: Array | np.ndarray) -> KeySet:
    """Keys [B, N, C, H, K] of blocks int [H, N - 2, R], for each head its own."""
    take = jax.vmap(lambda x, blocks: x[:, blocks], in_axes=(3, 0), out_axes=4)
    k, v = (take(x, random_blocks).reshape(x.shape[0], random_blocks.shape[1], -1, *x.shape[3:]) for x in (k, v))
    seen = real[:, random_blocks].swapaxes(1, 2)  # [B, N - 2, H, R, C]
    return KeySet(k, v, seen.reshape(*seen.shape[:3], 1, -1))


def random_block_plan(rng: np.random.Generator, num_blocks: int, heads: int, count: int) -> np.ndarray:
    """Draws the random blocks of ``bigbird_attention``: int32 [H, N - 2, R], for training.

    Every row has ``count`` different blocks outside the window and the first and last block.

    Raises:
        InputError: a row has fewer than ``count`` such blocks.
    """
    if count > max(0, num_blocks - 5):
        raise InputError(
            f"{count} random blocks do not fit into an input of {num_blocks} blocks, which needs at least {count + 5}; "
            "use smaller blocks, fewer random blocks or full attention"
        )
    block = np.arange(num_blocks)
    taken = (np.abs(block - block[1:-1, None]) <= 1) | (block == 0) | (block == num_blocks - 1)
    order = np.where(taken, 2.0, rng.random((heads, num_blocks - 2, num_blocks)))
    return np.argsort(order, axis=-1)[..., :count].astype(np.int32)


def _check_bigbird_blocks(length: int, blocks: int, block_size: int) -> None:
    if blocks < MIN_BIGBIRD_BLOCKS:
        raise InputError(
            f"an input of {length} tokens has {blocks} blocks of {block_size}; block-sparse attention needs at least "
            f"{MIN_BIGBIRD_BLOCKS}: use full attention for short inputs, or smaller blocks"
        )
