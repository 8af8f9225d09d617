"""Longformer and LED attention: a window and chosen global tokens."""

import jax
import jax.numpy as jnp

from longsum_jax.ops.attention.blockwise import Dropout, KeySet, attend_all
from longsum_jax.ops.attention.local import local_attention, split_dropout
from longsum_jax.ops.sequence_sharding import Axes, first_position, sum_over
from longsum_jax.typing import Array

# LED and Longformer: a window and chosen global tokens


def gather_positions(x: Array, indices: Array, axes: Axes = ()) -> Array:
    """Rows of ``x`` [B, L, ...] at ``indices`` int [B, G] -> [B, G, ...]; zeros (False) where the
    index is negative.

    In a text cut over ``axes`` indices count in all of it, here and below, and every part gets the
    rows.
    """
    indices = _own_positions(indices, x.shape[1], axes)
    rows = jax.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=0))(x, indices)
    return (
        sum_over(rows.astype(jnp.int8), axes).astype(bool)
        if axes and x.dtype == bool
        else sum_over(rows, axes)
    )


def scatter_positions(x: Array, rows: Array, indices: Array, axes: Axes = ()) -> Array:
    """``x`` [B, L, ...] with ``rows`` [B, G, ...] in place of those at ``indices`` [B, G];
    negative: skipped."""
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
    """Tokens see a window and the global tokens; global tokens see all, by their own projections
    (Beltagy et al. 2020).

    Section 3.1 of the paper. A global token inside a window is seen once.

    Args:
        q, k, v: [B, L, H, K], projections for local attention.   mask: bool [B, L].
        global_q: [B, G, H, K], the global query projection of the rows at ``global_indices``
            (``gather_positions``).
        global_k, global_v: [B, L, H, K], the global projections of all tokens.
        global_indices: int [B, G], no index twice in a row; -1, or the index of padding, stands for
            none.
        radius: half of Hugging Face's ``attention_window``; it, ``max_radius``, ``block_size`` and
            ``bias`` (of the window; global keys have none) as in ``local_attention``.

    Returns:
        [B, L, H, K] in the type of ``v``.
    """
    present = gather_positions(mask, global_indices, axes)
    indices = jnp.where(present, global_indices, -1)
    key_mask = scatter_positions(mask, jnp.zeros_like(present), indices, axes)
    extra = KeySet(
        *(gather_positions(x, indices, axes) for x in (k, v)), present[:, None, None, None]
    )
    local_dropout, global_dropout = split_dropout(dropout)
    options = {"radius": radius, "max_radius": max_radius, "block_size": block_size, "bias": bias}
    options |= {"key_mask": key_mask, "extra": [extra], "dropout": local_dropout}
    out = local_attention(q, k, v, mask, **options, scale=scale, axes=axes)
    everything = [KeySet(global_k, global_v, mask[:, None, None, None])]
    rows = attend_all(global_q, everything, scale=scale, dropout=global_dropout, axes=axes)
    return scatter_positions(out, rows, indices, axes)
