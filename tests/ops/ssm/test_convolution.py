import re
import runpy
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ops.ssm import backends
from longsum_jax.ops.ssm import convolution as ssm_conv
from longsum_jax.ops.ssm import matmul as ssm_matmul
from longsum_jax.ops.ssm.convolution import ssm_convolution
from longsum_jax.ops.ssm.kernel import MAX_LENGTH, DiagonalSSM, discretize

SLOW_TWINS = runpy.run_path(str(Path(__file__).with_name("slow_twins.py")))
ssm_convolution_direct, ssm_scan = SLOW_TWINS["ssm_convolution_direct"], SLOW_TWINS["ssm_scan"]
TWINS = (ssm_convolution_direct, ssm_scan)
LONGEST = 100


def inputs(make_ssm, length, directions=2, sets=1, channels=5, dtype=jnp.float32):
    """u [2, L, H], channels and skip, and a cotangent of the output."""
    rng = np.random.default_rng(length)
    u, cotangent = rng.normal(size=(2, 2, length, channels)).astype(dtype)
    ssm = make_ssm(channels, 4, directions, sets)
    return u, ssm, rng.normal(size=channels).astype(np.float32), cotangent


def in_parts(convolution, u, ssm, D, cotangent):
    """(output, (du, dssm, dD)) of a function that is compiled here or in its parts."""
    y, pull_back = jax.vjp(convolution, u, ssm, D)
    return y, pull_back(cotangent)


value_and_gradients = jax.jit(in_parts, static_argnums=0)
discretize_once = jax.jit(discretize, static_argnums=1)


@pytest.fixture
def compiled_parts(monkeypatch):
    """Compiles what precedes a convolution by itself: once for all lengths and backends."""
    convolve = ssm_conv._convolve
    convolve_here = jax.jit(lambda *arguments: convolve(*arguments), static_argnums=0)
    monkeypatch.setattr(ssm_conv, "discretize", discretize_once)
    monkeypatch.setattr(ssm_conv, "_convolve", convolve_here)


def of_twin(twin, u, ssm, D, cotangent):
    """``value_and_gradients`` of a slow twin, compiled once for each number of directions: on
    inputs padded with zeros to one length, with dynamics of each direction."""
    length = u.shape[1]
    u, cotangent = (np.pad(x, ((0, 0), (0, LONGEST - length), (0, 0))) for x in (u, cotangent))
    separate = DiagonalSSM(*(np.repeat(x, ssm.directions // len(x), 0) for x in ssm))
    y, (du, dssm, dD) = value_and_gradients(twin, u, separate, D, cotangent)
    # Directions that share dynamics add up their gradients.
    own = [
        np.asarray(d).reshape(len(x), -1, *d.shape[1:]).sum(1)
        for x, d in zip(ssm, dssm, strict=True)
    ]
    return np.asarray(y)[:, :length], (np.asarray(du)[:, :length], own, dD)


def assert_close(value, reference, tolerance=1e-5):
    """Every array of the trees within ``tolerance`` of the largest entry of its reference."""
    for x, y in zip(jax.tree.leaves(value), jax.tree.leaves(reference), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * max(1e-3, np.abs(y).max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "length", "directions"),
    [
        *(("fft", length, 2) for length in (1, LONGEST)),
        *(("matmul", length, 2) for length in (1, 33)),
        ("fft", 33, 1),
        ("matmul", LONGEST, 1),
        *(pytest.param("fft", length, 2, marks=pytest.mark.weekly) for length in (2, 33)),
        *(pytest.param("matmul", n, 2, marks=pytest.mark.weekly) for n in (7, 64, LONGEST)),
    ],
)
@pytest.mark.usefixtures("compiled_parts")
def test_convolution_equals_both_slow_twins(make_ssm, length, directions, backend, monkeypatch):
    monkeypatch.setattr(ssm_matmul, "CHUNK_ON_CPU", 32)  # up to four chunks, the last one not full
    arguments = inputs(make_ssm, length, directions)
    fast = in_parts(partial(ssm_convolution, backend=backend), *arguments)
    for twin in TWINS:
        assert_close(fast, of_twin(twin, *arguments))


@pytest.mark.slow
@pytest.mark.parametrize("directions", [pytest.param(1, marks=pytest.mark.weekly), 2])
def test_gradients_are_the_same_with_spectra_that_are_made_again(make_ssm, directions, monkeypatch):
    arguments = inputs(make_ssm, 33, directions)
    saved = value_and_gradients(partial(ssm_convolution, backend="fft", block=2), *arguments)
    monkeypatch.setattr(backends, "MOST_SPECTRUM_BYTES_ON_CPU", 0)
    again = value_and_gradients(partial(ssm_convolution, backend="fft", block=2), *arguments)
    assert_close(again, saved, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sets", [1, 2])
def test_causal_uses_the_first_direction_alone(make_ssm, sets):
    u, ssm, D, cotangent = inputs(make_ssm, 33, sets=sets)
    forward = DiagonalSSM(*(np.asarray(x)[:1] for x in ssm))
    y, (du, _, dD) = value_and_gradients(
        partial(ssm_convolution, causal=True), u, ssm, D, cotangent
    )
    expected, (du_expected, _, dD_expected) = of_twin(ssm_scan, u, forward, D, cotangent)
    assert_close((y, du, dD), (expected, du_expected, dD_expected))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fft", "matmul"])
@pytest.mark.usefixtures("compiled_parts")
def test_dynamics_of_each_direction(make_ssm, backend):
    arguments = inputs(make_ssm, 33, sets=2)
    fast = in_parts(partial(ssm_convolution, backend=backend), *arguments)
    for twin in TWINS:
        assert_close(fast, of_twin(twin, *arguments))


@pytest.mark.slow
def test_discretization_none(make_ssm):
    arguments = inputs(make_ssm, 20)
    fast, slow = (
        value_and_gradients(partial(fn, discretization="none"), *arguments)
        for fn in (ssm_convolution, ssm_scan)
    )
    assert_close(fast, slow)


@pytest.mark.slow
@pytest.mark.parametrize("block", [2, 4, 7])  # divides six, overlaps, is more
@pytest.mark.usefixtures("compiled_parts")
def test_blocks_of_channels_change_nothing(make_ssm, block):
    arguments = inputs(make_ssm, 33, channels=6)
    blocked = in_parts(partial(ssm_convolution, block=block), *arguments)
    assert_close(blocked, of_twin(ssm_scan, *arguments))


@pytest.mark.parametrize("part", [4, 6])  # the last part overlaps
def test_parts_of_the_inputs_change_nothing(make_ssm, monkeypatch, part):
    arguments = inputs(make_ssm, 9, channels=7)
    whole = in_parts(partial(ssm_convolution, block=2), *arguments)
    monkeypatch.setattr(backends, "_channels_of_part", lambda *_: part)
    divided = in_parts(partial(ssm_convolution, block=2), *arguments)
    jax.tree.map(np.testing.assert_array_equal, divided, whole)


@pytest.mark.parametrize("block", [-1, 0])
def test_blocks_that_are_none(make_ssm, block):
    u, ssm, D, _ = inputs(make_ssm, 33, channels=6)
    with pytest.raises(InputError, match=f"block={block} of a convolution must be a whole number"):
        jax.eval_shape(partial(ssm_convolution, block=block), u, ssm, D)


@pytest.mark.slow
@pytest.mark.parametrize("group", [3])  # which does not divide the 7 chunks
@pytest.mark.usefixtures("compiled_parts")
def test_groups_of_chunks_change_nothing(make_ssm, monkeypatch, group):
    monkeypatch.setattr(ssm_matmul, "CHUNK_ON_CPU", 16)
    monkeypatch.setattr(backends, "_chunks_per_group", lambda *sizes: group)
    arguments = inputs(make_ssm, LONGEST)
    fast = in_parts(partial(ssm_convolution, backend="matmul"), *arguments)
    assert_close(fast, of_twin(ssm_scan, *arguments))


@pytest.mark.slow
@pytest.mark.parametrize(("length", "most_steps"), [(64, 4), (LONGEST, 7)])  # 8 and 13 chunks
@pytest.mark.usefixtures("compiled_parts")
def test_segments_of_chunks_change_nothing(make_ssm, monkeypatch, length, most_steps):
    """Directions have separate modes, too."""
    monkeypatch.setattr(ssm_matmul, "CHUNK_ON_CPU", 8)
    monkeypatch.setattr(ssm_matmul, "_MOST_STEPS", most_steps)
    assert [ssm_matmul._chunks_per_segment(count) for count in (4, 7, 8, 32)] == [4, 7, 4, 4]
    arguments = inputs(make_ssm, length, sets=2)
    u, ssm, D, _ = arguments
    program = jax.make_jaxpr(ssm_matmul.convolve_by_matmul)(u, discretize_once(ssm, "zoh"), D)
    assert max(map(int, re.findall(r" length=(\d+)", str(program)))) <= most_steps
    fast = in_parts(partial(ssm_convolution, backend="matmul"), *arguments)
    assert_close(fast, of_twin(ssm_scan, *arguments))


@pytest.mark.parametrize(
    ("length", "directions", "block"), [(1, 2, None), (64, 1, None), (LONGEST, 2, 2)]
)
def test_a_kept_spectrum_gives_what_its_parameters_give(
    make_ssm, length, directions, block, monkeypatch
):
    if block:  # channels in blocks, the last of which overlaps
        monkeypatch.setattr(backends, "_channels_within", lambda *sizes: block)
    u, ssm, D, cotangent = inputs(make_ssm, length, directions)

    def convolve(u, ssm, D):
        return ssm_conv.convolve_with_spectrum(u, ssm_conv.ssm_spectrum(ssm, D, length))

    y, gradients = value_and_gradients(convolve, u, ssm, D, cotangent)
    assert_close((y, gradients), of_twin(ssm_scan, u, ssm, D, cotangent))


def test_a_spectrum_of_another_length_is_refused(make_ssm):
    u, ssm, D, _ = inputs(make_ssm, 33)
    spectrum = jax.eval_shape(lambda: ssm_conv.ssm_spectrum(ssm, D, 64))
    with pytest.raises(ValueError, match="made for inputs other than"):
        jax.eval_shape(ssm_conv.convolve_with_spectrum, u, spectrum)


def three_passes(pattern, a, b, **_):
    """The product as TPUs compute it with high precision: of two bfloat16 halves of each factor."""

    def halves(x):
        high = x.astype(jnp.bfloat16).astype(jnp.float32)
        return high, (x - high).astype(jnp.bfloat16).astype(jnp.float32)

    (a, rest_a), (b, rest_b) = halves(a), halves(b)
    pairs = (a, b), (a, rest_b), (rest_a, b)
    return sum(jnp.einsum(pattern, *pair, precision="highest") for pair in pairs)


@pytest.mark.slow
def test_products_of_bfloat16_inputs_on_tpus_lose_less_than_rounding(
    make_ssm, relative_error, monkeypatch
):
    """Gradients, too: errors are a hundredth of what rounding the result to bfloat16 loses."""
    monkeypatch.setattr(ssm_matmul, "CHUNK_ON_CPU", 32)
    u, ssm, D, cotangent = inputs(make_ssm, LONGEST)
    exact = of_twin(ssm_scan, u, ssm, D, cotangent)
    einsum = jnp.einsum

    def emulated(pattern, *factors, precision=None, **options):
        if precision is not jax.lax.Precision.HIGH:
            return einsum(pattern, *factors, precision=precision, **options)
        return three_passes(pattern, *factors)

    monkeypatch.setattr(backends, "product_precision", lambda *_: jax.lax.Precision.HIGH)
    monkeypatch.setattr(jnp, "einsum", emulated)
    value = value_and_gradients(partial(ssm_convolution, backend="matmul"), u, ssm, D, cotangent)
    for x, y in zip(jax.tree.leaves(value), jax.tree.leaves(exact), strict=True):
        assert 1e-8 < relative_error(x, y) < 2**-9 / 100


@pytest.mark.parametrize(
    ("platform", "dtype", "precision"),
    [("tpu", "bfloat16", "HIGH"), ("tpu", "float32", "HIGHEST"), ("gpu", "bfloat16", "HIGHEST")],
)
def test_the_precision_of_products(platform, dtype, precision):
    assert backends.product_precision(platform, dtype) == jax.lax.Precision[precision]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fft", "matmul"])
def test_bfloat16_input_is_computed_in_float32(make_ssm, backend, monkeypatch):
    monkeypatch.setattr(ssm_matmul, "CHUNK_ON_CPU", 16)
    u, ssm, D, cotangent = inputs(make_ssm, 64, dtype=jnp.bfloat16)
    convolve = partial(ssm_convolution, backend=backend)
    y, (du, dssm, dD) = value_and_gradients(convolve, u, ssm, D, cotangent)
    assert y.dtype == du.dtype == jnp.bfloat16
    assert {x.dtype for x in (*dssm, dD)} == {jnp.dtype("float32")}
    wide_u, wide_cotangent = u.astype(np.float32), cotangent.astype(np.float32)
    exact, (exact_du, *exact_rest) = of_twin(ssm_convolution_direct, wide_u, ssm, D, wide_cotangent)
    # Nothing but the rounding of the result is lost.
    for value, reference in ((y, exact), (du, exact_du)):
        value = np.asarray(value, np.float32)
        np.testing.assert_allclose(value, reference, rtol=2**-8, atol=1e-5)
    assert_close([dssm, dD], exact_rest)


def test_products_with_inputs_and_gradients_see_their_type(make_ssm, monkeypatch):
    """In loops over groups, too: TPUs multiply bfloat16 factors in fewer passes."""
    monkeypatch.setattr(ssm_matmul, "CHUNK_ON_CPU", 16)
    monkeypatch.setattr(backends, "_chunks_per_group", lambda *sizes: 2)
    product, types = ssm_matmul._product, []

    def recorded(axes, a, b, precision):
        if axes.endswith("->rshm"):  # into states
            types.append((a.dtype, b.dtype))
        return product(axes, a, b, precision)

    monkeypatch.setattr(ssm_matmul, "_product", recorded)
    arguments = inputs(make_ssm, 64, dtype=jnp.bfloat16)
    jax.eval_shape(partial(in_parts, partial(ssm_convolution, backend="matmul")), *arguments)
    assert len(types) > 8
    assert set(types) == {(jnp.dtype("float32"), jnp.dtype("bfloat16"))}


@pytest.mark.parametrize("directions", [1, 2])
def test_jacobian_is_lower_triangular_exactly_when_causal(make_ssm, directions):
    u, ssm, D, _ = inputs(make_ssm, 9, directions, channels=2)
    jacobian = jax.jit(jax.jacrev(lambda u: ssm_convolution(u, ssm, D)[0]))(u)
    jacobian = np.asarray(jacobian)[:, :, 0]  # [j, h, l, h]
    own = np.abs(jacobian[:, [0, 1], :, [0, 1]])  # [h, j, l]
    past, future = np.tril(np.ones((9, 9), bool)), np.triu(np.ones((9, 9), bool), 1)
    assert own[:, past].min() > 1e-4
    if directions == 1:
        assert own[:, future].max() < 1e-6
    else:
        assert own[:, future].min() > 1e-4
    assert not jacobian[:, [0, 1], :, [1, 0]].any()  # channels do not mix


@pytest.fixture(scope="module")
def exact_convolution(make_ssm, kernel_float64):
    """Arguments of 65,536 positions, and their convolution in float64."""
    length = 65536
    ssm, rng = make_ssm(2, 256), np.random.default_rng(0)
    u, D = rng.normal(size=(1, length, 2)).astype(np.float32), rng.normal(size=2).astype(np.float32)
    forward, backward = kernel_float64(ssm, length)
    kernel = np.concatenate([forward, np.zeros((2, 1)), backward[:, :0:-1]], -1)  # circular, 2L
    kernel[:, 0] += backward[:, 0] + D
    spectrum = np.fft.rfft(u[0].T.astype(np.float64), 2 * length) * np.fft.rfft(kernel)
    expected = np.fft.irfft(spectrum, 2 * length)[:, :length].T[None]
    return (u, ssm, D), expected


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fft", "matmul"])
def test_error_against_float64_at_65536(exact_convolution, relative_error, backend):
    arguments, expected = exact_convolution
    convolve = jax.jit(partial(ssm_convolution, backend=backend))
    assert relative_error(convolve(*arguments), expected) <= 1e-6


@pytest.fixture(scope="module")
def longest_kernel(make_ssm, kernel_float64):
    """A channel, and its kernel of either direction for a million lags in float64."""
    ssm = make_ssm(1, 8)
    return ssm, kernel_float64(ssm, 2**20, chunk=2**16)[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fft", "matmul"])
def test_a_million_positions_against_the_sum_of_the_definition(longest_kernel, backend):
    length = 2**20
    (ssm, (forward, backward)), rng = longest_kernel, np.random.default_rng(0)
    u, D = rng.normal(size=length).astype(np.float32), np.float32([0.7])
    convolve = jax.jit(partial(ssm_convolution, backend=backend))
    y = np.asarray(convolve(u[None, :, None], ssm, D))[0, :, 0]
    for j in (0, 1, 4097, length // 2, length - 2, length - 1):
        exact = D[0] * u[j] + forward[: j + 1] @ u[j::-1] + backward[: length - j] @ u[j:]
        assert abs(y[j] - exact) < 2e-5


@pytest.mark.weekly
def test_four_million_positions_against_the_sum_of_the_definition(make_ssm, kernel_float64):
    """One mode that falls to a half over them: outputs read all inputs."""
    length = 2**22
    ssm = make_ssm(1, 1, decay=1e-4)
    ssm = ssm._replace(log_dt=np.full_like(ssm.log_dt, np.log(1e-3)))
    forward, backward = kernel_float64(ssm, length, chunk=2**16)[:, 0]
    u, D = np.random.default_rng(0).normal(size=length).astype(np.float32), np.float32([0.7])
    convolve = jax.jit(partial(ssm_convolution, backend="fft"))
    y = np.asarray(convolve(u[None, :, None], ssm, D))[0, :, 0]
    for j in (0, 4097, length // 2, length - 1):
        exact = D[0] * u[j] + forward[: j + 1] @ u[j::-1] + backward[: length - j] @ u[j:]
        assert abs(y[j] - exact) < 2e-6 * np.abs(y).max()


def test_more_positions_than_phases_are_exact_for_are_refused(make_ssm):
    u = jax.ShapeDtypeStruct((1, MAX_LENGTH + 1, 1), jnp.float32)
    with pytest.raises(ValueError, match="exact for 1 to 16777216"):
        jax.eval_shape(ssm_convolution, u, make_ssm(1, 1), np.zeros(1, np.float32))
