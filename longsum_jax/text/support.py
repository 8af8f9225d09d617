"""Finds the sources of every summary sentence, and flags entities missing in them."""

import bisect
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.text.alignment import Support, align
from longsum_jax.text.entities import Entity, find_entities
from longsum_jax.text.ngrams import unicode_words
from longsum_jax.text.sentences import (
    bounded_sentences,
    join_wrapped_lines,
    sentence_spans,
    split_sentences,
    without_list_mark,
)
from longsum_jax.text.statements import (
    NO_OUTLINE,
    Flag,
    Missing,
    Outline,
    SourceSentence,
    Statement,
    in_line,
)

_HEADING_MARKS = "#=-~^*|: "  # heading marks of Markdown and reStructuredText
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SCALES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_SCALED = re.compile(
    rf"{_NUMBER.pattern}\s+(?:{'|'.join(_SCALES)})\b", re.IGNORECASE
)
_SPELLED = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
    ),
    *(
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
    ),
    *("eighteen", "nineteen", "twenty"),
)


class PlacedSentences(NamedTuple):
    """The n sentences of a document and their positions.

    Attributes:
        text: text of the document.
        sentences: result of ``bounded_sentences`` after line breaks inside
            sentences were joined.
        starts, ends: int [n], see ``sentence_spans``.
        outline: outline of the document.
    """

    text: str
    sentences: Sequence[str]
    starts: np.ndarray
    ends: np.ndarray
    outline: Outline = NO_OUTLINE

    @classmethod
    def of(cls, text: str, outline: Outline = NO_OUTLINE) -> "PlacedSentences":
        """Returns the sentences of a document."""
        sentences = bounded_sentences(join_wrapped_lines(text))
        empty = np.zeros(0, np.int64)
        if sentences:
            starts, ends = sentence_spans(text, sentences)
        else:
            starts, ends = (empty, empty)
        return cls(text, sentences, starts, ends, outline)

    def source(self, number: int, score: float) -> SourceSentence:
        """Returns a sentence as a source with this score, without its list marker."""
        sentence = self.sentences[number]
        item = without_list_mark(sentence)
        start = int(self.starts[number]) + len(sentence) - len(item)
        return SourceSentence(
            text=in_line(item),
            number=number,
            start=start,
            end=int(self.ends[number]),
            heading=self._heading_before(start),
            page=bisect.bisect_right(self.outline.pages, start) or None,
            score=round(score, 4),
        )

    def _heading_before(self, offset: int) -> str | None:
        headings = self.outline.headings
        count = bisect.bisect_right(
            headings, offset, key=lambda heading: heading[1]
        )
        if not count:
            return None
        start, end = headings[count - 1]
        return in_line(self.text[start:end]).strip(_HEADING_MARKS) or None


def find_statements(
    summary: str, document: str, outline: Outline = NO_OUTLINE
) -> list[Statement]:
    """Returns the sentences of a summary with their sources, found by shared n-grams.

    Sources are found by ``alignment.align``, flags by ``find_flags``.

    Args:
        summary: summary of the document, from any source.
        document: text of the document.
        outline: outline of the document.
    """
    written = [in_line(sentence) for sentence in split_sentences(summary)]
    if not written:
        return []
    placed = PlacedSentences.of(document, outline)
    starts, ends = sentence_spans(summary, written)
    supports = align(written, placed.sentences)
    flags = find_flags(
        written, placed.sentences, [support.indices for support in supports]
    )
    return [
        Statement(
            text=written[i],
            start=int(starts[i]),
            end=int(ends[i]),
            sources=sources_of(supports[i], placed),
            support=round(supports[i].total, 4),
            is_supported=supports[i].is_supported,
            flags=tuple(flags[i]),
        )
        for i in range(len(written))
    ]


def sources_of(
    support: Support, placed: PlacedSentences
) -> tuple[SourceSentence, ...]:
    """Returns the sentences of an alignment as sources, with their positions in the document."""
    pairs = zip(support.indices, support.scores, strict=True)
    return tuple(placed.source(index, score) for index, score in pairs)


def find_flags(
    sentences: Sequence[str],
    document: Sequence[str],
    sources: Sequence[Sequence[int]] | None = None,
) -> list[list[Flag]]:
    """Flags the names, numbers and dates of each summary sentence that are missing.

    Entities are found by the rules of ``text.entities``. Numbers are compared
    by value, written in digits, with thousand to trillion, or in words up to
    twenty. A name or a date is found if its words are adjacent, regardless of
    case, or all in one sentence.

    Args:
        sentences: sentences of the summary.
        document: sentences of the document.
        sources: indices of the sources of each summary sentence; None to flag
            only entities missing in the whole document.
    """
    vocabulary = _Vocabulary(document)
    flags = []
    for number, entities in enumerate(find_entities(sentences)):
        if sources is None:
            near = vocabulary
        else:
            near = _Vocabulary([document[i] for i in sources[number]])
        flags.append(list(_missing(entities, vocabulary, near)))
    return flags


def _missing(
    entities: Iterable[Entity], vocabulary: "_Vocabulary", near: "_Vocabulary"
) -> Iterator[Flag]:
    for entity in entities:
        if not near.has(entity):
            missing: Missing = (
                "sources" if vocabulary.has(entity) else "document"
            )
            yield Flag(entity.kind, entity.text, entity.start, missing)


class _Vocabulary:
    """The names, numbers and dates of a text.

    Args:
        sentences: sentences of the text.
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        self._sentences = sentences

    def has(self, entity: Entity) -> bool:
        """Returns True if the text contains a name, number or date."""
        if entity.kind == "number":
            return _amount(entity.text) in self._values
        words = unicode_words(entity.text)
        return f" {' '.join(words)} " in self._in_a_row or self._has_together(
            words
        )

    @functools.cached_property
    def _words(self) -> list[list[str]]:
        return [unicode_words(sentence) for sentence in self._sentences]

    @functools.cached_property
    def _in_a_row(self) -> str:
        return f" {' '.join(word for words in self._words for word in words)} "

    @functools.cached_property
    def _holders(self) -> dict[str, set[int]]:
        """The indices of the sentences that contain each word."""
        holders: dict[str, set[int]] = {}
        for number, words in enumerate(self._words):
            for word in words:
                holders.setdefault(word, set()).add(number)
        return holders

    @functools.cached_property
    def _values(self) -> set[float | str]:
        text = "\n".join(self._sentences)
        spelled = {
            value
            for value, word in enumerate(_SPELLED)
            if word in self._holders
        }
        plain = {_value(match[0]) for match in _NUMBER.finditer(text)}
        return (
            plain
            | {_amount(match[0]) for match in _SCALED.finditer(text)}
            | spelled
        )

    def _has_together(self, words: Iterable[str]) -> bool:
        holders = [self._holders.get(word, set()) for word in words]
        return bool(holders and set.intersection(*holders))


def _amount(text: str) -> float | str:
    """Returns the value of a number with its surroundings, such as $3.2 million or 12 %."""
    value = _value(_NUMBER.findall(text)[0])
    scale = _SCALES.get(text.split()[-1].lower(), 1)
    # Rounded: 8.3 times a million is not quite 8,300,000.
    if isinstance(value, float):
        return round(value * scale, 6)
    return value


def _value(digits: str) -> float | str:
    """Returns the value of a number; a text if it has several points, as in versions."""
    plain = digits.replace(",", "" if _THOUSANDS.fullmatch(digits) else ".")
    return plain if plain.count(".") > 1 else float(plain)
