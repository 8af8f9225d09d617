"""LongDocFACTScore: BARTScore of each sentence given the most similar parts of a document."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from longsum_jax.errors import check_whole
from longsum_jax.evaluation.aligners import unit_rows
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import (
    ModelMetric,
    Requirement,
    UserModel,
    longest_text,
    text_ids,
)
from longsum_jax.experimental.metrics.bartscore import (
    WRITER,
    mean_log_probs,
    target_ids,
)
from longsum_jax.text.segmentation import SentenceEncoder
from longsum_jax.text.sentences import split_sentences, splitter_name

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

# tokens compared of a sentence, as in the published code's encoder
MAX_SENTENCE_LENGTH = 128
DOCUMENTS_AT_ONCE = 16  # documents whose sentences are encoded together


class LongDocFactScore(ModelMetric):
    """LongDocFACTScore (Bishop et al., 2024): faithfulness to documents of any length.

    For every summary sentence, the most similar document sentences are found by
    the cosine of sentence vectors. The sentence's score is the best BARTScore
    given one of them with its neighbors; the summary's score is the mean over
    sentences. An empty summary is scored as one empty sentence.

    Args:
        options: options of the metric.
        model: BARTScore model, instead of the one in the options.
        sentence_model: encoder whose mean states are the sentence vectors,
            instead of the one in the options.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Options of ``ModelMetric``, and the following.

        Attributes:
            sentence_model: directory, training workdir or name on the Hub of
                the encoder for sentence similarity; "" for the encoder of
                ``model``.
            top_k: number of document sentences to try.
            neighbors: context of each sentence: the sentence before it, as in
                the published code ("before"; for the first sentence, the one
                after it), or both neighbors, as in the paper ("both").
        """

        batch_size: int = 4
        sentence_model: str = ""
        top_k: int = 3
        neighbors: Literal["before", "both"] = "before"

    name = "longdocfactscore"
    columns = ("longdocfactscore",)
    requirement = WRITER
    reads_references = False
    options: Options

    def __init__(
        self,
        options: Options | None = None,
        model: "LoadedModel | None" = None,
        sentence_model: "LoadedModel | None" = None,
    ) -> None:
        super().__init__(options, model)
        check_whole("metrics.longdocfactscore.top_k", self.options.top_k, 1)
        self._sentence_model = self.user_model
        path = self.options.sentence_model
        if sentence_model is not None or path not in ("", self.options.model):
            option = "metrics.longdocfactscore.sentence_model"
            self._sentence_model = UserModel(
                option, path, sentence_model, Requirement()
            )

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        shared = self._sentence_model is self.user_model
        reading = (
            nullcontext(model) if shared else self._sentence_model.on_device()
        )
        with reading as sentence_model:
            trials = list(self._trials(sentence_model, predictions, sources))
        conditions, _ = text_ids(model, [trial.condition for trial in trials])
        scored, _ = target_ids(model, [trial.target for trial in trials])
        pairs = list(zip(conditions, scored, strict=True))
        values = mean_log_probs(model, pairs, self.options.batch_size)
        best: dict[tuple[int, int], float] = {}
        for trial, value in zip(trials, values.tolist(), strict=True):
            key = trial.example, trial.sentence
            best[key] = max(value, best.get(key, value))
        by_example: list[list[float]] = [[] for _ in predictions]
        for (example, _), value in best.items():
            by_example[example].append(value)
        return [
            {"longdocfactscore": float(np.mean(sentence_scores))}
            for sentence_scores in by_example
        ]

    def describe(self) -> dict[str, Any]:
        options = self.options
        signature = (
            f"longdocfactscore|model:{self.user_model.label}"
            f"|sentences:{self._sentence_model.label}|top:{options.top_k}"
            f"|neighbors:{options.neighbors}|split:{splitter_name().replace(' ', '-')}"
        )
        description = {"signature": signature} | super().describe()
        return description | {
            "sentence_weights": self._sentence_model.model.fingerprint
        }

    def _trials(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        sources: Sequence[str],
    ) -> "Iterator[SentencePassage]":
        """Yields the pairs of a summary sentence and a part of the document to be scored."""
        from longsum_jax.inference.sentences import sentence_encoder

        longest = longest_text(model, MAX_SENTENCE_LENGTH)
        encode = sentence_encoder(model, max_sentence_length=longest)
        for start in range(0, len(predictions), DOCUMENTS_AT_ONCE):
            examples = range(
                start, min(start + DOCUMENTS_AT_ONCE, len(predictions))
            )
            written = [
                split_sentences(predictions[i]) or [""] for i in examples
            ]
            read = [split_sentences(sources[i]) or [""] for i in examples]
            vectors = _unit_vectors(encode, [*written, *read])
            summary_vectors, source_vectors = (
                vectors[: len(examples)],
                vectors[len(examples) :],
            )
            for row, i in enumerate(examples):
                nearest = np.argsort(
                    -summary_vectors[row] @ source_vectors[row].T,
                    axis=1,
                    kind="stable",
                )
                for number, indices in enumerate(
                    nearest[:, : self.options.top_k].tolist()
                ):
                    for index in indices:
                        part = surroundings(
                            read[row], index, self.options.neighbors
                        )
                        yield SentencePassage(
                            i, number, part, written[row][number]
                        )


def _unit_vectors(
    encode: SentenceEncoder, texts: Sequence[Sequence[str]]
) -> list[np.ndarray]:
    """Returns unit vectors (or 0) of the sentences of every text, encoded together."""
    vectors = unit_rows(
        encode([sentence for sentences in texts for sentence in sentences])
    )
    return np.split(
        vectors, np.cumsum([len(sentences) for sentences in texts])[:-1]
    )


class SentencePassage(NamedTuple):
    """A summary sentence, and a part of the document that may support it.

    Attributes:
        example, sentence: indices of the summary, and of its sentence.
        condition, target: texts for BARTScore.
    """

    example: int
    sentence: int
    condition: str
    target: str


def surroundings(
    sentences: Sequence[str], index: int, neighbors: Literal["before", "both"]
) -> str:
    """Returns a sentence with its neighbors, see ``LongDocFactScore.Options``."""
    if neighbors == "both" or index == 0:
        stop = index + 2
    else:
        stop = index + 1
    return " ".join(sentences[max(index - 1, 0) : stop])
