"""Classes of documents by an encoder: one label each, or several."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import jax
import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.labels import collect_labels
from longsum_jax.data.padding import ClassLabels, pad_batch
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.evaluation.classification import classification_scores, majority
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.objectives.base import Evaluation, Objective, Row
from longsum_jax.ops.losses import class_cross_entropy
from longsum_jax.training.step import LossFn, LossOutput
from longsum_jax.typing import Array, NumpyBatch, Params

COLUMNS = ("accuracy", "micro_f1", "macro_f1")
THRESHOLD = 0.5  # probability from which on one of several labels is predicted


class Classification(Objective):
    """Labels of whole documents."""

    kind = "encoder"
    ranking = (*COLUMNS, "negative_loss")

    def resolve(self, task: Task, config: Any) -> tuple[Task, Any]:
        """The names of the labels: of the task, of the config, or collected from the training
        documents."""
        data = self.experiment.data
        if data.reader == "prepared":
            task = _labels_of_prepared(task, data.prepared)
        else:
            task = collect_labels(task, data.split, config.id2label)
        problem = (
            "multi_label_classification" if task.multi_label else "single_label_classification"
        )
        head = {"head": "classification", "num_labels": len(task.labels), "id2label": task.labels}
        return task, dataclasses.replace(config, problem_type=problem, **head)

    @cached_property
    def classes(self) -> ClassLabels:
        task = self.experiment.task
        return ClassLabels(len(task.labels), task.multi_label)

    def label_options(self) -> dict[str, Any]:
        return {"classes": self.classes}

    def loss_fn(self) -> LossFn:
        """Cross-entropy over the classes, or the mean of binary ones; also counts tokens and right
        documents."""
        module = self.experiment.family.module_class(self.experiment.config)

        def loss_fn(params: Params, batch: Mapping[str, Array], rng: Array) -> LossOutput:
            ids, mask, labels = batch["input_ids"], batch["attention_mask"], batch["labels"]
            logits = module.apply(
                {"params": params}, ids, mask, deterministic=False, rngs={"dropout": rng}
            )
            loss_sum, weight = class_cross_entropy(logits, labels)
            right = (
                (logits.argmax(-1) == labels)
                if labels.ndim == 1
                else ((logits >= 0) == (labels == 1)).all(-1)
            )
            counts = {"tokens": mask.sum(), "right_documents": (right & mask.any(-1)).sum()}
            return LossOutput(
                loss_sum, weight, {name: x.astype(np.float32) for name, x in counts.items()}
            )

        return loss_fn

    @cached_property
    def examples(self) -> list[Example]:
        """The documents that evaluation reads."""
        task = self.experiment.task
        docs = documents(task, self.experiment.evaluation.split)
        return self.first(make_examples(task, self.experiment.tokenizer, docs))

    def read_evaluation(self) -> None:
        _ = self.examples

    def evaluate(self, params: Params) -> Evaluation:
        """Accuracy, F1 and loss, and those of the best constant prediction under "majority_"."""
        parts = [self._logits_and_labels(params, batch) for batch in self._batches()]
        logits, labels = (
            np.concatenate(part)[: len(self.examples)] for part in zip(*parts, strict=True)
        )
        loss_sum, weight = class_cross_entropy(logits, labels)
        chosen, wanted = self._predicted(logits), _one_hot(labels, self.classes)
        constant = classification_scores(
            majority(wanted, multi_label=self.classes.multi_label), wanted
        )
        scores = classification_scores(chosen, wanted) | {
            "negative_loss": -float(loss_sum / weight)
        }
        scores |= {f"majority_{name}": value for name, value in constant.items()}
        return Evaluation(scores, self._rows(logits, chosen, wanted))

    def report(self, evaluation: Evaluation) -> str:
        scores = evaluation.scores
        lines = {
            name: [scores[prefix + c] for c in COLUMNS]
            for name, prefix in (("model", ""), ("majority", MAJORITY))
        }
        row = evaluation.rows[0]
        return (
            f"{score_table(COLUMNS, lines)}\n\n{len(evaluation.rows)} documents, labels "
            f"{', '.join(self.experiment.task.labels)}; the first ({row['id']}) is {row['label']}, predicted "
            f"{row['prediction']}"
        )

    def _batches(self) -> Iterator[NumpyBatch]:
        experiment = self.experiment
        size = experiment.evaluation.batch_size
        for start in range(0, len(self.examples), size):
            yield pad_batch(
                self.examples[start : start + size],
                rows=size,
                source_length=experiment.task.max_source_length,
                classes=self.classes,
                pad_id=experiment.config.pad_token_id,
            )

    def _logits_and_labels(
        self, params: Params, batch: NumpyBatch
    ) -> tuple[np.ndarray, np.ndarray]:
        return jax.device_get(
            self.logits(params, batch["input_ids"], batch["attention_mask"])
        ), batch["labels"]

    def _predicted(self, logits: np.ndarray) -> np.ndarray:
        """Which classes are predicted, bool [documents, classes]."""
        if self.classes.multi_label:
            return _probabilities(logits, self.classes) >= THRESHOLD
        return np.arange(logits.shape[1]) == logits.argmax(-1, keepdims=True)

    def _rows(self, logits: np.ndarray, chosen: np.ndarray, wanted: np.ndarray) -> list[Row]:
        names, found = self.experiment.task.labels, _probabilities(logits, self.classes)
        return [
            {
                "id": example["id"],
                "prediction": self._named(chosen[row]),
                "label": self._named(wanted[row]),
                "scores": {
                    name: round(float(p), 6) for name, p in zip(names, found[row], strict=True)
                },
            }
            for row, example in enumerate(self.examples)
        ]

    def _named(self, row: np.ndarray) -> str | list[str]:
        names = [
            name for name, is_so in zip(self.experiment.task.labels, row, strict=True) if is_so
        ]
        return names if self.classes.multi_label else names[0]


MAJORITY = "majority_"


def _labels_of_prepared(task: Task, directory: str) -> Task:
    prepared = PreparedExamples(directory).metadata["task"]
    if prepared["objective"] != "classify":
        raise InputError(
            f'{directory} was prepared for the objective "{prepared["objective"]}", not "classify"; prepare it again'
        )
    return dataclasses.replace(
        task, labels=tuple(prepared["labels"]), multi_label=prepared["multi_label"]
    )


def _one_hot(labels: np.ndarray, classes: ClassLabels) -> np.ndarray:
    return labels == 1 if classes.multi_label else np.arange(classes.num_labels) == labels[:, None]


def _probabilities(logits: np.ndarray, classes: ClassLabels) -> np.ndarray:
    return np.asarray(jax.nn.sigmoid(logits) if classes.multi_label else jax.nn.softmax(logits))
