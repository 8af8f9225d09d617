"""Decoder weights of a search: in a storage type, converted for accelerators, or gathered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from longsum_jax.errors import InputError
from longsum_jax.layers.partitioning import gathered_specs
from longsum_jax.ops.device_memory import target_memory
from longsum_jax.ops.storage import STORAGES, Storage, Stored, Unmerged, store
from longsum_jax.typing import Array, Params

# Maps that every decoding step applies, with the number of axes they contract.
# Maps of the source and of memories to keys and values are not converted.
_STEP_MAPS = {
    **{("self_attention", name): 1 for name in ("q", "k", "v")},
    **{
        (attention, "o"): 2
        for attention in ("self_attention", "cross_attention")
    },
    ("cross_attention", "q"): 1,
    **{("feed_forward", name): 1 for name in ("wi", "wi_0", "wi_1", "wo")},
}

# Part of a device's memory that the weights of a decoder may use if they are
# gathered from a mesh.
_GATHERED_PART = 1 / 8

_store = jax.jit(store, static_argnums=(1, 2))  # one program per shape


class StoredDecoder(NamedTuple):
    """Weights of a decoder in a storage type, see ``ops.storage``.

    Attributes:
        layers: parameters of every layer.
        logits_table: output embedding table, [d_model, vocab].
    """

    layers: tuple[Any, ...]
    logits_table: Stored


def check_storage(config: Any, storage: str) -> None:
    """Raises InputError for an unknown storage type, or one that a model does not support."""
    if storage not in STORAGES:
        raise InputError(
            f'decoder_storage={storage!r} is not supported; give "float32", "bfloat16" or "int8"'
        )
    if storage == "float32":
        return
    where = f'decoder_storage="{storage}"'
    if config.head != "language_model":
        raise InputError(f"{where} is for models that write text; leave it out")
    if config.dtype != "float32":
        raise InputError(
            f'{where} computes in float32; leave out dtype="{config.dtype}"'
        )
    if config.has_memory:
        raise InputError(
            f"{where} is not for models with a memory of segments; leave it out"
        )
    if config.cross_attention == "nearest":
        raise InputError(
            f'{where} is not for cross_attention "nearest", which chooses keys by exact scores; '
            "leave it out"
        )


def stored_decoder(
    layers: tuple[Any, ...], table: Array, storage: Storage
) -> StoredDecoder:
    """Copies the weights that a decoding step reads to a storage type.

    Args:
        layers: parameters of every layer.
        table: output embedding table, [vocab, d_model].
        storage: "bfloat16" or "int8".
    """

    def stored(kernel: Array, num_inputs: int) -> Stored:
        # One scale for each output: the contracted axes come first.
        return _store(kernel, storage, tuple(range(num_inputs)))

    return StoredDecoder(
        _with_kernels(layers, stored), _store(table.T, storage, (0,))
    )


def narrow_layers(layers: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """Returns layers whose maps have the type in which steps compute, for accelerators.

    XLA for GPUs would convert the kernels in every step.

    Args:
        layers: parameters of every layer.
        dtype: type of the computation.
    """
    return _with_kernels(layers, lambda kernel, _: kernel.astype(dtype))


def turned_layers(layers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns layers whose kernels have the axes that they contract last, for GPUs.

    In a step with one row, XLA for GPUs writes the products of all weights to
    memory before it adds them up, unless it adds along the last axis.

    Args:
        layers: parameters of every layer.
    """
    return _with_kernels(
        layers, lambda x, n: jnp.moveaxis(x, range(n), range(-n, 0))
    )


def turned_back(layers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the layers of ``turned_layers`` with kernels in their own axes."""
    # Without a barrier, XLA would move the turn out of the loop.
    layers = jax.lax.optimization_barrier(layers)
    return _with_kernels(
        layers, lambda x, n: Unmerged(jnp.moveaxis(x, range(-n, 0), range(n)))
    )


def _with_kernels(
    layers: tuple[Any, ...], change: Callable[[Array, int], Any]
) -> tuple[Any, ...]:
    """Changes the kernels of ``_STEP_MAPS``.

    Args:
        layers: parameters of every layer.
        change: function of a kernel and the number of axes that it contracts.
    """
    changed = []
    for layer in layers:
        copy = {name: dict(module) for name, module in layer.items()}
        for (module, name), num_inputs in _STEP_MAPS.items():
            # A layer has some: its attention may be merged, "wi" be gated.
            if name in copy.get(module, {}):
                linear = copy[module][name]
                kernel = change(linear["kernel"], num_inputs)
                copy[module][name] = dict(linear, kernel=kernel)
        changed.append(copy)
    return tuple(changed)


@jax.tree_util.register_static
@dataclass(frozen=True)
class GatheredWeights:
    """A search on a mesh that gathers sharded parameters once, not in every step.

    Attributes:
        specs: sharding of every parameter, None to leave it as it is, see
            ``gathered_specs``.
    """

    specs: tuple[PartitionSpec | None, ...]

    def gather(self, params: Params) -> Params:
        """Returns the parameters in their new shardings, inside of a program."""
        leaves, tree = jax.tree.flatten(params)
        constrained = [
            leaf
            if spec is None
            else jax.lax.with_sharding_constraint(leaf, spec)
            for leaf, spec in zip(leaves, self.specs, strict=True)
        ]
        return jax.tree.unflatten(tree, constrained)


def gathered_weights(params: Params) -> GatheredWeights | None:
    """Returns the shardings for a search; None without sharded ones, or if too large.

    Args:
        params: parameters of a module, or their shapes with shardings.
    """
    specs = gathered_specs(params)
    # The search does not read the encoder.
    read = {name: tree for name, tree in params.items() if name != "encoder"}
    num_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(read))
    is_sharded = any(spec is not None for spec in specs)
    if not is_sharded or num_bytes > target_memory() * _GATHERED_PART:
        return None
    return GatheredWeights(specs)
