"""Evaluation of a model in training by the summaries that it generates."""

from collections.abc import Mapping
from functools import cached_property

from longsum_jax.data.examples.summarization import with_target
from longsum_jax.data.sources import documents
from longsum_jax.evaluation.metric import Metric
from longsum_jax.evaluation.predictions import (
    Pair,
    baseline_scores,
    pair_of,
    predict,
    score_last,
    summary_of,
)
from longsum_jax.evaluation.registry import columns_of
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.objectives.base import Evaluation, Objective
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_jax.typing import Params


class SummaryEvaluation:
    """The evaluation documents of a run, whose summaries are generated and scored.

    Args:
        objective: objective of the run.
        metrics: metrics by name.
        max_read_tokens: maximum tokens to read of a document; None for all.

    Raises:
        InputError: there are no evaluation documents, or the model does not
            support the options of the evaluation.
    """

    def __init__(
        self,
        objective: Objective,
        metrics: Mapping[str, Metric],
        max_read_tokens: int | None,
    ) -> None:
        setup = objective.setup
        run = setup.run
        targeted = (
            with_target(setup.task, document, run.training.seed)
            for document in documents(setup.task, run.evaluation.split)
        )
        # The model adds the task's prefix to the documents.
        self._pairs: list[Pair] = objective.first_examples(
            pair_of(document) for document in targeted if document is not None
        )
        self._metrics = metrics
        self._options = SummaryOptions(
            batch_size=run.evaluation.batch_size,
            max_source_length=max_read_tokens,
            seed=run.evaluation.seed,
            generation=run.evaluation.generation(),
        )
        # One model for all evaluations compiles generation once per length.
        self._model: Model = setup.make_model()
        # checks the options
        self._model.summaries([], self._options)

    @cached_property
    def _baselines(self) -> dict[str, dict[str, float]]:
        return baseline_scores(self._pairs, self._metrics)

    def evaluate(self, params: Params) -> Evaluation:
        """Scores the summaries of a model with ``params``, and the baselines; also counts lengths.

        The names of baseline scores begin with "lead_" and "random_".
        """
        self._model.params = params
        rows = predict(self._model, self._pairs, self._metrics, self._options)
        # free the memory: training continues with other parameters
        self._model.forget_kernels()
        score_last(rows, self._pairs, self._metrics)
        summary = summary_of(rows, self._pairs, self._metrics)
        scores = dict(summary["scores"])
        for baseline, values in self._baselines.items():
            for name, value in values.items():
                scores[f"{baseline}_{name}"] = value
        scores["summary_tokens"] = summary["summary_tokens"]["mean"]
        scores["ended_by_limit"] = summary["ended_by_limit"]
        return Evaluation(scores, rows)

    def report(self, evaluation: Evaluation) -> str:
        """Returns the table of scores, and the first document with its summary."""
        scores, pair = evaluation.scores, self._pairs[0]
        columns = columns_of(self._metrics)
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
