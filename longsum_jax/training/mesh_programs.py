"""Compiles the programs of a mesh, all of them with the same options of XLA."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh
from jax.stages import Lowered

# by platform
_OPTIONS: Mapping[str, Mapping[str, str | bool]] = {
    "tpu": {
        # Each TPU of a mesh draws its own part of a random array; otherwise
        # each draws the whole array.
        "xla_tpu_spmd_rng_bit_generator_unsafe": True,
        # Weights are gathered before a product. Otherwise XLA multiplies with
        # the shard of one device after another, each time over all outputs,
        # which are larger than the weights.
        "xla_tpu_enable_windowed_einsum_for_all_gather": False,
        "xla_tpu_enable_windowed_einsum_for_reduce_scatter": False,
    }
}


def platform_of(mesh: Mesh | AbstractMesh) -> str | None:
    """Returns the platform of a mesh, such as "tpu"; None for an empty mesh."""
    device = mesh.abstract_mesh.abstract_device
    if device is None:
        return None
    return device.platform


def jit_for(
    platform: str | None, function: Callable[..., Any], **settings: Any
) -> Any:
    """Returns ``jax.jit(function, **settings)`` with the options of XLA for a mesh.

    Args:
        platform: platform of the mesh, see ``platform_of``.
        function: function of arrays.
        **settings: further options of ``jax.jit``.
    """
    options = _OPTIONS.get(platform or "")
    if options is None:
        return jax.jit(function, **settings)
    return jax.jit(function, compiler_options=dict(options), **settings)


class MeshJit:
    """A function like ``jax.jit`` that is compiled with the options for the active mesh.

    For functions of parameters, which a mesh may shard. XLA takes options only
    for whole programs, so another compiled function cannot call it.

    Args:
        function: function of arrays.
        **settings: options of ``jax.jit``.
    """

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        # one function for each platform, usually one in all
        self._jitted = functools.cache(
            lambda platform: jit_for(platform, function, **settings)
        )

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """Runs the program."""
        return self._active()(*arguments, **static)

    def lower(self, *arguments: Any, **static: Any) -> Lowered:
        """Returns the lowered program, see ``jax.jit``."""
        return self._active().lower(*arguments, **static)

    def eval_shape(self, *arguments: Any, **static: Any) -> Any:
        """Returns the shapes of the results."""
        return self._active().eval_shape(*arguments, **static)

    def _active(self) -> Any:
        return self._jitted(platform_of(jax.sharding.get_abstract_mesh()))
