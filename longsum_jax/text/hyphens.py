"""Decides whether the hyphen at the end of a line belongs to its word."""

import re
from collections.abc import Set

_WORD = re.compile(r"\w+(?:-\w+)*")


def hyphenated_words(text: str) -> set[str]:
    """Returns the case-folded words of a text; compounds include their hyphens."""
    return {word.casefold() for word in _WORD.findall(text)}


def keeps_hyphen(first: str, second: str, words: Set[str]) -> bool:
    """Returns True if the hyphen between the parts of a word belongs to it.

    It does if the word occurs with a hyphen elsewhere, if its first part
    already contains hyphens, or if its second part does not begin with a
    lowercase letter.

    Args:
        first, second: parts of a word before and after the end of a line.
        words: result of ``hyphenated_words`` for the document.
    """
    if not second[0].islower() or not first[-1].isalpha():
        return True
    if f"{first}{second}".casefold() in words:
        return False
    return "-" in first or f"{first}-{second}".casefold() in words
