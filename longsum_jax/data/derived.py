"""Tasks whose rows are derived from other rows: their options and functions."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from longsum_jax.errors import InputError, check_whole
from longsum_jax.lazy_classes import LazyClasses
from longsum_jax.text.documents import DataRow

_EXPERIMENTAL = "longsum_jax.experimental.tasks"

Derive = Callable[[Iterator[DataRow], Any], Iterator[DataRow]]

# objective -> function of the rows of a source and the task
DERIVED: LazyClasses[Derive] = LazyClasses(
    {
        "claims": f"{_EXPERIMENTAL}.derived:claim_rows",
        "cloze": f"{_EXPERIMENTAL}.derived:cloze_rows",
    }
)


@dataclasses.dataclass(frozen=True)
class ClaimOptions:
    """Options of claims.

    Attributes:
        per_text: number of sentences that become claims, each once correct and
            once incorrect.
        min_words: minimum words of such a sentence; 8 as published.
        piece_words: approximate maximum words of the pieces into which longer
            documents are cut, at sentence ends. Each piece is a text, so that
            the model reads the sentence of its claim.
        noisy: share of claims with noise.
        noise: share of words deleted or doubled in such a claim; 0.05 as
            published.
        deleted: share of these words that are deleted; 0.8 as published.
        seed: random seed of all choices.

    Raises:
        InputError: a value is out of range.
    """

    per_text: int = 2
    min_words: int = 8
    piece_words: int = 250
    noisy: float = 0.5
    noise: float = 0.05
    deleted: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("per_text", "min_words", "piece_words"):
            check_whole(f"claims.{name}", getattr(self, name), 1)
        for name in ("noisy", "noise", "deleted"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(
                    f"claims.{name}={getattr(self, name)} must lie between 0 and 1"
                )


@dataclasses.dataclass(frozen=True)
class ClozeOptions:
    """Options of cloze questions.

    Attributes:
        context_words: maximum words of the document sentences that are searched
            for answers.
        question_words: maximum words of a question; longer sentences are cut
            around the gap.

    Raises:
        InputError: a value is out of range.
    """

    context_words: int = 300
    question_words: int = 60

    def __post_init__(self) -> None:
        for name in ("context_words", "question_words"):
            check_whole(f"cloze.{name}", getattr(self, name), 1)
