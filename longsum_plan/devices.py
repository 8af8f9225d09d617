"""Devices that programs can be compiled for, even if this machine does not have them.

XLA compiles for a described device: memory, collectives and rejections are the
same as on the real one. Rates are the vendors' peaks, for a roofline. Sources:
the specifications of Cloud TPU v5e, v5p and v6e; NVIDIA's data sheets and white
papers of the GPUs (dense products); GPU descriptions for the compiler as in the
target configurations of openxla/xla, and as printed by CUDA's deviceQuery for
L4 and GeForce RTX. The memory of TPUs is the part available to XLA programs.
"""

import importlib.util
import os
import re
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax.errors import InputError, did_you_mean, first_line

# jax reads the environment on import, see ``set_environment``
if TYPE_CHECKING:
    import jax

GB = 1e9
GIB = 2**30
HERE = "here"  # the name of the devices of this process


class Hardware(NamedTuple):
    """Peak rates of one device.

    Attributes:
        title: name given by the vendor.
        kinds: JAX's names for the device (``jax.Device.device_kind``); variants
            with slower products, such as H100 PCIe, are not among them.
        memory: bytes available to programs.
        bandwidth: memory bandwidth in bytes per second.
        link: bytes per second that a device sends in a ring within its host, or
            within a TPU slice (two ports of the torus, one in each direction).
        host_link: bytes per second that a device sends in a ring across hosts.
        products: operations per second by the types of
            ``program_work.Work.products``.
    """

    title: str
    kinds: tuple[str, ...]
    memory: int
    bandwidth: float
    link: float
    host_link: float
    products: Mapping[str, float]


class Target(NamedTuple):
    """Devices to compile for.

    Attributes:
        name: name as given by the user.
        devices: JAX devices, described or real.
        hardware: peak rates; None if unknown, as for CPUs.
        memory: bytes of memory per device; 0 if unknown.
        devices_per_host: devices per host if links between hosts are slower,
            otherwise 0.
    """

    name: str
    devices: list["jax.Device"]
    hardware: Hardware | None
    memory: int
    devices_per_host: int = 0

    @property
    def platform(self) -> str:
        """Platform of the devices, such as "tpu"."""
        return self.devices[0].platform

    @property
    def title(self) -> str:
        """Name of the devices given by the vendor, or else by JAX."""
        if self.hardware:
            return self.hardware.title
        return self.devices[0].device_kind

    @property
    def num_hosts(self) -> int:
        """Number of hosts of the devices."""
        return len({device.process_index for device in self.devices})

    def report(self) -> dict[str, Any]:
        """Returns the devices as plain values for JSON."""
        return {
            "device": self.name,
            "title": self.title,
            "num_devices": len(self.devices),
            "device_memory_bytes": self.memory,
        }

    def first(self) -> "Target":
        """Returns the target with only the first of its devices."""
        return self._replace(devices=self.devices[:1])


def _tpu_products(peak: float) -> dict[str, float]:
    # float32 uses the bfloat16 units: one pass by default, three for high and six
    # for full precision; with one bfloat16 factor, two and three.
    return {
        "bfloat16": peak,
        "float32": peak,
        "float32, high": peak / 3,
        "float32, highest": peak / 6,
        "mixed, high": peak / 2,
        "mixed, highest": peak / 3,
    }


def _gpu_products(
    bfloat16: float, tf32: float, float32: float
) -> dict[str, float]:
    return {
        "bfloat16": bfloat16,
        "float32": tf32,
        "float32, high": tf32,
        "float32, highest": float32,
        "mixed, high": tf32,
        "mixed, highest": float32,
    }


# Hardware by its name in --device.
TPUS: Mapping[str, Hardware] = {
    "v5e": Hardware(
        "TPU v5e",
        ("TPU v5 lite", "TPU v5e"),
        int(15.75 * GIB),
        819e9,
        100e9,
        100e9,
        _tpu_products(197e12),
    ),
    "v5p": Hardware(
        "TPU v5p",
        ("TPU v5", "TPU v5p"),
        int(95.74 * GIB),
        2765e9,
        200e9,
        200e9,
        _tpu_products(459e12),
    ),
    "v6e": Hardware(
        "TPU v6e",
        ("TPU v6 lite", "TPU v6e"),
        int(31.25 * GIB),
        1600e9,
        200e9,
        200e9,
        _tpu_products(918e12),
    ),
}
GPUS: Mapping[str, Hardware] = {
    "a100-40": Hardware(
        "NVIDIA A100 40 GB",
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"),
        42331013120,
        1555e9,
        300e9,
        25e9,
        _gpu_products(312e12, 156e12, 19.5e12),
    ),
    "a100-80": Hardware(
        "NVIDIA A100 80 GB",
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"),
        85100068864,
        2039e9,
        300e9,
        25e9,
        _gpu_products(312e12, 156e12, 19.5e12),
    ),
    "h100": Hardware(
        "NVIDIA H100",
        ("NVIDIA H100", "NVIDIA H100 80GB HBM3"),
        84942979072,
        3352e9,
        450e9,
        50e9,
        _gpu_products(989e12, 494e12, 67e12),
    ),
    "h200": Hardware(
        "NVIDIA H200",
        ("NVIDIA H200",),
        151397597184,
        4800e9,
        450e9,
        50e9,
        _gpu_products(989e12, 494e12, 67e12),
    ),
    "b200": Hardware(
        "NVIDIA B200",
        ("NVIDIA B200",),
        191514411008,
        7672e9,
        900e9,
        50e9,
        _gpu_products(2250e12, 1125e12, 75e12),
    ),
    "l4": Hardware(
        "NVIDIA L4",
        ("NVIDIA L4",),
        23583784960,
        300e9,
        32e9,
        12.5e9,
        _gpu_products(121e12, 60e12, 30.3e12),
    ),
    "rtx4090": Hardware(
        "NVIDIA GeForce RTX 4090",
        ("NVIDIA GeForce RTX 4090",),
        25393692672,
        1008e9,
        32e9,
        12.5e9,
        _gpu_products(165e12, 82.6e12, 82.6e12),
    ),
    "rtx5090": Hardware(
        "NVIDIA GeForce RTX 5090",
        ("NVIDIA GeForce RTX 5090",),
        33677180928,
        1792e9,
        64e9,
        12.5e9,
        _gpu_products(209e12, 104.8e12, 104.8e12),
    ),
}


class _Chip(NamedTuple):
    """A GPU as described to the compiler.

    Attributes:
        capability: compute capability.
        cores: number of multiprocessors.
        units: float32 units of a multiprocessor.
        threads: most threads of a multiprocessor.
        shared, shared_of_block: bytes of shared memory of a multiprocessor, and
            the most that a block can have.
        cache: bytes of the L2 cache.
        clock: clock rate in GHz.
    """

    capability: str
    cores: int
    units: int
    threads: int
    shared: int
    shared_of_block: int
    cache: int
    clock: float


_A100 = _Chip("8.0", 108, 64, 2048, 167936, 166912, 41943040, 1.41)
_H100 = _Chip("9.0", 132, 128, 2048, 233472, 232448, 52428800, 1.98)
_CHIPS: Mapping[str, _Chip] = {
    "a100-40": _A100,
    "a100-80": _A100,
    "h100": _H100,
    "h200": _H100,
    "b200": _Chip("10.0", 148, 128, 2048, 233472, 232448, 132644864, 1.965),
    "l4": _Chip("8.9", 58, 128, 1536, 102400, 101376, 50331648, 2.04),
    "rtx4090": _Chip("8.9", 128, 128, 1536, 102400, 101376, 75497472, 2.52),
    "rtx5090": _Chip("12.0", 170, 128, 1536, 102400, 101376, 100663296, 2.41),
}
_SMALLEST_TPU = {"v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2"}
NAMES = ("cpu", *TPUS, *GPUS)

# A process that compiles for a TPU should neither look for a real one nor block
# other processes.
_TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_MIN_LOG_LEVEL": "3",
}
# Autotuning would run programs on a GPU; without it, Triton may find no tiles
# for a product.
_GPU_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"


def set_environment(name: str, environment: MutableMapping[str, str]) -> None:
    """Prepares compiling for a device; must be called before jax is imported.

    Args:
        name: value of --device.
        environment: environment variables, which JAX will read.

    Raises:
        InputError: the device is unknown, or its compiler is not installed.
    """
    family, sizes = _parsed(name)
    if family == HERE:
        return
    environment["JAX_PLATFORMS"] = "cpu"
    if family == "cpu":
        environment.setdefault("JAX_NUM_CPU_DEVICES", sizes or "1")
        return
    _require_compiler(name, family)
    # JAX cannot read programs for described devices from its cache; plans have
    # entries of their own there, see ``compilation``.
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if family in GPUS:
        environment["XLA_FLAGS"] = (
            f"{environment.get('XLA_FLAGS', '')} {_GPU_FLAGS}".strip()
        )


def find_target(name: str) -> Target:
    """Returns the devices of a name such as "v5e:16x16", "h200:2x8", "cpu:8" or "here".

    A TPU's name is followed by its topology, a GPU's by hosts x devices;
    without either it means one device.

    Raises:
        InputError: an unknown device or topology, a missing compiler, or too
            few CPU devices in this process.
    """
    family, sizes = _parsed(name)
    if family == HERE:
        return _devices_here()
    if family == "cpu":
        return _cpus(name, int(sizes or 1))
    _require_compiler(name, family)
    if family in TPUS:
        devices = _tpus(name, family, sizes)
        return Target(name, devices, TPUS[family], TPUS[family].memory)
    hosts, per_host = (int(size) for size in (sizes or "1x1").split("x"))
    devices = _gpus(name, family, hosts, per_host)
    hardware = GPUS[family]
    devices_per_host = 0  # of a single host
    if hosts > 1:
        devices_per_host = per_host
    return Target(name, devices, hardware, hardware.memory, devices_per_host)


def _parsed(name: str) -> tuple[str, str]:
    """Returns family and sizes of a device after checking them."""
    family, colon, sizes = name.partition(":")
    if family not in (*NAMES, HERE):
        raise InputError(
            f'--device={name}: unknown device "{family}"; {did_you_mean(family, NAMES)}'
        )
    if family == HERE and colon:
        raise InputError(
            f"--device={name}: this machine's devices have no size; write --device={HERE}"
        )
    if family == "cpu":
        form, example = r"[1-9]\d*", "8"
    elif family in GPUS:
        form, example = r"[1-9]\d*x[1-9]\d*", "2x8 (hosts x devices)"
    else:
        form = r"[1-9]\d*(x[1-9]\d*){1,2}"
        example = _SMALLEST_TPU.get(family, "")
    if colon and not re.fullmatch(form, sizes):
        raise InputError(
            f"--device={name}: write the devices as in {family}:{example}"
        )
    return family, sizes


def _require_compiler(name: str, family: str) -> None:
    if family in TPUS and importlib.util.find_spec("libtpu") is None:
        raise InputError(
            f"--device={name}: compiling for TPUs needs libtpu, which runs without a TPU; "
            'pip install "longsum_jax[plan-tpu]"'
        )
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    if family in GPUS and not any(map(importlib.util.find_spec, plugins)):
        raise InputError(
            f"--device={name}: compiling for GPUs needs JAX's CUDA libraries, which compile "
            'without a GPU; pip install "longsum_jax[plan-cuda]"'
        )


def _cpus(name: str, count: int) -> Target:
    import jax

    from longsum_jax.ops.device_memory import host_memory

    devices = jax.devices("cpu")
    if count > len(devices):
        raise InputError(
            f"--device={name}: this process has {len(devices)} CPU devices; set "
            f"JAX_NUM_CPU_DEVICES={count} before jax starts"
        )
    return Target(name, devices[:count], None, host_memory() // count)


def _tpus(name: str, family: str, sizes: str) -> list["jax.Device"]:
    import jax
    from jax.experimental import topologies

    # libtpu reads them when it is loaded below
    for variable, value in _TPU_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    topology = f"{family}:{sizes or _SMALLEST_TPU[family]}"
    try:
        description = topologies.get_topology_desc(
            platform="tpu", topology_name=topology
        )
    except (
        jax.errors.JaxRuntimeError,
        NotImplementedError,
        ValueError,
    ) as error:
        reason = first_line(error)
        raise InputError(
            f"--device={name}: no such topology ({reason}); give another one, such as "
            f"{family}:{_SMALLEST_TPU[family]}, or {family} for a single chip"
        ) from None
    if sizes:
        return list(description.devices)
    return list(description.devices)[:1]


def _gpus(
    name: str, family: str, hosts: int, per_host: int
) -> list["jax.Device"]:
    import jax
    from jax.experimental import topologies

    try:
        topology = topologies.get_topology_desc(
            platform="cuda",
            topology_name="",
            target_config=_gpu_description(family),
            topology=f"1x{hosts}x{per_host}",
        )
    except (
        jax.errors.JaxRuntimeError,
        NotImplementedError,
        ValueError,
    ) as error:
        reason = first_line(error)
        raise InputError(
            f"--device={name}: XLA does not support this device ({reason}); give another one"
        ) from None
    return list(topology.devices)


def _gpu_description(family: str) -> str:
    """Returns XLA's description of a GPU, a stream_executor.GpuTargetConfigProto in text format."""
    hardware, chip = GPUS[family], _CHIPS[family]
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "shared_memory_per_core": chip.shared,
        "threads_per_core_limit": chip.threads,
        "core_count": chip.cores,
        "fpus_per_core": chip.units,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "memory_bandwidth": int(hardware.bandwidth),
        "l2_cache_size": chip.cache,
        "clock_rate_ghz": chip.clock,
        "device_memory_size": hardware.memory,
        "shared_memory_per_block_optin": chip.shared_of_block,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
    }
    fields = " ".join(f"{field}: {value}" for field, value in info.items())
    major, minor = chip.capability.split(".")
    capability = f"cuda_compute_capability {{ major: {major} minor: {minor} }}"
    versions = "dnn_version_info { major: 9 minor: 10 patch: 0 }"
    return (
        f'gpu_device_info {{ {fields} {capability} }} platform_name: "CUDA" {versions} '
        f'device_description_str: "{hardware.title}"'
    )


def _devices_here() -> Target:
    import jax

    from longsum_jax.ops.device_memory import local_memory

    devices = jax.devices()
    first = devices[0]
    hosts = jax.process_count()
    if hosts > 1 and first.platform == "gpu":
        per_host = len(devices) // hosts
    else:
        per_host = 0
    return Target(
        HERE, devices, hardware_of(first.device_kind), local_memory(), per_host
    )


def hardware_of(kind: str) -> Hardware | None:
    """Returns the peak rates of a device by JAX's name for it; None if unknown."""
    for hardware in (*TPUS.values(), *GPUS.values()):
        if kind in hardware.kinds:
            return hardware
    return None
