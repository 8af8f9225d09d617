"""Longformer and LED attention: a window and selected global tokens."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.ops.attention.blockwise import attend_shared_keys
from longsum_jax.ops.attention.dense import QKV, Scale
from longsum_jax.ops.attention.fused import FusedAttention
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    WeightDropout,
    split_dropout,
)
from longsum_jax.ops.attention.local import local_attention
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.padding import zero_unless
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.sequence_sharding import Axes, first_position, sum_over
from longsum_jax.typing import AnyArray


def gather_positions(
    x: Shaped[AnyArray, "batch length ..."],
    indices: Int[AnyArray, "batch num_globals"],
    axes: Axes = (),
) -> Shaped[Array, "batch num_globals ..."]:
    """Returns the rows of ``x`` at ``indices``, and zeros (False) for negative indices.

    Args:
        x: vectors of tokens.
        indices: positions in the full sequence, even if ``axes`` shard it.
        axes: mesh axes that shard the sequence; every device gets all rows.
    """
    indices = _shard_positions(indices, x.shape[1], axes)
    if _uses_products(x):
        rows = _selected("bgl,bl...->bg...", indices, x.shape[1], x)
    else:
        gather = jax.vmap(
            lambda x, indices: x.at[indices].get(mode="fill", fill_value=0)
        )
        rows = gather(x, indices)
    if axes and x.dtype == bool:
        # Devices cannot sum booleans.
        return sum_over(rows.astype(jnp.int8), axes).astype(bool)
    return sum_over(rows, axes)


def scatter_positions(
    x: Shaped[AnyArray, "batch length ..."],
    rows: Shaped[AnyArray, "batch num_globals ..."],
    indices: Int[AnyArray, "batch num_globals"],
    axes: Axes = (),
) -> Shaped[Array, "batch length ..."]:
    """Returns ``x`` with ``rows`` at ``indices``; negative indices are skipped.

    Args:
        x: vectors of tokens.
        rows: new values.
        indices, axes: see ``gather_positions``; no position twice in a row.
    """
    indices = _shard_positions(indices, x.shape[1], axes)
    is_new = _are_at(indices, x.shape[1])
    is_new = jnp.expand_dims(is_new, range(2, x.ndim))
    if _uses_products(x):
        is_absent = (indices < 0) | (indices >= x.shape[1])
        rows = zero_unless(
            ~jnp.expand_dims(is_absent, range(2, x.ndim)), rows
        ).astype(x.dtype)
        new_rows = _selected("bgl,bg...->bl...", indices, x.shape[1], rows)
        return jnp.where(is_new, new_rows, x)
    other_rows = zero_unless(~is_new, x)
    # Added to zeros, because a program of a mesh in which XLA (of JAX 0.10)
    # sets rows at unique indices has wrong gradients if a shard has none.
    scatter = jax.vmap(
        lambda x, rows, i: x.at[i].add(
            rows.astype(x.dtype), mode="drop", unique_indices=True
        )
    )
    return scatter(other_rows, rows, indices)


def _uses_products(x: AnyArray) -> bool:
    """Returns True if rows are selected by products with zeros and ones.

    XLA for TPUs copies arrays with heads to another layout for a gather or a
    scatter.
    """
    has_heads = x.ndim > 3 and jnp.issubdtype(x.dtype, jnp.floating)
    return has_heads and target_platform() == "tpu"


def _selected(
    axes: str, indices: AnyArray, length: int, x: AnyArray
) -> Shaped[Array, "batch rows ..."]:
    """Returns the product of ``x`` with ones at ``indices`` [batch, num_globals, length].

    Finite entries are exact, because every sum has at most one term that is not
    zero. Others make all sums over their position NaN.
    """
    ones = indices[:, :, None] == jnp.arange(length)
    return jnp.einsum(
        axes, ones.astype(x.dtype), x, precision=jax.lax.Precision.HIGHEST
    )


def _are_at(
    indices: Int[AnyArray, "batch num_globals"], length: int
) -> Bool[Array, "batch length"]:
    """Returns True at ``indices`` of a shard, see ``_shard_positions``."""
    return jax.vmap(
        lambda i: jnp.zeros(length, bool).at[i].set(True, mode="drop")
    )(indices)


def _shard_positions(indices: AnyArray, length: int, axes: Axes) -> Array:
    """Returns positions within this shard; different ones from ``length`` on for those outside."""
    positions = indices - first_position(length, axes)
    # Gather and scatter skip positions that are out of bounds.
    outside = length + jnp.arange(indices.shape[1])
    return jnp.where(
        (positions < 0) | (positions >= length), outside, positions
    )


def longformer_attention(
    tokens: QKV,
    global_tokens: QKV | Float[AnyArray, "batch num_globals heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    global_indices: Int[AnyArray, "batch num_globals"],
    *,
    radius: int | Int[AnyArray, ""],
    max_radius: int | None = None,
    block_size: int | None = None,
    bias: Float[AnyArray, "heads block_size window"] | None = None,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
    fused: FusedAttention | None = None,
    steps: Sequence[StepBias] = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends from tokens to a window and the global tokens, and from global tokens to all keys.

    Beltagy et al. 2020, section 3.1. Global tokens have separate projections. A
    global token inside a window counts once.

    Args:
        tokens: projections for local attention, arrays [batch, length, heads,
            head_dim].
        global_tokens: projections for global attention: queries [batch,
            num_globals, heads, head_dim] of the rows at ``global_indices``
            (``gather_positions``), keys and values [batch, length, heads,
            head_dim] of all tokens; or the values that these queries attend to.
        mask: True on real tokens.
        global_indices: positions, each at most once per row; -1 or the index of
            padding stands for no token.
        radius: half of Hugging Face's ``attention_window``; see
            ``local_attention``.
        max_radius, block_size, scale, dropout, axes, fused: see
            ``local_attention``; the queries of the few global tokens use the
            reference implementation.
        bias, steps: bias of the window, see ``local_attention``; global keys
            have no bias.

    Returns:
        The attended values in the type of ``tokens.v``; zeros for padding.
    """
    q, k, v = tokens
    global_mask = gather_positions(mask, global_indices, axes)
    # A global token on padding is not a token.
    indices = jnp.where(global_mask, global_indices, -1)
    # Global tokens are keys of every query, so the windows leave them out.
    shard_indices = _shard_positions(indices, mask.shape[1], axes)
    key_mask = mask & ~_are_at(shard_indices, mask.shape[1])
    global_k = gather_positions(k, indices, axes)
    global_v = gather_positions(v, indices, axes)
    global_keys = KeySet(global_k, global_v, global_mask[:, None, None, None])
    local_dropout, global_dropout = split_dropout(dropout)
    out = local_attention(
        q,
        k,
        v,
        mask,
        radius=radius,
        max_radius=max_radius,
        block_size=block_size,
        bias=bias,
        key_mask=key_mask,
        extra=[global_keys],
        scale=scale,
        dropout=local_dropout,
        axes=axes,
        fused=fused,
        steps=steps,
    )
    if not isinstance(global_tokens, QKV):
        return scatter_positions(out, global_tokens, indices, axes)
    # Global queries, with their separate projections, attend to all tokens.
    all_keys = KeySet(
        global_tokens.k, global_tokens.v, mask[:, None, None, None]
    )
    rows = attend_shared_keys(
        global_tokens.q,
        [all_keys],
        scale=scale,
        dropout=global_dropout,
        axes=axes,
    )
    return scatter_positions(out, rows, indices, axes)
