import importlib.util

import jax
import pytest

from longsum_jax.errors import InputError
from longsum_plan import devices


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("v5", r'--device=v5: unknown device "v5"'),
        ("v5e:16", r"--device=v5e:16: write the devices as in v5e:2x2$"),
        ("h200:8", r"--device=h200:8: write the devices as in h200:2x8 \(hosts x devices\)"),
        ("cpu:2x2", r"--device=cpu:2x2: write the devices as in cpu:8"),
        ("here:2", "--device=here:2: this machine's devices have no size; write --device=here$"),
        ("here:", "--device=here:: this machine's devices have no size"),
    ],
)
def test_unknown_devices_are_refused(name, sentence):
    with pytest.raises(InputError, match=sentence):
        devices.find_target(name)


def test_a_missing_compiler_is_a_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, extra in (("v5e:2x2", "plan-tpu"), ("h200", "plan-cuda")):
        with pytest.raises(InputError, match=rf'--device={name}: .*"longsum_jax\[{extra}\]"'):
            devices.set_environment(name, {})


def test_the_environment_of_a_compiler(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    environment = {"XLA_FLAGS": "--mine=1"}
    devices.set_environment("v5p:2x2x1", environment)
    assert environment.pop("XLA_FLAGS") == "--mine=1"
    assert environment == {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment = {"XLA_FLAGS": "--mine=1"}
    devices.set_environment("a100-80:1x4", environment)
    assert environment["XLA_FLAGS"].startswith("--mine=1 --xla_gpu_autotune_level=0")
    environment = {}
    devices.set_environment("cpu:4", environment)
    assert environment == {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    environment = {}
    devices.set_environment("here", environment)
    assert not environment


def test_devices_of_this_machine():
    here, one = devices.find_target("here"), devices.find_target("cpu")
    assert here.devices == jax.devices()
    assert one.devices == jax.devices("cpu")[:1]
    assert one.memory > 2**28
    assert one.platform == "cpu"
    with pytest.raises(InputError, match=r"--device=cpu:64: this process has \d+ CPU devices"):
        devices.find_target("cpu:64")


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("TPU v5 lite", "TPU v5e"),
        ("TPU v5", "TPU v5p"),
        ("TPU v6 lite", "TPU v6e"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 40 GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("cpu", None),
    ],
)
def test_peaks_are_found_by_the_name_that_jax_gives(kind, title):
    hardware = devices.hardware_of(kind)
    assert (hardware and hardware.title) == title


def test_every_device_has_a_rate_for_every_kind_of_product():
    for hardware in (*devices.TPUS.values(), *devices.GPUS.values()):
        bfloat16, float32, high, highest = (
            hardware.products[name]
            for name in ("bfloat16", "float32", "float32, high", "float32, highest")
        )
        assert bfloat16 >= float32 >= high >= highest > 0
        mixed = hardware.products["mixed, high"], hardware.products["mixed, highest"]
        assert mixed[0] >= high
        assert mixed[1] >= highest
        assert hardware.link >= hardware.host_link > 0
    assert set(devices._CHIPS) == set(devices.GPUS)
    assert set(devices._SMALLEST_TPU) == set(devices.TPUS)
