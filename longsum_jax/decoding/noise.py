"""Noisy decoding: some tokens are drawn from a decoder that does not read the document.

With probability ``noise`` the next token of a sequence is drawn from the
unconditional decoder, else from the conditional decoder. Both read all tokens
drawn so far. Such texts are fluent, but not supported by the document (SCOPE,
Duong et al. 2025).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from longsum_jax.decoding.decoder import Cache, CachedDecoder, Tokens

# Folded into a sequence's key, so that the selection of the decoder and the
# draw of the token are independent.
_CHOICE = 2**31 - 1


class NoisyCache(NamedTuple):
    """The caches of both decoders.

    Attributes:
        conditional, unconditional: caches of the two decoders.
        step: number of tokens read in each row.
    """

    conditional: Cache
    unconditional: Cache
    step: Int[Array, " batch"]


def noisy_cache(
    conditional: Cache, unconditional: Cache, batch_size: int
) -> NoisyCache:
    """Returns the cache for ``noisy_decoder`` before the first token."""
    return NoisyCache(
        conditional, unconditional, jnp.zeros(batch_size, jnp.int32)
    )


def noisy_decoder(
    conditional: CachedDecoder,
    unconditional: CachedDecoder,
    *,
    noise: Float[Array, ""] | float,
    keys: Key[Array, "batch beams"],
) -> CachedDecoder:
    """Returns a decoder whose logits come from one of two decoders, selected at random in every
    step.

    Args:
        conditional: decoder that reads the document.
        unconditional: decoder over the same vocabulary that does not read it.
        noise: probability of the unconditional decoder.
        keys: PRNG keys of the sequences.
    """

    def step(
        ids: Tokens, cache: NoisyCache
    ) -> tuple[Float[Array, "batch beams vocab"], Cache]:
        logits, conditional_cache = conditional.step(ids, cache.conditional)
        other_logits, unconditional_cache = unconditional.step(
            ids, cache.unconditional
        )
        is_noisy = _choices(keys, cache.step) < noise
        # Normalized, because the scores of a sequence are log-probabilities.
        log_probs, other_log_probs = (
            jax.nn.log_softmax(values.astype(jnp.float32))
            for values in (logits, other_logits)
        )
        mixed = jnp.where(is_noisy[..., None], other_log_probs, log_probs)
        return mixed, NoisyCache(
            conditional_cache, unconditional_cache, cache.step + 1
        )

    def reorder(cache: NoisyCache, beams: Tokens) -> NoisyCache:
        return NoisyCache(
            conditional.reorder(cache.conditional, beams),
            unconditional.reorder(cache.unconditional, beams),
            cache.step,
        )

    return conditional._replace(step=step, reorder=reorder, keep=None)


def _choices(
    keys: Key[Array, "batch beams"], step: Int[Array, " batch"]
) -> Float[Array, "batch beams"]:
    """Returns a number between 0 and 1 for the next token of every sequence."""

    def draw(key: Key[Array, ""], step: Int[Array, ""]) -> Float[Array, ""]:
        return jax.random.uniform(
            jax.random.fold_in(jax.random.fold_in(key, _CHOICE), step)
        )

    of_row = jax.vmap(draw, in_axes=(0, None))
    return jax.vmap(of_row)(keys, step)
