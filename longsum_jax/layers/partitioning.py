"""Logical axis names of parameters and activations, and where a mesh puts them."""

import math
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
from jax.sharding import PartitionSpec

from longsum_jax.ops.sequence_sharding import SequenceSharding
from longsum_jax.typing import Array

Initializer = Callable[..., Array]


def logical(initializer: Initializer, *names: str) -> Initializer:
    """Attaches the logical axis names that ``training.mesh`` maps to mesh axes."""
    return nn.with_logical_partitioning(initializer, names)


def mesh_spec(shape: Sequence[int], names: Sequence[str | None]) -> PartitionSpec | None:
    """Where an activation of ``shape`` goes on the mesh in use, or None without a mesh.

    A dimension that its mesh axes do not divide is kept whole.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or not mesh.auto_axes:
        return None
    spec = []
    for size, axes in zip(shape, nn.logical_to_mesh_axes(tuple(names)), strict=True):
        axes = (axes,) if isinstance(axes, str) else axes or ()
        devices = math.prod(mesh.shape[axis] for axis in axes)
        spec.append(axes if axes and size % devices == 0 else None)
    return PartitionSpec(*spec)


def sequence_sharding(rows: int) -> SequenceSharding | None:
    """How the mesh in use cuts texts, in batches of ``rows``; None if each is whole on one
    device."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or not mesh.auto_axes:
        return None
    found = [
        (axes,) if isinstance(axes, str) else axes or ()
        for axes in nn.logical_to_mesh_axes(("batch", "length"))
    ]
    batch, length = (tuple(axis for axis in axes if mesh.shape[axis] > 1) for axes in found)
    if not length:
        return None
    if rows % math.prod(mesh.shape[axis] for axis in batch):
        batch = ()
    return SequenceSharding(batch, length, math.prod(mesh.shape[axis] for axis in length))


def constrain(x: Array, *names: str | None) -> Array:
    """Keeps an activation laid out by its logical axis names; nothing happens without a mesh."""
    spec = mesh_spec(x.shape, names)
    return x if spec is None else jax.lax.with_sharding_constraint(x, spec)


def is_on_one_cpu() -> bool:
    return jax.default_backend() == "cpu" and jax.sharding.get_abstract_mesh().size <= 1
