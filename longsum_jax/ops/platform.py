"""The platform that a program is made for, on which some operations choose how they compute."""

import jax

# Names of platforms that XLA has besides the one that JAX gives their devices.
_ALIASES = {"cuda": "gpu", "rocm": "gpu"}


def target_platform() -> str:
    """Returns the platform of the devices that the program being traced is for, such as "tpu".

    These are the devices of the active mesh (``jax.set_mesh``), else ``jax.default_device``, else
    the first ones of this process. A process may so make programs for devices that it does not
    have. All three are part of what JAX keeps traced programs by.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    if device is None:
        device = jax.config.jax_default_device
    if device is None:
        return jax.default_backend()
    name = device if isinstance(device, str) else device.platform
    return _ALIASES.get(name, name)
