"""Convolution with the two-sided state-space kernel by FFTs that are matrix products inside of one
kernel (FlashFFTConv, Fu et al. 2023).

Between the input and the output nothing is written to memory: an FFT of a
library reads and writes complex arrays of the padded length three times. The
kernel is Pallas; Triton compiles it for NVIDIA GPUs, other devices interpret it,
for tests.

- Two documents are the real and the imaginary part of one complex sequence: a
  convolution with a real kernel keeps them apart.
- The FFT of 2 L points of an input with L zeros at its end consists of two FFTs
  of L points, for even and for odd frequencies; the zeros are never read. With
  w = exp(-i pi / L):

      X[2 k]     = FFT(x[n])[k]
      X[2 k + 1] = FFT(w**n x[n])[k]

- An FFT of L = A B points is two products with small matrices (Bailey 1990).
  With the position n = n1 B + n2 and the frequency k = k1 + A k2:

      X[k1, k2] = sum_n2 exp(-2 pi i n2 k2 / B) exp(-2 pi i n2 k1 / L)
                  sum_n1 exp(-2 pi i n1 k1 / A) x[n1, n2]

  The factors w**n of odd frequencies are part of the constants.
- Products are bfloat16 with float32 sums. Inputs must be bfloat16, and every
  other factor is the sum of two bfloat16 numbers: three products for two such
  factors, which lose 2**-16 of a factor.

The module is imported on first use, because importing Pallas takes a third of a
second.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, BFloat16, Float

from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import bfloat16_parts
from longsum_jax.ops.ssm.fft import circular_kernel
from longsum_jax.ops.ssm.kernel import Modes
from longsum_jax.ops.ssm.matmul import Planes, add, multiply
from longsum_jax.typing import AnyArray

# Positions of the shortest FFT: Triton multiplies matrices of at least 16 rows.
_LEAST_SIZE = 256
_HALVES = 2  # even and odd frequencies
_PLANES = 2  # real and imaginary parts
_NUM_WARPS = 4

# Parts of an array that sum to it: one if bfloat16 represents it, else two.
_Parts = tuple[Any, ...]


def convolve_fused(
    u: BFloat16[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
) -> BFloat16[Array, "batch length channels"]:
    """Convolves all channels.

    Args:
        u: inputs of at most ``backends.LONGEST_FUSED`` positions.
        modes: modes of the channels.
        D: skip weights, float32.
    """
    size = _padded_length(u.shape[1])
    spectrum = _spectrum(circular_kernel(modes, D, u.shape[1], 2 * size))
    return _from_pairs(_convolve(_pairs(u, size), spectrum), u)


def fused_gradients(
    u: BFloat16[AnyArray, "batch length channels"],
    modes: Modes,
    D: Float[AnyArray, " channels"],
    dy: BFloat16[AnyArray, "batch length channels"],
) -> tuple[Array, Modes, Array]:
    """Returns the gradients of ``u``, ``modes`` and ``D``."""
    length, size = u.shape[1], _padded_length(u.shape[1])
    make_kernel = functools.partial(
        circular_kernel, length=length, fft_length=2 * size
    )
    kernel, pull_back = jax.vjp(make_kernel, modes, D)
    of_output = _pairs(dy, size)
    # Lags in the other direction have the conjugate spectrum.
    conjugate = _spectrum(kernel) * np.array([1, -1], np.float32)[:, None, None]
    du = _from_pairs(_convolve(of_output, conjugate), u)
    products = _correlate(_pairs(u, size), of_output)
    dmodes, dD = pull_back(_from_spectrum(products))
    return du, dmodes, dD


def _padded_length(length: int) -> int:
    """Returns the positions of an FFT for inputs of ``length``: a power of two."""
    return max(_LEAST_SIZE, 1 << (length - 1).bit_length())


def _factors(size: int) -> tuple[int, int]:
    """Returns A and B, powers of two near the root of ``size``."""
    rows = 1 << ((size.bit_length() - 1) // 2)
    return rows, size // rows


def _pairs(
    x: AnyArray, size: int
) -> BFloat16[Array, "pairs planes channels A B"]:
    """Returns pairs of documents, with the positions of a channel as a matrix."""
    batch, length, channels = x.shape
    missing = (0, batch % 2), (0, 0), (0, size - length)
    x = jnp.pad(jnp.swapaxes(x, 1, 2), missing)
    return x.reshape(-1, _PLANES, channels, *_factors(size))


def _from_pairs(pairs: AnyArray, like: AnyArray) -> Array:
    """Returns the documents of ``_pairs`` in the shape of ``like``."""
    batch, length, channels = like.shape
    x = pairs.reshape(-1, channels, pairs.shape[-2] * pairs.shape[-1])
    return jnp.swapaxes(x[:batch, :, :length], 1, 2)


def _spectrum(
    kernel: Float[AnyArray, "channels fft_length"],
) -> Float[Array, "channels halves planes A B"]:
    """Returns the spectra of circular kernels in the order of the products."""
    channels, fft_length = kernel.shape
    rows, columns = _factors(fft_length // 2)
    spectrum = jnp.fft.fft(kernel) / fft_length
    spectrum = spectrum.reshape(channels, columns, rows, _HALVES)
    spectrum = spectrum.transpose(0, 3, 2, 1)
    return jnp.stack([spectrum.real, spectrum.imag], 2)


def _from_spectrum(
    products: Float[AnyArray, "channels halves planes A B"],
) -> Float[Array, "channels fft_length"]:
    """Returns the real parts of the inverse FFTs of spectra as in ``_spectrum``."""
    spectrum = lax.complex(products[:, :, 0], products[:, :, 1])
    spectrum = spectrum.transpose(0, 3, 2, 1).reshape(len(products), -1)
    return jnp.real(jnp.fft.ifft(spectrum))


class _Constants(NamedTuple):
    """Constants of both halves of an FFT.

    Attributes:
        first: exp(-2 pi i n1 k1 / A), for odd frequencies times w**(n1 B), in
            two parts, bfloat16 [halves, planes, parts, A, A], k1 first.
        turn: exp(-2 pi i n2 k1 / L), for odd frequencies times w**n2, float32
            [halves, planes, A, B].
        second: exp(-2 pi i n2 k2 / B) in two parts, bfloat16 [planes, parts, B,
            B].
    """

    first: np.ndarray
    turn: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, rows: int, columns: int) -> "_Constants":
        size = rows * columns
        a, b = np.arange(rows), np.arange(columns)
        half = np.arange(_HALVES)[:, None, None]
        # turns of the circle, exact in float64
        first = (a[:, None] + half / 2) * a / rows
        turn = (a[:, None] + half / 2) * b / size
        second = b[:, None] * b / columns
        return cls(
            _in_parts(_planes_of_turns(first)),
            _planes_of_turns(turn).astype(np.float32),
            _in_parts(_planes_of_turns(second)),
        )


def _planes_of_turns(turns: np.ndarray) -> np.ndarray:
    """Returns cosines and negative sines, [..., planes, rows, columns]."""
    angles = 2 * np.pi * turns
    return np.stack([np.cos(angles), -np.sin(angles)], -3)


def _in_parts(x: np.ndarray) -> np.ndarray:
    """Returns two bfloat16 numbers for each entry, [..., parts, rows, columns]."""
    high = x.astype(jnp.bfloat16)
    low = (x - high.astype(np.float64)).astype(jnp.bfloat16)
    return np.stack([high, low], -3)


def _convolve(pairs: AnyArray, spectrum: AnyArray) -> Array:
    """Returns the convolutions of pairs with kernels of spectra from ``_spectrum``."""
    num_pairs, _, channels, rows, columns = pairs.shape

    def run(x: Any, spectrum: Any, *others: Any) -> None:
        *constants, y = others

        # A loop, because Triton would compute both halves at the same time,
        # which needs more registers.
        def add_half(half: Any, total: Planes) -> Planes:
            fft = _FFT(half, *constants)
            states = fft.forward(Planes(x[0], x[1]))
            factor = Planes(spectrum[half, 0], spectrum[half, 1])
            return add(total, fft.inverse(multiply(states, factor)))

        total = lax.fori_loop(0, _HALVES, add_half, _zeros(rows, columns))
        y[0] = total.real.astype(y.dtype)
        y[1] = total.imag.astype(y.dtype)

    # Pairs first, so that instances that run at the same time share a spectrum.
    of_pair = pl.BlockSpec(
        (None, _PLANES, None, rows, columns),
        lambda i: (lax.rem(i, num_pairs), 0, lax.div(i, num_pairs), 0, 0),
    )
    of_channel = pl.BlockSpec(
        (None, _HALVES, _PLANES, rows, columns),
        lambda i: (lax.div(i, num_pairs), 0, 0, 0, 0),
    )
    counts = _Transforms(_HALVES * num_pairs * channels, forward=1, inverse=1)
    return _call(
        "convolution",
        counts,
        run,
        num_pairs * channels,
        [of_pair, of_channel],
        [pairs, spectrum],
        of_pair,
        jax.ShapeDtypeStruct(pairs.shape, pairs.dtype),
    )


def _correlate(
    pairs: AnyArray, others: AnyArray
) -> Float[Array, "channels halves planes A B"]:
    """Returns sums over pairs of conj(FFT(pair)) FFT(other), in the order of ``_spectrum``."""
    num_pairs, _, channels, rows, columns = pairs.shape

    def run(x: Any, other: Any, *others: Any) -> None:
        *constants, result = others
        fft = _FFT(lax.rem(pl.program_id(0), _HALVES), *constants)

        def add_pair(i: Any, sums: Planes) -> Planes:
            a = fft.forward(Planes(x[i, 0], x[i, 1]))
            b = fft.forward(Planes(other[i, 0], other[i, 1]))
            product = multiply(b, Planes(a.real, -a.imag))
            return add(sums, product)

        sums = lax.fori_loop(0, num_pairs, add_pair, _zeros(rows, columns))
        result[0], result[1] = sums

    of_channel = pl.BlockSpec(
        (num_pairs, _PLANES, None, rows, columns),
        lambda i: (0, 0, lax.div(i, _HALVES), 0, 0),
    )
    of_half = pl.BlockSpec(
        (None, None, _PLANES, rows, columns),
        lambda i: (lax.div(i, _HALVES), lax.rem(i, _HALVES), 0, 0, 0),
    )
    shape = (channels, _HALVES, _PLANES, rows, columns)
    counts = _Transforms(_HALVES * num_pairs * channels, forward=2, inverse=0)
    return _call(
        "correlation",
        counts,
        run,
        channels * _HALVES,
        [of_channel, of_channel],
        [pairs, others],
        of_half,
        jax.ShapeDtypeStruct(shape, jnp.float32),
    )


class _Transforms(NamedTuple):
    """Number of FFTs of one half in a kernel.

    Attributes:
        times: number of times that there are the following.
        forward, inverse: number of transforms in both directions.
    """

    times: int
    forward: int
    inverse: int

    def operations(self, rows: int, columns: int) -> int:
        """Returns multiplications and additions of all products."""
        # Four real products for a complex one. The first product of a forward
        # transform has two pairs of parts, all others three.
        first = 4 * 2 * rows * rows * columns
        second = 4 * 2 * rows * columns * columns
        forward = self.forward * (2 * first + 3 * second)
        inverse = self.inverse * 3 * (first + second)
        return self.times * (forward + inverse)


def _call(
    name: str,
    transforms: _Transforms,
    kernel: Callable[..., None],
    num_instances: int,
    specs: Sequence[pl.BlockSpec],
    arrays: Sequence[AnyArray],
    result_spec: pl.BlockSpec,
    result: jax.ShapeDtypeStruct,
) -> Array:
    """Runs a kernel, whose last inputs are the constants of FFTs of its matrices."""
    sizes = arrays[0].shape[-2:]
    constants = _Constants.of(*sizes)
    # ``longsum_plan`` reads the number of operations.
    name = f"{name}_operations_{transforms.operations(*sizes)}"
    kernel.__name__ = name  # name of the function on the device
    whole = [
        pl.BlockSpec(x.shape, lambda _, axes=x.ndim: (0,) * axes)
        for x in constants
    ]
    call = pl.pallas_call(
        kernel,
        grid=(num_instances,),
        in_specs=[*specs, *whole],
        out_specs=result_spec,
        out_shape=result,
        compiler_params=triton.CompilerParams(
            num_warps=_NUM_WARPS, num_stages=1
        ),
        interpret=target_platform() != "gpu",
        name=name,
    )
    # Under jit, so that rematerialized layers can skip the whole call if its
    # results were saved.
    return jax.jit(call)(*arrays, *map(jnp.asarray, constants))


class _FFT:
    """FFTs of one half inside of a kernel.

    Args:
        half: 0 for even frequencies, 1 for odd ones.
        first, turn, second: constants of all halves, see ``_Constants``.
    """

    def __init__(self, half: Any, first: Any, turn: Any, second: Any) -> None:
        # References: a constant is read when it is used.
        self._half = half
        self._references = first, turn, second

    @property
    def _first(self) -> Planes:
        first, half = self._references[0], self._half
        return Planes(
            *((first[half, i, 0], first[half, i, 1]) for i in range(_PLANES))
        )

    @property
    def _turn(self) -> Planes:
        turn = self._references[1]
        return Planes(turn[self._half, 0], turn[self._half, 1])

    @property
    def _second(self) -> Planes:
        second = self._references[2]
        return Planes(*((second[i, 0], second[i, 1]) for i in range(_PLANES)))

    def forward(self, x: Planes) -> Planes:
        """Returns the frequencies [k1, k2] of bfloat16 positions [n1, n2]."""
        inner = _product(self._first, Planes((x.real,), (x.imag,)))
        turned = multiply(inner, self._turn)
        return _product(_complex_parts(turned), self._second)

    def inverse(self, x: Planes) -> Planes:
        """Returns L times the positions of frequencies [k1, k2], float32."""
        inner = _product(_complex_parts(x), self._second, conjugate="b")
        turn = self._turn
        turned = multiply(inner, Planes(turn.real, -turn.imag))
        return _product(self._first, _complex_parts(turned), conjugate="a")


def _zeros(rows: int, columns: int) -> Planes:
    zeros = jnp.zeros((rows, columns), jnp.float32)
    return Planes(zeros, zeros)


def _product(a: Planes, b: Planes, conjugate: str = "") -> Planes:
    """Returns a b, a b* if ``conjugate`` is "b", or a* transposed times b if it is "a"."""
    axis = 0 if conjugate == "a" else 1
    if conjugate == "a":
        a = Planes(a.real, _negative(a.imag))
    if conjugate == "b":
        b = Planes(b.real, _negative(b.imag))
    return Planes(
        _sum_of_dots(axis, (a.real, b.real), (_negative(a.imag), b.imag)),
        _sum_of_dots(axis, (a.real, b.imag), (a.imag, b.real)),
    )


def _negative(parts: _Parts) -> _Parts:
    return tuple(-part for part in parts)


def _sum_of_dots(axis: int, *factors: tuple[_Parts, _Parts]) -> Array:
    """Returns a float32 sum of products of sums of parts, without the products of second parts.

    Args:
        axis: axis of the first factor that is summed over.
        factors: pairs of factors.
    """
    products = (
        lax.dot_general(
            x,
            y,
            (((axis,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        for a, b in factors
        for i, x in enumerate(a)
        for y in b[: 2 - i]
    )
    # One after the other: they are added in the same registers.
    return functools.reduce(jnp.add, products)


def _complex_parts(x: Planes) -> Planes:
    return Planes(*map(bfloat16_parts, x))
