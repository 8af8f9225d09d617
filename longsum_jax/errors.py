"""The one exception for bad input, and parts of sentences."""

import difflib
from collections.abc import Iterable
from numbers import Integral
from typing import Any

_LONGEST = 4000  # characters of a message; values of files may have any length


class InputError(ValueError):
    """Something the user gave does not fit; commands print its one sentence and exit with code 2.

    The message is one line that any terminal shows, whatever the values in it hold.
    """

    def __init__(self, message: str) -> None:
        message = in_one_line(message)
        if len(message) > _LONGEST:
            half = _LONGEST // 2
            message = f"{message[:half]} ... {message[-half:]}"
        super().__init__(message)


def check_whole(name: str, value: Any, least: int) -> None:
    """Raises InputError unless ``value`` is a whole number, ``least`` or more.

    NumPy integers are whole numbers; True and 2.0 are not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{name}={value!r} must be a whole number, at least {least}")
    if value < least:
        raise InputError(f"{name}={value} must be at least {least}")


def in_one_line(text: str) -> str:
    """Returns a text that any terminal shows as one line; names of files may hold anything."""
    shown = text.encode(errors="backslashreplace").decode()
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def counted(number: int, noun: str) -> str:
    """Returns "1 page" or "1,234 pages"."""
    head, of, rest = noun.partition(" of ")
    plural = f"{head[:-1]}ies" if head.endswith("y") else f"{head}s"
    return f"{number:,} {head if number == 1 else plural}{of}{rest}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``did you mean "x"? known: a, b, c`` for an unknown ``name``."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    guess = f'did you mean "{close[0]}"? ' if close else ""
    return f"{guess}known: {', '.join(known)}"
