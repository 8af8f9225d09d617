"""The compiled programs of a loaded model."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
from jax.sharding import PartitionSpec

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, Generated, generate
from longsum_jax.layers.decoder import DecoderCache
from longsum_jax.typing import Array

Variables = Mapping[str, Any]  # parameters, and cached state-space kernels
Inputs = Mapping[str, Array]  # further inputs of some encoders


class Programs:
    """The programs of a module, each compiled once for every shape of its arguments.

    Ids are int32 and masks bool, [batch, length].

    Attributes:
        encode: (variables, ids, mask, inputs) -> encoder states [batch, length, d_model].
        logits: (variables, ids, mask, inputs, *decoder_ids) -> logits, see ``Model.logits``.
        generate: (variables, ids, mask, inputs, keys, *, options) -> sequences; one key a row to
            sample with, or None.
    """

    def __init__(self, module: Any) -> None:
        self.encode = jax.jit(partial(_encode, module))
        self.logits = jax.jit(partial(_logits, module))
        self.generate = jax.jit(partial(_generate, module), static_argnames="options")


def _encode(module: Any, variables: Variables, ids: Array, mask: Array, inputs: Inputs) -> Array:
    return module.apply(variables, ids, mask, method="encode", **inputs)


def _logits(
    module: Any, variables: Variables, ids: Array, mask: Array, inputs: Inputs, *decoder_ids: Array
) -> Array:
    return module.apply(variables, ids, mask, *decoder_ids, **inputs)


def _generate(
    module: Any,
    variables: Variables,
    ids: Array,
    mask: Array,
    inputs: Inputs,
    keys: Array | None,
    *,
    options: GenerationOptions,
) -> Generated:
    apply = partial(module.apply, variables)
    states = apply(ids, mask, method="encode", **inputs)
    cache = apply(states, mask, options.decoder_beams, options.max_new_tokens, method="init_cache")
    decoder = Decoder(partial(apply, method="decode_step"), DecoderCache.reorder)
    out = generate(decoder, cache, batch_size=ids.shape[0], options=options, rng=keys)
    if jax.sharding.get_abstract_mesh().empty:
        return out
    return jax.lax.with_sharding_constraint(out, PartitionSpec())  # replicated on every host
