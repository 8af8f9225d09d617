"""The compiled programs of a loaded model.

Generation is two programs: ``read`` encodes documents and computes their keys
and values, and ``search`` generates text. In a single program, XLA would choose one
layout of the keys for both and copy them at every token. The documents of a
batch are decoded together (``Search``), or enter and leave one by one
(``SlotPrograms``).
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.decoding.decoder import CachedDecoder, TokenLimits
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import (
    Generated,
    SearchState,
    advance,
    generate,
    restart,
    result,
    start,
)
from longsum_jax.errors import InputError
from longsum_jax.inference.decoder_storage import (
    GatheredWeights,
    StoredDecoder,
    gathered_weights,
    narrow_layers,
    stored_decoder,
    turned_back,
    turned_layers,
)
from longsum_jax.inference.kernel_cache import kernel_program
from longsum_jax.layers.decoder_cache import (
    DecoderCache,
    DecoderSource,
    DraftCache,
)
from longsum_jax.layers.layer_groups import unstacked_layers
from longsum_jax.layers.partitioning import constrain_rows, is_on_one_cpu
from longsum_jax.ops.device_memory import check_memory
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.storage import Storage, padded_table
from longsum_jax.typing import AnyArray, Array, Params

Variables = Mapping[str, Any]  # parameters, and cached state-space kernels
Inputs = Mapping[str, AnyArray]  # optional inputs of some encoders
# Number of generation options whose compiled programs are held at a time. The
# programs of a small model take some 10 MB per set of options, and clients of a
# server choose options freely.
_MAX_OPTIONS = 16
# Weights that decoding steps read: views of every layer, copies in a storage
# type, or None to slice the parameters; ``GatheredWeights`` gather them first.
Weights = tuple[Any, ...] | StoredDecoder | GatheredWeights | None


class Programs:
    """The programs of a module, each compiled once per shape of its arguments.

    Ids are int32 and masks bool, [batch, length].

    Args:
        module: module of a model.
        storage: storage type of the decoder's weights and the document's keys
            in decoding.

    Attributes:
        encode: (variables, ids, mask, inputs, layer=None) -> encoder states
            [batch, length, d_model], after ``layer`` layers if it is set.
        logits: (variables, ids, mask, inputs, *decoder_ids) -> logits, see
            ``Model.logits``.
        log_probs: (variables, ids, mask, inputs, targets) -> log-probabilities
            of the targets, see ``Model.log_probs``.
        read: (variables, ids, mask, inputs) -> the encoded documents, a
            ``DecoderSource``.
        search, slots: decode encoded documents, see ``Search`` and
            ``SlotPrograms``.
        kernels: see ``kernel_cache.kernel_program``.
    """

    def __init__(self, module: Any, storage: Storage = "float32") -> None:
        self.encode = Program(partial(_encode, module), static_argnames="layer")
        self.logits = Program(partial(_logits, module))
        self.log_probs = Program(partial(_log_probs, module))
        self.read = Program(
            partial(_read, module, storage), static_argnames="stores_states"
        )
        self.search = Search(module, storage)
        self.slots = SlotPrograms(module)
        self.kernels = kernel_program(module)

    def generate(
        self,
        variables: Variables,
        ids: AnyArray,
        mask: AnyArray,
        inputs: Inputs,
        keys: Array | None,
        *,
        options: GenerationOptions,
    ) -> Generated:
        """Encodes and decodes documents.

        Args:
            variables, ids, mask, inputs: inputs as for ``encode``.
            keys: PRNG keys of the rows, for sampling, or None.
            options: generation options.
        """
        # The shapes suffice to compile the search, while the device encodes.
        read = partial(self.read, variables, ids, mask, inputs)
        shapes = self.read.eval_shape(variables, ids, mask, inputs)
        return self.search.after_reading(
            read,
            shapes,
            variables["params"],
            keys,
            batch_size=len(ids),
            options=options,
        )


class Program:
    """A function that is compiled once per shape of its arguments.

    A program that takes more memory than a device has is rejected before it
    runs. Compiled programs are held for the ``_MAX_OPTIONS`` generation options
    that were used most recently; others are compiled again.

    Args:
        function: function of arrays.
        **settings: options of ``jax.jit``.
    """

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        # Imported here: loading a model needs no mesh.
        from longsum_jax.training.mesh import MeshJit

        def compiled(options: GenerationOptions | None) -> _CompiledPrograms:
            # A new function: JAX releases the programs of a function together with it.
            return _CompiledPrograms(MeshJit(partial(function), **settings))

        self._compiled = lru_cache(_MAX_OPTIONS)(compiled)

    def __call__(self, *arguments: Any, **sizes: Any) -> Any:
        """Runs the program.

        Raises:
            InputError: the program takes more memory than a device has.
        """
        compile_and_check = self.prepare(*arguments, **sizes)
        if compile_and_check is not None:
            compile_and_check()
        return self._of(sizes).jitted(*arguments, **sizes)

    def lower(self, *arguments: Any, **sizes: Any) -> Any:
        """Returns the lowered program, not compiled, see ``jax.jit``."""
        return self._of(sizes).jitted.lower(*arguments, **sizes)

    def eval_shape(self, *arguments: Any, **sizes: Any) -> Any:
        """Returns the shapes of the results."""
        return self._of(sizes).jitted.eval_shape(*arguments, **sizes)

    def prepare(
        self, *arguments: Any, **sizes: Any
    ) -> Callable[[], None] | None:
        """Traces the program; returns a function that compiles it and checks its memory use.

        Returns None if that is already done.

        Args:
            *arguments: arrays or their shapes.
            **sizes: static arguments.
        """
        # Each combination of shapes is checked once.
        signature = _signature(arguments, sizes)
        checked = self._of(sizes).checked
        if signature in checked:
            return None
        # Trace in this thread, because JAX's contexts, such as the mesh, are
        # local to it.
        lowered = self.lower(*arguments, **sizes)

        def compile_and_check() -> None:
            # The call of ``jitted`` in ``__call__`` then uses the program from JAX's cache.
            check_memory(
                lowered.compile(),
                "reading or summarizing these documents",
                _ADVICE,
            )
            checked.add(signature)

        return compile_and_check

    def _of(self, sizes: Mapping[str, Any]) -> "_CompiledPrograms":
        return self._compiled(sizes.get("options"))


class _CompiledPrograms:
    """The programs of a function for the same generation options.

    Attributes:
        jitted: function with its compiled programs.
        checked: signatures of the programs that fit in memory.
    """

    def __init__(self, jitted: Any) -> None:
        self.jitted = jitted
        self.checked: set[Any] = set()


_ADVICE = (
    "lower batch_size, num_beams or max_source_length, or use dtype bfloat16 or a model with hepos "
    "cross-attention"
)


class Search:
    """Runs the compiled search of a module over encoded documents.

    Args:
        module: module of a model.
        storage: storage type of the decoder's weights.
    """

    def __init__(self, module: Any, storage: Storage = "float32") -> None:
        self._module = module
        self._storage = storage
        self._stored: tuple[list[Array], StoredDecoder] | None = None
        static = ("batch_size", "options")
        self.program = Program(partial(_search, module), static_argnames=static)

    def weights(self, params: Params) -> Weights:
        """Returns the weights that steps read: ``layer_views``, ``gathered_weights`` on a mesh,
        or copies in the storage type.

        Copies are made once and reused as long as the parameters are the same
        arrays.

        Args:
            params: parameters of the module.

        Raises:
            InputError: a storage type other than float32 for parameters on an
                accelerator or a mesh.
        """
        if self._storage == "float32":
            return layer_views(params["decoder"]) or gathered_weights(params)
        table = params[self._module.logits_parameter]
        # Copies are valid as long as these are the same arrays.
        leaves = [*jax.tree.leaves(params["decoder"]), table]
        stored = self._stored  # read once: other threads may replace it
        # Convert the weights again if a parameter was replaced.
        if stored is None or any(map(operator.is_not, stored[0], leaves)):
            layers = layer_views(params["decoder"])
            if layers is None or not lies_on_one_cpu(table):
                raise self._not_on_cpu()
            stored = leaves, stored_decoder(layers, table, self._storage)
            self._stored = stored
        return stored[1]

    def weight_shapes(self, params: Params) -> Any:
        """Returns the shapes of ``weights`` by the shapes of parameters, for the target's devices.

        Raises:
            InputError: a storage type other than float32, and the target is not
                a CPU.
        """
        if self._storage == "float32":
            if is_on_one_cpu():
                return jax.eval_shape(unstacked_layers, params["decoder"])
            return gathered_weights(params)
        if not is_on_one_cpu():
            raise self._not_on_cpu()

        def stored(params: Params) -> StoredDecoder:
            layers = unstacked_layers(params["decoder"])
            return stored_decoder(
                layers, params[self._module.logits_parameter], self._storage
            )

        return jax.eval_shape(stored, params)

    def _not_on_cpu(self) -> InputError:
        return InputError(
            f'decoder_storage="{self._storage}" is for a single CPU; leave it out, and give '
            'dtype="bfloat16" on accelerators'
        )

    def __call__(
        self,
        params: Params,
        source: DecoderSource,
        keys: Array | None,
        *,
        batch_size: int,
        options: GenerationOptions,
        is_done: AnyArray | None = None,
        limits: TokenLimits | None = None,
    ) -> Generated:
        """Decodes encoded documents.

        Args:
            params: parameters of the module.
            source: encoded documents.
            keys: PRNG keys of the rows, for sampling, or None.
            batch_size: number of documents.
            options: generation options.
            is_done, limits: rows to skip, and numbers of tokens, see
                ``generate``.
        """
        weights = self.weights(params)
        arguments = (params, weights, source, keys, is_done, limits)
        return self.program(*arguments, batch_size=batch_size, options=options)

    def after_reading(
        self,
        read: Callable[[], DecoderSource],
        shapes: DecoderSource,
        params: Params,
        keys: Array | None,
        **sizes: Any,
    ) -> Generated:
        """Decodes documents that are encoded while the search is compiled.

        Args:
            read: function that encodes the documents.
            shapes: shapes of its result.
            params, keys: parameters and keys as for ``__call__``.
            **sizes: ``batch_size`` and ``options``, see ``__call__``.
        """
        weights = self.weights(params)
        # Encoding and compiling overlap: both take long for a new shape.
        with self._compiling((params, weights, shapes, keys, None), sizes):
            source = read()
        return self.program(params, weights, source, keys, None, **sizes)

    @contextmanager
    def _compiling(
        self, arguments: tuple[Any, ...], sizes: Mapping[str, Any]
    ) -> Iterator[None]:
        """Compiles the program for ``arguments`` in a thread during the body of the ``with``.

        Does nothing if it is already compiled, or on accelerators and meshes
        (which have no ``layer_views``), on which the program depends on the
        devices of its arguments.
        """
        _, weights, *_ = arguments
        if weights is None or isinstance(weights, GatheredWeights):
            compile_program = None
        else:
            compile_program = self.program.prepare(*arguments, **sizes)
        if compile_program is None:
            yield
            return
        with ThreadPoolExecutor(1) as thread:
            compiled = thread.submit(compile_program)
            yield
        # Raises the error of the thread, if any.
        compiled.result()


class EncodedDocuments(NamedTuple):
    """Encoded documents with the weights that decode them.

    Attributes:
        params: parameters of the module.
        weights: weights that steps read, see ``Search.weights``.
        source: the encoded documents.
    """

    params: Params
    weights: Weights
    source: DecoderSource


class SlotPrograms:
    """The programs of continuous batching: documents enter and leave the search one by one.

    Attributes:
        begin: (params, source, limits=None, batch_size=, options=) -> the state
            of a search, all slots free.
        enter: (source, state, row, slot, limits=None, options=) -> source and
            state with the encoded document ``row`` in a slot. With ``limits``,
            scalars here and in ``begin``, each document has its own.
        shrink: (source, state, batch_size=, shapes=) -> both, truncated to the
            smaller ``shapes``.
        advance: (params, weights, source, state, keys, num_done, max_steps,
            options=) -> the state once ``num_done`` slots are done or free, or
            after ``max_steps`` steps (None for no limit), and the sequences of
            all slots.
    """

    def __init__(self, module: Any) -> None:
        sizes = "batch_size", "options"
        self.begin = Program(partial(_begin, module), static_argnames=sizes)
        # Donated arguments are updated in place.
        donated = "source", "state"
        self.enter = Program(
            _enter, static_argnames="options", donate_argnames=donated
        )
        self.shrink = Program(_shrink, static_argnames=("batch_size", "shapes"))
        self.advance = Program(
            partial(_advance, module),
            static_argnames="options",
            donate_argnames="state",
        )


def _signature(arguments: Any, sizes: Mapping[str, Any]) -> Any:
    """Returns the key of a compiled program: shapes, types, structure, static arguments."""
    leaves, tree = jax.tree.flatten(arguments)
    # Shardings are not part of it: they follow from the model and its mesh.
    return tuple((x.shape, x.dtype) for x in leaves), tree, *sizes.values()


def layer_views(params: Params) -> tuple[Any, ...] | None:
    """Returns the parameters of every layer of a decoder without copying them.

    Args:
        params: parameters of a decoder.

    Returns:
        Arrays that share the memory of ``params``; None on accelerators and
        meshes, where sharing is impossible and programs slice the stacked
        parameters.
    """
    if not all(map(lies_on_one_cpu, jax.tree.leaves(params))):
        return None
    # On CPUs, JAX uses views of NumPy arrays without copying them.
    return jax.device_put(unstacked_layers(jax.tree.map(np.asarray, params)))


def lies_on_one_cpu(leaf: Any) -> bool:
    """Returns True if an array, or a parameter on the host, is on a single CPU."""
    if isinstance(leaf, np.ndarray):
        return is_on_one_cpu()
    # Shapes and tracers have no location.
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return False
    devices: set[Any] = leaf.sharding.device_set
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def _encode(
    module: Any,
    variables: Variables,
    ids: Array,
    mask: Array,
    inputs: Inputs,
    layer: int | None = None,
) -> Array:
    return module.apply(
        variables, ids, mask, method="encode", layer=layer, **inputs
    )


def _logits(
    module: Any,
    variables: Variables,
    ids: Array,
    mask: Array,
    inputs: Inputs,
    *decoder_ids: Array,
) -> Array:
    return module.apply(variables, ids, mask, *decoder_ids, **inputs)


def _log_probs(
    module: Any,
    variables: Variables,
    ids: Array,
    mask: Array,
    inputs: Inputs,
    targets: Array,
) -> Array:
    scores = module.apply(
        variables, ids, mask, targets, method="score_targets", **inputs
    )
    # Losses are negative log-probabilities.
    return -scores.losses


def _read(
    module: Any,
    storage: Storage,
    variables: Variables,
    ids: Array,
    mask: Array,
    inputs: Inputs,
    *,
    stores_states: bool | None = None,
) -> DecoderSource:
    states = module.apply(variables, ids, mask, method="encode", **inputs)
    # Keys and values, or encoder states if the former would be too large.
    source = module.apply(
        variables,
        states,
        mask,
        stores_states=stores_states,
        method="read_source",
    )
    # The ids are needed for drafts and for banning n-grams of the document.
    return source.stored(storage).with_ids(ids, mask)


def _search(
    module: Any,
    params: Params,
    weights: Weights,
    source: DecoderSource,
    keys: Array | None,
    is_done: Array | None = None,
    limits: TokenLimits | None = None,
    *,
    batch_size: int,
    options: GenerationOptions,
) -> Generated:
    # Keep the sharding of the source; plans pass shapes, which have none.
    source = constrain_rows(source)
    cache = constrain_rows(empty_cache(module, params, source, options))
    decoder = cached_decoder(module, params, weights, source)
    out = generate(
        decoder,
        cache,
        batch_size=batch_size,
        options=options,
        rng=keys,
        is_done=is_done,
        limits=limits,
    )
    return replicated(out)


def replicated(out: Generated) -> Generated:
    """Replicates sequences to every device of the active mesh, so that every host can read them."""
    if jax.sharding.get_abstract_mesh().empty:
        return out
    return jax.lax.with_sharding_constraint(out, PartitionSpec())


def cached_decoder(
    module: Any, params: Params, weights: Weights, source: DecoderSource
) -> CachedDecoder:
    """Returns the decoder of a search; converts weights that it takes from the parameters."""
    if isinstance(weights, GatheredWeights):
        params, weights = weights.gather(params), None
    variables = {"params": params}
    layers: Any = weights
    table, is_turned = None, False
    if weights is None:
        dtype = module.config.compute_dtype
        layers = narrow_layers(unstacked_layers(params["decoder"]), dtype)
        table = params[module.logits_parameter].astype(dtype)
        if is_turned := target_platform() == "gpu":
            layers, table = turned_layers(layers), padded_table(table)
    elif isinstance(weights, StoredDecoder):
        layers, table = weights
    if table is not None:  # the module reads it from this collection
        variables["stored"] = {"logits_table": table}
    apply = partial(module.apply, variables, method="decode_step")

    def step(ids: Array, cache: Any) -> tuple[Array, Any]:
        read = turned_back(layers) if is_turned else layers
        return apply(ids, cache, source, read)

    return CachedDecoder(
        step,
        DecoderCache.reorder,
        DraftCache.kept,
        source.documents,
        source.earlier,
    )


def empty_cache(
    module: Any,
    params: Params,
    source: DecoderSource,
    options: GenerationOptions,
) -> DecoderCache | DraftCache:
    """Returns the cache of a search before its first step."""
    return module.apply(
        {"params": params},
        source,
        options.decoder_beams,
        options.max_new_tokens,
        options.prompt_lookup_num_tokens,
        method="init_cache",
    )


def _begin(
    module: Any,
    params: Params,
    source: DecoderSource,
    limits: TokenLimits | None = None,
    *,
    batch_size: int,
    options: GenerationOptions,
) -> SearchState:
    # All slots are free: marked as done until a document enters.
    cache = empty_cache(module, params, source, options)
    state = start(
        cache,
        batch_size=batch_size,
        options=options,
        limits=of_all_rows(limits, batch_size),
    )
    # Done slots are decoded along with the others, and their tokens ignored.
    return state._replace(done=jnp.ones(batch_size, bool))


def of_all_rows(
    limits: TokenLimits | None, batch_size: int
) -> TokenLimits | None:
    """Repeats limits, which are scalars, for every row of a batch."""
    return jax.tree.map(lambda x: jnp.full(batch_size, x, jnp.int32), limits)


def _enter(
    source: DecoderSource,
    state: SearchState,
    row: DecoderSource,
    slot: Array,
    limits: TokenLimits | None = None,
    *,
    options: GenerationOptions,
) -> tuple[DecoderSource, SearchState]:
    batch_size = len(state.done)

    def write(whole: Array, part: Array) -> Array:
        # A document may take several rows (pages) of the source.
        pages = len(whole) // batch_size
        # Shorter documents are padded to the length of the slots; their mask is
        # zero there.
        part = _fit(part, (pages, *whole.shape[1:]))
        return jax.lax.dynamic_update_slice_in_dim(whole, part, slot * pages, 0)

    # Reset only this slot of the search.
    rows = jnp.arange(batch_size) == slot
    cache = state.cache.restarted(rows)
    limits = of_all_rows(limits, batch_size)
    state = restart(state, rows, cache, options, limits)
    return jax.tree.map(write, source, row), state


def _shrink(
    source: DecoderSource,
    state: SearchState,
    *,
    batch_size: int,
    shapes: DecoderSource,
) -> tuple[DecoderSource, SearchState]:
    def cut(x: Array, shape: tuple[int, ...]) -> Array:
        # [rows, ...] -> [batch, pages, ...], to truncate each slot separately.
        rows = x.reshape(batch_size, -1, *x.shape[1:])
        rows = _fit(rows, (batch_size, shape[0] // batch_size, *shape[1:]))
        return rows.reshape(shape)

    # Truncate the source and the cache alike.
    source = jax.tree.map(lambda x, like: cut(x, like.shape), source, shapes)
    # documents, or pages of documents; the cache has as many rows
    num_rows = len(source.mask)

    # Scalars, such as the step, have no rows.
    def cut_rows(x: Array) -> Array:
        if x.ndim:
            return cut(x, (num_rows, *x.shape[1:]))
        return x

    return source, state._replace(cache=jax.tree.map(cut_rows, state.cache))


def _fit(x: Array, shape: tuple[int, ...]) -> Array:
    """Truncates or zero-pads every axis at its end."""
    x = x[tuple(map(slice, shape))]
    sizes = zip(shape, x.shape, strict=True)
    return jnp.pad(x, [(0, target - size) for target, size in sizes])


def _advance(
    module: Any,
    params: Params,
    weights: Weights,
    source: DecoderSource,
    state: SearchState,
    keys: Array | None,
    num_done: Array,
    max_steps: Array | None = None,
    *,
    options: GenerationOptions,
) -> tuple[SearchState, Generated]:
    decoder = cached_decoder(module, params, weights, source)
    limits = {"num_done": num_done, "max_steps": max_steps}
    state = advance(decoder, state, options=options, rng=keys, **limits)
    # The best sequences so far of every slot, so that one transfer shows which
    # are done.
    return state, result(state, options)
