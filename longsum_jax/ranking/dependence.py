"""Finds sentences that are not understandable without the previous one."""

import re
from typing import NamedTuple

import numpy as np

from longsum_jax.ranking.lexicon import DEPENDENT, STOP_WORDS, light_stem
from longsum_jax.ranking.parsing import (
    ParsedDocument,
    without_speaker,
)
from longsum_jax.ranking.wording import connective_end, without_openers
from longsum_jax.text.sentences import without_list_mark

QUOTATION = "\"'\u201c\u2018\u00ab\u201e(*_\u2014-. "  # marks before a word
QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_QUESTION_TAIL = "\"'\u201d\u2019\u00bb) "
_LONGEST_ANSWER = 15  # words of a turn that needs its question

# "As they come", "But those repairs", "By these means", "Until that day": words
# that may precede a pronoun at the beginning of a sentence.
_BEFORE = (
    "after|although|and|as|as if|at|because|because of|before|both|but|by|despite|"
    "due to|during|"
    "each of|even|even if|even though|except for|following|for|from|given|given that|if|in|"
    "instead of|just|like|many of|most of|neither of|none of|of|on|once|one of|only|or|"
    "since|so|"
    "some of|than|then|though|through|throughout|to|under|unless|unlike|until|upon|"
    "using|via|when|"
    "whenever|where|whereas|whether|while|with|without|yet"
)
_POINTER = (
    r"(?:he|she|it|they|them|him|this|these|those|such|both|each|all this)"
)
# The same before "that", which is a conjunction after other words.
_BEFORE_THAT = (
    "after|at|because of|before|but|by|despite|during|even|for|from|if|like|of|on|once|"
    "than|then|"
    "through|throughout|to|under|until|upon|when|with|without"
)
# Beginnings that do not point to the previous sentence.
_SELF_CONTAINED = (
    r"(?:in )?th[eo]se days\b|"
    r"(?:in |of |throughout |for )?(?:this|these) "
    r"(?:paper|article|study|thesis|report|document|work|proposal|specification|pep|kep|"
    r"eip|rfc|"
    r"section|chapter|book|guide|page|project|survey|review|year|film|movie|show|story|"
    r"meeting)\b|"
    r"(?:when |if |while |since |although |though |as )?it (?:is|was|has been|may be|"
    r"seems|should be)"
    r" [\w-]+(?: [\w-]+)? (?:that|to)\b|"
    r"(?:both|each) (?:the|of the)\b|both [\w-]+ and\b|each [\w-]+ (?!of (?:these|those|"
    r"them))|"
    r"such as\b|for each\b|to each\b|in each\b|on each\b|of each\b|at each\b"
)
_ORDINAL = "first of all|firstly|secondly|thirdly|fourthly|second|third|finally|lastly|next|then"
_CONNECTIVE = (
    "above all|accordingly|additionally|after all|afterwards?|again|alas|also|"
    "alternatively|"
    "and yet|anyway|apart from that|as a consequence|as a result|as before|as such|as well|"
    "at first|at last|at length|besides|but|by contrast|by the time|by then|conversely|"
    "consequently|doing so|by doing so|even so|equally|eventually|for example|for instance|"
    "for one thing|for the moment|for the rest|furthermore|hence|here|however|"
    "in addition|in any case|"
    "in consequence|in contrast|in effect|in fact|in other words|in particular|"
    "in response|in short|"
    "in so doing|in spite of all|in the meantime|in the same way|in turn|indeed|"
    "instead|it follows|"
    "just then|later|likewise|meanwhile|moreover|most of all|namely|nevertheless|no wonder|"
    "nonetheless|not so|notwithstanding|now|on the contrary|on the other hand|otherwise|"
    "presently|quite the contrary|rather|similarly|so|specifically|still|subsequently|"
    "suddenly|"
    "that is why|there(?= (?:he|she|it|they|was|were|you|upon|after))|thereby|"
    "thereafter|thereupon|"
    "therefore|thus|to this end|to that end|to do (?:this|that|so)|together|too|"
    "whereupon|which|yet|yes|"
    "no,|yeah|well|o?kay|oh|okay|ah|right,|sure|exactly|nope|"
    "the (?:former|latter|other|others|same|above|following|first one|second|third|"
    "rest|two|three|"
    "opposite|result was|reason (?:is|was|for (?:this|that|it)))|"
    "an?other (?:one|reason|way|option|example|problem|possibility)|another|"
    "one such|some such|much the same|of course"
)
_ALONE = re.compile(_SELF_CONTAINED, re.IGNORECASE)
_BEGINS = re.compile(
    rf"(?!{_SELF_CONTAINED})(?:"
    rf"(?:(?:{_CONNECTIVE}|{_ORDINAL})\b)|"
    rf"(?:(?:{_BEFORE})\s+){{0,2}}{_POINTER}\b|"
    rf"(?:{_BEFORE_THAT})\s+that\s+(?!the\b|we\b|I\b|a\b|an\b)|"
    r"that (?:is|was|would|will|does|did|has|had|may|might|should|could|means|makes|"
    r"made|same|one|"
    r"way|day|night|evening|morning|time|year|is|much|sort|kind|little)(?! to say)\b|"
    r"that['\u2019]s\b|(?:his|her|their|its|theirs|hers)\b"
    r")",
    re.IGNORECASE,
)
# Demonstratives near the beginning: "Over the woods this sound acquires a hum".
_SELF = (
    "paper|article|study|thesis|report|document|work|proposal|specification|pep|kep|"
    "eip|rfc|section|"
    "chapter|book|guide|page|project|survey|review|year|film|movie|show|story|meeting|"
    "end|week|month|"
    "morning|afternoon|evening|time|country|world|country|life|research|series|picture"
)
_DEMONSTRATIVE = re.compile(
    rf"[^,:;(]{{0,50}}\b(?:this|these|those|such an?) (?!(?:{_SELF})s?\b|who\b|of\b|"
    rf"that\b|in\b|is\b|are\b|with\b)[a-z]+"
)
# Introductory clauses: "When Ann learns of this, she ...", "Taken on that level, ..."
_CLAUSE = re.compile(
    rf"[^,.:;(]{{1,40}} (?:about|after|at|by|for|from|in|of|on|to|with) "
    rf"(?:this|that|these|those)(?: (?!(?:{_SELF})s?\b)[a-z]+)?,"
)
_LONGEST_REMARK = (
    12  # words of a sentence about something of the sentence before
)
_OF_THEM = re.compile(
    r"\b(?:of|with|for|to|from|by|in|on|about) (?:them|these|those|it|this|that)\b",
    re.IGNORECASE,
)
_THIRD_PERSON = re.compile(
    r"\b(?:he|she|him|his|her|hers|himself|herself)\b", re.IGNORECASE
)
_PERSON = re.compile(
    r"\b(?:man|woman|boy|girl|child|person|someone|somebody|anyone|everyone|everybody|"
    r"nobody|doctor|patient|"
    r"mother|father|wife|husband|son|daughter|brother|sister|king|queen|captain|"
    r"officer|teacher|student|author|lady|gentleman|who|male|female|prince|princess|priest|"
    r"traveller|farmer|guy|lad|fellow|user|one)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"[^\W\d_a-z\u00df-\u00ff][\w\u2019'.-]+")


class _Context(NamedTuple):
    """Properties of a document that decide where dependence is expected."""

    is_talk: bool
    has_capitals: bool


def depend_on_previous(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True if a sentence is not understandable without the previous one.

    Such a sentence begins with a pronoun, a demonstrative or a connective, has
    "he" or "she" without a name before it, or is the short answer to a
    question. In languages other than English only its first words count, and the
    first sentence of a paragraph does not depend on another.
    """
    language = document.language or "en"
    if language != "en":
        return _depend_by_list(document, language)
    is_talk = any(document.speakers)
    beginnings = [first_words(sentence) for sentence in document.sentences]
    capitals = sum(words[:1].isupper() for words in beginnings)
    context = _Context(is_talk, 2 * capitals > len(beginnings))
    dependent = np.array(
        [_points_back(words, context) for words in beginnings], bool
    )
    if is_talk:
        dependent |= _are_answers(document)
    dependent[0] = False
    return dependent


def _depend_by_list(document: ParsedDocument, language: str) -> np.ndarray:
    pattern = DEPENDENT.get(language)
    if pattern is None:
        return np.zeros(len(document.sentences), bool)
    dependent = np.array(
        [
            pattern.match(first_words(sentence)) is not None
            for sentence in document.sentences
        ]
    )
    continues = np.diff(document.paragraphs, prepend=-1) == 0
    return dependent & continues & ~document.turns


def _points_back(words: str, context: _Context) -> bool:
    if context.is_talk:
        # "And", "So" and "Well" begin most sentences of talk and are not shown.
        words = without_openers(words)
    else:
        # A summary leaves these out as well.
        words = words[connective_end(words) :]
    if _BEGINS.match(words) or DEPENDENT["en"].match(words):
        return True
    if _ALONE.match(words):
        return False
    if not context.is_talk and (
        _DEMONSTRATIVE.match(words)
        or _CLAUSE.match(words)
        or (_OF_THEM.search(words) and words.count(" ") < _LONGEST_REMARK)
    ):
        return True
    pronoun = _THIRD_PERSON.search(words)
    if pronoun is None or context.is_talk:
        return False
    before = words[: pronoun.start()]
    if _PERSON.search(before):
        return False
    if not context.has_capitals:
        return True
    return not any(
        name.start() > 0 or light_stem(name[0].lower()) not in STOP_WORDS
        for name in _NAME.finditer(before)
        if name[0] not in ("I'm", "I'd", "I've", "I'll")
    )


def _are_answers(document: ParsedDocument) -> np.ndarray:
    """Returns True for short first sentences of turns after a question."""
    asks = are_questions(document)
    begins = document.breaks > 0
    short = document.lengths <= _LONGEST_ANSWER
    return np.concatenate([[False], asks[:-1]]) & begins & short


def are_questions(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for sentences that end with a question mark."""
    return np.array(
        [
            sentence.rstrip(_QUESTION_TAIL).endswith(QUESTION_MARKS)
            for sentence in document.sentences
        ],
        bool,
    )


def first_words(sentence: str) -> str:
    """Returns a sentence without list mark, speaker and leading punctuation."""
    words = without_speaker(without_list_mark(sentence)).lstrip(QUOTATION)
    label = _LABEL.match(words)
    return words[label.end() :] if label is not None else words


# numbers of paragraphs, as in judgments
_LABEL = re.compile(
    r"(?:\u00b6\s*\d{1,4}|\u00a7\s*\d{1,4}|\[\d{1,4}\]|\(\d{1,3}\))\.?\s+(?=\S)"
)
