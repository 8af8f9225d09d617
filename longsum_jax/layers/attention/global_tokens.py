"""Global tokens before a sequence, and their positions if a mesh shards the sequence.

Without a mesh they are simply prepended. If n devices each hold a shard of the
sequence, every shard begins with its share of the global tokens, so that no
device has to move its tokens to make room for the global tokens of another
device. For 3 tokens (g) and 8 others on 2 devices:

    one device:      g0 g1 g2 x0 x1 x2 x3 x4 x5 x6 x7
    two devices:     g0 g1 x0 x1 x2 x3 | g2 00 x4 x5 x6 x7       (00: a token of zeros)
"""

import jax.numpy as jnp
from jaxtyping import Shaped

from longsum_jax.layers.partitioning import active_sequence_sharding, constrain
from longsum_jax.ops.padding import append_zeros
from longsum_jax.typing import AnyArray

NO_TOKEN = -1  # entry of ``global_indices`` without a token


def pad_to_shards(
    x: Shaped[AnyArray, "batch length *rest"], block: int
) -> Shaped[AnyArray, "batch padded_length *rest"]:
    """Appends zeros (False), so that every shard of the sequence has whole blocks.

    Args:
        x: a sequence; returned unchanged if no mesh shards sequences.
        block: number of tokens of a block.
    """
    sharding = active_sequence_sharding(x.shape[0])
    if sharding is None:
        return x
    extra = -x.shape[1] % (sharding.num_shards * block)
    return append_zeros(x, extra) if extra else x


def join_tokens(
    tokens: Shaped[AnyArray, "batch num_globals *rest"],
    text: Shaped[AnyArray, "batch length *rest"],
) -> Shaped[AnyArray, "batch extended_length *rest"]:
    """Prepends global tokens to a sequence, or to each of its shards.

    Args:
        tokens: global tokens. If a mesh shards the sequence, each shard gets
            ceil(num_globals / shards) of them; the last shards get zeros
            instead.
        text: the sequence, padded by ``pad_to_shards``.
    """
    sharding = active_sequence_sharding(text.shape[0])
    if sharding is None:
        return jnp.concatenate([tokens, text], 1)
    # Every shard gets the same number of global tokens.
    tokens = append_zeros(tokens, -tokens.shape[1] % sharding.num_shards)
    # Concatenates within each shard, [batch, shards, tokens of a shard, ...].
    tokens, text = (
        _split_shards(x, sharding.num_shards) for x in (tokens, text)
    )
    return _merge_shards(jnp.concatenate([tokens, text], 2))


def split_tokens(
    x: Shaped[AnyArray, "batch extended_length *rest"], count: int
) -> tuple[
    Shaped[AnyArray, "batch num_globals *rest"],
    Shaped[AnyArray, "batch length *rest"],
]:
    """Reverses ``join_tokens``: returns the ``count`` global tokens, and the sequence."""
    sharding = active_sequence_sharding(x.shape[0])
    if sharding is None:
        return x[:, :count], x[:, count:]
    # Number of global tokens at the beginning of each shard.
    share = -(-count // sharding.num_shards)
    x = _split_shards(x, sharding.num_shards)
    tokens = _merge_shards(x[:, :, :share])
    # The zeros of the last shards are dropped.
    return tokens[:, :count], _merge_shards(x[:, :, share:])


def without_globals(
    states: Shaped[AnyArray, "batch extended_length *rest"], length: int
) -> Shaped[AnyArray, "batch length *rest"]:
    """Returns the states of a text of ``length`` tokens, without the prepended global tokens.

    Encoders with LSG attention and ``pass_global_tokens_to_decoder`` also
    return the latter.
    """
    return states[:, states.shape[1] - length :]


def _split_shards(x: AnyArray, num_shards: int) -> AnyArray:
    """Reshapes [batch, length, ...] to [batch, shards, length / shards, ...]."""
    x = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
    return constrain(x, "batch", "length", *[None] * (x.ndim - 2))


def _merge_shards(x: AnyArray) -> AnyArray:
    """Reshapes [batch, shards, length / shards, ...] to [batch, length, ...]."""
    x = x.reshape(x.shape[0], -1, *x.shape[3:])
    return constrain(x, "batch", "length", *[None] * (x.ndim - 2))
