"""The interface of a decoder for search, and the sequences that a search extends.

Sequences grow by one token for every beam, or by several for a single beam.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.typing import AnyArray

Cache = Any  # any pytree of arrays
Tokens = Int[Array, "batch beams"]
# positions = 1 + max_new_tokens
Sequences = Int[Array, "batch beams positions"]


class CachedDecoder(NamedTuple):
    """Functions of a model over a cache, which includes the position of every row.

    Attributes:
        step: function (ids [batch, beams] int32, cache) -> (logits [batch,
            beams, vocab], cache) that reads one token for every beam.
        reorder: function (cache, beams [batch, beams] int32) -> cache; row b,
            beam r continues from old beam ``beams[b, r]``. Only self-attention
            entries move: encoder-side keys and values are stored once per batch
            row.
        keep: function (cache, counts [batch] int32) -> cache that keeps the
            first ``counts`` of the consecutive tokens that the last step has
            read in each row. For searches with drafts, whose ``step`` reads the
            newest token followed by a draft instead of beams.
        documents: ids of the documents, -1 for no token. Drafts are looked up
            in them, and their n-grams may be forbidden.
        earlier: ids of the summaries of earlier segments, -1 between and after
            them, whose n-grams may be forbidden; None if they may be repeated.
    """

    step: Callable[
        [Tokens, Cache], tuple[Float[Array, "batch beams vocab"], Cache]
    ]
    reorder: Callable[[Cache, Tokens], Cache]
    keep: Callable[[Cache, Int[Array, " batch"]], Cache] | None = None
    documents: Int[AnyArray, "batch length"] | None = None
    earlier: Int[AnyArray, "batch said"] | None = None


Decoder = CachedDecoder  # public name before version 0.3


class TokenLimits(NamedTuple):
    """Limits of each row that replace the options of the whole search.

    They are arrays, so that rows with different limits share a program, which
    is compiled for the ``max_new_tokens`` of the options.

    Attributes:
        shortest: minimum number of new tokens before the end, in place of
            ``min_new_tokens``.
        longest: maximum number of new tokens, in place of ``max_new_tokens``,
            and at most as large.
    """

    shortest: Int[AnyArray, "*batch"]
    longest: Int[AnyArray, "*batch"]


def max_tokens(
    limits: TokenLimits | None, options: GenerationOptions
) -> Int[AnyArray, "*batch"] | int:
    """Returns the maximum number of new tokens: of each row, or without limits of all rows."""
    return options.max_new_tokens if limits is None else limits.longest


def empty_sequences(
    batch_size: int, beams: int, options: GenerationOptions
) -> Sequences:
    """Returns sequences that contain only the start token."""
    shape = (batch_size, beams, 1 + options.max_new_tokens)
    padding = jnp.full(shape, options.padding_id, jnp.int32)
    return padding.at[:, :, 0].set(options.decoder_start_token_id)


def newest(sequences: Sequences, step: Int[Array, " batch"]) -> Tokens:
    """Returns the newest token of every beam, after ``step`` new tokens of each row."""
    index = step[:, None, None]
    return jnp.take_along_axis(
        sequences, index, axis=2, mode="promise_in_bounds"
    )[..., 0]


def next_step(
    step: Int[Array, " batch"], done: Bool[Array, " batch"]
) -> Int[Array, " batch"]:
    """Increments the number of tokens in rows that are not done."""
    return step + ~done


def write(
    sequences: Int[AnyArray, "batch rows positions"],
    tokens: Int[AnyArray, "batch rows"],
    position: Int[Array, " batch"],
) -> Int[Array, "batch rows positions"]:
    """Sets sequences[b, :, position[b]] to tokens[b]."""
    is_new = jnp.arange(sequences.shape[-1]) == position[:, None, None]
    return jnp.where(is_new, tokens[:, :, None], sequences)


def write_several(
    sequences: Int[AnyArray, "batch positions"],
    tokens: Int[AnyArray, "batch count"],
    position: Int[Array, " batch"],
    is_written: Bool[AnyArray, "batch count"] | bool = True,
) -> Int[Array, "batch positions"]:
    """Sets sequences[b, position[b] + i] to tokens[b, i] where ``is_written[b, i]``."""
    index = jnp.arange(sequences.shape[1]) - position[:, None]
    is_new = (index >= 0) & (index < tokens.shape[1])
    index = jnp.clip(index, 0, tokens.shape[1] - 1)
    is_written = jnp.broadcast_to(is_written, tokens.shape)
    is_new = is_new & jnp.take_along_axis(is_written, index, axis=1)
    return jnp.where(
        is_new, jnp.take_along_axis(tokens, index, axis=1), sequences
    )


def is_eos(
    tokens: Int[AnyArray, "*any"], options: GenerationOptions
) -> Bool[Array, "*any"]:
    """Returns True for tokens that end a sequence."""
    return jnp.isin(tokens, np.asarray(options.eos_ids, np.int32))


def pick(
    values: Float[AnyArray, "batch beams vocab"], index: Tokens
) -> Float[Array, "batch beams"]:
    """Returns values[..., index]."""
    return jnp.take_along_axis(
        values, index[..., None], axis=-1, mode="promise_in_bounds"
    )[..., 0]


def take(
    values: Shaped[AnyArray, "batch rows *rest"],
    index: Int[AnyArray, "batch taken"],
) -> Shaped[Array, "batch taken *rest"]:
    """Selects entries along axis 1."""
    index = index.reshape(index.shape + (1,) * (values.ndim - 2))
    return jnp.take_along_axis(values, index, axis=1, mode="promise_in_bounds")
