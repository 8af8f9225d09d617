"""Decoders whose cache holds the ids read so far, so that a wrong reorder or position changes the
output."""

import functools

import jax
import jax.numpy as jnp
import pytest

from longsum_jax.decoding.decoder import CachedDecoder
from longsum_jax.decoding.search import generate


def _decoder(next_logits):
    """``next_logits(documents [B, 1], ids [B, R, T], length) -> [B, R, V]`` sees the first
    ``length`` ids."""

    def step(ids, cache):
        read = jax.lax.dynamic_update_index_in_dim(cache["ids"], ids, cache["length"], axis=-1)
        length = cache["length"] + 1
        logits = next_logits(cache["documents"][:, None], read, length)
        return logits, {"documents": cache["documents"], "ids": read, "length": length}

    def reorder(cache, beams):
        return cache | {"ids": jnp.take_along_axis(cache["ids"], beams[:, :, None], axis=1)}

    return CachedDecoder(step, reorder)


@functools.cache
def _compiled(next_logits, options):
    def run(documents, rng, is_done):
        ids = jnp.zeros((len(documents), options.decoder_beams, options.max_new_tokens), jnp.int32)
        cache = {"documents": documents, "ids": ids, "length": jnp.int32(0)}
        sizes = {"batch_size": len(documents), "options": options}
        return generate(_decoder(next_logits), cache, **sizes, rng=rng, is_done=is_done)

    # These loops run for milliseconds: what they cost is their compilation.
    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(scope="session")
def decode():
    """decode(next_logits, documents, options, rng=None, is_done=None): ``generate`` compiled, over
    documents [B] int32."""

    def run(next_logits, documents, options, rng=None, is_done=None):
        return _compiled(next_logits, options)(jnp.asarray(documents, jnp.int32), rng, is_done)

    return run
