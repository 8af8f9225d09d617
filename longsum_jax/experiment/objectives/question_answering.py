"""Question answering: the span of a document that answers a question (Rajpurkar et al. 2016)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array as JaxArray
from jaxtyping import Bool, Float

from longsum_jax.data.examples.answers import answers_of
from longsum_jax.data.examples.base import Example
from longsum_jax.data.tasks import Task
from longsum_jax.evaluation.answers import Answers
from longsum_jax.evaluation.metric import mean_scores
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import (
    Evaluation,
    Row,
    loss_with_counts,
)
from longsum_jax.experiment.objectives.head_objective import HeadObjective
from longsum_jax.inference.answers import (
    MAX_ANSWER_LENGTH,
    best_span,
    span_text,
)
from longsum_jax.models.heads import SPAN_OUTPUTS
from longsum_jax.ops.losses import token_cross_entropy
from longsum_jax.text.documents import DataRow
from longsum_jax.training.loss import LossOutput
from longsum_jax.typing import AnyArray, Array, Params

COLUMNS = Answers.columns


class QuestionAnswering(HeadObjective):
    """Extractive question answering: answers are spans of their documents."""

    head = "question_answering"
    _metric = Answers()

    @classmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        return (*COLUMNS, "negative_loss")

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        labels = {"num_labels": SPAN_OUTPUTS, "id2label": ()}
        return run.task, dataclasses.replace(run.model, head=cls.head, **labels)

    def batch_options(self) -> dict[str, Any]:
        return {"target_length": SPAN_OUTPUTS, "token_types": True}

    def loss_of(self, outputs: Array, batch: Mapping[str, Array]) -> LossOutput:
        """Returns the mean cross-entropy of the first and last tokens of answers.

        Also counts answers for which both ends are the most likely ones.
        """
        labels = batch["labels"]
        loss_sum, weight = token_cross_entropy(outputs, labels)
        right = (outputs.argmax(-1) == labels).all(-1)
        return loss_with_counts(loss_sum, weight, right_answers=right.sum())

    def forward(
        self, params: Params, batch: Mapping[str, Array], **options: Any
    ) -> Array:
        """Returns logits of first and last tokens, [batch, 2, length]."""
        return span_logits(
            super().forward(params, batch, **options), batch["attention_mask"]
        )

    def read_evaluation(self) -> None:
        _ = self.documents_with_examples

    def evaluate(self, params: Params) -> Evaluation:
        """Returns exact match and F1 of the answers, and the loss of answers in the
        text that is read, NaN if there is none.
        """
        examples = [example for _, example in self.documents_with_examples]
        length = self.setup.task.max_source_length
        logits, labels = self.logits_and_labels(params, examples, length)
        loss_sum, weight = token_cross_entropy(logits, labels)
        rows = [
            self._row(*pair, outputs)
            for pair, outputs in zip(
                self.documents_with_examples, logits, strict=False
            )
        ]
        scores = mean_scores(
            [{name: row[name] for name in COLUMNS} for row in rows]
        )
        scores["negative_loss"] = -float(loss_sum / weight)
        return Evaluation(scores, rows)

    def _row(
        self, document: DataRow, example: Example, logits: np.ndarray
    ) -> Row:
        tokenizer, task = self.setup.tokenizer, self.setup.task
        question = tokenizer.encode(task.prefix + (document.query or ""))
        ids = tokenizer.encode(document.document)
        pair = tokenizer.join_pair(
            question, ids, task.max_source_length, truncation="second"
        )
        first, last, score = best_span(logits.T, pair.second, MAX_ANSWER_LENGTH)
        offset, spans = pair.second.start, tokenizer.spans(document.document)
        prediction = span_text(
            document.document, spans, first - offset, last - offset
        )
        answers = answers_of(document)
        scores = self._metric.score(
            [prediction] * len(answers), answers, [""] * len(answers)
        )
        return {
            "id": example["id"],
            "question": document.query or "",
            "prediction": prediction,
            "answers": list(answers),
            "score": round(score, 6),
            **self._metric.over_references(scores),
        }

    def report(self, evaluation: Evaluation) -> str:
        table = score_table(
            COLUMNS, {"model": [evaluation.scores[name] for name in COLUMNS]}
        )
        row, examples = (
            evaluation.rows[0],
            [example for _, example in self.documents_with_examples],
        )
        readable = sum(
            bool((example["labels"] >= 0).all()) for example in examples
        )
        return (
            f"{table}\n\n{len(evaluation.rows)} questions, {readable} of them with an answer in "
            f"the text that is read; for the first ({row['id']}) the right answer is "
            f"{row['answers'][0]!r}, the prediction {row['prediction']!r}"
        )


def span_logits(
    logits: Float[AnyArray, "batch length 2"],
    mask: Bool[AnyArray, "batch length"],
) -> Float[JaxArray, "batch 2 length"]:
    """Returns logits of first and last tokens, with the lowest finite value at padding.

    Answers cannot end in padding, so the loss of a row does not depend on its
    padded length.
    """
    logits = jnp.moveaxis(jnp.asarray(logits), 2, 1)
    return jnp.where(
        jnp.asarray(mask)[:, None], logits, jnp.finfo(logits.dtype).min
    )
