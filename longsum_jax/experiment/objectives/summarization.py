"""Summaries by an encoder-decoder: teacher forcing, and ROUGE of what it generates."""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from longsum_jax.data.examples.summarization import source_and_target
from longsum_jax.data.sources import documents
from longsum_jax.evaluation.metric import Metric
from longsum_jax.evaluation.predictions import (
    Pair,
    baseline_scores,
    columns_of,
    predict,
    summary_of,
)
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.objectives.base import Evaluation, Objective
from longsum_jax.inference.model import Model
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.training.step import LossFn, LossOutput
from longsum_jax.typing import Array, Params


class Summarization(Objective):
    """Summaries, given or made of gap sentences."""

    kind = "encoder_decoder"

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The metrics of the evaluation, by name."""
        options = self.experiment.evaluation
        rouge = {"rouge": {"stemmer": options.stemmer}} if "rouge" in options.metrics else {}
        return make_metrics(options.metrics, rouge)

    @property
    def ranking(self) -> tuple[str, ...]:
        """The values of the metrics, by which checkpoints can be ranked."""
        return columns_of(self.metrics)

    def label_options(self) -> dict[str, Any]:
        return {"target_length": self.experiment.task.max_target_length}

    def loss_fn(self) -> LossFn:
        """Teacher-forced cross-entropy; also counts the tokens and the right next-token guesses."""
        config, smoothing = self.experiment.config, self.experiment.loss.label_smoothing
        module = self.experiment.family.module_class(config)

        def loss_fn(params: Params, batch: Mapping[str, Array], rng: Array) -> LossOutput:
            labels = batch["labels"]
            logits = module.apply(
                {"params": params},
                batch["input_ids"],
                batch["attention_mask"],
                shift_right(
                    labels, start_id=config.decoder_start_token_id, pad_id=config.pad_token_id
                ),
                deterministic=False,
                rngs={"dropout": rng},
            )
            loss_sum, weight = token_cross_entropy(logits, labels, label_smoothing=smoothing)
            right = (logits.argmax(-1) == labels).sum().astype(np.float32)
            tokens = batch["attention_mask"].sum().astype(np.float32) + weight
            return LossOutput(loss_sum, weight, {"tokens": tokens, "right_tokens": right})

        return loss_fn

    @cached_property
    def pairs(self) -> list[Pair]:
        """The documents that evaluation reads, with their summaries; the model adds the task's
        prefix."""
        task, seed = (
            dataclasses.replace(self.experiment.task, prefix=""),
            self.experiment.training.seed,
        )
        docs = documents(task, self.experiment.evaluation.split)
        made = (
            (document, source_and_target(task, document._replace(query=None), seed))
            for document in docs
        )
        return self.first(
            Pair(document.id, *texts, document.query)
            for document, texts in made
            if texts is not None
        )

    def read_evaluation(self) -> None:
        _ = self.pairs

    @cached_property
    def baselines(self) -> dict[str, dict[str, float]]:
        return baseline_scores(self.pairs, self.metrics)

    @cached_property
    def _model(self) -> Model:
        """One object throughout, so that generation compiles once per length."""
        return self.experiment.model(None)

    @property
    def reading_limit(self) -> int | None:
        """Tokens of a document that evaluation reads."""
        return self.experiment.task.max_source_length

    def evaluate(self, params: Params) -> Evaluation:
        """ROUGE of generated summaries, their lengths, and ROUGE of the baselines under "lead_" and
        "random_"."""
        self._model.params = params
        options = self.experiment.evaluation
        generation = {
            name: getattr(options, name)
            for name in ("max_new_tokens", "num_beams", "no_repeat_ngram_size")
        }
        rows = predict(
            self._model,
            self.pairs,
            self.metrics,
            batch_size=options.batch_size,
            max_source_length=self.reading_limit,
            **{name: value for name, value in generation.items() if value is not None},
        )
        self._model.forget_kernels()  # training goes on with other parameters and needs the memory
        summary = summary_of(rows, self.pairs, self.metrics)
        scores = dict(summary["scores"])
        scores |= {
            f"{name}_{key}": value
            for name, made in self.baselines.items()
            for key, value in made.items()
        }
        scores["summary_tokens"] = summary["summary_tokens"]["mean"]
        scores["ended_by_limit"] = summary["ended_by_limit"]
        return Evaluation(scores, rows)

    def report(self, evaluation: Evaluation) -> str:
        scores, pair = evaluation.scores, self.pairs[0]
        prefixes = {"model": "", "lead": "lead_", "random": "random_"}
        lines = {
            name: [scores[prefix + column] for column in self.ranking]
            for name, prefix in prefixes.items()
        }
        return (
            f"{score_table(self.ranking, lines)}\n\n"
            f"source ({pair.id}): {pair.source[:600]}...\n\nreference: {pair.reference[:400]}\n\n"
            f"summary: {evaluation.rows[0]['prediction']}"
        )

    def next_step(self) -> str:
        return f"summarise your own file:\n  longsum summarize --model={self.experiment.workdir} FILE.txt"
