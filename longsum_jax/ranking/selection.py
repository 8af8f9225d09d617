"""Selects the best sentences of a document without near-duplicates, up to a length."""

import heapq
import itertools
from collections.abc import Sequence

import numpy as np

from longsum_jax.ranking.fragments import are_running_text
from longsum_jax.ranking.parsing import ParsedDocument, unit_weights
from longsum_jax.text.lengths import Length as Length
from longsum_jax.text.lengths import parse_length as parse_length
from longsum_jax.text.ngrams import is_unspaced_letter, unicode_words
from longsum_jax.text.word_table import word_table

# cosine of content words above which two sentences are near-duplicates
ALIKE = 0.4
BOOK_WORDS = 100_000  # words above which short summaries are selected by parts
_SHORT_SHARE = 0.01  # maximum share of a book's words in a short summary
_WORDS_OF_PART, _MOST_PARTS = 25, 10
# sentences that are selected together because each depends on the previous one,
# in a document that is longer than the limit, and within it
_LONGEST_GROUP, _LONGEST_WHOLE_GROUP = 3, 20


def select_sentences(
    document: ParsedDocument,
    scores: np.ndarray,
    length: Length,
    *,
    alike: float = ALIKE,
    dependent: np.ndarray | None = None,
    label_words: np.ndarray | None = None,
    closeness: float = 0.0,
    num_parts: int | None = None,
) -> list[int]:
    """Returns the sentences of a summary with a given length; see ``take_sentences``.

    A short summary of a whole book takes its sentences from several parts of
    equal length, so that no chapter dominates.

    Args:
        document: document of n sentences.
        scores: float [n]; ties go to the earlier sentence.
        length: length of the summary.
        alike: cosine above which two sentences are near-duplicates; 1 allows
            repetitions.
        dependent: bool [n], True if a sentence depends on the previous one;
            None if none does.
        label_words: int [n], words of the label of a sentence in the summary;
            None for no labels.
        closeness: see ``take_sentences``.
        num_parts: number of parts that share the length; None to decide by the
            lengths of document and summary.
    """
    costs = document.lengths
    num_words = int(costs.sum())
    limit = length.limit(num_words)
    if num_parts is None:
        num_parts = _num_parts(length, limit, num_words)
    if length.unit == "sentences":
        costs = np.ones_like(costs)
    elif label_words is not None:
        costs = costs + label_words
    return take_sentences(
        document,
        scores,
        costs,
        limit,
        alike=alike,
        dependent=dependent,
        num_parts=num_parts,
        closeness=closeness,
    )


def _num_parts(length: Length, limit: float, num_words: int) -> int:
    """Returns the number of parts of a document that share a summary."""
    if num_words > BOOK_WORDS and limit < _SHORT_SHARE * num_words:
        if length.unit == "sentences":
            words_of_part = 1
        else:
            words_of_part = _WORDS_OF_PART
        return int(np.clip(limit // words_of_part, 1, _MOST_PARTS))
    return 1


def take_sentences(
    document: ParsedDocument,
    scores: np.ndarray,
    costs: np.ndarray,
    limit: float,
    *,
    alike: float = ALIKE,
    dependent: np.ndarray | None = None,
    num_parts: int = 1,
    closeness: float = 0.0,
) -> list[int]:
    """Returns the best sentences within a limit, in document order.

    Sentences are selected in the order of their scores. Near-duplicates of
    selected sentences are skipped, and so are sentences that exceed the
    remaining length; if none fits, the summary is the best sentence. Sentences
    without words, or with a score of minus infinity, are selected only if there
    is no other. In a document that is within the limit, questions and other
    finished sentences among them are also selected together with a sentence
    that depends on them: "Can we? We can."

    A dependent sentence is selected together with the sentences before it that
    it depends on, at the mean of their scores, or after them at its own score.

    Args:
        document: document of n sentences.
        scores: float [n]; ties go to the earlier sentence.
        costs: int [n], length of each sentence.
        limit: maximum total cost, exceeded only if no sentence fits.
        alike: cosine above which two sentences are near-duplicates; 1 allows
            repetitions.
        dependent: bool [n], True if a sentence depends on the previous one;
            None if none does.
        num_parts: number of parts of the document, of equally many words, that
            share the limit equally; an unused remainder passes to the next
            part.
        closeness: standard deviations of the scores by which a neighbor of a
            selected sentence is better.
    """
    allowed = _allowed(document, scores)
    if dependent is None:
        dependent = np.zeros(len(scores), bool)
    is_whole = bool(costs.sum() <= limit)
    accompanying = allowed
    if is_whole:
        accompanying = allowed | are_running_text(document)
    selection = _Selection(
        document,
        scores,
        costs,
        alike,
        allowed,
        accompanying,
        dependent,
        closeness,
        is_whole=is_whole,
    )
    words = np.cumsum(document.lengths)
    ends = (
        np.searchsorted(
            words, words[-1] * np.arange(1, num_parts + 1) / num_parts
        )
        + 1
    )
    start, room = 0, limit
    for part, end in enumerate(np.minimum(ends, len(scores)).tolist()):
        share = room / (num_parts - part)
        room -= share - selection.fill(start, end, share)
        start = end
    if selection.selected:
        return sorted(selection.selected)
    return [int(np.where(allowed, scores, -np.inf).argmax())]


def _allowed(document: ParsedDocument, scores: np.ndarray) -> np.ndarray:
    """Returns bool [n], True for sentences that may be selected; all if no sentence qualifies."""
    has_words = np.bincount(document.words.row, minlength=len(scores)) > 0
    allowed = has_words & (scores > -np.inf)
    if allowed.any():
        return allowed
    return np.ones(len(scores), bool)


class _Selection:
    """The sentences selected so far.

    Args:
        document: document of n sentences.
        scores, costs, alike, dependent, closeness: see ``take_sentences``.
        allowed: bool [n], True for sentences that may be selected.
        accompanying: bool [n], True for sentences that may be selected together
            with an allowed sentence that depends on them.
        is_whole: True if the document is within the limit.
    """

    def __init__(
        self,
        document: ParsedDocument,
        scores: np.ndarray,
        costs: np.ndarray,
        alike: float,
        allowed: np.ndarray,
        accompanying: np.ndarray,
        dependent: np.ndarray,
        closeness: float,
        *,
        is_whole: bool,
    ) -> None:
        self.selected: set[int] = set()
        # Lists, because reading single array elements is slow.
        self._scores = scores.tolist()
        self._costs = costs.tolist()
        self._alike = alike
        self._allowed = allowed.tolist()
        self._dependent = dependent.tolist()
        self._accompanying = accompanying.tolist()
        self._is_whole = is_whole
        self._longest_group = (
            _LONGEST_WHOLE_GROUP if is_whole else _LONGEST_GROUP
        )
        self._seen = Seen(document)
        finite = scores[np.isfinite(scores)]
        deviation = float(finite.std()) if len(finite) else 0.0
        self._bonus = closeness * deviation

    def fill(self, start: int, end: int, room: float) -> float:
        """Selects sentences from [start, end); returns the remaining room."""
        # (minus the value, sentence): the best one first, then the earliest
        queue = []
        for sentence in range(start, end):
            group = self._group(sentence)
            if self._may_select(group):
                queue.append((-self._mean_score(group), sentence))
        heapq.heapify(queue)
        while queue and room >= 1:
            value, sentence = heapq.heappop(queue)
            if sentence in self.selected:
                missing = []
            else:
                missing = self._missing(sentence)
            if not missing:
                continue
            current = -self._value(missing)
            # a better part of the group has been selected since
            if current > value:
                heapq.heappush(queue, (current, sentence))
                continue
            cost = sum(self._costs[number] for number in missing)
            if cost > room or self._repeats(missing):
                continue
            for number in missing:
                self.selected.add(number)
                self._seen.add(number)
            room -= cost
            for neighbor in self._neighbors(missing, start, end):
                best = self._scores[neighbor] + self._bonus
                heapq.heappush(queue, (-best, neighbor))
        return room

    def _may_select(self, group: Sequence[int]) -> bool:
        if self._is_whole:
            return self._allowed[group[-1]]
        return len(group) <= _LONGEST_GROUP and all(
            self._allowed[number] for number in group
        )

    def _neighbors(
        self, sentences: Sequence[int], start: int, end: int
    ) -> list[int]:
        """Returns the sentences of [start, end) to be selected next to some others."""
        before, after = sentences[0] - 1, sentences[-1] + 1
        neighbors = []
        if (
            self._bonus
            and before >= start
            and self._allowed[before]
            and not self._dependent[before]
        ):
            neighbors.append(before)
        if (
            after < end
            and self._allowed[after]
            and (self._bonus or self._dependent[after])
        ):
            neighbors.append(after)
        return neighbors

    def _value(self, sentences: Sequence[int]) -> float:
        """Returns the mean score, with a bonus for neighbors of selected sentences."""
        neighbors = (sentences[0] - 1, sentences[-1] + 1)
        if self._bonus and not self.selected.isdisjoint(neighbors):
            return self._mean_score(sentences) + self._bonus
        return self._mean_score(sentences)

    def _mean_score(self, sentences: Sequence[int]) -> float:
        if len(sentences) == 1:
            return self._scores[sentences[0]]
        scores = [self._scores[n] for n in sentences if self._allowed[n]]
        return sum(scores) / len(scores)

    def _group(self, sentence: int) -> list[int]:
        """Returns a sentence, preceded by the sentences it depends on."""
        first = sentence
        while (
            first > 0
            and self._dependent[first]
            and sentence - first < self._longest_group
        ):
            first -= 1
        return list(range(first, sentence + 1))

    def _missing(self, sentence: int) -> list[int]:
        """Returns the part of a sentence's group to be selected with it."""
        if sentence - 1 in self.selected:
            return [sentence]
        return [
            number
            for number in self._group(sentence)
            if number not in self.selected and self._accompanying[number]
        ]

    def _repeats(self, sentences: Sequence[int]) -> bool:
        """Returns True if one of some sentences is a near-duplicate of a selected sentence."""
        if self._alike >= 1:
            return False
        return any(
            self._seen.highest_cosine(number) > self._alike
            for number in sentences
            if self._allowed[number]
        )


class Seen:
    """An inverted index of the selected sentences: (sentence, weight) pairs for each word.

    In scripts without spaces between words, pairs of letters are the words.
    """

    def __init__(self, document: ParsedDocument) -> None:
        words, weights = document.words, document.weights
        letters = np.array([*map(is_unspaced_letter, words.names)], bool)
        if words.counts @ letters[words.word] > 0.5 * words.counts.sum():
            # Sentences about different things consist of the same letters.
            words = word_table(document.sentences, _word_pairs)
            weights = unit_weights(
                words, words.counts * words.inverse_frequencies()[words.word]
            )
        bounds = np.searchsorted(words.row, np.arange(words.num_sentences + 1))
        self._bounds = bounds.tolist()
        self._words = words.word
        self._weights = weights
        self._holders: dict[int, list[tuple[int, float]]] = {}

    def _pairs(self, sentence: int) -> list[tuple[int, float]]:
        pairs = slice(self._bounds[sentence], self._bounds[sentence + 1])
        return list(
            zip(
                self._words[pairs].tolist(),
                self._weights[pairs].tolist(),
                strict=True,
            )
        )

    def highest_cosine(self, sentence: int) -> float:
        """Returns the highest cosine with a selected sentence."""
        products: dict[int, float] = {}
        for word, weight in self._pairs(sentence):
            for holder, other in self._holders.get(word, ()):
                products[holder] = products.get(holder, 0.0) + weight * other
        return max(products.values(), default=0.0)

    def add(self, sentence: int) -> None:
        """Adds a selected sentence."""
        for word, weight in self._pairs(sentence):
            if weight:
                self._holders.setdefault(word, []).append((sentence, weight))


def _word_pairs(sentence: str) -> list[str]:
    """Returns the pairs of consecutive words; of a single word, the word."""
    words = unicode_words(sentence)
    return ["".join(pair) for pair in itertools.pairwise(words)] or words
