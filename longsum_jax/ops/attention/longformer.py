"""Longformer and LED attention: a window and chosen global tokens."""

import jax
import jax.numpy as jnp

from longsum_jax.ops.attention.blockwise import Dropout, KeySet, attend_all
from longsum_jax.ops.attention.local import local_attention, split_dropout
from longsum_jax.ops.sequence_sharding import Axes, first_position, sum_over
from longsum_jax.typing import Array


def gather_positions(x: Array, indices: Array, axes: Axes = ()) -> Array:
    """Returns the rows of ``x`` at ``indices``; zeros (False) where the index is negative.

    Args:
        x: [B, L, ...].
        indices: int [B, G], positions in the full sequence, also where ``axes`` shard it.
        axes: mesh axes that shard the sequence; every device gets all rows.

    Returns:
        [B, G, ...].
    """
    indices = _local_positions(indices, x.shape[1], axes)
    rows = jax.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=0))(x, indices)
    return (
        sum_over(rows.astype(jnp.int8), axes).astype(bool)
        if axes and x.dtype == bool
        else sum_over(rows, axes)
    )


def scatter_positions(x: Array, rows: Array, indices: Array, axes: Axes = ()) -> Array:
    """Returns ``x`` with ``rows`` at ``indices``; negative indices are skipped.

    Args:
        x: [B, L, ...].   rows: [B, G, ...].
        indices, axes: see ``gather_positions``.
    """
    indices = _local_positions(indices, x.shape[1], axes)
    return jax.vmap(lambda x, r, i: x.at[i].set(r.astype(x.dtype), mode="drop"))(x, rows, indices)


def _local_positions(indices: Array, length: int, axes: Axes) -> Array:
    """Returns positions within this shard, ``length`` for those outside it."""
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
    """Attends from tokens to a window and the global tokens, from global tokens to everything.

    Beltagy et al. 2020, section 3.1. Global tokens have projections of their own. A global token
    inside a window counts once.

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
