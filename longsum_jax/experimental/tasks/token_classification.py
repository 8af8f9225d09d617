"""Token classification with an encoder: a label per word, such as entities or parts of speech."""

import collections
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from longsum_jax.data.examples.classification import label_numbers
from longsum_jax.data.tasks import Task
from longsum_jax.errors import counted
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import (
    Evaluation,
    loss_with_counts,
)
from longsum_jax.experiment.objectives.classification import (
    MAJORITY,
    resolve_labels,
)
from longsum_jax.experiment.objectives.head_objective import HeadObjective
from longsum_jax.experimental.metrics.tags import tag_scores
from longsum_jax.experimental.tasks.tag_examples import word_places
from longsum_jax.ops.losses import token_cross_entropy
from longsum_jax.tokenizers.base import NO_TOKEN
from longsum_jax.training.loss import LossOutput
from longsum_jax.typing import Array, Params

COLUMNS = ("accuracy", "f1", "precision", "recall")


class TokenClassification(HeadObjective):
    """Predicts a label for every word of a document."""

    head = "token_classification"

    @classmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        return (*COLUMNS, "negative_loss")

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        task, config = resolve_labels(run, cls.head)
        task = dataclasses.replace(task, multi_label=False)
        return task, dataclasses.replace(
            config, problem_type="single_label_classification"
        )

    def batch_options(self) -> dict[str, Any]:
        # One label per token, including buckets beyond the task's maximum.
        longest = max(
            self.setup.task.max_source_length, self.source_lengths[-1]
        )
        return {"target_length": longest}

    def loss_of(self, outputs: Array, batch: Mapping[str, Array]) -> LossOutput:
        """Returns the mean cross-entropy of the words; counts correct words."""
        # a bucket may be shorter
        labels = batch["labels"][:, : batch["attention_mask"].shape[1]]
        loss_sum, weight = token_cross_entropy(outputs, labels)
        num_right = (outputs.argmax(-1) == labels).sum()
        return loss_with_counts(loss_sum, weight, right_words=num_right)

    def read_evaluation(self) -> None:
        _ = self.documents_with_examples

    def evaluate(self, params: Params) -> Evaluation:
        """Returns word accuracy, entity F1 and loss.

        Words that are not read count as wrong. Scores with the prefix
        "majority_" belong to the most frequent label.
        """
        names = self.setup.task.labels
        numbers, loss = self._numbers_and_loss(params)
        rows = []
        for of_tokens, (document, example) in zip(
            numbers, self.documents_with_examples, strict=True
        ):
            expected = [
                names[number] for number in label_numbers(document, names)
            ]
            positions = word_places(
                self.setup.task, self.setup.tokenizer, document
            )
            predicted = [
                "" if i == NO_TOKEN else names[of_tokens[i]] for i in positions
            ]
            rows.append(
                {
                    "id": example["id"],
                    "prediction": predicted,
                    "label": expected,
                }
            )
        expected = [row["label"] for row in rows]
        scores = tag_scores([row["prediction"] for row in rows], expected)
        scores["negative_loss"] = -loss
        [(frequent, _)] = collections.Counter(
            x for text in expected for x in text
        ).most_common(1)
        constant = tag_scores(
            [[frequent] * len(text) for text in expected], expected
        )
        return Evaluation(
            scores | {MAJORITY + name: constant[name] for name in COLUMNS}, rows
        )

    def _numbers_and_loss(self, params: Params) -> tuple[np.ndarray, float]:
        """Returns the most likely label of every token, int [documents, length], and
        the mean loss of the words that are read, NaN if there are none.
        """
        examples = [example for _, example in self.documents_with_examples]
        numbers, loss_sum, weight = [], 0.0, 0.0
        for batch in self.evaluation_batches(
            examples, self.setup.task.max_source_length
        ):
            mask = batch["attention_mask"]
            logits = jax.device_get(self.logits(params, batch))
            loss, count = token_cross_entropy(
                logits, batch["labels"][:, : mask.shape[1]]
            )
            loss_sum, weight = loss_sum + float(loss), weight + float(count)
            numbers.append(logits.argmax(-1))
        return np.concatenate(numbers)[: len(examples)], loss_sum / (
            weight or math.nan
        )

    def report(self, evaluation: Evaluation) -> str:
        scores = evaluation.scores
        lines = {
            "model": [scores[name] for name in COLUMNS],
            "majority": [scores[MAJORITY + name] for name in COLUMNS],
        }
        words = sum(len(row["label"]) for row in evaluation.rows)
        documents = counted(len(evaluation.rows), "document")
        return (
            f"{score_table(COLUMNS, lines)}\n\n{counted(words, 'word')} of {documents}, "
            f"labels {', '.join(self.setup.task.labels)}"
        )
