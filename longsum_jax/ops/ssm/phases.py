"""Phases of complex exponentials that stay exact over sixteen million steps.

A mode turns by ``theta = exp(log_dt) * frequency`` radians per step. Over a
long sequence float32 loses the phase: the rounding of ``exp(log_dt)`` and of
the product already reaches 1e-4 radians within the memory of one mode. Here the
turns per step are computed in double-float arithmetic (pairs of float32),
stored as 48-bit fixed point and multiplied by the integer step with natural
wrap-around; sine and cosine get the wrapped phase. After 2**24 steps it is off
by 4e-7 radians, the resolution of the fixed point, and by 2**-45 of the radians
that the mode has turned.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Float, Int, UInt

from longsum_jax.typing import AnyArray

# An unevaluated sum: value = high + low, |low| <= ulp(high) / 2.
DoubleFloat = tuple[AnyArray, AnyArray]

# fixed point: 32 bits of a turn in the high word, 16 more in the low word
_LOW_BITS = 16
# ln 2 in parts of 12 + 12 + 24 bits: the first two products with a small
# integer are exact.
_LN2_PARTS = (0.693115234375, 3.193318843841553e-05, 1.2996506893889889e-08)
# 1/13!, ..., 1/1!, 1/0! as double-floats; |r| <= ln(2) / 2, so the first
# omitted term is below 1e-17.
_COEFFICIENTS = np.array([1 / math.factorial(n) for n in range(13, -1, -1)])
_ROUNDED = _COEFFICIENTS.astype(np.float32)
_TAYLOR = (_ROUNDED, (_COEFFICIENTS - _ROUNDED).astype(np.float32))


def turns_per_step(
    log_dt: Float[AnyArray, "*#shape"], frequency: Float[AnyArray, "*#shape"]
) -> tuple[UInt[Array, "*shape"], UInt[Array, "*shape"]]:
    """Computes the fractional turns per step, ``exp(log_dt) * frequency / (2 pi) mod 1``.

    Args:
        log_dt: log of the step size, float32, broadcastable with ``frequency``.
        frequency: radians per unit of time, float32.

    Returns:
        (high, low): uint32 fixed point; the value is ``high / 2**32 + low /
        2**48`` turns, exact to about 2**-44.
    """
    log_dt, frequency = lax.stop_gradient(log_dt), lax.stop_gradient(frequency)
    frequency_double = (frequency, jnp.zeros_like(frequency))
    cycles = _multiply(frequency_double, _constant(0.5 / math.pi, frequency))
    return _to_fixed_point(_multiply(exp_double(log_dt), cycles))


@jax.custom_jvp
def cis(
    theta: Float[AnyArray, "*#shape"],
    high: UInt[AnyArray, "*#shape"],
    low: UInt[AnyArray, "*#shape"],
    steps: Int[AnyArray, "*#shape"],
) -> Complex[Array, "*shape"]:
    """Computes exp(i theta steps), with the phase from fixed-point turns, in complex64.

    The gradient is with respect to ``theta``.

    Args:
        theta: radians per step, float32; only its tangent is used.
        high, low: fixed-point turns per step from ``turns_per_step``.
        steps: int32 step numbers, 0 to 2**24. All four broadcast against each
            other.
    """
    return _cis_of_turns(high, low, steps)


@cis.defjvp
def _cis_jvp(
    primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Array, Array]:
    theta, high, low, steps = primals
    value = cis(theta, high, low, steps)
    zero = jnp.zeros((), jnp.float32)
    phase_tangent = lax.complex(zero, tangents[0] * steps.astype(jnp.float32))
    return value, value * phase_tangent


def _cis_of_turns(high: AnyArray, low: AnyArray, steps: AnyArray) -> Array:
    steps = steps.astype(jnp.uint32)
    # Carry of the product of the low word and the steps, up to 40 bits, into
    # the high word. Products with the upper and the lower 12 bits of the steps
    # each fit in 32 bits.
    upper = (low * (steps >> 12)) >> (_LOW_BITS - 12)
    lower = (low * (steps & 0xFFF)) >> _LOW_BITS
    word = high * steps + upper + lower
    return _cis_of_word(lax.bitcast_convert_type(word, jnp.int32))


def _cis_of_word(word: AnyArray) -> Array:
    """Computes exp(2 pi i word / 2**32) for int32.

    Uses an exact reduction to an eighth of a turn and Taylor series: much
    faster than general sine and cosine, whose range reduction is not needed
    here.
    """
    # nearest quarter turn; the sum wraps, so -2 stands for 2
    quarter = (word + (1 << 29)) >> 30
    x = (word - (quarter << 30)).astype(jnp.float32) * jnp.float32(
        2 * math.pi / 2**32
    )
    square = x * x
    sine = x * _series(square, 3, 5)
    cosine = 1.0 + square * _series(square, 4, 5) * jnp.float32(-0.5)
    is_odd = (quarter & 1) == 1
    real = jnp.where(is_odd, sine, cosine)
    imag = jnp.where(is_odd, cosine, sine)
    # Quarters 0, 1, 2, 3: (c, s), (-s, c), (-c, -s), (s, -c).
    real = jnp.where(((quarter + 1) & 2) == 2, -real, real)
    imag = jnp.where((quarter & 2) == 2, -imag, imag)
    return lax.complex(real, imag)


def _series(square: AnyArray, first: int, terms: int) -> AnyArray:
    """Computes 1 - x**2 / (first - 1) first (1 - x**2 / (first + 1) (first + 2) (...)).

    The series of the sine for ``first`` 3, and of the cosine without its first
    term for 4.
    """
    value: AnyArray = jnp.ones_like(square)
    for n in range(first + 2 * (terms - 2), first - 1, -2):
        value = 1.0 - square * value * jnp.float32(1 / ((n - 1) * n))
    return value


def exp_double(
    x: Float[AnyArray, "*shape"],
) -> tuple[Float[AnyArray, "*shape"], Float[AnyArray, "*shape"]]:
    """Computes exp(x) as a double-float, for float32 |x| <= 80; relative error about 2**-46."""
    # exp(x) = 2**k exp(r) with |r| <= ln(2) / 2, r as a double-float.
    k = jnp.round(x * (1 / math.log(2)))
    r = _add(
        _two_sum(x, -k * _LN2_PARTS[0]),
        _two_sum(-k * _LN2_PARTS[1], -k * _LN2_PARTS[2]),
    )
    high, low = map(jnp.asarray, _TAYLOR)
    first = jnp.full_like(x, high[0]), jnp.full_like(x, low[0])

    def add_term(n: AnyArray, y: DoubleFloat) -> DoubleFloat:
        return _add(_multiply(y, r), (high[n], low[n]))

    # A loop, because XLA would copy hundreds of unrolled operations into every
    # consumer.
    result = lax.fori_loop(1, len(high), add_term, first)
    # exactly 2**k
    scale = lax.bitcast_convert_type(
        (k.astype(jnp.int32) + 127) << 23, jnp.float32
    )
    return result[0] * scale, result[1] * scale


def _to_fixed_point(x: DoubleFloat) -> tuple[Array, Array]:
    high, low = x
    # Truncation towards zero keeps every step exact for either sign; the
    # integers wrap.
    digit = (high - jnp.trunc(high)) * 2.0**16
    upper = jnp.trunc(digit)
    digit = (digit - upper) * 2.0**16
    lower = jnp.trunc(digit)
    rest = low * 2.0**32  # in units of the high word
    integer = jnp.trunc(rest)
    fraction = (digit - lower) + (rest - integer)
    carry = jnp.floor(fraction)
    word = (upper.astype(jnp.int32) << 16) + (lower + integer + carry).astype(
        jnp.int32
    )
    high_word = word.astype(jnp.uint32)
    low_word = ((fraction - carry) * 2.0**_LOW_BITS).astype(jnp.uint32)
    return high_word, low_word  # type: ignore[return-value] # sums with an Array are Arrays


def _two_sum(a: AnyArray, b: AnyArray) -> DoubleFloat:
    """Adds two float32 numbers without rounding error (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _halves(a: AnyArray) -> tuple[Array, AnyArray]:
    """Splits float32 into two numbers of at most 12 significant bits, whose products are exact."""
    bits = lax.bitcast_convert_type(a, jnp.uint32) & jnp.uint32(0xFFFFF000)
    high = lax.bitcast_convert_type(bits, jnp.float32)
    return high, a - high


def _two_product(a: AnyArray, b: AnyArray) -> DoubleFloat:
    """Multiplies two float32 numbers to about 2**-47.

    Only exact partial products are formed, so that a compiler that fuses
    multiply and add changes nothing.
    """
    (a1, a0), (b1, b0) = _halves(a), _halves(b)
    middle, middle_error = _two_sum(a1 * b0, a0 * b1)
    high, error = _two_sum(a1 * b1, middle)
    return _two_sum(high, error + (middle_error + a0 * b0))


def _multiply(x: DoubleFloat, y: DoubleFloat) -> DoubleFloat:
    high, low = _two_product(x[0], y[0])
    return _two_sum(high, low + (x[0] * y[1] + x[1] * y[0]))


def _add(x: DoubleFloat, y: DoubleFloat) -> DoubleFloat:
    high, low = _two_sum(x[0], y[0])
    return _two_sum(high, low + (x[1] + y[1]))


def _constant(value: float, like: AnyArray) -> DoubleFloat:
    high = np.float32(value)
    low = np.float32(value - float(high))
    return jnp.full_like(like, high), jnp.full_like(like, low)
