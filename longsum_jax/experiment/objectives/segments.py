"""Segment-by-segment summarization: a target per segment, connected by memories (AWESOME)."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.data.padding import SegmentShape
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.summarization import Summarization
from longsum_jax.inference.auxiliary import load_auxiliary
from longsum_jax.inference.model import AuxiliaryModels
from longsum_jax.layers.memory import LOSSES
from longsum_jax.models.encoder_decoder import DocumentMemory, EncoderDecoder
from longsum_jax.models.salient_vectors import document_vectors, gather_vectors
from longsum_jax.ops.losses import TokenScores, count_labels
from longsum_jax.training.loss import LossOutput, SegmentedLoss
from longsum_jax.typing import IGNORED_LABEL, Array, Params


class SegmentSummarization(Summarization):
    """One update per batch of whole documents; memories are reset for every batch."""

    parts = True
    packs = False

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        """Completes the task with the model's segment length and number of vectors."""
        task, config = run.task, run.model
        if config.pages.page_length:
            raise InputError(
                f"config.model.page_length is {config.pages.page_length}, but segments have "
                "no pages; give 0"
            )
        vectors = config.memory.salient_vectors
        if (task.segments.salient == "vectors") != (vectors > 0):
            raise InputError(
                f'config.task.segments.salient is "{task.segments.salient}", '
                f'config.model.salient_vectors {vectors}; give "vectors" and a number above 0, or '
                "neither"
            )
        segments = dataclasses.replace(
            task.segments,
            segment_length=task.max_source_length,
            num_vectors=vectors,
        )
        return dataclasses.replace(task, segments=segments), config

    @classmethod
    def summarization(cls, task: Task) -> dict[str, Any]:
        return {"segments": dataclasses.asdict(task.segments)}

    @classmethod
    def auxiliary_models(cls, task: Task) -> AuxiliaryModels:
        return load_auxiliary(task.segments)

    def batch_options(self) -> dict[str, Any]:
        task = self.setup.task
        shape = SegmentShape(
            task.max_source_length,
            task.max_target_length,
            task.segments.num_vectors,
        )
        return {"segments": shape}

    @property
    def max_read_tokens(self) -> int | None:
        """Maximum tokens that evaluations read of a document; by default None for all."""
        return self.setup.run.evaluation.max_source_length or None

    def loss_fn(self) -> SegmentedLoss:
        """Returns the loss function from ``segment_loss_fn``."""
        config = self.setup.config
        return segment_loss_fn(
            self.setup.family.module_class(config),
            config,
            label_smoothing=self.setup.run.loss.label_smoothing,
        )


def segment_loss_fn(
    module: EncoderDecoder,
    config: Any,
    *,
    label_smoothing: float = 0.0,
    deterministic: bool = False,
) -> SegmentedLoss:
    """Returns the loss function: teacher-forced cross-entropy of every segment's target.

    It also counts segments, tokens and correct next tokens. Batches contain
    "input_ids" and "attention_mask" [b, segments, l], "labels" [b, segments,
    t], and for models with ``salient_vectors`` "slots" and "reads", see
    ``data.padding.SegmentShape``.

    Args:
        module: model with the methods of ``models.encoder_decoder``.
        config: config of the model.
        label_smoothing: probability mass spread over the vocabulary.
        deterministic: True to disable dropout and ``memory_reconstruction``,
            whose error, summed over layers, is the metric "reconstruction"
            divided by "weight". A document's error is weighted by its number of
            labels, independent of the other documents in the batch.
    """
    options = config.memory
    reconstructs = (
        options.memory == "compressive"
        and options.memory_reconstruction > 0
        and not deterministic
    )
    backprop_through_memory = (
        options.memory != "none" and options.memory_backprop == 0
    )

    def segment_loss(
        params: Params,
        segment: Mapping[str, Array],
        rng: Array,
        memory: DocumentMemory,
    ) -> tuple[LossOutput, DocumentMemory]:
        labels, mask = segment["labels"], segment["attention_mask"]
        (scores, memory), sown = module.apply(
            {"params": params},
            segment,
            memory,
            deterministic,
            label_smoothing,
            rngs={"dropout": rng},
            mutable=[LOSSES] if reconstructs else [],
            method=_teacher_forced,
        )
        loss_sum, weight = scores.losses.sum(), count_labels(labels)
        metrics = {
            "tokens": mask.sum().astype(np.float32) + weight,
            "right_tokens": scores.is_right.sum().astype(np.float32),
            "segments": mask.any(-1).sum().astype(np.float32),
        }
        if reconstructs:
            metrics["reconstruction"] = _weighted_errors(sown, labels)
            loss_sum += (
                options.memory_reconstruction * metrics["reconstruction"]
            )
        return LossOutput(loss_sum, weight, metrics), memory

    def init_memory(
        params: Params, batch: Mapping[str, Array]
    ) -> DocumentMemory:
        rows, _, length = batch["input_ids"].shape
        target_length = batch["labels"].shape[-1]
        return module.apply(
            {"params": params},
            rows,
            length,
            target_length,
            options.memory_backprop,
            method="init_memory",
        )

    def shared(params: Params, batch: Mapping[str, Array]) -> dict[str, Array]:
        if not options.salient_vectors:
            return {}
        apply = partial(module.apply, {"params": params})
        return {"vectors": document_vectors(apply, config, batch)}

    return SegmentedLoss(
        segment_loss,
        init_memory,
        _count_segments,
        shared,
        backprop_through_memory,
    )


def _weighted_errors(sown: Mapping[str, Any], labels: Array) -> Array:
    """Returns the rows' errors weighted by their numbers of labels, summed over rows and layers."""
    counts = (labels != IGNORED_LABEL).sum(-1).astype(np.float32)
    return sum((errors * counts).sum() for errors in jax.tree.leaves(sown))


def _count_segments(batch: Mapping[str, Array]) -> Array:
    """Returns the number of segments of the longest document."""
    has_segment = batch["attention_mask"].any((0, 2))
    numbers = jnp.arange(1, 1 + has_segment.size)
    return jnp.max(jnp.where(has_segment, numbers, 0))


def _teacher_forced(
    module: EncoderDecoder,
    segment: Mapping[str, Array],
    memory: DocumentMemory,
    deterministic: bool,
    label_smoothing: float,
) -> tuple[TokenScores, DocumentMemory]:
    """Returns the scores of a segment's labels, and the memory after it."""
    labels, mask = segment["labels"], segment["attention_mask"]
    inputs = {}
    if "vectors" in segment:
        inputs["salient"] = gather_vectors(segment["vectors"], segment["reads"])
    states, memory = module.read_segment(
        segment["input_ids"], mask, memory, deterministic, **inputs
    )
    ids, is_target = module.decoder_inputs(labels), labels != IGNORED_LABEL
    x, memory = module.write_segment(
        ids, is_target, states, mask, memory, deterministic
    )
    return module.token_scores(
        x, labels, label_smoothing=label_smoothing
    ), memory
