"""Parses a document for a ranker: sentences, positions, layout, words and vectors."""

import collections
import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.lexicon import OTHER_STOP_WORDS, STOP_WORDS, light_stem
from longsum_jax.text.languages import text_style
from longsum_jax.text.ngrams import num_words, unicode_words
from longsum_jax.text.person_names import is_capitalized, words_of_name
from longsum_jax.text.sentences import bounded_sentences, sentence_spans
from longsum_jax.text.word_table import WordTable, word_table

LONGEST_HEADING = 10  # words
LONGEST_SPEAKER = 40  # characters of a speaker's name before a colon
LONGEST_NAME = 4  # words of a speaker's name
FEWEST_TURNS = 2  # minimum turns of a speaker
TALK_SHARE = 0.3  # minimum share of lines that begin a turn in talk
LOWER_CASE_SHARE = 0.5  # the same, if names begin in lower case
MOST_NAME_WORDS = 7  # of a name with titles
# Words before a colon at the beginning of a line.
_NAMED = re.compile(
    r"((?:[^\W_]|[+~(])[^:\uff1a\n?!;<>\u201c\u201d\"]{0,60})(?::\s|\uff1a)"
)
# share after a blank line below which lines are paragraphs
RARE_BLANK_LINES = 0.02
_STORY_SHARE = 0.2  # minimum share of sentences with "he" or "she" in a story
_SAMPLE = 500  # sentences that are searched for them
_THIRD_PERSON = re.compile(r"\b(?:he|she|his|her|him)\b", re.IGNORECASE)
_STOPS = tuple(".!?,;…।؟、。」』\u06d4\uff01\uff0c\uff1b\uff1f")
_QUOTATION_MARKS = "\"'\u2019”»"
_LAST_CODE = 0x3001  # characters above count as letters


class Characters(NamedTuple):
    """Classes of the characters of a text, bool [characters] each."""

    space: np.ndarray
    line_end: np.ndarray
    upper: np.ndarray
    digit: np.ndarray
    mark: np.ndarray
    symbol: np.ndarray


class ParsedDocument(NamedTuple):
    """A document in the form that features and selection use; n is its number of sentences.

    Attributes:
        sentences: n sentences, with the white space of ``bounded_sentences``.
        starts, ends: int [n], positions in the text.
        breaks: int [n], separator before a sentence: 0 space, 1 line break, 2
            blank line.
        paragraphs: int [n], index of the paragraph (of the line if blank lines
            are rare).
        headings: bool [n], True for a short separate line without a stop.
        turns: bool [n], True for a line that begins with a speaker's name and a
            colon.
        speakers: speaker of each sentence of talk; "" for all sentences of other
            documents.
        lengths: int [n], word counts by ``num_words``.
        words: stemmed words in the sentences.
        content: bool [words.size], True for words that are not stop words.
        inverse: float64 [words.size], inverse sentence frequencies.
        weights: float64 [pairs of words], TF-IDF vectors of content words, of
            length 1 or 0.
        characters: classes of the characters of the text.
        language: ISO 639-1 code of the language; "" if unknown.
    """

    sentences: list[str]
    starts: np.ndarray
    ends: np.ndarray
    breaks: np.ndarray
    paragraphs: np.ndarray
    headings: np.ndarray
    turns: np.ndarray
    speakers: list[str]
    lengths: np.ndarray
    words: WordTable
    content: np.ndarray
    inverse: np.ndarray
    weights: np.ndarray
    characters: Characters
    language: str


def parse_document(text: str) -> ParsedDocument:
    """Parses a text in linear time.

    Raises:
        InputError: the text has no sentences.
    """
    sentences = bounded_sentences(text)
    if not sentences:
        raise InputError(
            "the document is empty; give it some text or leave it out"
        )
    characters = _classes(text)
    starts, ends = sentence_spans(text, sentences)
    breaks = _breaks(starts, ends, characters.line_end)
    words = word_table(sentences, unicode_words, light_stem)
    language = text_style(text).language
    stop_words = STOP_WORDS | OTHER_STOP_WORDS.get(language, frozenset())
    content = np.ones(words.size, bool)
    content[: len(words.names)] = [
        name not in stop_words for name in words.names
    ]
    inverse = words.inverse_frequencies()
    lengths = np.array(
        [num_words(sentence) for sentence in sentences], np.int64
    )
    turns = np.array(
        [speaker_of(sentence) != "" for sentence in sentences], bool
    ) & (breaks > 0)
    return ParsedDocument(
        sentences=sentences,
        starts=starts,
        ends=ends,
        breaks=breaks,
        paragraphs=_paragraphs(breaks),
        headings=_headings(sentences, breaks, lengths)
        & ~turns
        & _has_words(words),
        turns=turns,
        speakers=_speakers(sentences, breaks),
        lengths=lengths,
        words=words,
        content=content,
        inverse=inverse,
        weights=unit_weights(
            words, words.counts * inverse[words.word] * content[words.word]
        ),
        characters=characters,
        language=language,
    )


def unit_weights(words: WordTable, weights: np.ndarray) -> np.ndarray:
    """Returns weights of pairs divided by the Euclidean length of their sentence's vector."""
    norms = np.sqrt(words.by_sentence(weights**2))
    return weights / np.maximum(norms, 1e-12)[words.row]


def class_counts(document: ParsedDocument, marked: np.ndarray) -> np.ndarray:
    """Returns int [n], the number of marked characters in each sentence."""
    totals = np.concatenate([[0], np.cumsum(marked)])
    return totals[document.ends] - totals[document.starts]


def _classes(text: str) -> Characters:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    index = np.minimum(codes, _LAST_CODE)
    classes = Characters(*(table[index] for table in _class_tables()))
    # A Windows line break counts as one.
    classes.line_end[:-1] &= (codes[:-1] != ord("\r")) | (
        codes[1:] != ord("\n")
    )
    return classes


@functools.cache
def _class_tables() -> Characters:
    """Returns the classes of the characters up to ``_LAST_CODE``, which represents all others."""
    characters = [chr(code) for code in range(_LAST_CODE + 1)]

    def table(test: Callable[[str], bool]) -> np.ndarray:
        return np.array([test(char) for char in characters])

    return Characters(
        space=table(str.isspace),
        line_end=table(_is_line_end),
        upper=table(str.isupper),
        digit=table(str.isdigit),
        mark=table(_is_mark),
        symbol=table("_=<>{}|\\/@#*+~^[]".__contains__),
    )


def _is_line_end(char: str) -> bool:
    return len(f".{char}.".splitlines()) == 2


def _is_mark(char: str) -> bool:
    return not char.isalnum() and not char.isspace()


def _breaks(
    starts: np.ndarray, ends: np.ndarray, line_end: np.ndarray
) -> np.ndarray:
    totals = np.concatenate([[0], np.cumsum(line_end)])
    counts = totals[starts] - totals[np.concatenate([[0], ends[:-1]])]
    counts[0] = 2  # the beginning of the text
    return np.minimum(counts, 2)


def _paragraphs(breaks: np.ndarray) -> np.ndarray:
    blank = breaks == 2
    if blank[1:].sum() > RARE_BLANK_LINES * len(blank):
        begins = blank
    else:
        begins = breaks > 0
    return np.cumsum(begins) - 1


def _headings(
    sentences: Sequence[str], breaks: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    is_separate = (breaks > 0) & (np.append(breaks[1:], 2) > 0)
    stopped = np.array([is_stopped(sentence) for sentence in sentences], bool)
    return is_separate & ~stopped & (lengths <= LONGEST_HEADING)


def is_stopped(sentence: str) -> bool:
    """Returns True if a sentence ends with a stop."""
    return sentence.rstrip(_QUOTATION_MARKS).endswith(_STOPS)


def _has_words(words: WordTable) -> np.ndarray:
    return np.bincount(words.row, minlength=words.num_sentences) > 0


def speaker_of(sentence: str) -> str:
    """Returns the name before the first colon of a turn of talk; "" if there is none."""
    name, colon, _ = sentence[: LONGEST_SPEAKER + 2].partition(": ")
    is_name = (
        bool(colon) and name[:1].isupper() and len(name.split()) <= LONGEST_NAME
    )
    return name if is_name else ""


def _speakers(sentences: Sequence[str], breaks: np.ndarray) -> list[str]:
    """Returns the speaker of each sentence of talk; "" for all sentences of other documents.

    A document is talk if many of its lines are turns of speakers with several
    turns. The rest of a line after words before a colon that need not be a name
    ("the chair:", once) has no speaker: a wrong one is worse.
    """
    unknown = [""] * len(sentences)
    names = {
        number: name
        for number in np.flatnonzero(breaks).tolist()
        if (name := name_before_colon(sentences[number]))
    }
    num_turns = collections.Counter(names.values())
    repeated = {
        name for name, count in num_turns.items() if count >= FEWEST_TURNS
    }
    turns = [name for name in names.values() if name in repeated]
    num_lines = int((breaks > 0).sum())
    # Labels of lists are often in lower case, names seldom.
    num_certain = sum(not name[0].islower() for name in turns)
    is_talk = num_certain >= TALK_SHARE * num_lines or (
        len(turns) >= LOWER_CASE_SHARE * num_lines and len(repeated) > 1
    )
    if not is_talk or len(turns) < 2 * FEWEST_TURNS:
        return unknown
    result: list[str] = []
    speaker = ""  # of the last turn
    current = ""  # of the line
    for number, is_line in enumerate((breaks > 0).tolist()):
        line_name = names.get(number)
        if line_name is None:
            if is_line:
                current = speaker
        elif line_name in repeated or is_capitalized(line_name):
            current = speaker = line_name
        else:
            current = ""
        result.append(current)
    return result


def name_before_colon(line: str) -> str:
    """Returns a possible speaker's name before the first colon of a line; "" without one."""
    match = _NAMED.match(line)
    if match is None or len(words_of_name(match[1])) > MOST_NAME_WORDS:
        return ""
    return match[1]


def without_speaker(sentence: str) -> str:
    """Returns a sentence without the speaker's name and colon in front of it."""
    name = speaker_of(sentence)
    if name:
        return sentence[len(name) + 1 :].lstrip()
    return sentence


def is_story(document: ParsedDocument) -> bool:
    """Returns True if many sentences have "he" or "she"."""
    if document.language not in ("en", ""):
        return False
    sample = document.sentences[:: max(1, len(document.sentences) // _SAMPLE)]
    count = sum(
        _THIRD_PERSON.search(sentence) is not None for sentence in sample
    )
    return count >= _STORY_SHARE * len(sample)
