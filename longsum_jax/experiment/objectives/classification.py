"""Single-label and multi-label classification of documents or pairs of texts with an encoder."""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.labels import collect_labels
from longsum_jax.data.padding import ClassLabels
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, counted
from longsum_jax.evaluation.classification import (
    classification_scores,
    majority,
)
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import (
    Evaluation,
    Row,
    loss_with_counts,
)
from longsum_jax.experiment.objectives.head_objective import HeadObjective
from longsum_jax.ops.losses import class_cross_entropy
from longsum_jax.training.loss import LossOutput
from longsum_jax.typing import Array, Params

COLUMNS = ("accuracy", "micro_f1", "macro_f1")
MAJORITY = "majority_"  # prefix of the scores of the best constant prediction
# minimum probability of predicted labels in multi-label classification
THRESHOLD = 0.5


class Classification(HeadObjective):
    """Classification of whole documents, or of pairs of a document and a claim."""

    head = "classification"

    @classmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        return (*COLUMNS, "negative_loss")

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        return resolve_labels(run, cls.head)

    @cached_property
    def classes(self) -> ClassLabels:
        task = self.setup.task
        return ClassLabels(len(task.labels), task.multi_label)

    def batch_options(self) -> dict[str, Any]:
        is_of_pairs = self.setup.task.base_objective != "classify"
        return {"classes": self.classes, "token_types": is_of_pairs}

    def loss_of(self, outputs: Array, batch: Mapping[str, Array]) -> LossOutput:
        """Returns the cross-entropy over classes, or the mean binary one for multiple labels.

        Also counts correct documents.
        """
        labels = batch["labels"]
        loss_sum, weight = class_cross_entropy(outputs, labels)
        if labels.ndim == 1:
            right = outputs.argmax(-1) == labels
        else:
            right = ((outputs >= 0) == (labels == 1)).all(-1)
        num_right = (right & batch["attention_mask"].any(-1)).sum()
        return loss_with_counts(loss_sum, weight, right_documents=num_right)

    @cached_property
    def examples(self) -> list[Example]:
        """The examples of the evaluation documents."""
        task = self.setup.task
        docs = documents(task, self.setup.run.evaluation.split)
        return self.first_examples(
            make_examples(task, self.setup.tokenizer, docs)
        )

    def read_evaluation(self) -> None:
        _ = self.examples

    def evaluate(self, params: Params) -> Evaluation:
        """Returns accuracy, F1 and loss; "majority_" scores are of the best constant prediction."""
        logits, labels = self._logits_and_labels(params)
        loss_sum, weight = class_cross_entropy(logits, labels)
        predicted = self._predicted(logits)
        expected = _one_hot(labels, self.classes)
        multi_label = self.classes.multi_label
        constant = majority(expected, multi_label=multi_label)
        scores = classification_scores(
            predicted, expected, multi_label=multi_label
        )
        scores |= {"negative_loss": -float(loss_sum / weight)}
        baseline = classification_scores(
            constant, expected, multi_label=multi_label
        )
        for name, value in baseline.items():
            scores[MAJORITY + name] = value
        return Evaluation(scores, self._rows(logits, predicted, expected))

    def report(self, evaluation: Evaluation) -> str:
        scores = evaluation.scores
        lines = {
            "model": [scores[column] for column in COLUMNS],
            "majority": [scores[MAJORITY + column] for column in COLUMNS],
        }
        row = evaluation.rows[0]
        return (
            f"{score_table(COLUMNS, lines)}\n\n{counted(len(evaluation.rows), 'document')}, labels "
            f"{', '.join(self.setup.task.labels)}; the first ({row['id']}) is {row['label']}, "
            f"predicted {row['prediction']}"
        )

    def _logits_and_labels(
        self, params: Params
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns logits [documents, classes] and labels of the evaluation documents."""
        length, count = self.setup.task.max_source_length, len(self.examples)
        logits, labels = self.logits_and_labels(params, self.examples, length)
        return logits[:count], labels[:count]

    def _predicted(self, logits: np.ndarray) -> np.ndarray:
        """Returns the predicted classes, bool [documents, classes]."""
        if self.classes.multi_label:
            return _probabilities(logits, self.classes) >= THRESHOLD
        return np.arange(logits.shape[1]) == logits.argmax(-1, keepdims=True)

    def _rows(
        self, logits: np.ndarray, predicted: np.ndarray, expected: np.ndarray
    ) -> list[Row]:
        names = self.setup.task.labels
        probabilities = _probabilities(logits, self.classes)
        rows = []
        for index, example in enumerate(self.examples):
            named = zip(names, probabilities[index], strict=True)
            rows.append(
                {
                    "id": example["id"],
                    "prediction": self._label_names(predicted[index]),
                    "label": self._label_names(expected[index]),
                    "scores": {name: round(float(p), 6) for name, p in named},
                }
            )
        return rows

    def _label_names(self, classes: np.ndarray) -> str | list[str]:
        labels = self.setup.task.labels
        names = [labels[index] for index in np.flatnonzero(classes)]
        if self.classes.multi_label:
            return names
        return names[0]


def resolve_labels(run: RunConfig, head: str) -> tuple[Task, Any]:
    """Returns task and model config with the names of the labels.

    The names come from the task, the model config, or the training documents.
    """
    if run.data.reader == "prepared":
        names = run.task.labels or run.model.id2label
        task = _labels_of_prepared(run.task, run.data.prepared, names)
    else:
        task = collect_labels(run.task, run.data.split, run.model.id2label)
    if task.multi_label:
        problem = "multi_label_classification"
    else:
        problem = "single_label_classification"
    config = dataclasses.replace(
        run.model,
        problem_type=problem,
        head=head,
        num_labels=len(task.labels),
        id2label=task.labels,
    )
    return task, config


def _labels_of_prepared(
    task: Task, directory: str, names: tuple[str, ...]
) -> Task:
    """Returns the task with the labels of prepared data; ``names``, if any, must match."""
    prepared = PreparedExamples(directory).metadata["task"]
    if prepared["objective"] != task.objective:
        raise InputError(
            f'{directory} was prepared for the objective "{prepared["objective"]}", not '
            f'"{task.objective}"; prepare it again'
        )
    labels, multi_label = tuple(prepared["labels"]), prepared["multi_label"]
    if names and tuple(names) != labels:
        raise InputError(
            f"{directory} was prepared with the labels {', '.join(labels)}, the config or its "
            f'model has {", ".join(names)}; give data.reader="memory", which numbers them as the '
            "config does"
        )
    return dataclasses.replace(task, labels=labels, multi_label=multi_label)


def _one_hot(labels: np.ndarray, classes: ClassLabels) -> np.ndarray:
    if classes.multi_label:
        return labels == 1
    return np.arange(classes.num_labels) == labels[:, None]


def _probabilities(logits: np.ndarray, classes: ClassLabels) -> np.ndarray:
    if classes.multi_label:
        probabilities = jax.nn.sigmoid(logits)
    else:
        probabilities = jax.nn.softmax(logits)
    return np.asarray(probabilities)
