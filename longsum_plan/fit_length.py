"""The longest document that fits into the memory of a device, from the memory of few lengths."""

import math
from collections.abc import Callable
from typing import NamedTuple

from longsum_jax.errors import InputError

LONGEST = 2**20  # maximum tokens in the search for the longest document


def fit_length(
    bytes_of: Callable[[int], int],
    budget: int,
    *,
    multiple: int = 1024,
    longest: int = LONGEST,
) -> int:
    """Returns the longest document that a model trains on within a device's memory.

    Source: AWESOME, table 14.

    Args:
        bytes_of: increasing function from the tokens of a document to the bytes
            of a step, such as ``plan.ProgramPlan.total``.
        budget: memory of the device in bytes.
        multiple: number of which the result is a multiple.
        longest: upper end of the search.

    Returns:
        Tokens; 0 if ``multiple`` tokens do not fit, ``longest`` rounded down if
        all of them fit.

    Raises:
        InputError: a budget or a multiple below 1, or ``longest`` below
            ``multiple``.
    """
    if budget < 1 or multiple < 1 or longest < multiple:
        raise InputError(
            f"fit_length: budget={budget}, multiple={multiple} and longest={longest} must be above "
            "0, and longest not below multiple"
        )

    def bytes_at(multiples: int) -> int:
        return bytes_of(multiples * multiple)

    most = longest // multiple
    fitting, candidate = Point(0, 0), Point(1, bytes_at(1))
    while candidate.num_bytes <= budget:
        if candidate.multiples == most:
            return most * multiple
        # Extrapolate the line through both points, but at least double the
        # length.
        guess = max(
            _crossing(fitting, candidate, budget), 2 * candidate.multiples
        )
        fitting, guess = candidate, min(guess, most)
        candidate = Point(guess, bytes_at(guess))
    # ``fitting`` fits, ``too_long`` does not. Bytes are almost proportional to
    # the length, so linear interpolation converges quickly; every other step is
    # a bisection, which bounds their number.
    too_long, bisects = candidate, False
    while too_long.multiples - fitting.multiples > 1:
        middle = (fitting.multiples + too_long.multiples) // 2
        if not bisects:
            guess = _crossing(fitting, too_long, budget)
            middle = min(
                max(guess, fitting.multiples + 1), too_long.multiples - 1
            )
        bisects = not bisects
        point = Point(middle, bytes_at(middle))
        if point.num_bytes <= budget:
            fitting = point
        else:
            too_long = point
    return fitting.multiples * multiple


class Point(NamedTuple):
    """The bytes of a step at a number of multiples."""

    multiples: int
    num_bytes: int


def _crossing(first: Point, second: Point, budget: int) -> int:
    """Returns the multiple, rounded down, at which a line through two points meets the budget."""
    slope = (second.num_bytes - first.num_bytes) / (
        second.multiples - first.multiples
    )
    if slope <= 0:
        return second.multiples
    return first.multiples + math.floor((budget - first.num_bytes) / slope)
