"""Selects a passage of consecutive sentences from each part of a long text."""

import re

import numpy as np

from longsum_jax.ranking.dependence import QUOTATION
from longsum_jax.ranking.parsing import ParsedDocument
from longsum_jax.ranking.selection import ALIKE, Seen

WORDS_OF_PASSAGE, MOST_PASSAGES = 60, 10
LONG_WORDS = 20_000  # words above which every text is selected by passages
STORY_WORDS = 1_500  # the same for stories
_STORY_SHARE = 0.2  # minimum share of sentences with "he" or "she" in a story
_SHORT_SHARE = 0.1  # maximum share of a text in a summary by passages
# Values in standard deviations of the scores.
_FULL = 1.0  # of a passage that fills its room
_BEGINS, _ENDS = 0.4, 0.2  # of a passage that begins and ends with a paragraph
_SPOKEN = 0.5  # loss of a sentence in direct speech, whose speaker is unclear
_THIRD_PERSON = re.compile(r"\b(?:he|she|his|her|him)\b", re.IGNORECASE)


def is_story(document: ParsedDocument) -> bool:
    """Returns True if many sentences have "he" or "she"."""
    if document.language not in ("en", ""):
        return False
    sample = document.sentences[:: max(1, len(document.sentences) // 500)]
    count = sum(_THIRD_PERSON.search(sentence) is not None for sentence in sample)
    return count >= _STORY_SHARE * len(sample)


def num_passages(
    document: ParsedDocument, limit: float, is_talk: bool, has_query: bool
) -> int:
    """Returns the number of passages of a summary; 0 if single sentences are better.

    Args:
        document: document of any length.
        limit: words of the summary.
        is_talk: True if the document is talk.
        has_query: True if the summary has a topic, which few parts may have.
    """
    num_words = int(document.lengths.sum())
    if has_query or limit > _SHORT_SHARE * num_words:
        return 0
    is_long = num_words > LONG_WORDS
    if not is_long and (
        is_talk or num_words < STORY_WORDS or not is_story(document)
    ):
        return 0
    count = int(limit // WORDS_OF_PASSAGE)
    return min(count, MOST_PASSAGES) if count > 1 else 0


def select_passages(
    document: ParsedDocument,
    scores: np.ndarray,
    costs: np.ndarray,
    limit: float,
    *,
    dependent: np.ndarray,
    count: int,
) -> list[int]:
    """Returns the sentences of the best passage of each part, in document order.

    A passage begins with a sentence that is understandable alone, and has no
    fragments. Its value is the mean score of its sentences in standard
    deviations, and more if it fills its room or is a paragraph.

    Args:
        document: document of n sentences.
        scores: float [n]; minus infinity for fragments.
        costs: int [n], words of each sentence with its label.
        limit: words of the summary.
        dependent: bool [n], True if a sentence depends on the previous one.
        count: number of parts, of equally many words.
    """
    usable = np.isfinite(scores)
    if not usable.any():
        return []
    values = np.where(usable, scores, 0.0)
    values = (values - values[usable].mean()) / (values[usable].std() + 1e-9)
    speech = np.array(
        [sentence[:1] in QUOTATION[:6] for sentence in document.sentences]
    )
    values = np.minimum(values, 2.5) - _SPOKEN * speech
    begins = np.diff(document.paragraphs, prepend=-1) != 0
    picker = _Picker(document, values, costs, usable, dependent, begins)
    words = np.cumsum(document.lengths)
    bounds = np.searchsorted(
        words, words[-1] * np.arange(count + 1) / count
    ).tolist()
    bounds[-1] = len(scores)
    selected: list[int] = []
    room = limit
    for part in range(count):
        share = room / (count - part)
        passage = picker.best(bounds[part], bounds[part + 1], share)
        selected += passage
        room -= float(costs[passage].sum())
    return selected


class _Picker:
    """Picks passages that do not repeat earlier ones; see ``select_passages``."""

    def __init__(
        self,
        document: ParsedDocument,
        values: np.ndarray,
        costs: np.ndarray,
        usable: np.ndarray,
        dependent: np.ndarray,
        begins: np.ndarray,
    ) -> None:
        # Lists, because reading single array elements is slow.
        self._values = values.tolist()
        self._costs = costs.tolist()
        self._usable = usable.tolist()
        self._opens = (usable & ~dependent).tolist()
        self._begins = [*begins.tolist(), True]
        self._seen = Seen(document)

    def best(self, start: int, end: int, room: float) -> list[int]:
        """Returns the best passage within [start, end) of at most ``room`` words; [] without one."""
        ranked = []
        for first in range(start, end):
            if self._opens[first]:
                value, last = self._extended(first, end, room)
                ranked.append((value, -first, last))
        for value, first, last in sorted(ranked, reverse=True)[:50]:
            passage = list(range(-first, last + 1))
            if value > -np.inf and not any(
                self._seen.highest_cosine(number) > ALIKE for number in passage
            ):
                for number in passage:
                    self._seen.add(number)
                return passage
        return []

    def _extended(self, first: int, end: int, room: float) -> tuple[float, int]:
        """Returns the value of the best passage that begins with a sentence, and its last sentence."""
        best, best_last = -np.inf, first
        words, total = 0, 0.0
        for last in range(first, end):
            if not self._usable[last]:
                break
            words += self._costs[last]
            if words > room:
                break
            total += self._values[last]
            value = total / (last - first + 1) + _FULL * words / room
            value += _BEGINS * self._begins[first]
            value += _ENDS * self._begins[last + 1]
            if value > best:
                best, best_last = value, last
        return best, best_last
