"""Finds names, dates and numbers in English text by rules over words and capitals.

No model is needed, but the rules are less accurate than a trained tagger.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

EntityKind = Literal["name", "date", "number"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DETERMINERS = _words("""
a an the this that these those my your his her its our their each every some any no another such
both all many several few most more
""")
FUNCTION_WORDS = DETERMINERS | _words("""
i you he she it we they me him us them who whom which what whose there here
of in on at by for from to with without within into onto over under about above below between among
through during before after since until against across along around behind beyond near off out up
down upon toward towards via per as than like beside
and or but nor so yet if because although though while whereas unless whether when where why how
not only also then thus however therefore moreover furthermore meanwhile still even just very too
quite rather almost already again ever never always often sometimes now
is am are was were be been being has have had do does did will would shall should can could may
might must said says say made makes make got get gets went go goes came come comes took take takes
""")
ADJECTIVES = _words("""
one two three four five six seven eight nine ten other same own new old young good bad great small
large big long short high low first second last next quick whole
""")
# names that are spelled like function words
ABBREVIATIONS = frozenset(("IT", "US", "WHO"))
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = (
    rf"\d{{1,2}}\s+(?:{_MONTHS})(?:,?\s+\d{{4}})?\b"
    rf"|(?:{_MONTHS})\s+\d{{1,2}}(?:,\s*\d{{4}})?\b"
    rf"|(?:{_MONTHS})\s+\d{{4}}"
)
_NUMBER = r"[$€£]?\b\d+(?:[.,]\d+)*(?!\w)(?:\s?%|\s(?:percent|million|billion|trillion)\b)?"
_CAPITALIZED = r"\b[A-Z][\w&]*(?:[-.]\w+|['\u2019][A-Z]\w+)*"
_NAME = rf"{_CAPITALIZED}(?:\s+{_CAPITALIZED})*"
# Also "Department of Health and Human Services".
_LONG_NAME = (
    rf"{_NAME}(?:\s+(?:of|for)\s+(?:the\s+)?{_NAME}(?:\s+and\s+{_NAME})?)?"
)
_ENTITY = re.compile(
    rf"(?P<date>{_DATE})|(?P<number>{_NUMBER})|(?P<name>{_LONG_NAME})"
)


class Entity(NamedTuple):
    """An entity: its kind, its text, and its start position in the sentence."""

    kind: EntityKind
    text: str
    start: int

    @property
    def stop(self) -> int:
        """The position after its last character."""
        return self.start + len(self.text)


def find_entities(sentences: Sequence[str]) -> list[list[Entity]]:
    """Returns names, dates, numbers, percentages and amounts of money by sentence.

    A name is a run of capitalized words. A single word at the beginning of a
    sentence counts if it has two capitals, or is capitalized elsewhere inside a
    sentence of the text.
    """
    lowered = [_without_first_capital(sentence) for sentence in sentences]
    inside = {
        name
        for sentence in lowered
        for name in re.findall(_CAPITALIZED, sentence[1:])
    }
    return [list(_entities(sentence, inside)) for sentence in lowered]


def _entities(sentence: str, names_inside: set[str]) -> Iterator[Entity]:
    for match in _ENTITY.finditer(sentence):
        text = match[0]
        uncertain = (
            match.lastgroup == "name" and match.start() == 0 and " " not in text
        )
        certain = (
            not uncertain
            or text in names_inside
            or sum(map(str.isupper, text)) > 1
        )
        if certain and not _is_function_word(text, sentence):  # such as "I"
            yield Entity(cast(EntityKind, match.lastgroup), text, match.start())


def _without_first_capital(sentence: str) -> str:
    """Returns a sentence whose first word is lowercased if it is a function word or adjective."""
    first = sentence.partition(" ")[0]
    word = first.strip(",")
    small = _is_function_word(word, sentence) or word.lower() in ADJECTIVES
    if small:
        return first.lower() + sentence[len(first) :]
    return sentence


def _is_function_word(word: str, sentence: str) -> bool:
    """Returns True if a word is a function word; in a sentence with lowercase words, US is a name.

    The first word is ignored in this check, since it may have been lowercased.
    """
    others = sentence.partition(" ")[2]
    if word in ABBREVIATIONS and any(map(str.islower, others)):
        return False
    return word.lower() in FUNCTION_WORDS
