"""Metrics of short answers, as in SQuAD, SCROLLS and ZeroSCROLLS.

Texts are compared by exact match and F1, percentages by their distance, and
orders by the concordance index.
"""

import collections
import dataclasses
import itertools
import re
import string
import unicodedata
from collections.abc import Sequence

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import PairMetric, Scores, max_scores

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)%")
HALVING = 10.0  # percentage points by which the score halves
_OTHERS = re.compile(r"[^0-9,\s]")


class Answers(PairMetric):
    """Answers compared with the correct ones, from 0 to 100 (Rajpurkar et al., 2016, section 6.1).

    exact_match is 100 if both have the same words in the same order, answer_f1
    the F-measure of their common words. Case, punctuation and articles are
    ignored. With several correct answers, the best score counts.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Attributes: strip_accents: True if "é" counts as "e", as in ZeroSCROLLS."""

        strip_accents: bool = False

    columns = ("exact_match", "answer_f1")
    reads_sources = False
    options: Options

    def compare(self, prediction: str, other: str) -> Scores:
        return _values(self._words(prediction), self._words(other))

    def over_references(self, scores: Sequence[Scores]) -> Scores:
        return max_scores(scores)

    def _words(self, text: str) -> list[str]:
        if self.options.strip_accents:
            text = without_accents(text)
        return answer_words(text)


def without_accents(text: str) -> str:
    """Returns a text without diacritics, and with ligatures decomposed (NFKD)."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(char for char in parts if not unicodedata.combining(char))


def answer_words(text: str) -> list[str]:
    """Returns the lower-case words of an answer, without punctuation and articles."""
    return _ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _values(answers: list[str], right: list[str]) -> Scores:
    shared = (collections.Counter(answers) & collections.Counter(right)).total()
    return {
        "exact_match": 100.0 * (answers == right),
        "answer_f1": 200 * shared / (len(answers) + len(right))
        if shared
        else 0.0,
    }


class Percentage(PairMetric):
    """Exponential similarity, from 0 to 100 (Shaham et al., 2023, section 3.3).

    100 * 2 ** (-10 * |p - q|) for the first percentages p and q, as fractions,
    in the answer and the reference: halved for every 10 points. An answer
    without a percentage scores 0.
    """

    columns = ("exp_similarity",)
    reads_sources = False

    def compare(self, prediction: str, other: str) -> Scores:
        return {"exp_similarity": _similarity(prediction, other)}


def _similarity(prediction: str, reference: str) -> float:
    right = _percentage(reference)
    if right is None:
        raise InputError(
            f'the right answer "{reference[:40]}" has no percentage, such as 40%; score it by '
            "another metric"
        )
    predicted = _percentage(prediction)
    if predicted is None:
        return 0.0
    return 100 * 0.5 ** (abs(predicted - right) / HALVING)


def _percentage(answer: str) -> float | None:
    match = _PERCENTAGE.search(answer)
    return float(match[1]) if match else None


class Ordering(PairMetric):
    """Concordance index of lists of numbers, from 0 to 100 (Shaham et al., 2023, section 3.3).

    The percentage of all pairs of numbers that are in the order of the
    reference: 50 for a random permutation. All characters except digits, commas
    and white space are removed from an answer, and the latter two separate its
    numbers; the score is 0 unless it is a permutation of the reference.
    """

    columns = ("concordance_index",)
    reads_sources = False

    def compare(self, prediction: str, other: str) -> Scores:
        return {"concordance_index": _concordance(prediction, other)}


def _concordance(prediction: str, reference: str) -> float:
    right = _numbers(reference)
    if len(set(right)) < max(len(right), 2):
        raise InputError(
            f'the right answer "{reference[:40]}" is not a list of numbers, such as 2, 1, 3; score '
            "it by another metric"
        )
    predicted = _numbers(prediction)
    if sorted(predicted) != sorted(right):
        return 0.0
    positions = {number: position for position, number in enumerate(predicted)}
    pairs = list(itertools.combinations(right, 2))
    return (
        100
        * sum(positions[first] < positions[second] for first, second in pairs)
        / len(pairs)
    )


def _numbers(answer: str) -> list[str]:
    """Returns the numbers separated by commas and white space, without leading zeros.

    They remain strings, because an answer may contain a number of arbitrary
    length.
    """
    numbers = _OTHERS.sub("", answer).replace(",", " ").split()
    return [number.lstrip("0") or "0" for number in numbers]
