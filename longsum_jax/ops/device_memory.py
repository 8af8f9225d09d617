"""Memory of devices, and memory requirements of compiled programs."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import jax

from longsum_jax.errors import InputError
from longsum_jax.ops.platform import target_kind

# Bytes available to programs, by prefixes of JAX's device names
# (``device_kind``); sources: see ``longsum_plan.devices``.
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
    "NVIDIA L4": 23583784960,
    "NVIDIA GeForce RTX 4090": 25393692672,
    "NVIDIA GeForce RTX 4090 Laptop": int(15.5 * 2**30),
    "NVIDIA GeForce RTX 5090": 33677180928,
    "NVIDIA GeForce RTX 5090 Laptop": int(23.5 * 2**30),
}
_LEAST_MEMORY = 15 * 2**30  # for devices that are not listed


def target_memory() -> int:
    """Returns the bytes of memory of each accelerator that the program being traced is for.

    Devices that are not in DEVICE_MEMORY are assumed to be small.
    """
    return _listed_memory(target_kind()) or _LEAST_MEMORY


def times_memory(num_bytes: int) -> int:
    """Returns the ratio of a device's memory to ``num_bytes``, rounded down, but at least 1.

    It multiplies limits of temporary arrays that are meant for devices with
    ``num_bytes`` of memory.
    """
    return max(1, target_memory() // num_bytes)


def local_memory() -> int:
    """Returns the bytes of memory of each device of this process, 0 if unknown.

    CPU devices share the memory of the machine.
    """
    devices = jax.local_devices()
    first = devices[0]
    limit = (first.memory_stats() or {}).get("bytes_limit", 0)
    if not limit and first.platform == "cpu":
        return host_memory() // len(devices)
    return limit or _listed_memory(first.device_kind)


def host_memory() -> int:
    """Returns the bytes of the machine's memory available to this process, 0 if unknown."""
    return min(_host_limits(), default=0)


def held_bytes(compiled: jax.stages.Compiled) -> int:
    """Returns the bytes of each device's memory that a program holds, 0 if unknown.

    They include arguments, results and temporary values.
    """
    analysis = compiled.memory_analysis()
    if analysis is None:  # not every device reports it
        return 0
    # Donated arguments share their memory with outputs and are counted once.
    inputs_and_outputs = (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
    )
    return inputs_and_outputs + analysis.temp_size_in_bytes


def check_memory(compiled: jax.stages.Compiled, what: str, advice: str) -> None:
    """Raises an error if a compiled program does not fit into device memory.

    Args:
        compiled: program for devices of this process.
        what: description of the program, such as "a training step".
        advice: advice on what to change.

    Raises:
        InputError: the program takes more memory than a device has.
    """
    memory, needed = local_memory(), held_bytes(compiled)
    if 0 < memory < needed:
        raise InputError(
            f"{what} takes {needed / 1e9:.1f} GB of a device, which has {memory / 1e9:.1f} GB; "
            f"{advice}"
        )


def _listed_memory(kind: str) -> int:
    """Returns the bytes of the longest prefix of ``kind`` in DEVICE_MEMORY, 0 without one."""
    matches = [name for name in DEVICE_MEMORY if kind.startswith(name)]
    return DEVICE_MEMORY[max(matches, key=len)] if matches else 0


# Container limits on Linux, in versions 2 and 1 of control groups.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def _host_limits() -> Iterator[int]:
    with suppress(ValueError, OSError, AttributeError):  # not a POSIX system
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CONTAINER_LIMITS:
        with suppress(ValueError, OSError):  # "max", or no such file
            yield int(path.read_text(encoding="ascii"))
