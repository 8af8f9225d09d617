"""Summaries by all devices of a process: parameters on each, rows of a batch split over them."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import jax
from jax.sharding import NamedSharding, PartitionSpec

from longsum_jax.training.mesh import BATCH_AXES, PRESETS, MeshOptions, activate, make_mesh

if TYPE_CHECKING:
    from longsum_jax.inference.model import Model


@contextlib.contextmanager
def on_all_devices(
    model: "Model", devices: Sequence[jax.Device] | None = None
) -> Iterator["Model"]:
    """Yields a model that splits every batch over devices, see ``Model.on_all_devices``."""
    devices = jax.local_devices() if devices is None else list(devices)
    if len(devices) == 1:
        yield model
        return
    mesh = make_mesh(MeshOptions("replicated"), devices)
    params = jax.device_put(model.params, NamedSharding(mesh, PartitionSpec()))
    with activate(mesh, PRESETS["replicated"]):
        yield model.with_params(params)


def rows_on_devices(rows: int) -> int:
    """Returns the smallest number of rows from ``rows`` on that the active mesh can split evenly;
    ``rows`` itself without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    num_devices = math.prod(mesh.shape[axis] for axis in BATCH_AXES if axis in mesh.shape)
    return -(-rows // num_devices) * num_devices
