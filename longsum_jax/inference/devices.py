"""Data-parallel summarization on all local devices, with replicated parameters."""

import contextlib
from collections.abc import Iterator, Sequence

import jax
from jax.sharding import NamedSharding, PartitionSpec

from longsum_jax.training.mesh import (
    PRESETS,
    MeshOptions,
    activate,
    make_mesh,
    row_shards,
)
from longsum_jax.typing import Params


@contextlib.contextmanager
def on_devices(
    params: Params, devices: Sequence[jax.Device]
) -> Iterator[Params]:
    """Yields parameters replicated on all devices; within the block, batches are split over them.

    Args:
        params: parameters, which must fit into the memory of every device.
        devices: devices of this process.
    """
    mesh = make_mesh(MeshOptions("replicated"), devices)
    with activate(mesh, PRESETS["replicated"]):
        yield jax.device_put(params, NamedSharding(mesh, PartitionSpec()))


def rows_on_devices(rows: int) -> int:
    """Returns ``rows``, rounded up to a number that the active mesh can split evenly;
    without a mesh, returns ``rows``.
    """
    mesh = jax.sharding.get_abstract_mesh()
    num_devices = row_shards(mesh)
    return -(-rows // num_devices) * num_devices
