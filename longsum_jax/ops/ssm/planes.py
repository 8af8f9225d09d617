"""Complex arrays as two real ones, because hardware multiplies real matrices."""

from typing import Any, NamedTuple


class Planes(NamedTuple):
    """Real and imaginary parts.

    Either may also be a tuple of arrays that sum to it.
    """

    real: Any
    imag: Any


def multiply(a: Planes, b: Planes) -> Planes:
    """Returns the product of every pair of entries."""
    return Planes(
        a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
    )


def add(*terms: Planes) -> Planes:
    """Returns the sum, added from the first to the last."""
    total, *others = terms
    for term in others:
        total = Planes(total.real + term.real, total.imag + term.imag)
    return total
