"""Block-staggered attention of PEGASUS-X: the own block and global tokens."""

import jax
import jax.numpy as jnp
from jax import lax

from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.blockwise import Dropout, KeySet, attend_all, attend_key_sets
from longsum_jax.ops.attention.local import check_sizes, split_dropout, zero_padding
from longsum_jax.ops.sequence_sharding import Axes, halo_exchange
from longsum_jax.typing import Array


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
    """Attends from tokens to their block and all global tokens, from global tokens to everything.

    PEGASUS-X, Phang et al. 2022, section 4.1.

    Args:
        q, k, v: [B, L, H, K] of tokens.   global_q, global_k, global_v: [B, G, H, K].   mask: bool
            [B, L].
        block_size: C.
        stagger: whether blocks begin half a block earlier, so that they cross the borders of plain
            blocks; may be traced, because it alternates from layer to layer.
        bias: float [H, C, C], per place of the query and of the key in a block; global keys have
            none.

    Returns:
        tokens [B, L, H, K] and global tokens [B, G, H, K], in the type of ``v``.
    """
    check_sizes(0, block_size)
    length, half = q.shape[1], block_size // 2
    shift = jnp.where(stagger, half, 0) if isinstance(stagger, jax.Array) else half * bool(stagger)
    # The same number of blocks with and without a shift if it is not known yet; the next part's
    # tokens where it is cut.
    more = block_size if axes else shift if isinstance(shift, int) else half
    longest = length + more

    def blocked(x: Array) -> Array:
        return to_blocks(
            lax.dynamic_slice_in_dim(halo_exchange(x, half, more, axes), half - shift, longest, 1),
            block_size,
        )

    token_dropout, global_dropout = split_dropout(dropout)
    global_keys = KeySet(global_k, global_v)
    bias = None if bias is None else bias[None, None]
    key_sets = [global_keys, KeySet(blocked(k), blocked(v), blocked(mask)[:, :, None, None], bias)]
    tokens = attend_key_sets(blocked(q), key_sets, scale=scale, dropout=token_dropout)
    tokens = lax.dynamic_slice_in_dim(from_blocks(tokens, longest), shift, length, 1)
    text, options = (
        [KeySet(k, v, mask[:, None, None, None])],
        {"scale": scale, "dropout": global_dropout},
    )
    return zero_padding(tokens, mask), attend_all(
        global_q, text, replicated=[global_keys], axes=axes, **options
    )
