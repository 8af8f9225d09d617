import os

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.errors import InputError
from longsum_jax.ops import device_memory
from longsum_jax.ops.device_memory import (
    DEVICE_MEMORY,
    check_memory,
    held_bytes,
    host_memory,
    local_memory,
    target_memory,
)
from longsum_plan.devices import GPUS, TPUS


def mesh_of(*device):
    device = AbstractDevice(*device)
    return AbstractMesh((1,), ("batch",), axis_types=(AxisType.Auto,), abstract_device=device)


def test_memory_is_that_of_the_kind_of_device():
    for kind, memory in [("NVIDIA H200", 151397597184), ("NVIDIA A100-PCIE-40GB", 42331013120)]:
        with use_abstract_mesh(mesh_of(kind, None, "cuda")):
            assert target_memory() == memory
    with use_abstract_mesh(mesh_of("NVIDIA GeForce RTX 4090 Laptop GPU", None, "cuda")):
        assert target_memory() < 16 * 2**30
    with use_abstract_mesh(mesh_of("TPU v5 lite", 1, "tpu")):
        lite = target_memory()
    with use_abstract_mesh(mesh_of("TPU v5p", 1, "tpu")):
        assert target_memory() > 6 * lite
    with jax.default_device("gpu"):  # a name alone
        assert 2**33 < target_memory() < min(DEVICE_MEMORY.values())


def test_memory_is_what_plans_compare_with():
    for hardware in (*GPUS.values(), *TPUS.values()):
        for kind in hardware.kinds:
            with use_abstract_mesh(mesh_of(kind, None, "gpu")):
                assert target_memory() == hardware.memory


def test_a_container_has_less_than_its_machine(tmp_path, monkeypatch):
    limits = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    monkeypatch.setattr(device_memory, "_CONTAINER_LIMITS", limits)
    machine = host_memory()
    assert machine == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits[0].write_text("max\n")
    limits[1].write_text(f"{2**63 - 4096}\n")
    assert host_memory() == machine
    limits[0].write_text("1073741824\n")
    assert host_memory() == 2**30
    assert local_memory() == 2**30 // len(jax.local_devices())


def test_a_program_that_does_not_fit_is_refused(monkeypatch):
    program = jax.jit(lambda x: jnp.sort(x)).lower(jnp.zeros(1000)).compile()
    needed = held_bytes(program)
    assert needed >= 8000
    for memory in (0, needed):  # 0: unknown
        monkeypatch.setattr(device_memory, "local_memory", lambda memory=memory: memory)
        check_memory(program, "sorting", "sort less")
    monkeypatch.setattr(device_memory, "local_memory", lambda: needed - 1)
    problem = r"^sorting takes 0\.0 GB of a device, which has 0\.0 GB; sort less$"
    with pytest.raises(InputError, match=problem):
        check_memory(program, "sorting", "sort less")
