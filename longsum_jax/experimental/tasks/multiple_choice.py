"""Multiple choice: the text that matches a document (Zellers et al. 2018)."""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array as JaxArray
from jaxtyping import Float, Int

from longsum_jax.data.padding import SegmentShape
from longsum_jax.data.tasks import Task
from longsum_jax.errors import counted
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import (
    Evaluation,
    Row,
    loss_with_counts,
)
from longsum_jax.experiment.objectives.head_objective import HeadObjective
from longsum_jax.experimental.tasks.choice_examples import right_choice
from longsum_jax.ops.losses import class_cross_entropy
from longsum_jax.text.documents import DataRow
from longsum_jax.training.loss import LossOutput
from longsum_jax.typing import IGNORED_LABEL, AnyArray, Array, Params

CHANCE = "chance_accuracy"  # expected accuracy of random choices


class MultipleChoice(HeadObjective):
    """Predicts the correct one of a document's choices."""

    head = "multiple_choice"
    parts = True

    @classmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        return ("accuracy", "negative_loss")

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        return run.task, dataclasses.replace(run.model, head=cls.head)

    @cached_property
    def shape(self) -> SegmentShape:
        return SegmentShape(self.setup.task.max_source_length)

    def batch_options(self) -> dict[str, Any]:
        return {"segments": self.shape, "token_types": True}

    def loss_of(self, outputs: Array, batch: Mapping[str, Array]) -> LossOutput:
        """Returns the cross-entropy over the choices of a document; counts correct documents."""
        right = right_numbers(batch["labels"])
        loss_sum, weight = class_cross_entropy(outputs, right)
        num_right = (outputs.argmax(-1) == right).sum()
        return loss_with_counts(loss_sum, weight, right_documents=num_right)

    def forward(
        self, params: Params, batch: Mapping[str, Array], **options: Any
    ) -> Array:
        """Returns logits [batch, choices], with the lowest finite value for absent choices."""
        logits = super().forward(params, batch, **options)
        is_choice = batch["attention_mask"].any(-1)
        return jnp.where(is_choice, logits, jnp.finfo(logits.dtype).min)

    def read_evaluation(self) -> None:
        self.check_parts(example for _, example in self.documents_with_examples)

    def evaluate(self, params: Params) -> Evaluation:
        """Returns accuracy and loss, and "chance_accuracy", the accuracy of random choices."""
        documents, examples = zip(*self.documents_with_examples, strict=True)
        logits, labels = self.logits_and_labels(
            params, examples, self.source_lengths[-1]
        )
        loss_sum, weight = class_cross_entropy(logits, right_numbers(labels))
        rows = [_row(*pair) for pair in zip(documents, logits, strict=False)]
        right = [row["prediction"] == row["label"] for row in rows]
        chance = [1 / len(example["segment_lengths"]) for example in examples]
        scores = {
            "accuracy": 100 * float(np.mean(right)),
            "negative_loss": -float(loss_sum / weight),
            CHANCE: 100 * float(np.mean(chance)),
        }
        return Evaluation(scores, rows)

    def report(self, evaluation: Evaluation) -> str:
        scores = evaluation.scores
        lines = {"model": [scores["accuracy"]], "chance": [scores[CHANCE]]}
        row = evaluation.rows[0]
        documents = counted(len(evaluation.rows), "document")
        return (
            f"{score_table(('accuracy',), lines)}\n\n{documents}; for the "
            f"first ({row['id']}) the right choice is number {row['label']}, the prediction number "
            f"{row['prediction']} (counted from 0)"
        )


def right_numbers(
    labels: Int[AnyArray, "batch choices"],
) -> Int[JaxArray, " batch"]:
    """Returns the index of the choice labeled 1, IGNORED_LABEL for rows without one."""
    is_right = jnp.asarray(labels) == 1
    return jnp.where(is_right.any(-1), is_right.argmax(-1), IGNORED_LABEL)


def _row(document: DataRow, logits: Float[AnyArray, " choices"]) -> Row:
    scores = logits[: len(document.choices or ())]
    return {
        "id": document.id,
        "prediction": int(scores.argmax()),
        "label": right_choice(document),
        "scores": [round(float(score), 6) for score in scores],
    }
