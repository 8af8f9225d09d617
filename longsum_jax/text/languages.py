"""Language and writing style of a text, told by its frequent words and letters."""

import functools
import re
from typing import NamedTuple

from longsum_jax.text.abbreviations import LETTERS, STARTERS

SAMPLE = 20_000  # characters of a text that determine its language and case
LANGUAGE_WORDS = 100  # words of a line that determine its language
# first words of a line that may confirm the language of its text
FIRST_WORDS = 24
# minimum distinct words of a language in a line of that language
FEWEST_WORDS = 3
_UPPER_AFTER_STOP = re.compile(
    r"[.!?](?<=[a-z]{4}.)[\"'\u201d\u2019]?\s+[\"'\u201c\u2018]?[A-Z]"
)
_LOWER_AFTER_STOP = re.compile(
    r"[.!?](?:(?<=[a-z]{4}.)|(?<=[a-z]{4}\s.))\s+[a-z]"
)
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]")


class Style(NamedTuple):
    """The writing style of a text.

    Attributes:
        language: code of the language; "" if uncertain.
        is_lowered: True if sentences begin with lowercase letters.
    """

    language: str = ""
    is_lowered: bool = False


def text_style(text: str) -> Style:
    """Returns the style of a text, based on its beginning."""
    sample = text[:SAMPLE]
    small = sum(1 for _ in _LOWER_AFTER_STOP.finditer(sample))
    is_lowered = small > 0 and sample.lower() == sample
    if small > 2 and not is_lowered:
        is_lowered = small > 2 * sum(
            1 for _ in _UPPER_AFTER_STOP.finditer(sample)
        )
    return Style(language_of(sample, 20 * LANGUAGE_WORDS), is_lowered)


def language_of(line: str, most: int, likely: str = "") -> str:
    """Returns the code of a line's language; "" if its frequent words are ambiguous.

    Args:
        line: text of the line.
        most: maximum number of words to examine.
        likely: expected language, returned if enough words belong to it.
    """
    letters: set[str] = set()
    if not line.isascii():
        if len(_CYRILLIC.findall(line)) > len(line) / 3:
            return "ru"
        if len(_GREEK.findall(line)) > len(line) / 3:
            return "el"
        letters = set(line)
    known_words = _language_words()
    if likely in known_words:
        words = line.split(maxsplit=FIRST_WORDS)[:FIRST_WORDS]
        if len(known_words[likely].intersection(words)) >= FEWEST_WORDS:
            return likely
    words = line.lower().split(maxsplit=most)[:most]
    counts = {
        code: len(vocabulary.intersection(words))
        for code, vocabulary in known_words.items()
    }
    if letters:
        for code, characters in LETTERS.items():
            counts[code] += 2 * (not letters.isdisjoint(characters))
    best, second, *_ = sorted(counts, key=counts.__getitem__, reverse=True)
    is_sure = counts[best] >= FEWEST_WORDS or (
        counts[best] == 2 and not counts[second]
    )
    return best if is_sure else ""


@functools.cache
def _language_words() -> dict[str, frozenset[str]]:
    return {
        code: frozenset(words.split())
        for code, words in STARTERS.items()
        if code not in {"ru", "el"}
    }
