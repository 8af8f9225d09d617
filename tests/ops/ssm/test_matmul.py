from functools import partial

import jax
import numpy as np
import pytest
from jax import lax

from longsum_jax.ops.ssm import matmul
from longsum_jax.ops.ssm.kernel import discretize
from longsum_jax.ops.ssm.matmul import Planes, add, multiply


@pytest.mark.parametrize("size", [1, 3, 64, 96, 128])
def test_toeplitz_matrices_of_tiles(size, monkeypatch):
    """Those of TPUs: every row is a window of the lags; gradients add up the rows."""
    monkeypatch.setattr(matmul, "target_platform", lambda: "tpu")
    rng = np.random.default_rng(size)
    lags, factors = rng.normal(size=(2, 2 * size - 1)), rng.normal(size=(2, size, size))
    lags, factors = np.float32(lags), np.float32(factors)
    windows = [np.s_[:, size - 1 - j : 2 * size - 1 - j] for j in range(size)]

    @jax.jit
    def windows_and_gradient(lags):
        windows = partial(matmul._windows, size=size, precision=lax.Precision.HIGHEST)
        result, pull_back = jax.vjp(windows, lags)
        return result, *pull_back(factors)

    result, gradient = windows_and_gradient(lags)
    np.testing.assert_array_equal(result, np.stack([lags[w] for w in windows], 1))
    expected = np.zeros(lags.shape)
    for j, window in enumerate(windows):
        expected[window] += factors[:, j]
    np.testing.assert_allclose(gradient, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("platform", "batch", "length", "chunk"),
    [
        ("cpu", 1, 2**20, 128),
        ("tpu", 1, 512, 64),
        ("tpu", 1, 4096, 128),
        ("tpu", 8, 4096, 256),
        ("tpu", 1, 2**17, 512),
        ("tpu", 1, 2**24, 1024),
    ],
)
def test_chunks_grow_with_the_positions_of_a_device(platform, batch, length, chunk):
    with jax.default_device(platform):
        assert matmul.chunk_length(batch, length) == chunk
        assert matmul.count_chunks(batch, length) == length // chunk


@pytest.mark.parametrize(("length", "size"), [(1, 8), (100, 104), (511, 512), (600, 512)])
def test_a_text_shorter_than_a_chunk_has_whole_tiles(length, size, make_ssm, monkeypatch):
    monkeypatch.setattr(matmul, "chunk_length", lambda batch, length: 512)
    toeplitz, sizes = matmul._toeplitz, []

    def noted(modes, D, chunk, precision):
        sizes.append(chunk)
        return toeplitz(modes, D, chunk, precision)

    monkeypatch.setattr(matmul, "_toeplitz", noted)
    u, D = np.ones((2, length, 3), np.float32), np.ones(3, np.float32)
    y = jax.eval_shape(matmul.convolve_by_matmul, u, discretize(make_ssm(3, 4)), D)
    assert y.shape == u.shape
    assert sizes == [size]


def test_planes_are_added_and_multiplied_as_complex_numbers():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
    x, y, z = (Planes(number.real, number.imag) for number in (a, b, c))
    for result, expected in ((add(x), a), (add(x, y, z), a + b + c), (multiply(x, y), a * b)):
        np.testing.assert_allclose(result.real + 1j * result.imag, expected, rtol=1e-14)
