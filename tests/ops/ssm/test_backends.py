import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.ops.ssm import backends
from longsum_jax.ops.ssm.convolution import ssm_convolution
from longsum_jax.ops.ssm.kernel import Modes, discretize
from longsum_jax.ops.ssm.matmul import count_chunks

BASE = {"channels": 768, "modes": 128, "layers": 12}  # the published model


def loops_of_base(backend, batch, length):
    """Iterations of loops of one forward pass: blocks of channels, and groups in them."""
    shape = (batch, length, BASE["channels"])
    # Of the modes only the shapes of the coefficients are read.
    Ct = jax.ShapeDtypeStruct((1, BASE["channels"], 2, BASE["modes"]), jnp.complex64)
    modes = Modes(None, None, None, None, Ct)
    block = backends.channels_per_block(shape, modes, backend)
    blocks = -(-BASE["channels"] // block)
    if backend == "fft":
        return blocks * BASE["layers"]
    group = backends._chunks_per_group(shape, modes, block)
    return blocks * -(-count_chunks(batch, length) // group) * BASE["layers"]


@pytest.mark.parametrize("kind", ["TPU v5 lite", "TPU v5p", "TPU v6 lite", "an unknown device"])
def test_a_pass_has_few_serial_steps_on_accelerators(kind):
    device = AbstractDevice(kind, 1, "tpu")
    mesh = AbstractMesh((1,), ("batch",), axis_types=(AxisType.Auto,), abstract_device=device)
    with use_abstract_mesh(mesh):
        assert loops_of_base("matmul", 1, 2**20) < 10_000
        assert loops_of_base("matmul", 32, 4096) < 1_000
        assert loops_of_base("fft", 1, 2**20) < 10_000
    with use_abstract_mesh(mesh.update(abstract_device=AbstractDevice("cpu", None, "cpu"))):
        assert loops_of_base("matmul", 1, 2**20) > 10_000


@pytest.mark.slow
def test_chosen_block_covers_the_budget(make_ssm, monkeypatch):
    modes = jax.eval_shape(discretize, make_ssm(6, 4))
    for backend in ("fft", "matmul"):
        assert backends.channels_per_block((2, 33, 6), modes, backend) == 6
    monkeypatch.setattr(backends, "MIN_BLOCK_BYTES", {"cpu": 1})
    for backend in ("fft", "matmul"):
        assert backends.channels_per_block((2, 33, 6), modes, backend) == 1


@pytest.mark.parametrize(
    ("platform", "batch", "blocks"),
    [
        ("tpu", 1, (160, 40)),
        ("tpu", 8, (64, 16)),
        ("tpu", 16, (24, 8)),
        ("tpu", 256, (8, 8)),
        ("cpu", 1, (46, 46)),
    ],
)
def test_gradients_have_blocks_that_fit_the_chip(platform, batch, blocks):
    """Whole tiles of channels on TPUs, and for gradients a quarter of them."""
    Ct = jax.ShapeDtypeStruct((1, BASE["channels"], 2, BASE["modes"]), jnp.complex64)
    modes = Modes(None, None, None, None, Ct)
    with jax.default_device(platform):
        plan = backends.plan_convolution(
            (batch, 4096, BASE["channels"]), modes, backend="matmul", block=None, dtype=jnp.bfloat16
        )
        assert (plan.block, plan.gradient_block) == blocks


@pytest.mark.parametrize(
    ("platform", "shape", "part"),
    [
        ("tpu", (8, 4096, 768), 192),  # 48 MiB: four parts of three blocks
        ("tpu", (2, 16_384, 768), 192),
        ("tpu", (1, 4096, 768), 768),  # 6 MiB
        ("tpu", (32, 4096, 768), 768),  # 192 MiB do not fit on the chip
        ("cpu", (8, 4096, 768), 768),
    ],
)
def test_inputs_that_fit_on_a_chip_have_parts_of_whole_blocks(platform, shape, part):
    Ct = jax.ShapeDtypeStruct((1, 768, 2, 128), jnp.complex64)
    modes = Modes(None, None, None, None, Ct)
    with jax.default_device(platform):
        plan = backends.plan_convolution(
            shape, modes, backend="matmul", block=None, dtype=jnp.bfloat16
        )
    assert plan.part == part
    assert part == 768 or part % plan.block == 0


@pytest.mark.parametrize(("kind", "channels"), [("TPU v5", 24), ("TPU v5 lite", 8)])
def test_two_cores_have_larger_blocks_of_the_gradient(kind, channels):
    device = AbstractDevice(kind, 1, "tpu")
    mesh = AbstractMesh((1,), ("batch",), axis_types=(AxisType.Auto,), abstract_device=device)
    with use_abstract_mesh(mesh):
        assert backends._channels_of_gradient(40) == channels


def test_the_backend_is_chosen_by_platform_length_and_batch(make_ssm, monkeypatch):
    assert backends.choose_backend("tpu", 16, 1) == "matmul"
    assert backends.choose_backend("unheard-of", 2**20, 1) == "fft"
    monkeypatch.setattr(backends, "_MATMUL_FROM", {"cpu": {1: 64, 8: 256}})
    lengths = {
        (1, 63): "fft",
        (1, 64): "matmul",
        (7, 64): "matmul",
        (8, 255): "fft",
        (64, 256): "matmul",
    }
    assert {key: backends.choose_backend("cpu", *key[::-1]) for key in lengths} == lengths
    selected = []
    monkeypatch.setattr(backends, "choose_backend", lambda *key: selected.append(key) or "matmul")
    u, ssm, D = np.ones((2, 8, 5), np.float32), make_ssm(5, 4), np.ones(5, np.float32)
    text = jax.jit(ssm_convolution).lower(u, ssm, D).as_text()
    assert selected == [("cpu", 8, 2)]
    assert "fft" not in text


def test_the_table_of_backends_is_what_was_measured():
    """Where it sends a length and a batch, forward and backward together, the other backend was not
    much faster."""
    report = json.loads(
        (Path(__file__).parents[3] / "benchmarks/results/ssm_backends.json").read_text()
    )
    assert len(report["rows"]) >= 20
    for row in report["rows"]:
        selected = backends.choose_backend(row["platform"], row["length"], row["batch"])
        lost = 1 / row["ratio"] if selected == "matmul" else row["ratio"]
        assert lost < 1.1 or row["what"] == "forward", row
