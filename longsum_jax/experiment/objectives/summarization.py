"""Summarization with an encoder-decoder: teacher forcing, and scores of generated summaries."""

import shlex
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from longsum_jax.evaluation.registry import columns_of, make_metrics
from longsum_jax.experiment.config import EvaluationOptions, RunConfig
from longsum_jax.experiment.objectives.base import Evaluation, Objective
from longsum_jax.ops.losses import count_labels
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.training.loss import LossFn, LossOutput, SegmentedLoss
from longsum_jax.typing import Array, Params

if TYPE_CHECKING:
    from longsum_jax.evaluation.metric import Metric
    from longsum_jax.experiment.objectives.summary_evaluation import (
        SummaryEvaluation,
    )


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
    def metrics(self) -> "dict[str, Metric]":
        """The metrics of evaluations by name."""
        return _metrics(self.setup.run.evaluation)

    @property
    def max_read_tokens(self) -> int | None:
        """Maximum tokens that evaluations read of a document; None for all."""
        limit = self.setup.run.evaluation.max_source_length
        if limit is None:
            return self.setup.task.max_source_length
        return limit or None

    @cached_property
    def _evaluation(self) -> "SummaryEvaluation":
        # Imported here, because it imports the metrics and all that generates
        # summaries, which a run without evaluations does not need.
        from longsum_jax.experiment.objectives.summary_evaluation import (
            SummaryEvaluation,
        )

        return SummaryEvaluation(self, self.metrics, self.max_read_tokens)

    def read_evaluation(self) -> None:
        _ = self._evaluation

    def evaluate(self, params: Params) -> Evaluation:
        """Scores generated summaries and the baselines, see ``SummaryEvaluation.evaluate``."""
        return self._evaluation.evaluate(params)

    def report(self, evaluation: Evaluation) -> str:
        return self._evaluation.report(evaluation)

    def intervals(
        self, evaluation: Evaluation
    ) -> dict[str, tuple[float, float]]:
        # Imported here for the same reason as the evaluation.
        from longsum_jax.evaluation.comparison import Sampling, intervals

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


def _metrics(options: EvaluationOptions) -> "dict[str, Metric]":
    """Returns the metrics by name."""
    rouge = {"stemmer": options.stemmer, "types": options.rouge_types}
    return make_metrics(
        options.metrics, {"rouge": rouge} if "rouge" in options.metrics else {}
    )
