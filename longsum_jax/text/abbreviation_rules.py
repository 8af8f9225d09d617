"""Abbreviations and frequent first words of a language, and the classes of words."""

import functools
import re
from typing import NamedTuple

from longsum_jax.text.abbreviations import (
    ABBREVIATIONS,
    PARTICLES,
    STARTERS,
    WORDS,
)

# Consonants without vowels are likely abbreviations.
_CONSONANTS = re.compile(r"[b-df-hj-np-tv-xz]{2,4}\Z")
# An abbreviation with inner stops, such as "i.e".
_DOTTED = re.compile(r"(?:[^\W\d_]{1,3}\.)+-?[^\W\d_]{1,4}\Z")
# Roman numerals up to 99.
_ROMAN = re.compile(r"(?=[IVXLC])(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\Z")
# Sounds, such as "hmm" and "shh", and repeated letters are words without
# vowels.
_SOUND = re.compile(r"(?:m*h*m+|sh+|br+|ps+t|tsk|pf+t?|gr+|([^\W\d_])\1+)\Z")
_PARTICLES = frozenset(PARTICLES.split())


class AbbreviationRules(NamedTuple):
    """The data of ``abbreviations`` for a language.

    Attributes:
        language: code of the language; "" if unknown.
        classes: class of each abbreviation, of any language.
        capitals: class of each abbreviation of this language in capitals;
            others are acronyms, such as "CCA", the Czech "cca", in English.
        units: abbreviations of class "unit".
        beginnings: first parts of abbreviations of several parts ("i.d" of
            "i.d.R").
        starters: words that begin many sentences.
    """

    language: str
    classes: dict[str, str]
    capitals: dict[str, str]
    units: frozenset[str]
    beginnings: frozenset[str]
    starters: frozenset[str]

    def class_of(self, token: str) -> str | None:
        """Returns the class of an abbreviation; None for other words."""
        classes = self.classes
        if token in classes:
            return classes[token]
        small = token[:1].lower() + token[1:]
        if small in classes:
            return classes[small]
        return self.capitals.get(token)

    def guess(self, token: str) -> str | None:
        """Returns the class of a word that looks like an abbreviation; None for others."""
        if _DOTTED.match(token):
            return "name"
        if _ROMAN.match(token):
            return "roman"
        if len(token) == 1 and token.isalpha():
            return "lower"
        word = token.lower()
        if (
            _CONSONANTS.match(word)
            and not token.isupper()
            and not _SOUND.match(word)
        ):
            return "name"
        if token.endswith("str"):
            return "name"
        if "-" in token:
            return self.class_of(token.rpartition("-")[2])
        return None

    def is_starter(self, word: str, following: str) -> bool:
        """Returns True if a word begins many sentences."""
        starters = self.starters
        if len(word) == 1:
            return word.lower() in starters and following[1:2].isspace()
        lowered = word.lower()
        if lowered in starters:
            return True
        head, apostrophe, _ = lowered.replace("\u2019", "'").partition("'")
        return (
            bool(apostrophe)
            and head in starters
            and word[len(head) + 1 :].islower()
        )


@functools.cache
def rules_of(language: str) -> AbbreviationRules:
    """Returns the rules of a language: all abbreviations except ordinary words of the language."""
    abbreviations = ABBREVIATIONS[language or "en"]
    starters = set(STARTERS[language or "en"].split())
    excluded = starters.union(_words(WORDS[language or "en"]))
    classes: dict[str, str] = {}
    for table in ABBREVIATIONS.values():
        for kind, words in table.items():
            for word in _words(words):
                if (
                    kind != "unit"
                    and len(word) > 1
                    and word.lower() not in excluded
                ):
                    classes.setdefault(word, kind)
    for kind, words in abbreviations.items():
        if kind != "unit":
            classes.update(dict.fromkeys(_words(words), kind))
    tables = [abbreviations] if language else list(ABBREVIATIONS.values())
    capitals = {
        word.upper(): classes[word]
        for table in tables
        for words in table.values()
        for word in _words(words)
        if len(word) > 1 and "." not in word and word in classes
    }
    if not language:
        for words in STARTERS.values():
            starters.update(word for word in words.split() if len(word) > 2)
        starters.difference_update(_PARTICLES)
    beginnings: set[str] = set()
    for word in classes:
        parts = word.split(".")
        beginnings.update(
            ".".join(parts[:count]) for count in range(2, len(parts) + 1)
        )
    return AbbreviationRules(
        language,
        classes,
        capitals,
        frozenset(_words(abbreviations["unit"])),
        frozenset(beginnings),
        frozenset(starters),
    )


def _words(table: str) -> list[str]:
    return [word.removesuffix(".") for word in table.split()]


def is_ordinary(tail: str) -> bool:
    """Returns True if a word is not an abbreviation, by its last (up to six) letters."""
    if tail.lower() in _tails() or tail.endswith("str"):
        return False
    return len(tail) > 5 or (
        len(tail) > 1 and tail.islower() and not _CONSONANTS.match(tail)
    )


@functools.cache
def _tails() -> frozenset[str]:
    """Returns the last six letters of the abbreviations of all languages, in lower case."""
    tables = (
        words for table in ABBREVIATIONS.values() for words in table.values()
    )
    return frozenset(
        word[-6:].lower() for words in tables for word in _words(words)
    )
