"""Kernels of state-space layers, and the memory of their modes."""

import numpy as np
import pytest

from longsum_jax.analysis import kernels
from longsum_jax.errors import InputError


def one_channel(params, direction, channel, length):
    """Memory [M] and kernel [L] of one channel, from the definition: 2 Re sum_m B C exp(l dt A)."""
    shared = params["log_dt"].ndim == 1
    log_dt, inv_A_real, A_imag, B = (
        np.float64((params[name] if shared else params[name][direction])[channel])
        for name in ("log_dt", "inv_A_real", "A_imag", "B")
    )
    C = np.float64(params["C"][direction, channel])
    dt, A = np.exp(log_dt), -np.exp(inv_A_real) + 1j * A_imag
    BC = (B[:, 0] + 1j * B[:, 1]) * (C[:, 0] + 1j * C[:, 1])
    kernel = [2 * (BC * np.exp(lag * dt * A)).sum().real for lag in range(length)]
    return 1 / (dt * np.exp(inv_A_real)), np.array(kernel)


@pytest.mark.parametrize("shared", [True, False])
def test_kernels_are_those_of_the_definition_from_fast_to_slow_decay(ssm_layers, shared):
    layers = ssm_layers(shared, layers=(1, 0))
    result = kernels.kernels(layers, 40, discretization="none")
    assert result.layers == (2, 1)
    assert result.memory.shape == (2, 1 if shared else 2, 5, 3)
    assert result.magnitude.shape == (2, 2, 5, 40)
    for place, layer in enumerate((1, 0)):
        for direction in range(2):
            channels = [one_channel(layers[layer], direction, channel, 40) for channel in range(5)]
            channels.sort(key=lambda channel: -(1 / channel[0]).mean())
            memory, kernel = (np.stack(part) for part in zip(*channels, strict=True))
            np.testing.assert_allclose(
                result.memory[place, 0 if shared else direction], memory, rtol=1e-5
            )
            np.testing.assert_allclose(
                result.magnitude[place, direction], np.abs(kernel), atol=2e-5
            )


def test_histogram_of_memory():
    memory = np.array([[1.0, 2.0, 3.0, 50.0], [100.0, 100.0, 100.0, 20.0]])
    edges, share = kernels.memory_histogram(memory, bins=2)
    np.testing.assert_allclose(edges, [1, 10, 100])
    np.testing.assert_allclose(share, [[75, 25], [0, 100]])


def test_histogram_of_equal_modes():
    edges, share = kernels.memory_histogram(np.full((1, 6), 7.0), bins=4)
    assert edges[0] < 7 < edges[-1]
    assert share.sum() == share.max() == 100


def test_kernels_that_are_not_finite(ssm_layers):
    layers = ssm_layers(True)
    layers[0]["C"][0, 0, 0, 0] = np.nan
    with pytest.raises(InputError, match="zero or not finite"):
        kernels.kernels(layers, 8)
