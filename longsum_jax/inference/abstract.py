"""A model's programs as functions of shapes only, to be compiled but not run."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax.core import meta

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.inference.devices import rows_on_devices
from longsum_jax.inference.kernel_cache import KernelCache
from longsum_jax.inference.programs import Programs
from longsum_jax.models.family import Family
from longsum_jax.ops.storage import Storage
from longsum_jax.typing import Params
from longsum_plan.program import AbstractProgram


def summary_programs(
    module: Any,
    params: Params,
    *,
    batch_size: int,
    length: int,
    options: GenerationOptions,
    kernel_bytes: int = 0,
    storage: Storage = "float32",
) -> Iterator[AbstractProgram]:
    """Yields the programs that summarize documents: "read" and "search", for the target's devices.

    The target's devices are the devices of the active mesh, otherwise
    ``jax.default_device``, see ``ops.platform``; they must also be active when
    the programs are lowered.

    On one device, several documents are read one by one and searched in slots,
    see ``continuous``; on a mesh, they are read and searched together.

    Args:
        module: module of the model.
        params: shapes of the parameters, from ``jax.eval_shape`` of the
            family's ``init_params`` or of loaded parameters.
        batch_size: documents that are summarized together, at least one per
            device of a mesh.
        length: tokens of a padded document.
        options: generation options.
        kernel_bytes: maximum bytes of state-space kernels that are cached
            between calls.
        storage: storage type of the decoder's weights and keys, see ``Model``.
    """
    programs = Programs(module, storage)
    batch_size = rows_on_devices(batch_size)
    variables = {"params": params}
    # Cached kernels are arguments of the read program.
    if kernel_bytes:
        variables |= KernelCache(module, kernel_bytes, programs.kernels).shapes(
            params, length
        )
    kernels = {
        name: tree for name, tree in variables.items() if name != "params"
    }
    layers = programs.search.weight_shapes(params)
    # Copied weights are on the device in addition to the parameters.
    search_params, copies = params, layers
    # The layers are views of the parameters; a ``StoredDecoder`` is also a tuple.
    if storage == "float32" and isinstance(layers, tuple):
        search_params = {
            **params,
            "decoder": jax.tree.map(_nothing, params["decoder"]),
        }
        copies = None
    keys = None
    # Only shapes of the per-row keys [batch] are needed.
    if options.do_sample:
        keys = jax.eval_shape(
            lambda: jnp.broadcast_to(jax.random.key(0), (batch_size,))
        )

    def documents(rows: int) -> tuple[Any, ...]:
        ids, mask = (
            jax.ShapeDtypeStruct((rows, length), dtype)
            for dtype in (jnp.int32, jnp.bool_)
        )
        return variables, ids, mask, {}

    source = programs.read.eval_shape(*documents(batch_size))
    sizes = {"batch_size": batch_size, "options": options}
    if batch_size == 1 or jax.sharding.get_abstract_mesh().size > 1:
        # All documents at once: nothing else is on the device while they are
        # read.
        read = documents(batch_size)
        lower_read = partial(programs.read.lower, *read)
        search: tuple[Any, ...] = (params, layers, source, keys)
        lower_search = partial(programs.search.program.lower, *search, **sizes)
        slots: Any = ()
    else:
        # Slots: one document is read at a time, while the slots' state stays on
        #     the device.
        stored = {"stores_states": source.states is not None}
        state = programs.slots.begin.eval_shape(params, source, **sizes)
        read = documents(1)
        lower_read = partial(programs.read.lower, *read, **stored)
        num_done = jax.ShapeDtypeStruct((), jnp.int32)
        search = (params, layers, source, state, keys, num_done)
        lower_search = partial(
            programs.slots.advance.lower, *search, options=options
        )
        slots = source, state
    # Do not count parameters twice if the layers are views of them.
    held = (search_params, *search[1:])
    # While one program runs, the arrays of the other stay on the device.
    yield AbstractProgram(
        "read", lower_read, {}, arguments=read, idle=(slots, copies)
    )
    yield AbstractProgram(
        "search", lower_search, {}, options.max_new_tokens, held, kernels
    )


def _nothing(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((0,), leaf.dtype)


def parameter_shapes(
    family: Family, config: Any, dtype: str = "float32"
) -> Params:
    """Returns the shapes of a model's parameters as loaded in ``dtype``, without logical names."""
    shapes = meta.unbox(
        jax.eval_shape(family.init_params(config), jax.random.key(0))
    )
    weight_map = family.weight_map(config)

    def typed(
        path: tuple[Any, ...], shape: jax.ShapeDtypeStruct
    ) -> jax.ShapeDtypeStruct:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return jax.ShapeDtypeStruct(shape.shape, weight_map.dtype(name, dtype))

    return jax.tree_util.tree_map_with_path(typed, shapes)
