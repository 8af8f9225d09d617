"""Block-staggered attention of PEGASUS-X: the keys are a block and the global tokens."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.attention.blocks import (
    check_block_size,
    from_blocks,
    to_blocks,
)
from longsum_jax.ops.attention.blockwise import (
    attend_key_sets,
    attend_shared_keys,
)
from longsum_jax.ops.attention.dense import QKV, Scale
from longsum_jax.ops.attention.fused import FusedAttention, fused_key_sets
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    WeightDropout,
    split_dropout,
)
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.padding import zero_padding
from longsum_jax.ops.sequence_sharding import Axes, halo_exchange
from longsum_jax.typing import AnyArray


def block_staggered_attention(
    tokens: QKV,
    global_tokens: QKV,
    mask: Bool[AnyArray, "batch length"],
    *,
    block_size: int,
    stagger: bool | Bool[AnyArray, ""],
    bias: Float[AnyArray, "heads block_size block_size"] | None = None,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
    fused: FusedAttention | None = None,
    steps: Sequence[StepBias] = (),
) -> tuple[
    Float[Array, "batch length heads head_dim"],
    Float[Array, "batch num_globals heads head_dim"],
]:
    """Attends from tokens to their block and all global tokens, and from global tokens to all keys.

    PEGASUS-X, Phang et al. 2022, section 4.1.

    Args:
        tokens: arrays [batch, length, heads, head_dim].
        global_tokens: arrays [batch, num_globals, heads, head_dim].
        mask: True on real tokens.
        block_size: number of tokens of a block.
        stagger: True if blocks begin half a block earlier, so that they cross
            the borders of plain blocks; may be traced, because it alternates
            from layer to layer.
        bias: bias of the scores, by offset of the query and of the key in a
            block; global keys have no bias.
        scale: factor of the query-key products.
        dropout: dropout of the weights.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``), in
            shards of whole blocks.
        fused: kernel for the attention of the tokens.
        steps: ``bias`` by distance, for ``fused``.

    Returns:
        Attended values of tokens and of global tokens, in the type of
        ``tokens.v``; zeros for padding.
    """
    check_block_size(block_size)
    q, k, v = tokens
    length = q.shape[1]
    half = block_size // 2
    shift: Array | int
    if isinstance(stagger, jax.Array):
        # A traced shift needs the same number of blocks with and without it.
        shift, following = jnp.where(stagger, half, 0), half
    else:
        shift = following = half * bool(stagger)
    if axes:
        following = block_size  # tokens of the next shard
    padded_length = length + following

    # [batch, length, ...] -> [batch, num_blocks, block_size, ...], begun
    # ``shift`` tokens earlier
    def blocked(x: AnyArray) -> Array:
        x = halo_exchange(x, half, following, axes)
        x = lax.dynamic_slice_in_dim(x, half - shift, padded_length, 1)
        return to_blocks(x, block_size)

    token_dropout, global_dropout = split_dropout(dropout)
    global_keys = KeySet(global_tokens.k, global_tokens.v)
    if bias is not None:
        bias = bias[None, None]
    block_keys = KeySet(
        blocked(k), blocked(v), blocked(mask)[:, :, None, None], bias
    )
    key_sets = [global_keys, block_keys]
    if fused is None:
        out = attend_key_sets(
            blocked(q), key_sets, scale=scale, dropout=token_dropout
        )
    else:
        # The global tokens come first, then the keys of the block.
        num_globals = global_keys.k.shape[1]
        biases = [
            replace(x, origin=num_globals, first_key=num_globals) for x in steps
        ]
        out = fused_key_sets(
            blocked(q),
            key_sets,
            fused,
            biases=biases,
            dropout=token_dropout,
            scale=scale,
        )
    # Undoes the shift and removes the halo.
    out = lax.dynamic_slice_in_dim(
        from_blocks(out, padded_length), shift, length, 1
    )
    # Global tokens are equal on all shards, so that as keys they must count
    # only once.
    all_keys = KeySet(k, v, mask[:, None, None, None])
    global_out = attend_shared_keys(
        global_tokens.q,
        [all_keys],
        replicated=[global_keys],
        scale=scale,
        dropout=global_dropout,
        axes=axes,
    )
    return zero_padding(out, mask), global_out
