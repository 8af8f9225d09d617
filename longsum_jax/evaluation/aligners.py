"""Aligners of summary and document sentences, by words or by vectors of a user's model."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.model_metric import (
    Requirement,
    UserModel,
    longest_text,
)
from longsum_jax.text.alignment import (
    MAX_SOURCES,
    MIN_GAIN,
    SUPPORTED,
    Support,
    align,
)

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

MAX_SENTENCE_LENGTH = 128  # tokens compared of a sentence
# Share of the sentences about other documents that are classified as supported.
FALSE_SUPPORT = 0.03


class Aligner(Protocol):
    """Finds the document sentences that support summary sentences, document by document."""

    def on_device(self) -> AbstractContextManager[None]:
        """Keeps the model, if any, on a device for the duration of the block."""

    def align(
        self, summary_sentences: Sequence[str], source_sentences: Sequence[str]
    ) -> list[Support]:
        """Returns the supporting document sentences for every sentence of the summaries."""

    def threshold(self) -> float:
        """Returns the minimum total score of a supported sentence.

        Must be called after all documents.
        """

    def describe(self) -> dict[str, Any]:
        """Returns the method of comparing sentences, for reports."""


class WordAligner:
    """Compares sentences by their words; see ``text.align``."""

    def on_device(self) -> AbstractContextManager[None]:
        return nullcontext()

    def align(
        self, summary_sentences: Sequence[str], source_sentences: Sequence[str]
    ) -> list[Support]:
        return align(summary_sentences, source_sentences)

    def threshold(self) -> float:
        return SUPPORTED

    def describe(self) -> dict[str, Any]:
        return {"by": "words"}


class VectorAligner:
    """Compares sentences by vectors, see ``nearest_sentences``.

    The similarity of unrelated sentences depends on the model, so the threshold
    is estimated from the data: 3 % of the sentences about another document, the
    previous different one, reach it.

    Args:
        path: path or name of an encoder, as accepted by ``longsum_jax.load``;
            sentence vectors are its mean states.
        model: model to use instead of the path.

    Raises:
        InputError: the model cannot be read.
    """

    def __init__(
        self, path: str = "", model: "LoadedModel | None" = None
    ) -> None:
        self._model = UserModel("--align_model", path, model, Requirement())
        # sentence vectors of the previous document
        self._about_before: np.ndarray | None = None
        self._source: list[str] = []
        self._about = np.zeros((0, 0), np.float32)
        # scores of sentences about other documents
        self._totals: list[float] = []

    @contextmanager
    def on_device(self) -> Iterator[None]:
        with self._model.on_device():
            yield

    def align(
        self, summary_sentences: Sequence[str], source_sentences: Sequence[str]
    ) -> list[Support]:
        vectors = self._vectors([*summary_sentences, *source_sentences])
        about, source = np.split(vectors, [len(summary_sentences)])
        # not the same document with another query
        if list(source_sentences) != self._source:
            self._source = list(source_sentences)
            self._about_before, self._about = self._about, about
        if self._about_before is not None and self._about_before.size:
            nearest = nearest_sentences(self._about_before, source)
            self._totals += [support.total for support in nearest]
        return nearest_sentences(about, source)

    def threshold(self) -> float:
        """See ``Aligner``.

        Raises:
            InputError: there is no second document to compare with.
        """
        if not self._totals:
            raise InputError(
                f"--align_model={self._model.label} needs at least two documents, to see how "
                "similar unrelated sentences are; leave it out"
            )
        return float(np.quantile(self._totals, 1 - FALSE_SUPPORT))

    def describe(self) -> dict[str, Any]:
        return {
            "by": "vectors",
            "model": self._model.label,
        } | self._model.describe()

    def _vectors(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns unit vectors, float32 [sentences, d_model]."""
        from longsum_jax.inference.sentences import sentence_encoder

        model = self._model.model
        if not sentences:
            return np.zeros((0, model.config.d_model), np.float32)
        longest = longest_text(model, MAX_SENTENCE_LENGTH)
        return unit_rows(
            sentence_encoder(model, max_sentence_length=longest)(sentences)
        )


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Returns normalized vectors [n, d]; zero vectors remain zero."""
    return vectors / np.maximum(
        np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30
    )


def nearest_sentences(summary: np.ndarray, source: np.ndarray) -> list[Support]:
    """Returns for every summary sentence the document sentences that jointly are nearest to it.

    The total is the cosine of a sentence's vector with the nearest linear
    combination of the selected sentences' vectors; with one selected sentence
    it is the cosine of the two. Sentences that raise it the most are added
    greedily (orthogonal matching pursuit, positive steps only), at most
    ``MAX_SOURCES``, while each raises the cosine by at least ``MIN_GAIN``.

    Args:
        summary, source: unit vectors, float [sentences, d_model].
    """
    return [_nearest(vector, source) for vector in summary]


def _nearest(vector: np.ndarray, source: np.ndarray) -> Support:
    support = Support([], [])
    # residuals after projecting out the selected vectors
    remaining = source.astype(np.float64)
    squared = 0.0
    while len(support.indices) < min(MAX_SOURCES, len(source)):
        lengths = np.linalg.norm(remaining, axis=1)
        steps = remaining @ vector / np.where(lengths > 1e-6, lengths, np.inf)
        best = int(steps.argmax())
        total = np.sqrt(squared + steps[best] ** 2)
        gain = float(total - support.total)
        if steps[best] <= 0 or gain < (MIN_GAIN if support.indices else 0):
            break
        support.indices.append(best)
        support.scores.append(gain)
        squared = total**2
        direction = remaining[best] / lengths[best]
        remaining -= np.outer(remaining @ direction, direction)
    return support
