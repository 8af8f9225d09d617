"""Summarization with an encoder-decoder: teacher forcing, and scores of generated summaries."""

import shlex
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from longsum_jax.data.examples.summarization import with_target
from longsum_jax.data.sources import documents
from longsum_jax.evaluation.comparison import Sampling, intervals
from longsum_jax.evaluation.metric import Metric
from longsum_jax.evaluation.predictions import (
    Pair,
    baseline_scores,
    columns_of,
    pair_of,
    predict,
    score_last,
    summary_of,
)
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.config import EvaluationOptions, RunConfig
from longsum_jax.experiment.objectives.base import Evaluation, Objective
from longsum_jax.ops.losses import count_labels
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_jax.training.loss import LossFn, LossOutput, SegmentedLoss
from longsum_jax.typing import Array, Params


class Summarization(Objective):
    """Summarization; targets are reference summaries or gap sentences."""

    head = "language_model"
    packs = True

    @classmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        return columns_of(_metrics(run.evaluation))

    def batch_options(self) -> dict[str, Any]:
        task = self.setup.task
        if not self.setup.run.data.pack:
            return {"target_length": task.max_target_length}
        # A row has space for the targets of as many of the longest sources as
        # it has space for.
        longest = max(1, self.source_lengths[-1] // task.max_source_length)
        target_length = longest * task.max_target_length
        return {"target_length": target_length, "packed": True}

    def loss_fn(self) -> LossFn | SegmentedLoss:
        """Returns the teacher-forced cross-entropy; counts tokens and correct next tokens."""
        label_smoothing = self.setup.run.loss.label_smoothing

        def loss_fn(
            params: Params, batch: Mapping[str, Array], rng: Array
        ) -> LossOutput:
            labels = batch["labels"]
            losses, is_right = self.module.apply(
                {"params": params},
                batch["input_ids"],
                batch["attention_mask"],
                labels,
                deterministic=False,
                label_smoothing=label_smoothing,
                segment_ids=_segment_ids(batch),
                rngs={"dropout": rng},
                method="score_targets",
            )
            weight = count_labels(labels)
            right = is_right.sum().astype(np.float32)
            tokens = batch["attention_mask"].sum().astype(np.float32) + weight
            return LossOutput(
                losses.sum(), weight, {"tokens": tokens, "right_tokens": right}
            )

        return loss_fn

    @cached_property
    def pairs(self) -> list[Pair]:
        """The evaluation documents with their summaries; the model adds the task's prefix."""
        run = self.setup.run
        targeted = (
            with_target(self.setup.task, document, run.training.seed)
            for document in documents(self.setup.task, run.evaluation.split)
        )
        return self.first_examples(
            pair_of(document) for document in targeted if document is not None
        )

    def read_evaluation(self) -> None:
        _ = self.pairs
        # checks the options
        self._model.summaries([], self._summary_options())

    def _summary_options(self) -> SummaryOptions:
        """Returns the options of the summaries in evaluations."""
        options = self.setup.run.evaluation
        return SummaryOptions(
            batch_size=options.batch_size,
            max_source_length=self.max_read_tokens,
            seed=options.seed,
            generation=options.generation(),
        )

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The metrics of evaluations by name."""
        return _metrics(self.setup.run.evaluation)

    @cached_property
    def baselines(self) -> dict[str, dict[str, float]]:
        return baseline_scores(self.pairs, self.metrics)

    @cached_property
    def _model(self) -> Model:
        """The model of all evaluations; sharing it compiles generation once per length."""
        return self.setup.make_model(None)

    @property
    def max_read_tokens(self) -> int | None:
        """Maximum tokens that evaluations read of a document; None for all."""
        limit = self.setup.run.evaluation.max_source_length
        if limit is None:
            return self.setup.task.max_source_length
        return limit or None

    def evaluate(self, params: Params) -> Evaluation:
        """Scores generated summaries and the baselines with all metrics; also counts lengths.

        The names of baseline scores begin with "lead_" and "random_".
        """
        self._model.params = params
        rows = predict(
            self._model, self.pairs, self.metrics, self._summary_options()
        )
        # free the memory: training continues with other parameters
        self._model.forget_kernels()
        score_last(rows, self.pairs, self.metrics)
        summary = summary_of(rows, self.pairs, self.metrics)
        scores = dict(summary["scores"])
        for baseline, values in self.baselines.items():
            for name, value in values.items():
                scores[f"{baseline}_{name}"] = value
        scores["summary_tokens"] = summary["summary_tokens"]["mean"]
        scores["ended_by_limit"] = summary["ended_by_limit"]
        return Evaluation(scores, rows)

    def report(self, evaluation: Evaluation) -> str:
        scores, pair = evaluation.scores, self.pairs[0]
        columns = columns_of(self.metrics)
        prefixes = {"model": "", "lead": "lead_", "random": "random_"}
        lines = {
            name: [scores[prefix + column] for column in columns]
            for name, prefix in prefixes.items()
        }
        return (
            f"{score_table(columns, lines)}\n\n"
            f"source ({pair.id}): {pair.source[:600]}...\n\nreference: {pair.reference[:400]}\n\n"
            f"summary: {evaluation.rows[0]['prediction']}"
        )

    def intervals(
        self, evaluation: Evaluation
    ) -> dict[str, tuple[float, float]]:
        scores = [row["scores"] for row in evaluation.rows]
        return intervals(self.metrics, scores, Sampling())

    def samples(
        self, evaluation: Evaluation, count: int
    ) -> list[dict[str, str]]:
        return [
            {
                "id": row["id"],
                "reference": row["reference"],
                "summary": row["prediction"],
            }
            for row in evaluation.rows[:count]
        ]

    def next_step(self) -> str:
        command = shlex.join(
            [
                "longsum",
                "summarize",
                f"--model={self.setup.workdir}",
                "FILE.txt",
            ]
        )
        return f"summarize your own file:\n  {command}"


def _segment_ids(batch: Mapping[str, Array]) -> SegmentIds | None:
    """Returns the segment ids of a packed batch, None for other batches."""
    if "source_segment_ids" not in batch:
        return None
    return SegmentIds(batch["source_segment_ids"], batch["target_segment_ids"])


def _metrics(options: EvaluationOptions) -> dict[str, Metric]:
    """Returns the metrics by name."""
    rouge = {"stemmer": options.stemmer, "types": options.rouge_types}
    return make_metrics(
        options.metrics, {"rouge": rouge} if "rouge" in options.metrics else {}
    )
