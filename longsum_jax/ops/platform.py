"""The target devices of a program, by which some operations select their implementation."""

import os
from typing import Any

import jax

from longsum_jax.errors import InputError, first_line

# XLA's other names of platforms, mapped to the names that JAX gives their
# devices.
_ALIASES = {"cuda": "gpu", "rocm": "gpu"}
LANES = 128  # entries in a row of a TPU's vector register; last axes are padded to them


def require_devices() -> None:
    """Starts the devices of this process.

    Raises:
        InputError: none starts; names JAX_PLATFORMS and the reason.
    """
    try:
        jax.devices()
    # JAX raises an AssertionError if the package of the platform is not
    # installed.
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        raise InputError(
            f"JAX_PLATFORMS={platforms}: no device of this platform starts ({first_line(error)}); "
            "unset the variable, set JAX_PLATFORMS=cpu, or install JAX with support for the device"
        ) from error


def target_platform() -> str:
    """Returns the platform of the devices that the program being traced is for, such as "tpu".

    These are the devices of the active mesh (``jax.set_mesh``), else
    ``jax.default_device``, else the first devices of this process. A process
    can thus compile programs for devices that it does not have. All three are
    part of JAX's cache key for traced programs.
    """
    device = _target_device()
    if device is None:
        return jax.default_backend()
    if isinstance(device, str):
        name = device
    else:
        name = device.platform
    return _ALIASES.get(name, name)


def target_kind() -> str:
    """Returns JAX's name of the devices that the program being traced is for, "" if unknown."""
    device = _target_device()
    if device is None:
        device = jax.devices()[0]
    return getattr(device, "device_kind", "")


def _target_device() -> Any | None:
    """Returns the device of the mesh, else ``jax.default_device`` (possibly a name), else None."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    if device is None:
        return jax.config.jax_default_device  # type: ignore[attr-defined] # no declared options
    return device
