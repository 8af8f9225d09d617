"""The devices that a program is made for, by which some operations choose how they compute."""

from collections.abc import Mapping
from typing import Any

import jax

# Names of platforms that XLA has besides the one that JAX gives their devices.
_ALIASES = {"cuda": "gpu", "rocm": "gpu"}
# Bytes that programs can have, by the beginnings of JAX's names of devices (``device_kind``);
# sources: see ``analysis.devices``.
DEVICE_MEMORY: Mapping[str, int] = {
    "TPU v5 lite": int(15.75 * 2**30),
    "TPU v5e": int(15.75 * 2**30),
    "TPU v5": int(95.74 * 2**30),
    "TPU v6": int(31.25 * 2**30),
    "NVIDIA A100": 42331013120,
    "NVIDIA A100 80GB": 85100068864,
    "NVIDIA A100-SXM4-80GB": 85100068864,
    "NVIDIA H100": 84942979072,
    "NVIDIA H200": 151397597184,
    "NVIDIA B200": 191514411008,
}
_LEAST_MEMORY = 15 * 2**30  # of devices that are not listed


def target_platform() -> str:
    """Returns the platform of the devices that the program being traced is for, such as "tpu".

    These are the devices of the active mesh (``jax.set_mesh``), else ``jax.default_device``, else
    the first ones of this process. A process may so make programs for devices that it does not
    have. All three are part of what JAX keeps traced programs by.
    """
    device = _target_device()
    if device is None:
        return jax.default_backend()
    name = device if isinstance(device, str) else device.platform
    return _ALIASES.get(name, name)


def target_kind() -> str:
    """Returns JAX's name of the devices that the program being traced is for, "" if unknown."""
    device = _target_device()
    if device is None:
        device = jax.devices()[0]
    return getattr(device, "device_kind", "")


def device_memory() -> int:
    """Returns the bytes of memory of each accelerator that the program being traced is for.

    Those of a kind that is not in DEVICE_MEMORY are taken for small ones.
    """
    kind = target_kind()
    matches = [name for name in DEVICE_MEMORY if kind.startswith(name)]
    return DEVICE_MEMORY[max(matches, key=len)] if matches else _LEAST_MEMORY


def _target_device() -> Any | None:
    """Returns the device of the mesh, else ``jax.default_device`` (maybe a name), else None."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.config.jax_default_device if device is None else device
