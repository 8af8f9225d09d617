"""METEOR with exact and stem matches, as computed by NLTK."""

import collections
import itertools
from collections.abc import Sequence
from typing import Any

from longsum_jax.evaluation.metric import Scores, WordMetric
from longsum_jax.text.ngrams import TOKENIZERS, stem

ALPHA = 0.9  # weight of recall in the harmonic mean
BETA = 3.0  # exponent of the penalty
GAMMA = 0.5  # maximum penalty

Match = tuple[int, int]  # position in the prediction, position in the reference


class Meteor(WordMetric):
    """METEOR (Lavie & Agarwal, 2007) from 0 to 100, without synonyms.

    Words are matched exactly first, then by their stems (Porter). The score is
    the harmonic mean of precision and recall, with recall weighted nine times
    as much, less a penalty for matches out of order. Equal to NLTK's without
    WordNet; with several references, the best one counts.
    """

    columns = ("meteor",)
    reads_sources = False

    def compare(self, prediction: str, other: str) -> Scores:
        value = meteor(self._words(prediction), self._words(other))
        return {"meteor": 100 * value}

    def over_references(self, scores: Sequence[Scores]) -> Scores:
        return max(scores, key=lambda score: score["meteor"])

    def describe(self) -> dict[str, Any]:
        signature = f"meteor|match:exact+stem|tok:{self.options.tokenizer}"
        return {"signature": signature} | super().describe()

    def _words(self, text: str) -> list[str]:
        words: Sequence[Any] = TOKENIZERS[self.options.tokenizer](text)
        return [
            word.decode() if isinstance(word, bytes) else word for word in words
        ]


def meteor(prediction: Sequence[str], reference: Sequence[str]) -> float:
    """Returns METEOR of a prediction and its reference, from 0 to 1.

    Args:
        prediction, reference: words in lower case.
    """
    matches = _matches(prediction, reference)
    if not matches:
        return 0.0
    precision = len(matches) / len(prediction)
    recall = len(matches) / len(reference)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    penalty = GAMMA * (_chunks(matches) / len(matches)) ** BETA
    return (1 - penalty) * mean


def _matches(
    prediction: Sequence[str], reference: Sequence[str]
) -> list[Match]:
    """Returns matching words, in the order of the prediction: exact matches first, then stems.

    From the end of the prediction, each word is matched with the last free word
    of the reference. The original METEOR implementation instead minimizes the
    number of crossing matches.
    """
    free = dict(enumerate(prediction))
    wanted_free = dict(enumerate(reference))
    matches: list[Match] = []
    for form in (str, stem):
        positions = collections.defaultdict(list)
        for position, word in wanted_free.items():
            positions[form(word)].append(position)
        stage = []
        for position in sorted(free, reverse=True):
            available = positions[form(free[position])]
            if available:
                stage.append((position, available.pop()))
        for position, other in stage:
            del free[position], wanted_free[other]
        matches += stage
    return sorted(matches)


def _chunks(matches: Sequence[Match]) -> int:
    """Returns the number of chunks: runs of matches that are adjacent in both texts."""
    pairs = itertools.pairwise(matches)
    return 1 + sum(
        (position + 1, other + 1) != following
        for (position, other), following in pairs
    )
