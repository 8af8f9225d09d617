"""The kernels that convolve by products, interpreted: compared with float64 and with the FFT."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.ops.precision import bfloat16_parts
from longsum_jax.ops.ssm import backends, chunked, convolution, fused
from longsum_jax.ops.ssm.convolution import ssm_convolution
from longsum_jax.ops.ssm.kernel import discretize
from longsum_plan.devices import find_target
from longsum_plan.program_work import program_work

CHANNELS = 2


def draw(length, batch):
    rng = np.random.default_rng(length)
    u, dy = jnp.asarray(rng.normal(size=(2, batch, length, CHANNELS)), jnp.bfloat16)
    return u, jnp.asarray(rng.normal(size=CHANNELS), jnp.float32), dy


def share_of_nearest(value, exact):
    """Share of the bfloat16 entries that are the nearest ones to exact values."""
    return np.mean(np.asarray(value) == np.asarray(exact.astype(jnp.bfloat16)))


# FFTs: matrices of 16 x 16 and 16 x 32; one document alone, and three, of which one has no
# partner. Chunks: one of one block and one of three; three in a tile, with rows of padding, and
# in tiles of one and two, with a chunk of padding.
CASES = [(fused, 5, 1, 1), (fused, 256, 3, 2), (fused, 300, 2, 2)]
CASES += [(chunked, 5, 1, 1), (chunked, 300, 2, 2), (chunked, 1300, 1, 2)]
CASES += [pytest.param(fused, 4096, 3, 2, marks=pytest.mark.weekly)]
TILED = [(1300, 16, 2, 2), (1100, 8, 1, 1)]


@pytest.mark.parametrize(("kernels", "length", "batch", "directions"), CASES)
def test_the_kernel_is_exact_to_bfloat16(
    make_ssm, kernel_float64, kernels, length, batch, directions, relative_error, monkeypatch
):
    monkeypatch.setattr(convolution, "_fused_kernels", lambda: kernels)
    ssm = make_ssm(CHANNELS, 4, directions)
    compare_with_float64(ssm, length, batch, kernel_float64, relative_error)


@pytest.mark.parametrize(("length", "batch", "directions", "sets"), TILED)
def test_tiles_pass_states_in_both_directions(
    make_ssm, kernel_float64, length, batch, directions, sets, relative_error, monkeypatch
):
    monkeypatch.setattr(convolution, "_fused_kernels", lambda: chunked)
    monkeypatch.setattr(backends, "_TILE_ROWS", 16)
    assert chunked._Layout.of(batch, length).num_tiles > 1
    ssm = make_ssm(CHANNELS, 4, directions, sets)
    compare_with_float64(ssm, length, batch, kernel_float64, relative_error)


def compare_with_float64(ssm, length, batch, kernel_float64, relative_error):
    """Outputs and gradients of inputs with float64, gradients of parameters with the FFT."""
    u, D, dy = draw(length, batch)
    directions = ssm.directions
    convolve = partial(ssm_convolution, backend="fused")
    y, pull_back = jax.jit(partial(jax.vjp, convolve))(u, ssm, D)
    assert y.dtype == jnp.bfloat16

    kernel = kernel_float64(ssm, length)
    lags = np.arange(length)[:, None] - np.arange(length)
    matrix = np.where(lags >= 0, kernel[0][:, np.abs(lags)], 0)
    if directions == 2:
        matrix = matrix + np.where(lags <= 0, kernel[1][:, np.abs(lags)], 0)
    matrix = matrix + np.asarray(D, np.float64)[:, None, None] * np.eye(length)
    exact = np.einsum("hji,bih->bjh", matrix, np.asarray(u, np.float64))
    # Rounding factors to bfloat16 once would leave a third of the entries.
    assert share_of_nearest(y, exact) > 0.95
    du, dssm, dD = jax.jit(pull_back)(dy)
    assert du.dtype == jnp.bfloat16
    exact = np.einsum("hji,bjh->bih", matrix, np.asarray(dy, np.float64))
    assert share_of_nearest(du, exact) > 0.95

    by_fft = partial(ssm_convolution, backend="fft")
    whole = (x.astype(jnp.float32) for x in (u, dy))
    _, expected, expected_D = jax.jit(lambda u, dy: jax.vjp(by_fft, u, ssm, D)[1](dy))(*whole)
    for value, reference in zip((*dssm, dD), (*expected, expected_D), strict=True):
        assert value.dtype == jnp.float32
        assert relative_error(value, reference) < 1e-4


def test_products_lose_less_than_a_bfloat16_number():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 32, 32)).astype(np.float32)
    parts = tuple(jax.jit(bfloat16_parts)(x) for x in (a, b))
    result = np.asarray(fused._sum_of_dots(1, parts), np.float64)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(result - exact).max() < 2**-14 * np.abs(exact).max()
    once = fused._sum_of_dots(1, tuple(part[:1] for part in parts))
    assert np.abs(once - exact).max() > 2**-9 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("length", "dtype", "backend"),
    [
        (backends.LONGEST_FUSED, jnp.bfloat16, "fused"),
        (backends.LONGEST_FUSED + 1, jnp.bfloat16, "fft"),
        (16, jnp.float32, "fft"),
    ],
)
def test_what_the_kernel_does_not_support_takes_the_fft(make_ssm, length, dtype, backend):
    u = jax.ShapeDtypeStruct((1, length, CHANNELS), dtype)
    convolve = partial(ssm_convolution, backend="fused")
    program = str(jax.make_jaxpr(convolve)(u, make_ssm(CHANNELS, 4), np.ones(CHANNELS)))
    assert ("pallas_call" in program) == (backend == "fused")


def on(kind, platform):
    """The mesh of one device that is not here."""
    device = AbstractDevice(kind, None, platform)
    axes = {"axis_types": (AxisType.Auto,), "abstract_device": device}
    return use_abstract_mesh(AbstractMesh((1,), ("batch",), **axes))


@pytest.mark.parametrize(("kind", "has_kernel"), [("NVIDIA H100", True), ("NVIDIA A100", False)])
def test_the_kernel_is_for_gpus_whose_registers_suffice(kind, has_kernel):
    with on(kind, "gpu"):
        assert backends.can_fuse(1, 16, jnp.bfloat16) == has_kernel
        assert not backends.can_fuse(1, 16, jnp.float32)


@pytest.mark.parametrize(
    ("kind", "batch", "length", "dtype", "backend"),
    [
        ("TPU v5", 8, 4096, jnp.bfloat16, "fused"),
        ("TPU v5p", 256, 4096, jnp.bfloat16, "fused"),
        ("TPU v5p", 1, 2**20, jnp.bfloat16, "fused"),
        ("TPU v5p", 257, 4096, jnp.bfloat16, "matmul"),  # whole tiles are beyond its memory
        ("TPU v5p", 257, 1500, jnp.bfloat16, "fused"),
        ("TPU v5p", 1024, 1, jnp.bfloat16, "fused"),
        ("TPU v5p", 1025, 1, jnp.bfloat16, "matmul"),
        ("TPU v5p", 1, 4096, jnp.float32, "matmul"),
        ("TPU v5 lite", 8, 4096, jnp.bfloat16, "matmul"),
        ("TPU v5 lite", 1, 2**19, jnp.bfloat16, "fused"),  # beyond its chip
        ("TPU v4", 8, 4096, jnp.bfloat16, "matmul"),
    ],
)
def test_tpus_of_two_cores_prefer_the_kernel(make_ssm, kind, batch, length, dtype, backend):
    modes = jax.eval_shape(discretize, make_ssm(CHANNELS, 4))
    shape = (batch, length, CHANNELS)
    with on(kind, "tpu"):
        plan = backends.plan_convolution(shape, modes, backend="auto", block=None, dtype=dtype)
        assert plan.backend == backend
        asked = backends.plan_convolution(shape, modes, backend="fused", block=None, dtype=dtype)
        is_possible = backend == "fused" or kind == "TPU v5 lite"  # which does not prefer it
        assert asked.backend == ("fused" if is_possible else "matmul")


@pytest.mark.weekly
@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("name", "batch", "length"),
    [("v5p", 3, 4096), ("v5p", 1024, 1000), ("v5e", 63, 16384), ("v6e", 1, 2**19)],
)
def test_the_kernel_compiles_for_a_tpu(make_ssm, name, batch, length):
    """With as many documents as are allowed, and with a number that fills no tiles."""
    device, *_ = find_target(name).devices
    sharding = jax.sharding.SingleDeviceSharding(device)

    def on_device(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    ssm = jax.tree.map(on_device, jax.eval_shape(partial(make_ssm, CHANNELS, 4)))
    u = on_device(jax.ShapeDtypeStruct((batch, length, CHANNELS), jnp.bfloat16))
    D = on_device(jax.ShapeDtypeStruct((CHANNELS,), jnp.float32))

    def gradients(u, ssm, D, dy):
        # The precision of a model, which Mosaic refuses for products of bfloat16.
        with jax.default_matmul_precision("highest"):
            y, pull_back = jax.vjp(partial(ssm_convolution, backend="fused"), u, ssm, D)
            return y, pull_back(dy)

    with jax.default_device(device):
        text = jax.jit(gradients).lower(u, ssm, D, u).compile().as_text()
    layout = chunked._Layout.of(batch, length)
    entries = CHANNELS * layout.num_tiles * layout.tile_rows * layout.chunk
    expected = 5 * 2 * entries * layout.chunk
    if layout.chunks > 1:
        # In both directions: into states of inputs, for outputs and for gradients, and of
        # gradients; out of states, for outputs and for gradients of inputs; and sums.
        expected += 2 * (3 * 2 + 2 * 3 + 3 * 2) * 2 * entries * 256
    assert program_work(text).products["bfloat16"] == expected
