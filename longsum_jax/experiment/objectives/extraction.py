"""Extraction: an encoder scores the sentences of a document for inclusion in a summary.

AWESOME, appendix D.
"""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.padding import SegmentShape, pad_batch
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import counted
from longsum_jax.evaluation.classification import binary_scores
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import (
    Evaluation,
    Row,
    loss_with_counts,
)
from longsum_jax.experiment.objectives.head_objective import HeadObjective
from longsum_jax.inference.sentences import taken_sentences
from longsum_jax.ops.losses import class_cross_entropy
from longsum_jax.training.loss import LossOutput
from longsum_jax.typing import IGNORED_LABEL, Array, NumpyBatch, Params

COLUMNS = ("f1", "precision", "recall")


class Extraction(HeadObjective):
    """Extraction of the sentences that the greedy oracle selects."""

    head = "extraction"
    parts = True

    @classmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        return ("f1", "best_k_f1", "negative_loss")

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        config = dataclasses.replace(
            run.model,
            head=cls.head,
            max_sentence_length=run.task.max_source_length,
        )
        return run.task, config

    @cached_property
    def shape(self) -> SegmentShape:
        return SegmentShape(self.setup.task.max_source_length)

    def batch_options(self) -> dict[str, Any]:
        return {"segments": self.shape}

    def loss_of(self, outputs: Array, batch: Mapping[str, Array]) -> LossOutput:
        """Returns the mean binary cross-entropy over sentences; counts correct ones."""
        labels = batch["labels"]
        loss_sum, weight = class_cross_entropy(
            outputs.reshape(-1, 1), labels.reshape(-1, 1).astype(outputs.dtype)
        )
        right = ((outputs > 0) == (labels == 1)) & (labels != IGNORED_LABEL)
        return loss_with_counts(loss_sum, weight, right_sentences=right.sum())

    @cached_property
    def examples(self) -> list[Example]:
        """The examples of the evaluation documents."""
        task, run = self.setup.task, self.setup.run
        docs = documents(task, run.evaluation.split)
        made = make_examples(
            task, self.setup.tokenizer, docs, seed=run.training.seed
        )
        return self.first_examples(made)

    def read_evaluation(self) -> None:
        self.check_parts(self.examples)

    def evaluate(self, params: Params) -> Evaluation:
        """Returns F1, precision and recall against the oracle, over all sentences of all documents.

        Scores without a prefix use the sentences selected by ``Model.extract``.
        The prefixes "best_k_", "lead_" and "random_" are for the
        highest-scored, the first and random sentences, as many in every
        document as the oracle selects on average.
        """
        scores, labels = self._scores_and_labels(params)
        k = self.mean_taken
        random = np.random.default_rng(self.setup.run.evaluation.seed)
        choices: dict[str, Sequence[Any]] = {
            "": [taken_sentences(logits) for logits in scores],
            "best_k_": [
                np.argsort(-logits, kind="stable")[:k] for logits in scores
            ],
            "lead_": [np.arange(min(k, len(logits))) for logits in scores],
            "random_": [
                random.permutation(len(logits))[:k] for logits in scores
            ],
        }
        expected = np.concatenate(labels) == 1
        measured = {
            "sentences": float(k),
            "negative_loss": -_loss(scores, labels),
        }
        for prefix, selections in choices.items():
            predicted = [
                np.isin(np.arange(len(row)), numbers)
                for row, numbers in zip(labels, selections, strict=True)
            ]
            for column, value in binary_scores(
                np.concatenate(predicted), expected
            ).items():
                measured[prefix + column] = value
        return Evaluation(measured, self._rows(scores, labels))

    @cached_property
    def mean_taken(self) -> int:
        """Average number of sentences that the oracle selects in a document, rounded."""
        counts = [(example["labels"] == 1).sum() for example in self.examples]
        return max(round(np.mean(counts)), 1)

    def report(self, evaluation: Evaluation) -> str:
        prefixes = {
            "model": "",
            f"best {self.mean_taken}": "best_k_",
            "lead": "lead_",
            "random": "random_",
        }
        lines = {
            name: [evaluation.scores[prefix + column] for column in COLUMNS]
            for name, prefix in prefixes.items()
        }
        row = evaluation.rows[0]
        return (
            f"{score_table(COLUMNS, lines)}\n\n{counted(len(evaluation.rows), 'document')}; in the "
            f"first ({row['id']}) the oracle selects the sentences {row['label']}, the model "
            f"{row['prediction']}"
        )

    def next_step(self) -> str:
        files = ("--data=FILE.jsonl", "--out=SHORTER.jsonl")
        command = shlex.join(
            ["longsum", "extract", f"--model={self.setup.workdir}", *files]
        )
        return f"write the sentences that it selects as shorter documents:\n  {command}"

    def _scores_and_labels(
        self, params: Params
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns logits and labels of the sentences of each document, excluding the query."""
        scores: list[np.ndarray] = []
        for batch, count in self._batches():
            logits = jax.device_get(self.logits(params, batch))
            rows = zip(logits[:count], batch["labels"][:count], strict=True)
            scores += [row[labels != IGNORED_LABEL] for row, labels in rows]
        labels = [example["labels"] for example in self.examples]
        return scores, [row[row != IGNORED_LABEL] for row in labels]

    def _batches(self) -> Iterator[tuple[NumpyBatch, int]]:
        """Yields batches padded to the smallest possible bucket, and their numbers of documents."""
        size = self.setup.run.evaluation.batch_size
        for start in range(0, len(self.examples), size):
            examples = self.examples[start : start + size]
            longest = max(
                len(example["segment_lengths"]) for example in examples
            )
            batch = pad_batch(
                examples,
                rows=size,
                source_length=next(
                    n for n in self.source_lengths if n >= longest
                ),
                segments=self.shape,
                pad_id=self.setup.config.pad_token_id,
            )
            yield batch, len(examples)

    def _rows(
        self, scores: list[np.ndarray], labels: list[np.ndarray]
    ) -> list[Row]:
        rows = []
        for example, logits, targets in zip(
            self.examples, scores, labels, strict=True
        ):
            rows.append(
                {
                    "id": example["id"],
                    "prediction": taken_sentences(logits),
                    "label": np.flatnonzero(targets).tolist(),
                    "scores": [
                        round(float(p), 6) for p in jax.nn.sigmoid(logits)
                    ],
                }
            )
        return rows


def _loss(scores: list[np.ndarray], labels: list[np.ndarray]) -> float:
    """Returns the mean binary cross-entropy over the sentences of all documents."""
    all_scores = np.concatenate(scores)[:, None].astype(np.float32)
    all_labels = np.concatenate(labels)[:, None].astype(np.float32)
    loss_sum, weight = class_cross_entropy(all_scores, all_labels)
    return float(loss_sum / weight)
