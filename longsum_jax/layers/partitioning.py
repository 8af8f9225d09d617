"""Logical axis names of parameters and activations, and their sharding on a mesh."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen import spmd
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Shaped

from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.sequence_sharding import SequenceSharding
from longsum_jax.typing import AnyArray

Initializer = Callable[..., Array]


class NamedParameter(nn.LogicallyPartitioned):
    """A parameter with a logical name for each axis.

    In NNX the names are metadata of the variable, not a sharding, which would
    require a mesh with axes of these names.
    """

    def to_nnx_metadata(self) -> dict[str, Any]:
        """Returns the metadata of an ``nnx.Variable``."""
        return {"value": self.value, "logical_names": self.names}

    @classmethod
    def from_nnx_metadata(cls, metadata: dict[str, Any]) -> "NamedParameter":
        """Makes the parameter from the metadata of an ``nnx.Variable``."""
        return cls(metadata["value"], metadata["logical_names"])


def logical(initializer: Initializer, *names: str) -> Initializer:
    """Attaches logical axis names to a float32 parameter.

    ``training.mesh`` maps the names to mesh axes.
    """

    def init(*args: Any) -> Any:
        # Explicitly float32, because initializers default to float64 under
        # JAX_ENABLE_X64.
        return NamedParameter(initializer(*args, dtype=jnp.float32), names)

    return init  # ``Module.param`` unboxes the array


def mesh_spec(
    shape: Sequence[int], names: Sequence[str | None]
) -> PartitionSpec | None:
    """Returns the PartitionSpec of an activation on the active mesh, None without a mesh.

    A dimension that its mesh axes do not divide is not sharded.

    Args:
        shape: shape of the activation.
        names: logical name of each axis.
    """
    mesh = jax.sharding.get_abstract_mesh()
    # Inside ``shard_map`` over all axes there is nothing to shard.
    if mesh.empty or not mesh.auto_axes:
        return None
    spec = []
    for size, entry in zip(shape, _mesh_axes(names), strict=True):
        axes = _auto_axes(entry, mesh)
        # An axis that does not divide evenly stays whole: XLA would pad its
        # shards.
        num_devices = math.prod(mesh.shape[axis] for axis in axes)
        is_sharded = axes and size % num_devices == 0
        spec.append(axes if is_sharded else None)
    return PartitionSpec(*spec)


def active_sequence_sharding(batch: int) -> SequenceSharding | None:
    """Returns the sharding of sequences on the active mesh, None if each is on one device.

    Args:
        batch: number of rows; if the devices do not divide it, rows are not
            sharded.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or not mesh.auto_axes:
        return None
    mesh_axes = []
    for entry in _mesh_axes(("batch", "length")):
        # Mesh axes of size 1 do not shard anything.
        mesh_axes.append(
            tuple(
                axis for axis in _auto_axes(entry, mesh) if mesh.shape[axis] > 1
            )
        )
    batch_axes, length_axes = mesh_axes
    if not length_axes:
        return None
    # A batch that does not divide evenly is replicated; its sequences are still
    # sharded.
    if batch % math.prod(mesh.shape[axis] for axis in batch_axes):
        batch_axes = ()
    num_shards = math.prod(mesh.shape[axis] for axis in length_axes)
    return SequenceSharding(batch_axes, length_axes, num_shards)


def rows_per_device(batch: int) -> int:
    """Returns the number of rows of a batch per device of the active mesh; all without a mesh."""
    spec = mesh_spec((batch,), ("batch",))
    if spec is None:
        return batch
    mesh = jax.sharding.get_abstract_mesh()
    return batch // math.prod(
        mesh.shape[axis] for axis in _auto_axes(spec[0], mesh)
    )


def constrain(
    x: Shaped[AnyArray, "*shape"], *names: str | None
) -> Shaped[AnyArray, "*shape"]:
    """Constrains an activation to the sharding of its logical axes; a no-op without a mesh."""
    spec = mesh_spec(x.shape, names)
    if spec is None:
        return x
    return jax.lax.with_sharding_constraint(x, spec)


def look_up(
    table: Shaped[AnyArray, "vocab d_model"], ids: Int[AnyArray, "*shape"]
) -> Shaped[Array, "*shape d_model"]:
    """Returns the rows of an embedding table with these ids.

    If there are more ids than rows, every device gathers the columns of the
    table before it reads the rows of its own ids. XLA would otherwise read
    slices of all ids, and exchange them by an all-to-all, whose routes take
    long to compile for many TPUs.
    """
    if ids.size > len(table):
        table = constrain(table, "vocab", None)
    return jnp.take(table, ids, axis=0)


def constrain_rows(tree: Any) -> Any:
    """Constrains the rows of arrays to the mesh's sharding of a batch, and no other axes."""

    def constrained(x: AnyArray) -> AnyArray:
        spec = None
        if x.ndim:
            spec = mesh_spec(x.shape[:1], ("batch",))
        if spec is None:
            return x
        # XLA chooses the sharding of the other axes.
        others = [PartitionSpec.UNCONSTRAINED] * (x.ndim - 1)
        return jax.lax.with_sharding_constraint(
            x, PartitionSpec(spec[0], *others)
        )

    return jax.tree.map(constrained, tree)


def gathered_specs(params: Any) -> tuple[PartitionSpec | None, ...]:
    """Returns the shardings of parameters without the mesh axes that shard rows.

    On such an axis ("fsdp") every device computes other rows, and needs whole
    parameters for them.

    Args:
        params: tree of arrays, or of shapes with shardings.

    Returns:
        One PartitionSpec per leaf; None for a leaf that has none of these axes.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or not mesh.auto_axes:
        return (None,) * len(jax.tree.leaves(params))
    row_axes = set(_auto_axes(_mesh_axes(("batch",))[0], mesh))

    def gathered(leaf: Any) -> PartitionSpec | None:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, NamedSharding):
            return None
        before = [_auto_axes(entry, mesh) for entry in sharding.spec]
        after = [
            tuple(axis for axis in axes if axis not in row_axes)
            for axes in before
        ]
        return None if after == before else PartitionSpec(*after)

    return tuple(map(gathered, jax.tree.leaves(params)))


def is_on_one_cpu() -> bool:
    """Returns True if the computation runs on a CPU without a mesh of several devices."""
    return (
        target_platform() == "cpu"
        and jax.sharding.get_abstract_mesh().size <= 1
    )


def _mesh_axes(names: Sequence[str | None]) -> PartitionSpec:
    """Returns the mesh axes of logical names under the active rules."""
    # None only for None
    return cast(PartitionSpec, spmd.logical_to_mesh_axes(tuple(names)))


def _auto_axes(
    entry: str | tuple[str, ...] | None, mesh: jax.sharding.AbstractMesh
) -> tuple[str, ...]:
    """Returns the axes of an entry that XLA partitions, without axes of an enclosing shard_map."""
    axes = (entry,) if isinstance(entry, str) else entry or ()
    return tuple(axis for axis in axes if axis in mesh.auto_axes)
