"""Kernels of a model's state-space layers, and the memory length of their modes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ops.ssm.kernel import DiagonalSSM, ssm_kernel
from longsum_jax.ops.ssm.options import Discretization
from longsum_jax.typing import Array


class Kernels(NamedTuple):
    """Kernels of a model's state-space layers, with channels sorted from short to long memory.

    Attributes:
        layers: layer numbers, from 1.
        memory: tokens after which a mode has decayed to 1/e, [layers,
            directions, channels, modes]; one direction if both share their
            dynamics.
        magnitude: absolute value of the kernel at every lag, [layers,
            directions, channels, lags].
    """

    layers: tuple[int, ...]
    memory: np.ndarray
    magnitude: np.ndarray


def kernels(
    params: Mapping[int, Mapping[str, Any]],
    length: int,
    *,
    discretization: Discretization = "zoh",
) -> Kernels:
    """Returns the memory and the kernels of layers.

    Args:
        params: layer index -> parameters of its ``layers.s4d.S4D``.
        length: number of lags.
        discretization: discretization, see ``ops.ssm.kernel.discretize``.

    Raises:
        InputError: kernels that are not finite, or zero everywhere.
    """
    kernel = jax.jit(
        partial(ssm_kernel, length=length, discretization=discretization)
    )
    layers = [
        _layer_kernels(_layer_ssm(layer), kernel) for layer in params.values()
    ]
    memory = np.stack([memory for memory, _ in layers])
    magnitude = np.stack([magnitude for _, magnitude in layers])
    finite = np.isfinite(memory).all() and np.isfinite(magnitude).all()
    if not (finite and magnitude.any()):
        raise InputError(
            "the kernels are zero or not finite, so there is nothing to draw; take another "
            "checkpoint"
        )
    return Kernels(tuple(layer + 1 for layer in params), memory, magnitude)


def _layer_ssm(params: Mapping[str, Any]) -> DiagonalSSM:
    names = ("log_dt", "inv_A_real", "A_imag", "B", "C")
    log_dt, inv_A_real, A_imag, B, C = (
        np.asarray(params[name]) for name in names
    )
    A_real = -np.exp(inv_A_real)
    if log_dt.ndim == 1:  # both directions share their dynamics
        return DiagonalSSM(log_dt[None], A_real[None], A_imag[None], B[None], C)
    return DiagonalSSM(log_dt, A_real, A_imag, B, C)


def _layer_kernels(
    ssm: DiagonalSSM, kernel: Callable[[DiagonalSSM], Array]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns memory [sets, channels, modes] and magnitude [directions, channels, lags], sorted."""
    # [sets, channels, modes], per token
    decay = -np.exp(ssm.log_dt)[..., None] * ssm.A_real
    # [sets, channels], fastest decay first
    order = np.argsort(-decay.mean(-1), axis=-1)
    memory = 1 / np.take_along_axis(decay, order[..., None], axis=1)
    magnitude = np.abs(np.asarray(kernel(ssm)))
    by_direction = np.broadcast_to(order, (len(magnitude), order.shape[1]))
    return memory, np.take_along_axis(
        magnitude, by_direction[..., None], axis=1
    )


def memory_histogram(
    memory: np.ndarray, bins: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the share of a layer's modes by memory length.

    Args:
        memory: memory of the layers' modes, in tokens, [layers, ...].
        bins: number of bins, of equal width on a logarithmic scale, the same
            for all layers.

    Returns:
        (edges [bins + 1] in tokens, share [layers, bins] in percent, each row
        summing to 100).
    """
    low, high = memory.min(), memory.max()
    margin = 1.05 if low == high else 1.0
    edges = np.geomspace(low / margin, high * margin, bins + 1)
    # geomspace may round inwards
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    counts = np.stack(
        [np.histogram(layer.ravel(), edges)[0] for layer in memory]
    )
    return edges, 100 * counts / counts.sum(1, keepdims=True)
