"""Selects the best sentences of a document without near-duplicates, up to a length."""

import dataclasses
import re
from typing import Literal, get_args

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.parsing import ParsedDocument

ALIKE = 0.4  # cosine of content words above which two sentences say the same

Unit = Literal["words", "sentences", "percent"]
# Lengths by name, in words.
NAMED = {"short": 75, "medium": 150, "long": 400}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(words?|sentences?|%|percent)?")


@dataclasses.dataclass(frozen=True)
class Length:
    """The length of a summary.

    Attributes:
        value: above 0, a whole number of words or sentences, at most 100 percent.
        unit: "words", "sentences", or "percent" of the document's words.
    """

    value: float
    unit: Unit = "words"

    def __post_init__(self) -> None:
        whole = self.unit == "percent" or float(self.value).is_integer()
        highest = 100 if self.unit == "percent" else float("inf")
        if self.unit not in get_args(Unit) or not whole or not 0 < self.value <= highest:
            raise InputError(
                f"a length of {self.value:g} {self.unit}; give a whole number of words or "
                "sentences, at least 1, or more than 0 and at most 100 percent"
            )

    def __str__(self) -> str:
        unit = self.unit.removesuffix("s") if self.value == 1 else self.unit
        return f"{self.value:g} {unit}"


def parse_length(text: str | int | Length) -> Length:
    """Returns the length that a text names.

    Args:
        text: "short", "medium", "long", "150", "150 words", "7 sentences" or "5%"; a number is of
            words.

    Raises:
        InputError: something else.
    """
    if isinstance(text, Length):
        return text
    name = str(text).strip().lower()
    if name in NAMED:
        return Length(NAMED[name])
    found = _LENGTH.fullmatch(name)
    if not found:
        raise InputError(
            f'length="{text}"; write {", ".join(NAMED)}, "150 words", "7 sentences" or "5%"'
        )
    value, unit = found.groups(default="words")
    if unit in ("%", "percent"):
        return Length(float(value), "percent")
    return Length(float(value), "words" if unit.startswith("word") else "sentences")


def select_sentences(
    document: ParsedDocument,
    scores: np.ndarray,
    length: Length,
    *,
    alike: float = ALIKE,
) -> list[int]:
    """Returns the sentences that make a summary of some length; see ``take_sentences``."""
    limit = length.value
    costs = document.lengths
    if length.unit == "sentences":
        costs = np.ones_like(costs)
    elif length.unit == "percent":
        limit = length.value / 100 * costs.sum()
    return take_sentences(document, scores, costs, limit, alike=alike)


def take_sentences(
    document: ParsedDocument,
    scores: np.ndarray,
    costs: np.ndarray,
    limit: float,
    *,
    alike: float = ALIKE,
) -> list[int]:
    """Returns the best sentences that there is room for, in the order of the document.

    Sentences are taken in the order of their scores. Near-duplicates of sentences taken before are
    skipped, and so are sentences that exceed the remaining length; where none fits, the best
    sentence alone is the summary. Sentences without words, or with a score of minus infinity, are
    not taken unless there is no other.

    Args:
        document: of n sentences.
        scores: float [n]; of equal ones the earlier is better.
        costs: int [n], room that each takes.
        limit: room for all, not exceeded by more than one sentence.
        alike: the cosine above which two sentences are alike; 1 takes repetitions, too.
    """
    order = np.argsort(-scores, kind="stable")
    has_words = np.bincount(document.words.row, minlength=len(scores)) > 0
    allowed = has_words & (scores > -np.inf)
    order = order[allowed[order]] if allowed.any() else order
    taken: list[int] = []
    seen = _Seen(document)
    room = limit
    for sentence in order.tolist():
        if room < 1:
            break
        if costs[sentence] > room or (alike < 1 and seen.highest_cosine(sentence) > alike):
            continue
        taken.append(sentence)
        seen.add(sentence)
        room -= costs[sentence]
    return sorted(taken or order[:1].tolist())


class _Seen:
    """An inverted index of the sentences taken so far: (sentence, weight) pairs for each word."""

    def __init__(self, document: ParsedDocument) -> None:
        words = document.words
        bounds = np.searchsorted(words.row, np.arange(words.num_sentences + 1))
        self._bounds = bounds.tolist()
        self._words = words.word
        self._weights = document.weights
        self._holders: dict[int, list[tuple[int, float]]] = {}

    def _pairs(self, sentence: int) -> list[tuple[int, float]]:
        pairs = slice(self._bounds[sentence], self._bounds[sentence + 1])
        return list(zip(self._words[pairs].tolist(), self._weights[pairs].tolist(), strict=True))

    def highest_cosine(self, sentence: int) -> float:
        """Returns the cosine with the sentence taken before that is most like this one."""
        products: dict[int, float] = {}
        for word, weight in self._pairs(sentence):
            for holder, other in self._holders.get(word, ()):
                products[holder] = products.get(holder, 0.0) + weight * other
        return max(products.values(), default=0.0)

    def add(self, sentence: int) -> None:
        """Takes a sentence."""
        for word, weight in self._pairs(sentence):
            if weight:
                self._holders.setdefault(word, []).append((sentence, weight))
