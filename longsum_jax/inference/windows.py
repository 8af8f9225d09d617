"""Windows in which a text that is too long for the model is read."""

import itertools
from typing import NamedTuple


class Window(NamedTuple):
    """A part of a text that is read in one input.

    Attributes:
        start, stop: token range of the window.
        first, last: token range whose states are used, the last one exclusive.
    """

    start: int
    stop: int
    first: int
    last: int


def text_windows(length: int, size: int | None) -> list[Window]:
    """Returns windows that overlap by half, the last of which ends with the text.

        tokens   0 1 2 3 4 5 6 7 8       windows of 4
                [0 1 2]3
                     2[3 4]5             in brackets the tokens whose states are used: each
                         4[5]6 7         one in the window with the most context around it
                           5[6 7 8]

    Args:
        length: token count of the text.
        size: maximum tokens of a window; None for the whole text.
    """
    if size is None or length <= size:
        return [Window(0, length, 0, length)]
    # The last window is moved back to end with the text.
    starts = [*range(0, length - size, max(size // 2, 1)), length - size]
    # Split the overlap of two windows in the middle.
    middles = [
        (previous + size + start) // 2
        for previous, start in itertools.pairwise(starts)
    ]
    ranges = itertools.pairwise([0, *middles, length])
    return [
        Window(start, start + size, *ends)
        for start, ends in zip(starts, ranges, strict=True)
    ]
