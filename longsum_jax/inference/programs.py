"""The compiled programs of a loaded model.

Decoding is two programs: one encodes a document and computes its keys and values, one searches. In
a single program XLA chooses one layout of the keys for both, and copies them at every token.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, Generated, generate
from longsum_jax.layers.decoder_cache import DecoderCache, DecoderSource
from longsum_jax.layers.layer_groups import unstacked_layers
from longsum_jax.layers.partitioning import is_on_one_cpu
from longsum_jax.typing import Array, Params

Variables = Mapping[str, Any]  # parameters, and cached state-space kernels
Inputs = Mapping[str, Array]  # further inputs of some encoders


class Programs:
    """The programs of a module, each compiled once for every shape of its arguments.

    Ids are int32 and masks bool, [batch, length].

    Attributes:
        encode: (variables, ids, mask, inputs, layer=None) -> encoder states [batch, length,
            d_model], those after ``layer`` layers where it is given.
        logits: (variables, ids, mask, inputs, *decoder_ids) -> logits, see ``Model.logits``.
        read: (variables, ids, mask, inputs) -> what decoding reads of the documents.
    """

    def __init__(self, module: Any) -> None:
        self.encode = jax.jit(partial(_encode, module), static_argnames="layer")
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
        read = partial(self.read, variables, ids, mask, inputs)
        shapes = self.read.eval_shape(variables, ids, mask, inputs)
        sizes = {"batch_size": len(ids), "options": options}
        return self.search.of_reading(read, shapes, variables["params"], keys, **sizes)


class Search:
    """The compiled search of a module, called with what it reads of documents."""

    def __init__(self, module: Any) -> None:
        static = ("batch_size", "options")
        self.program = jax.jit(partial(_search, module), static_argnames=static)
        self._compiled: dict[Any, Callable[..., Generated]] = {}

    def __call__(
        self,
        params: Params,
        source: DecoderSource,
        keys: Array | None,
        *,
        batch_size: int,
        options: GenerationOptions,
        is_done: Array | None = None,
    ) -> Generated:
        """Decodes documents.

        Args:
            params: of the module.
            source: what is read of the documents.
            keys: one a row to sample with, or None.
            batch_size: number of documents.
            options: of the search.
            is_done: rows to leave alone, see ``generate``.
        """
        arguments = (params, layer_views(params["decoder"]), source, keys, is_done)
        return self._run(arguments, {"batch_size": batch_size, "options": options})

    def of_reading(
        self,
        read: Callable[[], DecoderSource],
        shapes: DecoderSource,
        params: Params,
        keys: Array | None,
        **sizes: Any,
    ) -> Generated:
        """Decodes what ``read`` gives, and compiles the search while it reads.

        Args:
            read: reads documents.
            shapes: of its result.
            params, keys: of a call.
            **sizes: ``batch_size`` and ``options`` of a call.
        """
        layers = layer_views(params["decoder"])
        with self._compiling((params, layers, shapes, keys, None), sizes):
            source = read()
        return self._run((params, layers, source, keys, None), sizes)

    def _run(self, arguments: tuple[Any, ...], sizes: Mapping[str, Any]) -> Generated:
        compiled = self._compiled.get(_signature(arguments, sizes))
        return compiled(*arguments) if compiled else self.program(*arguments, **sizes)

    @contextmanager
    def _compiling(self, arguments: tuple[Any, ...], sizes: Mapping[str, Any]) -> Iterator[None]:
        """Compiles the program of ``arguments`` beside what the body of the ``with`` does.

        Nothing happens where it is compiled already, and on accelerators and meshes (no views of
        layers), where the program depends on the places of its arguments.
        """
        _, layers, *_ = arguments
        signature = _signature(arguments, sizes)
        if layers is None or signature in self._compiled:
            yield
            return
        lowered = self.program.lower(*arguments, **sizes)
        with ThreadPoolExecutor(1) as thread:
            compiled = thread.submit(lowered.compile)
            yield
        self._compiled[signature] = compiled.result()


def _signature(arguments: Any, sizes: Mapping[str, Any]) -> Any:
    """Returns what tells programs of different arguments apart."""
    leaves, tree = jax.tree.flatten(arguments)
    return tuple((x.shape, x.dtype) for x in leaves), tree, *sizes.values()


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


def _encode(
    module: Any,
    variables: Variables,
    ids: Array,
    mask: Array,
    inputs: Inputs,
    layer: int | None = None,
) -> Array:
    return module.apply(variables, ids, mask, method="encode", layer=layer, **inputs)


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
    is_done: Array | None = None,
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
    sizes = {"batch_size": batch_size, "options": options}
    out = generate(decoder, cache, **sizes, rng=keys, is_done=is_done)
    if jax.sharding.get_abstract_mesh().empty:
        return out
    return jax.lax.with_sharding_constraint(out, PartitionSpec())  # replicated on every host
