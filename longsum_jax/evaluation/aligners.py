"""Sources of the sentences of summaries, found by words or by vectors of a user's model."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.model_metric import Requirement, UserModel, longest_text
from longsum_jax.text.alignment import MAX_SOURCES, MIN_GAIN, SUPPORTED, Support, align

if TYPE_CHECKING:
    from longsum_jax.inference.model import Model

MAX_SENTENCE_LENGTH = 128  # tokens that are compared
# Share of the sentences about other documents that pass for supported.
FALSE_SUPPORT = 0.03


class Aligner(Protocol):
    """Finds what sentences of summaries rest on, document after document."""

    def on_device(self) -> AbstractContextManager[None]:
        """Keeps what is needed on a device while the block runs."""

    def align(
        self, summary_sentences: Sequence[str], source_sentences: Sequence[str]
    ) -> list[Support]:
        """Returns for every sentence of a document's summaries the sentences that it rests on."""

    def threshold(self) -> float:
        """Returns the total from which on a sentence counts as supported.

        Called after all documents.
        """

    def describe(self) -> dict[str, Any]:
        """Returns how sentences are compared, for reports."""


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

    How similar unrelated sentences are depends on the model, so the threshold comes from the data:
    three in a hundred sentences about another document, the last different one before, reach it.

    Args:
        path: of any encoder, as ``longsum_jax.load`` takes it; its mean states are the vectors.
        model: in place of the path.

    Raises:
        InputError: the model cannot be read.
    """

    def __init__(self, path: str = "", model: "Model | None" = None) -> None:
        self._model = UserModel("--align_model", path, model, Requirement())
        self._about_before: np.ndarray | None = None  # vectors of sentences about the one before
        self._source: list[str] = []
        self._about = np.zeros((0, 0), np.float32)
        self._totals: list[float] = []  # of sentences about other documents

    @contextmanager
    def on_device(self) -> Iterator[None]:
        with self._model.on_device():
            yield

    def align(
        self, summary_sentences: Sequence[str], source_sentences: Sequence[str]
    ) -> list[Support]:
        vectors = self._vectors([*summary_sentences, *source_sentences])
        about, source = np.split(vectors, [len(summary_sentences)])
        if list(source_sentences) != self._source:  # and not the same with another query
            self._source = list(source_sentences)
            self._about_before, self._about = self._about, about
        if self._about_before is not None and self._about_before.size:
            found = nearest_sentences(self._about_before, source)
            self._totals += [support.total for support in found]
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
        return {"by": "vectors", "model": self._model.label} | self._model.describe()

    def _vectors(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns vectors of unit length, float32 [sentences, d_model]."""
        from longsum_jax.inference.sentences import sentence_encoder

        model = self._model.model
        if not sentences:
            return np.zeros((0, model.config.d_model), np.float32)
        longest = longest_text(model, MAX_SENTENCE_LENGTH)
        return unit_rows(sentence_encoder(model, max_sentence_length=longest)(sentences))


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors [n, d] of unit length; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)


def nearest_sentences(
    summary: np.ndarray,
    source: np.ndarray,
    *,
    max_sources: int = MAX_SOURCES,
    min_gain: float = MIN_GAIN,
) -> list[Support]:
    """Returns for every sentence of a summary those of the document that are nearest together.

    The total is the cosine of a sentence's vector with the nearest vector that sums of multiples of
    the chosen ones can be; with one chosen sentence it is the cosine of the two. Greedily, the
    sentence is added that raises it most (orthogonal matching pursuit, positive steps only).

    Args:
        summary, source: vectors of unit length, float [sentences, d_model].
        max_sources: sentences of the document for one of the summary.
        min_gain: of cosine, that each but the first has to add.
    """
    return [_nearest(vector, source, max_sources, min_gain) for vector in summary]


def _nearest(vector: np.ndarray, source: np.ndarray, max_sources: int, min_gain: float) -> Support:
    support = Support([], [])
    remaining = source.astype(np.float64)  # without what the chosen ones hold
    squared = 0.0
    while len(support.indices) < min(max_sources, len(source)):
        lengths = np.linalg.norm(remaining, axis=1)
        steps = remaining @ vector / np.where(lengths > 1e-6, lengths, np.inf)
        best = int(steps.argmax())
        total = np.sqrt(squared + steps[best] ** 2)
        gain = float(total - support.total)
        if steps[best] <= 0 or gain < (min_gain if support.indices else 0):
            break
        support.indices.append(best)
        support.scores.append(gain)
        squared = total**2
        direction = remaining[best] / lengths[best]
        remaining -= np.outer(remaining @ direction, direction)
    return support
