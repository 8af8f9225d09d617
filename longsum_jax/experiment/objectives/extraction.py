"""Which sentences of a document belong into a summary: an encoder scores them (AWESOME, appendix
D)."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import jax
import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.padding import SegmentShape, pad_batch
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.evaluation.classification import binary_scores
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.objectives.base import Evaluation, Objective, Row
from longsum_jax.inference.sentences import taken_sentences
from longsum_jax.ops.losses import class_cross_entropy
from longsum_jax.training.step import LossFn, LossOutput
from longsum_jax.typing import IGNORED_LABEL, Array, NumpyBatch, Params

COLUMNS = ("f1", "precision", "recall")
BASELINES = ("lead", "random")


class Extraction(Objective):
    """Sentences as the greedy oracle takes them."""

    kind = "encoder"
    ranking = ("f1", "best_k_f1", "negative_loss")
    parts = True

    def resolve(self, task: Task, config: Any) -> tuple[Task, Any]:
        return task, dataclasses.replace(
            config, head="extraction", max_sentence_length=task.max_source_length
        )

    @cached_property
    def shape(self) -> SegmentShape:
        return SegmentShape(self.experiment.task.max_source_length)

    def label_options(self) -> dict[str, Any]:
        return {"segments": self.shape}

    def loss_fn(self) -> LossFn:
        """Mean binary cross-entropy of the sentences; also counts tokens, right sentences and
        documents."""
        module = self.experiment.family.module_class(self.experiment.config)

        def loss_fn(params: Params, batch: Mapping[str, Array], rng: Array) -> LossOutput:
            ids, mask, labels = batch["input_ids"], batch["attention_mask"], batch["labels"]
            scores = module.apply(
                {"params": params}, ids, mask, deterministic=False, rngs={"dropout": rng}
            )
            loss_sum, weight = class_cross_entropy(
                scores.reshape(-1, 1), labels.reshape(-1, 1).astype(scores.dtype)
            )
            right = ((scores > 0) == (labels == 1)) & (labels != IGNORED_LABEL)
            counts = {"tokens": mask.sum(), "right_sentences": right.sum()}
            return LossOutput(
                loss_sum, weight, {name: x.astype(np.float32) for name, x in counts.items()}
            )

        return loss_fn

    @cached_property
    def examples(self) -> list[Example]:
        """The documents that evaluation reads."""
        experiment = self.experiment
        docs = documents(experiment.task, experiment.evaluation.split)
        return self.first(
            make_examples(
                experiment.task, experiment.tokenizer, docs, seed=experiment.training.seed
            )
        )

    def read_evaluation(self) -> None:
        _ = self.examples

    def evaluate(self, params: Params) -> Evaluation:
        """F1, precision and recall against the oracle, over the sentences of all documents
        together.

        Of the sentences that ``Model.extract`` takes; under "best_k_", "lead_" and "random_" of as
        many sentences of every document as the oracle takes on average: the best, the first, random
        ones.
        """
        scores, labels = self._scores_and_labels(params)
        k = self.mean_taken
        random = np.random.default_rng(self.experiment.evaluation.seed)
        choices = {
            "": [taken_sentences(found) for found in scores],
            "best_k_": [np.argsort(-found, kind="stable")[:k] for found in scores],
            "lead_": [np.arange(min(k, len(found))) for found in scores],
            "random_": [random.permutation(len(found))[:k] for found in scores],
        }
        measured = {"sentences": float(k), "negative_loss": -_loss(scores, labels)}
        for name, chosen in choices.items():
            predicted = [
                np.isin(np.arange(len(found)), rows)
                for found, rows in zip(labels, chosen, strict=True)
            ]
            found = binary_scores(np.concatenate(predicted), np.concatenate(labels) == 1)
            measured |= {name + column: value for column, value in found.items()}
        return Evaluation(measured, self._rows(scores, labels))

    @cached_property
    def mean_taken(self) -> int:
        """Sentences that the oracle takes of a document on average, rounded."""
        return max(round(np.mean([(example["labels"] == 1).sum() for example in self.examples])), 1)

    def report(self, evaluation: Evaluation) -> str:
        names = {
            "model": "",
            f"best {self.mean_taken}": "best_k_",
            "lead": "lead_",
            "random": "random_",
        }
        lines = {
            name: [evaluation.scores[prefix + column] for column in COLUMNS]
            for name, prefix in names.items()
        }
        row = evaluation.rows[0]
        return (
            f"{score_table(COLUMNS, lines)}\n\n{len(evaluation.rows)} documents; of the first ({row['id']}) the oracle "
            f"takes the sentences {row['label']}, the model {row['prediction']}"
        )

    def next_step(self) -> str:
        return (
            "write the sentences that it chooses as shorter documents for a summariser:\n"
            f"  longsum extract --model={self.experiment.workdir} --data=FILE.jsonl --out=SHORTER.jsonl"
        )

    def _scores_and_labels(self, params: Params) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """For each document the logits and labels of its sentences, without a query."""
        scores: list[np.ndarray] = []
        for batch, count in self._batches():
            found = jax.device_get(self.logits(params, batch["input_ids"], batch["attention_mask"]))
            scores += [
                row[labels != IGNORED_LABEL]
                for row, labels in zip(found, batch["labels"], strict=True)
            ][:count]
        return scores, [
            example["labels"][example["labels"] != IGNORED_LABEL] for example in self.examples
        ]

    def _batches(self) -> Iterator[tuple[NumpyBatch, int]]:
        """Batches at the smallest of the padded lengths that holds their documents, and how many
        these are."""
        size = self.experiment.evaluation.batch_size
        for start in range(0, len(self.examples), size):
            examples = self.examples[start : start + size]
            longest = max(len(example["segment_lengths"]) for example in examples)
            batch = pad_batch(
                examples,
                rows=size,
                source_length=next(n for n in self.experiment.source_lengths if n >= longest),
                segments=self.shape,
                pad_id=self.experiment.config.pad_token_id,
            )
            yield batch, len(examples)

    def _rows(self, scores: list[np.ndarray], labels: list[np.ndarray]) -> list[Row]:
        return [
            {
                "id": example["id"],
                "prediction": taken_sentences(found),
                "label": np.flatnonzero(wanted).tolist(),
                "scores": [round(float(p), 6) for p in jax.nn.sigmoid(found)],
            }
            for example, found, wanted in zip(self.examples, scores, labels, strict=True)
        ]


def _loss(scores: list[np.ndarray], labels: list[np.ndarray]) -> float:
    parts = (np.concatenate(part)[:, None].astype(np.float32) for part in (scores, labels))
    loss_sum, weight = class_cross_entropy(*parts)
    return float(loss_sum / weight)
