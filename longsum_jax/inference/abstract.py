"""Programs of a model over shapes alone, to be compiled and not run."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.core import meta
from jax.stages import Lowered

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.inference.kernel_cache import KernelCache
from longsum_jax.inference.programs import Programs
from longsum_jax.models.family import Family
from longsum_jax.ops.storage import Storage
from longsum_jax.typing import Params


class AbstractProgram(NamedTuple):
    """A program that has not been compiled yet.

    Attributes:
        name: "train", "loss", "read", "search", ...
        lower: traces it, for the devices that its arrays or its mesh say.
        parts: trees of shapes among its arguments, by what they are: "parameters", "optimizer";
            {} where it does not use all of them.
        trips: most iterations of a loop that ends by its data.
    """

    name: str
    lower: Callable[[], Lowered]
    parts: Mapping[str, Any]
    trips: int = 1


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
    """Yields the programs of ``Model.generate``: "read" and "search", for the target's devices.

    These are the devices of the active mesh, else ``jax.default_device``, see ``ops.platform``;
    they have to be active where the programs are lowered, too.

    Args:
        module: of the model.
        params: shapes of the parameters; ``jax.eval_shape`` of the family's ``init_params`` or of
            loaded ones.
        batch_size: documents that are summarized together.
        length: tokens of a padded document.
        options: of the search.
        kernel_bytes: most bytes of state-space kernels that are kept from call to call.
        storage: of the decoder's weights and keys, see ``Model``.
    """
    programs = Programs(module, storage)
    variables = {"params": params}
    if kernel_bytes:
        variables |= KernelCache(module, kernel_bytes, programs.kernels).shapes(params, length)
    ids, mask = (
        jax.ShapeDtypeStruct((batch_size, length), dtype) for dtype in (jnp.int32, jnp.bool_)
    )
    inputs: dict[str, Any] = {}

    def lower_read() -> Lowered:
        return programs.read.lower(variables, ids, mask, inputs)

    def lower_search() -> Lowered:
        source = programs.read.eval_shape(variables, ids, mask, inputs)
        keys = None
        if options.do_sample:
            keys = jax.eval_shape(lambda: jnp.broadcast_to(jax.random.key(0), (batch_size,)))
        layers = programs.search.weight_shapes(params)
        sizes = {"batch_size": batch_size, "options": options}
        return programs.search.program.lower(params, layers, source, keys, **sizes)

    # Both leave out parameters that they do not use.
    yield AbstractProgram("read", lower_read, {})
    yield AbstractProgram("search", lower_search, {}, options.max_new_tokens)


def parameter_shapes(family: Family, config: Any) -> Params:
    """Returns the shapes of a model's parameters, float32, without logical names."""
    return meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
