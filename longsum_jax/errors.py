"""The exception for bad input, helpers for its messages, and terminal-safe text."""

import difflib
import re
from collections.abc import Iterable
from numbers import Integral
from typing import Any

# characters of a message; values from files may have any length
_LONGEST = 4000
# Characters that control a terminal: C0 and C1 except tab and line feed.
_CONTROLS = (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0))
# Embeddings, overrides and isolates reorder the characters up to their end or
# the end of the line. Summaries, titles and names are parts of lines, and only
# the code that writes a line could close them, so these characters are dropped.
# Letters keep their natural direction.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
# Vertical tabs, form feeds, NEL, and the separators of Unicode.
_LINE_BREAKS = (0x0B, 0x0C, 0x85, 0x2028, 0x2029)
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_TERMINAL = dict.fromkeys(_CONTROLS + _DIRECTIONS) | dict.fromkeys(
    _LINE_BREAKS, " "
)


class InputError(ValueError):
    """Invalid user input. Commands print the message, one sentence, and exit with code 2.

    The message is a single printable line, even if the values in it contain
    other characters.
    """

    def __init__(self, message: str) -> None:
        message = in_one_line(message)
        if len(message) > _LONGEST:
            half = _LONGEST // 2
            message = f"{message[:half]} ... {message[-half:]}"
        super().__init__(message)


def check_whole(name: str, value: Any, least: int) -> None:
    """Raises InputError unless ``value`` is an integer of at least ``least``.

    NumPy integers are accepted; True and 2.0 are not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(
            f"{name}={value!r} must be a whole number, at least {least}"
        )
    if value < least:
        raise InputError(f"{name}={value} must be at least {least}")


def in_one_line(text: str) -> str:
    """Returns a text as one printable line; file names may contain any character."""
    shown = decoded_text(text)
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1] for char in shown
    )


def decoded_text(text: str) -> str:
    """Returns a text without lone surrogates, which represent bytes the locale cannot decode.

    Arguments and file names contain them in the C locale. Bytes that are not
    UTF-8 and lone surrogates are escaped.
    """
    if text.isascii() or _HALF_CHARACTER.search(text) is None:
        return text
    try:
        content = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # lone surrogates
        content = text.encode("utf-8", "backslashreplace")
    return content.decode("utf-8", "backslashreplace")


def terminal_text(text: str) -> str:
    """Returns a text, of one or more lines, without the characters that control a terminal.

    Control characters and direction marks are dropped; line breaks other than a
    line feed become spaces. JSON keeps them in escaped form, see
    ``files.json_text``.
    """
    return without_controls(decoded_text(text))


def without_controls(text: str) -> str:
    """Returns a text as ``terminal_text`` does, but with lone surrogates."""
    return text.translate(_TERMINAL)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def counted(number: int, noun: str) -> str:
    """Returns "1 page" or "1,234 pages"."""
    head, of, rest = noun.partition(" of ")
    if head.endswith("y"):
        plural = f"{head[:-1]}ies"
    else:
        plural = f"{head}s"
    return f"{number:,} {head if number == 1 else plural}{of}{rest}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns ``did you mean "x"? names: a, b, c`` for an unknown ``name``."""
    names = sorted(names)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    guess = f'did you mean "{close[0]}"? ' if close else ""
    return f"{guess}known: {', '.join(names)}"
