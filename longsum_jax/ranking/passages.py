"""Selects a passage of consecutive sentences from each part of a long text."""

import numpy as np

from longsum_jax.ranking.dependence import QUOTATION
from longsum_jax.ranking.fragments import are_interruptions
from longsum_jax.ranking.parsing import ParsedDocument, is_story
from longsum_jax.ranking.selection import ALIKE, Seen

WORDS_OF_PASSAGE = 75
LONG_WORDS = 20_000  # words above which short summaries consist of passages
_SHORT_SHARE = 0.03  # maximum share of a text in such a summary
STORY_WORDS = 1_500  # words above which a story is selected by parts
WORDS_OF_PART = 60  # words of a part of a story
_SHORT_WORDS = 10  # words of a sentence that tells more
# Values in standard deviations of the scores.
_FULL = 1.0  # of a passage that fills its room
_SEVERAL = 0.6  # of a passage of two or more sentences
_BEGINS, _ENDS = 0.4, 0.2  # of a passage that begins and ends with a paragraph
_LONG, _LONG_WORDS = 0.6, 45  # loss of a long sentence, and its words
_SPOKEN = 0.5  # loss of a sentence in direct speech, whose speaker is unclear
_FRAGMENT = -0.5  # of a sentence that needs others around it
_MOST_SKIPPED = 3  # interjections of others inside a passage of talk


def num_passages(num_words: int, limit: float) -> int:
    """Returns the number of passages of a summary; 0 if sentences are selected instead.

    Args:
        num_words: words of the document.
        limit: words of the summary.
    """
    if num_words <= LONG_WORDS or limit > _SHORT_SHARE * num_words:
        return 0
    count = int(limit // WORDS_OF_PASSAGE)
    return count if count > 1 else 0


def num_story_parts(document: ParsedDocument, limit: float) -> int:
    """Returns the number of parts of a story that share its summary; 1 for other texts."""
    if document.lengths.sum() < STORY_WORDS or not is_story(document):
        return 1
    return max(int(limit // WORDS_OF_PART), 1)


def without_dialogue(
    document: ParsedDocument, scores: np.ndarray
) -> np.ndarray:
    """Returns lower scores for short sentences of a story, and for direct speech."""
    usable = np.isfinite(scores)
    if not usable.any():
        return scores
    deviation = scores[usable].std()
    loss = 1.0 * (document.lengths < _SHORT_WORDS)
    return scores - deviation * (loss + _SPOKEN * _is_speech(document))


def _is_speech(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for sentences that begin with a quotation mark."""
    return np.array(
        [sentence[:1] in QUOTATION[:6] for sentence in document.sentences]
    )


def select_passages(
    document: ParsedDocument,
    scores: np.ndarray,
    costs: np.ndarray,
    limit: float,
    *,
    dependent: np.ndarray,
    is_talk: bool,
    count: int,
) -> list[int]:
    """Returns the sentences of the best passage of each part, in document order.

    A passage begins with a sentence that needs no other, and ends before a
    heading, table, caption or picture. Its value is the mean score of its
    sentences in standard deviations, and more if it fills its room or is a
    paragraph.

    Args:
        document: document of n sentences.
        scores: float [n]; minus infinity for fragments.
        costs: int [n], words of each sentence with its label.
        limit: words of the summary.
        dependent: bool [n], True if a sentence depends on the previous one.
        is_talk: True if fragments are interjections, which are left out.
        count: number of parts, of equally many words.
    """
    usable = np.isfinite(scores)
    if not usable.any():
        return []
    values = np.where(usable, scores, 0.0)
    values -= values[usable].mean()
    values /= values[usable].std() + 1e-9
    values = np.where(usable, np.minimum(values, 2.5), _FRAGMENT)
    values -= _SPOKEN * _is_speech(document) + _LONG * (
        document.lengths > _LONG_WORDS
    )
    if is_talk:
        passable = usable
    else:
        passable = usable | ~are_interruptions(document)
    begins = np.diff(document.paragraphs, prepend=-1) != 0
    picker = _Picker(
        document, values, costs, usable & ~dependent, passable, begins, is_talk
    )
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
        opens: np.ndarray,
        passable: np.ndarray,
        begins: np.ndarray,
        is_talk: bool,
    ) -> None:
        # Lists, because reading single array elements is slow.
        self._values = values.tolist()
        self._costs = costs.tolist()
        self._opens = opens.tolist()
        self._passable = passable.tolist()
        self._most_skipped = _MOST_SKIPPED if is_talk else 0
        self._begins = [*begins.tolist(), True]
        self._seen = Seen(document)

    def best(self, start: int, end: int, room: float) -> list[int]:
        """Returns the best passage in [start, end) of at most ``room`` words; [] without one."""
        ranked = []
        for first in range(start, end):
            if self._opens[first]:
                value, passage = self._extended(first, end, room)
                ranked.append((value, -first, passage))
        for _, _, passage in sorted(ranked, reverse=True)[:50]:
            if passage and not any(
                self._seen.highest_cosine(number) > ALIKE for number in passage
            ):
                for number in passage:
                    self._seen.add(number)
                return passage
        return []

    def _extended(
        self, first: int, end: int, room: float
    ) -> tuple[float, list[int]]:
        """Returns the best passage that begins with a sentence: its value and sentences."""
        best, best_passage = -np.inf, []
        words, total, skipped = 0, 0.0, 0
        passage: list[int] = []
        for last in range(first, end):
            if not self._passable[last]:
                skipped += 1
                if skipped > self._most_skipped:
                    break
                continue
            skipped = 0
            words += self._costs[last]
            if words > room:
                break
            passage.append(last)
            total += self._values[last]
            value = total / len(passage) + _FULL * words / room
            value += _SEVERAL * (len(passage) > 1)
            value += _BEGINS * self._begins[first]
            value += _ENDS * self._begins[last + 1]
            if value > best:
                best, best_passage = value, list(passage)
        return best, best_passage
