"""The interface of a decoder for search, and the sequences that a search extends.

Sequences grow by one token for every beam, or by several for a single beam.
"""

import dataclasses
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
    """The functions of a model that a search calls, and the texts that it looks up.

    The functions take and return a cache: any pytree with the keys and values
    of earlier tokens, and the position of every row.

    Attributes:
        step: function (ids [batch, beams] int32, cache) -> (logits [batch,
            beams, vocab], cache) that reads one token for every beam.
        reorder: function (cache, beams [batch, beams] int32) -> cache in which
            beam r of row b continues beam ``beams[b, r]`` of the old cache.
            Only entries of self-attention move; keys and values of the
            document are stored once per row.
        keep: function (cache, counts [batch] int32) -> cache without the tokens
            of the last step after the first ``counts[b]`` of row b; None for a
            decoder that takes no drafts. With drafts
            (``prompt_lookup_num_tokens``), ``step`` reads the newest token and
            a draft of consecutive tokens in place of beams.
        documents: ids of the documents, -1 for no token, in which drafts are
            looked up and whose n-grams ``encoder_no_repeat_ngram_size``
            forbids; None without these options.
        earlier: ids of the summaries of earlier segments, -1 between and after
            them, whose n-grams ``segments_no_repeat_ngram_size`` forbids; None
            without them.
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
    """Limits of each row, in place of the limits in the options of the search.

    They are arrays, so that rows with different limits share a program, which
    is compiled for the ``max_new_tokens`` of the options. Limits of one row are
    int32 (), of a batch int32 [batch].

    Attributes:
        shortest: minimum number of new tokens before the end, in place of
            ``min_new_tokens``.
        longest: maximum number of new tokens, at most ``max_new_tokens`` of the
            options, which it replaces.
    """

    shortest: Int[AnyArray, "*batch"]
    longest: Int[AnyArray, "*batch"]


def with_room(
    options: GenerationOptions, room: int
) -> tuple[GenerationOptions, TokenLimits]:
    """Returns options for rows with room for ``room`` new tokens, and their limits as values.

    Options that differ only in their limits then share a program.
    """
    limits = TokenLimits(
        np.array(options.min_new_tokens, np.int32),
        np.array(options.max_new_tokens, np.int32),
    )
    options = dataclasses.replace(
        options, max_new_tokens=room, min_new_tokens=0
    )
    return options, limits


def max_tokens(
    limits: TokenLimits | None, options: GenerationOptions
) -> Int[AnyArray, "*batch"] | int:
    """Returns the maximum number of new tokens, one per row, or one for all without limits."""
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
