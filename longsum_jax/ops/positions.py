"""Sinusoidal and rotary positions, exact at any position up to 16,777,216."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from longsum_jax.ops.ssm.phases import cis
from longsum_jax.typing import AnyArray


def sinusoidal_positions(
    positions: Int[AnyArray, "*shape"],
    frequencies: Float[np.ndarray, " half_d_model"],
) -> Float[Array, "*shape d_model"]:
    """Computes sin(p w), then cos(p w), for every position p and frequency w.

    Vaswani et al. 2017, section 3.5, with all sines before all cosines.

    Args:
        positions: from 0 to 2**24.
        frequencies: radians per position, float64 [d_model / 2].

    Returns:
        float32 values with an error below 1e-6 everywhere; single precision
        would lose 1e-3 at 16,384.
    """
    # Turns per position as 48-bit fixed point: 32 bits in the high word, 16 in
    # the low word.
    turns = np.asarray(frequencies, np.float64) / (2 * math.pi) % 1.0
    fixed = np.floor(turns * 2.0**48).astype(np.uint64)
    high = (fixed >> np.uint64(16)).astype(np.uint32)
    low = (fixed & np.uint64(0xFFFF)).astype(np.uint32)
    # only carries gradients, which are not needed
    theta = jnp.zeros(len(turns))
    steps = positions[..., None].astype(jnp.int32)
    waves = cis(theta, jnp.asarray(high), jnp.asarray(low), steps)
    return jnp.concatenate([waves.imag, waves.real], axis=-1)


def pegasus_frequencies(d_model: int) -> Float[np.ndarray, " half_d_model"]:
    """Returns 10000**(-2 i / d_model) radians per position, i = 0 to d_model / 2 - 1.

    As in PEGASUS and Vaswani et al. 2017.
    """
    return 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)


def pegasus_x_frequencies(d_model: int) -> Float[np.ndarray, " half_d_model"]:
    """Returns 10000**(-i / (d_model / 2 - 1)) radians per position, i = 0 to d_model / 2 - 1.

    As in PEGASUS-X.
    """
    half = d_model // 2
    return 10000.0 ** (-np.arange(half) / max(half - 1, 1))


class Rotary(NamedTuple):
    """Rotary positions (RoFormer, Su et al. 2021, section 3.2.2).

    Attributes:
        base: base of the frequencies, base**(-2 i / head_dim) radians per
            position.
        factor: divisor of all positions ("linear scaling", Chen et al. 2023).
    """

    base: float
    factor: float = 1.0


def rotated(
    x: Float[AnyArray, "*batch length heads head_dim"],
    positions: Int[AnyArray, "*#batch length"],
    rotary: Rotary,
) -> Float[Array, "*batch length heads head_dim"]:
    """Rotates pairs of features (i, i + head_dim / 2) by angles proportional to the position.

    Args:
        x: queries or keys.
        positions: position of each, from 0 to 2**24.
        rotary: frequencies of the angles.

    Returns:
        The rotated vectors in the type of ``x``, computed in float32.
    """
    half = x.shape[-1] // 2
    frequencies = rotary.base ** (-np.arange(half) / half) / rotary.factor
    waves = sinusoidal_positions(positions, frequencies)[..., None, :]
    sin, cos = waves[..., :half], waves[..., half:]
    first, second = (
        x[..., :half].astype(jnp.float32),
        x[..., half:].astype(jnp.float32),
    )
    turned = jnp.concatenate(
        [first * cos - second * sin, second * cos + first * sin], -1
    )
    return turned.astype(x.dtype)
