"""Taggers: what finds the entities or the nouns of texts, for metrics that count them.

A tagger takes texts and returns a list of strings for each. Those here are rules over words and
capitals, for English; they need no model, and miss and invent more than one would. Reports name the
tagger, so that nobody takes the numbers of one for those of another.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.sentences import split_sentences

Tagger = Callable[[Sequence[str]], Sequence[Sequence[str]]]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DETERMINERS = _words("""
a an the this that these those my your his her its our their each every some any no another such
both all many several few most more
""")
_FUNCTION_WORDS = _DETERMINERS | _words("""
i you he she it we they me him us them who whom which what whose there here
of in on at by for from to with without within into onto over under about above below between among
through during before after since until against across along around behind beyond near off out up
down upon toward towards via per as than like beside
and or but nor so yet if because although though while whereas unless whether when where why how
not only also then thus however therefore moreover furthermore meanwhile still even just very too
quite rather almost already again ever never always often sometimes now
is am are was were be been being has have had do does did will would shall should can could may
might must said says say made make makes got get gets went go goes came come comes took take takes
""")
_ADJECTIVES = _words("""
one two three four five six seven eight nine ten other same own new old young good bad great small
large big long short high low first second last next quick whole
""")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = rf"(?:\d{{1,2}}\s+)?(?:{_MONTHS})\s+\d{{1,2}}(?:,\s*\d{{4}})?\b|(?:{_MONTHS})\s+\d{{4}}"
_NUMBER = r"[$€£]?\b\d+(?:[.,]\d+)*(?!\w)(?:\s?%|\s(?:percent|million|billion|trillion)\b)?"
_CAPITALIZED = r"\b[A-Z][\w&]*(?:[-.]\w+|['\u2019][A-Z]\w+)*"
_NAME = rf"{_CAPITALIZED}(?:\s+{_CAPITALIZED})*"
# Also Department of Health and Human Services.
_LONG_NAME = rf"{_NAME}(?:\s+(?:of|for)\s+(?:the\s+)?{_NAME}(?:\s+and\s+{_NAME})?)?"
_ENTITY = re.compile(rf"(?P<date>{_DATE})|(?P<number>{_NUMBER})|(?P<name>{_LONG_NAME})")
_POSSESSIVE = re.compile(r"(?<=\w)['\u2019]s?\b|(?<=s)['\u2019](?!\w)")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_NOUN_ENDING = re.compile(
    r"(?:tion|sion|ment|ness|ity|ism|ist|ance|ence|ship|hood|dom|ure|ology|graphy|ician)s?$"
)
_ADJECTIVE_ENDING = re.compile(r"(?:al|ive|ous|ful|less|ic|able|ible|ed|ing|ary|ly|ish|ern)$")


def rule_entities(texts: Sequence[str]) -> list[list[str]]:
    """Returns names, dates, numbers, percentages and amounts of money of English texts.

    A name is a run of capitalized words. A single one at the beginning of a sentence counts if it
    has two capitals, or is capitalized elsewhere within a sentence of the text.
    """
    return [list(_entities(text)) for text in texts]


def _entities(text: str) -> Iterator[str]:
    sentences = [_without_first_capital(sentence) for sentence in split_sentences(text)]
    inside = {name for sentence in sentences for name in re.findall(_CAPITALIZED, sentence[1:])}
    for sentence in sentences:
        for match in _ENTITY.finditer(sentence):
            found = match[0]
            uncertain = match.lastgroup == "name" and match.start() == 0 and " " not in found
            certain = not uncertain or found in inside or sum(map(str.isupper, found)) > 1
            if certain and found.lower() not in _FUNCTION_WORDS:  # as I is not
                yield found


def _without_first_capital(sentence: str) -> str:
    """Returns a sentence with a small letter in front if its first word is a function word."""
    first = sentence.partition(" ")[0].lower()
    small = first.strip(",") in _FUNCTION_WORDS | _ADJECTIVES
    return first + sentence[len(first) :] if small else sentence


def rule_nouns(sentences: Sequence[str]) -> list[list[str]]:
    """Returns the nouns of each sentence of an English text, in the singular and small letters.

    A word counts as a noun throughout the text if somewhere in it the word follows a determiner
    (adjectives by their ending left out), is capitalized within a sentence, or has the ending of a
    noun.
    """
    words = [_WORD.findall(_POSSESSIVE.sub("", sentence)) for sentence in sentences]
    nouns = {noun for line in words for noun in _evident_nouns(line)}
    singular = [[_singular(word.lower()) for word in line] for line in words]
    return [[word for word in line if word in nouns] for line in singular]


def _evident_nouns(words: Sequence[str]) -> Iterator[str]:
    after_determiner = False
    for index, word in enumerate(words):
        lower = word.lower()
        if lower in _FUNCTION_WORDS:
            after_determiner = lower in _DETERMINERS
            continue
        has_ending = _NOUN_ENDING.search(lower)
        adjective = lower in _ADJECTIVES or (
            not has_ending and _ADJECTIVE_ENDING.search(lower) is not None
        )
        capitalized = index > 0 and word[0].isupper()
        if has_ending or capitalized or (after_determiner and not adjective):
            yield _singular(lower)
        after_determiner = after_determiner and adjective


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


ENTITY_TAGGERS: dict[str, Tagger] = {"rules": rule_entities}
NOUN_TAGGERS: dict[str, Tagger] = {"rules": rule_nouns}


def tagger_of(name: str, known: Mapping[str, Tagger], where: str) -> Tagger:
    """Returns the tagger of that name.

    Raises:
        InputError: there is none.
    """
    if name not in known:
        raise InputError(f'{where}.tagger="{name}" is unknown; {did_you_mean(name, known)}')
    return known[name]


def tag(tagger: Tagger, texts: Sequence[str]) -> list[list[str]]:
    """Returns what a tagger finds in each text.

    Raises:
        InputError: the tagger gives no list of strings for each text.
    """
    found: Any = [list(tags) for tags in tagger(texts)]
    if len(found) != len(texts) or not all(isinstance(tag, str) for tags in found for tag in tags):
        name = getattr(tagger, "__name__", tagger)
        raise InputError(f"tagger {name}: give a list of strings for each of {len(texts)} texts")
    return found
