"""Greedy, beam and sampled search over a decoder with a cache, with the options of transformers'
generate."""

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, Generated, generate, trim

__all__ = ["Decoder", "Generated", "GenerationOptions", "generate", "trim"]
