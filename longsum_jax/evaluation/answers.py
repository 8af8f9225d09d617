"""Exact match and F1 of short answers, as in SQuAD and SCROLLS."""

import collections
import dataclasses
import re
import string
import unicodedata
from collections.abc import Sequence

from longsum_jax.evaluation.metric import Metric, Scores, max_scores

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


class Answers(Metric):
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

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del sources
        pairs = zip(predictions, references, strict=True)
        return [
            _values(self._words(prediction), self._words(right))
            for prediction, right in pairs
        ]

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
