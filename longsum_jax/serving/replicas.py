"""The copies of a model on the devices of a host.

    replicas=4                      device 0   device 1   device 2   device 3
                                    model      model      model      model

    replicas=2, mesh.tensor=2       device 0   device 1   device 2   device 3
                                    model, in 2 parts     model, in 2 parts

All replicas take their work from one queue.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax

from longsum_jax.errors import InputError, counted
from longsum_jax.training.mesh import (
    MeshOptions,
    activate,
    make_mesh,
    plan_layout,
)

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model


class Replica(NamedTuple):
    """A copy of a model on one or several devices.

    Attributes:
        model: model with parameters on these devices; None for the ranker.
        number: index of the replica.
        activate: function that returns a context manager, within which
            programs run on these devices.
    """

    model: Any = None
    number: int = 0
    activate: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    @property
    def name(self) -> str:
        """The name of the replica, unique among the replicas of its model."""
        return f"replica-{self.number}"


def count_replicas(
    count: int | Literal["auto"], *, fsdp: int = 1, tensor: int = 1
) -> int:
    """Returns the number of replicas on the devices of this process, see ``make_replicas``.

    Raises:
        InputError: a number below 1, or too few devices.
    """
    counts = [fsdp, tensor, *([count] if isinstance(count, int) else [])]
    if min(counts) < 1:
        raise InputError(
            f"replicas={count}, mesh.fsdp={fsdp} and mesh.tensor={tensor} must "
            "be at least 1"
        )
    num_devices, size = jax.local_device_count(), fsdp * tensor
    fitting = max(num_devices // size, 1)
    number = count if isinstance(count, int) else fitting
    if number * size > num_devices:
        raise InputError(
            f"replicas={number} with mesh.fsdp={fsdp} and mesh.tensor={tensor} "
            f"need {number * size} devices, but this process has "
            f"{counted(num_devices, 'device')}; lower them"
        )
    return number


def make_replicas(
    model: "Model",
    count: int | Literal["auto"] = "auto",
    *,
    fsdp: int = 1,
    tensor: int = 1,
) -> list[Replica]:
    """Returns copies of a model on the devices of this process.

    Args:
        model: loaded model. If its parameters are sharded, they may be in host
            memory.
        count: number of replicas; "auto" for as many as there are devices.
        fsdp: devices of a replica over which every parameter is sharded.
        tensor: devices of a replica over which heads, feed-forward layers and
            the vocabulary are sharded.

    Raises:
        InputError: as ``count_replicas``.
    """
    total = count_replicas(count, fsdp=fsdp, tensor=tensor)
    devices = jax.local_devices()
    size = fsdp * tensor
    options = MeshOptions("fsdp+tensor", batch=1, fsdp=fsdp, tensor=tensor)
    if total == size == 1:
        return [Replica(model)]
    replicas = []
    for number in range(total):
        group = devices[number * size : (number + 1) * size]
        if size == 1:
            params = jax.device_put(model.params, group[0])
            context = partial(jax.default_device, group[0])
        else:
            mesh = make_mesh(options, group)
            init = model.family.init_params(model.config)
            layout = plan_layout(init, mesh, options.rules, jax.random.key(0))
            params = jax.device_put(model.params, layout.shardings)
            context = partial(activate, mesh, options.rules)
        replicas.append(Replica(model.with_params(params), number, context))
    return replicas
