"""The compiled programs of a loaded model.

Decoding is two programs: one encodes a document and computes its keys and values, one searches. In
a single program XLA chooses one layout of the keys for both, and copies them at every token.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, Generated, generate
from longsum_jax.layers.decoder import DecoderCache, DecoderSource
from longsum_jax.layers.layer_groups import unstacked_layers
from longsum_jax.layers.partitioning import is_on_one_cpu
from longsum_jax.typing import Array, Params

Variables = Mapping[str, Any]  # parameters, and cached state-space kernels
Inputs = Mapping[str, Array]  # further inputs of some encoders


class Programs:
    """The programs of a module, each compiled once for every shape of its arguments.

    Ids are int32 and masks bool, [batch, length].

    Attributes:
        encode: (variables, ids, mask, inputs) -> encoder states [batch, length, d_model].
        logits: (variables, ids, mask, inputs, *decoder_ids) -> logits, see ``Model.logits``.
        read: (variables, ids, mask, inputs) -> what decoding reads of the documents.
    """

    def __init__(self, module: Any) -> None:
        self.encode = jax.jit(partial(_encode, module))
        self.logits = jax.jit(partial(_logits, module))
        self.read = jax.jit(partial(_read, module))
        self.search = Search(module)

    def generate(
        self,
        variables: Variables,
        ids: Array,
        mask: Array,
        inputs: Inputs,
        keys: Array | None,
        *,
        options: GenerationOptions,
    ) -> Generated:
        """Decodes documents.

        Args:
            variables, ids, mask, inputs: as for ``encode``.
            keys: one a row to sample with, or None.
            options: of the search.
        """
        source = self.read(variables, ids, mask, inputs)
        return self.search(variables["params"], source, keys, batch_size=len(ids), options=options)


class Search:
    """The compiled search of a module, called with what it reads of documents."""

    def __init__(self, module: Any) -> None:
        static = ("batch_size", "options")
        self.program = jax.jit(partial(_search, module), static_argnames=static)

    def __call__(
        self,
        params: Params,
        source: DecoderSource,
        keys: Array | None,
        *,
        batch_size: int,
        options: GenerationOptions,
    ) -> Generated:
        """Decodes ``batch_size`` documents, of which ``source`` holds what is read."""
        layers = layer_views(params["decoder"])
        return self.program(params, layers, source, keys, batch_size=batch_size, options=options)


def layer_views(params: Params) -> tuple[Any, ...] | None:
    """Returns the parameters of every layer of a decoder without copying them.

    Args:
        params: of a decoder.

    Returns:
        Arrays that share the memory of ``params``; None where there are no such arrays, on
        accelerators and meshes, so that a program has to take slices.
    """
    if not all(map(_is_on_one_cpu, jax.tree.leaves(params))):
        return None
    return jax.device_put(unstacked_layers(jax.tree.map(np.asarray, params)))


def _is_on_one_cpu(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return is_on_one_cpu()
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return False
    devices = leaf.sharding.device_set
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def _encode(module: Any, variables: Variables, ids: Array, mask: Array, inputs: Inputs) -> Array:
    return module.apply(variables, ids, mask, method="encode", **inputs)


def _logits(
    module: Any, variables: Variables, ids: Array, mask: Array, inputs: Inputs, *decoder_ids: Array
) -> Array:
    return module.apply(variables, ids, mask, *decoder_ids, **inputs)


def _read(
    module: Any, variables: Variables, ids: Array, mask: Array, inputs: Inputs
) -> DecoderSource:
    states = module.apply(variables, ids, mask, method="encode", **inputs)
    return module.apply(variables, states, mask, method="read_source")


def _search(
    module: Any,
    params: Params,
    layers: tuple[Any, ...] | None,
    source: DecoderSource,
    keys: Array | None,
    *,
    batch_size: int,
    options: GenerationOptions,
) -> Generated:
    if layers is None:
        layers = unstacked_layers(params["decoder"])
    apply = partial(module.apply, {"params": params})
    cache = apply(source, options.decoder_beams, options.max_new_tokens, method="init_cache")

    def step(ids: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        return apply(ids, cache, source, layers, method="decode_step")

    decoder = Decoder(step, DecoderCache.reorder)
    out = generate(decoder, cache, batch_size=batch_size, options=options, rng=keys)
    if jax.sharding.get_abstract_mesh().empty:
        return out
    return jax.lax.with_sharding_constraint(out, PartitionSpec())  # replicated on every host
