"""Greedy search and sampling: the beams of a row are independent samples."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from longsum_jax.decoding.decoder import (
    Cache,
    CachedDecoder,
    Sequences,
    TokenLimits,
    Tokens,
    empty_sequences,
    is_eos,
    max_tokens,
    newest,
    next_step,
    pick,
    write,
)
from longsum_jax.decoding.logits import process_scores, warp_scores
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.typing import AnyArray

RandomKeys = Key[Array, "..."] | UInt[Array, "..."]


class Samples(NamedTuple):
    """The state of a greedy or sampled search."""

    step: Int[Array, " batch"]  # number of new tokens so far
    sequences: Sequences
    lengths: Int[Array, "batch beams"]
    finished: Bool[Array, "batch beams"]
    scores: Float[Array, "batch beams"]  # sums of log-probabilities
    done: Bool[Array, " batch"]  # the row does not change any more
    limits: TokenLimits | None  # None: the limits of the options
    cache: Cache


def first_samples(
    cache: Cache,
    batch_size: int,
    options: GenerationOptions,
    limits: TokenLimits | None = None,
) -> Samples:
    """Returns the state before the first token."""
    shape = (batch_size, options.decoder_beams)
    return Samples(
        step=jnp.zeros(batch_size, jnp.int32),
        sequences=empty_sequences(*shape, options),
        lengths=jnp.zeros(shape, jnp.int32),
        finished=jnp.zeros(shape, bool),
        scores=jnp.zeros(shape, jnp.float32),
        done=jnp.zeros(batch_size, bool),
        limits=limits,
        cache=cache,
    )


def extend_samples(
    decoder: CachedDecoder,
    state: Samples,
    *,
    options: GenerationOptions,
    keys: Key[Array, "batch beams"] | None,
) -> Samples:
    """Adds a token to every sequence: the most likely, or with ``keys`` a random one."""
    logits, cache = decoder.step(
        newest(state.sequences, state.step), state.cache
    )
    step = next_step(state.step, state.done)
    logits = logits.astype(jnp.float32)
    texts = decoder.documents, decoder.earlier
    logits = process_scores(
        logits, state.sequences, step, options, *texts, state.limits
    )
    if keys is None:
        tokens = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    else:
        logits = warp_scores(logits, options)
        tokens = _draw(keys, state.step, logits)
    gained = pick(jax.nn.log_softmax(logits), tokens)
    # sequences that only get padding
    over = state.finished | state.done[:, None]
    tokens = jnp.where(over, options.padding_id, tokens)
    finished = over | is_eos(tokens, options)
    is_last = step == max_tokens(state.limits, options)
    return Samples(
        step=step,
        sequences=write(state.sequences, tokens, state.step + 1),
        lengths=jnp.where(over, state.lengths, step[:, None]),
        finished=finished,
        scores=jnp.where(over, state.scores, state.scores + gained),
        done=jnp.all(finished, axis=1) | is_last,
        limits=state.limits,
        cache=cache,
    )


def row_keys(
    rng: RandomKeys | None, batch_size: int, beams: int
) -> Key[Array, "batch beams"]:
    """Returns a typed key for every beam of every row."""
    if rng is None:
        raise InputError(
            "do_sample=True needs random keys; give generate rng=jax.random.key(seed)"
        )
    if not jnp.issubdtype(rng.dtype, jax.dtypes.prng_key):
        rng = jax.random.wrap_key_data(rng)
    fold_in = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    if rng.ndim == 0:
        rng = fold_in(rng, jnp.arange(batch_size))
    if rng.shape != (batch_size,):
        raise InputError(
            f"rng holds keys of shape {rng.shape}; give one key, or {batch_size}, one for every row"
        )
    return jax.vmap(fold_in, in_axes=(0, None))(rng, jnp.arange(beams))


def _draw(
    keys: Key[Array, "batch beams"],
    step: Int[Array, " batch"],
    logits: Float[AnyArray, "batch beams vocab"],
) -> Tokens:
    """Draws one token for every beam."""

    def draw(
        key: Key[Array, ""],
        step: Int[Array, ""],
        row: Float[AnyArray, " vocab"],
    ) -> Int[Array, ""]:
        return jax.random.categorical(jax.random.fold_in(key, step), row)

    of_row = jax.vmap(draw, in_axes=(0, None, 0))
    return jax.vmap(of_row)(keys, step, logits).astype(jnp.int32)
