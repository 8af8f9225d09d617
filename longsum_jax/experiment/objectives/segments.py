"""Summaries by an encoder-decoder that reads segment by segment: each has a target, memories
connect them (AWESOME)."""

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
from longsum_jax.experiment.objectives.summarization import Summarization
from longsum_jax.layers.memory import LOSSES
from longsum_jax.models.encoder_decoder import DocumentMemory, EncoderDecoder
from longsum_jax.models.salient_vectors import kept_vectors, seen_vectors
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.training.step import LossOutput, SegmentedLoss
from longsum_jax.typing import IGNORED_LABEL, Array


class SegmentSummarization(Summarization):
    """One update for a batch of whole documents; memories begin anew with each."""

    parts = True

    def resolve(self, task: Task, config: Any) -> tuple[Task, Any]:
        """The task with the lengths and the number of vectors that the model has."""
        if self.experiment.data.reader == "prepared":
            raise InputError(
                'config.data.reader is "prepared", which holds no segments; give "memory" or "stream"'
            )
        if config.page_length:
            raise InputError(
                f"config.model.page_length is {config.page_length}, but segments have no pages; give 0"
            )
        vectors = config.salient_vectors
        if (task.segments.salient == "vectors") != (vectors > 0):
            raise InputError(
                f'config.task.segments.salient is "{task.segments.salient}", config.model.salient_vectors {vectors}; '
                'give "vectors" and a number above 0, or neither'
            )
        segments = dataclasses.replace(
            task.segments, segment_length=task.max_source_length, num_vectors=vectors
        )
        return dataclasses.replace(task, segments=segments), config

    def label_options(self) -> dict[str, Any]:
        task = self.experiment.task
        return {
            "segments": SegmentShape(
                task.max_source_length, task.max_target_length, task.segments.num_vectors
            )
        }

    def summarization(self) -> dict[str, Any]:
        return {"segments": dataclasses.asdict(self.experiment.task.segments)}

    @property
    def reading_limit(self) -> None:
        """Evaluation reads all of every document."""

    def loss_fn(self) -> SegmentedLoss:
        """See ``segment_loss_fn``."""
        config, smoothing = self.experiment.config, self.experiment.loss.label_smoothing
        return segment_loss_fn(
            self.experiment.family.module_class(config), config, label_smoothing=smoothing
        )


def segment_loss_fn(
    module: EncoderDecoder,
    config: Any,
    *,
    label_smoothing: float = 0.0,
    deterministic: bool = False,
) -> SegmentedLoss:
    """Teacher-forced cross-entropy of every segment's target; counts segments, tokens and right
    next-token guesses.

    Batches hold "input_ids" and "attention_mask" [B, S, L], "labels" [B, S, T], and for models with
    ``salient_vectors`` "slots" and "reads", see ``data.padding.SegmentShape``. ``deterministic`` is
    without dropout and without ``memory_reconstruction``, whose error, added up over layers, is the
    metric "reconstruction" over "weight".
    """

    reconstructs = (
        config.memory == "compressive" and config.memory_reconstruction > 0 and not deterministic
    )

    def segment_loss(
        params: Any, batch: Mapping[str, Array], rng: Array, memory: Any
    ) -> tuple[LossOutput, Any]:
        labels, mask = batch["labels"], batch["attention_mask"]
        options = {
            "rngs": {"dropout": rng},
            "mutable": [LOSSES] if reconstructs else [],
            "method": _teacher_forced,
        }
        (logits, memory), sown = module.apply(
            {"params": params}, batch, memory, deterministic, **options
        )
        loss_sum, weight = token_cross_entropy(logits, labels, label_smoothing=label_smoothing)
        counts = {
            "tokens": mask.sum().astype(np.float32) + weight,
            "right_tokens": (logits.argmax(-1) == labels).sum().astype(np.float32),
            "segments": mask.any(-1).sum().astype(np.float32),
        }
        if reconstructs:
            counts["reconstruction"] = weight * sum(x.sum() for x in jax.tree.leaves(sown))
            loss_sum += config.memory_reconstruction * counts["reconstruction"]
        return LossOutput(loss_sum, weight, counts), memory

    def init_memory(params: Any, batch: Mapping[str, Array]) -> DocumentMemory:
        rows, _, length = batch["input_ids"].shape
        sizes = rows, length, batch["labels"].shape[-1], config.memory_backprop
        return module.apply({"params": params}, *sizes, method="init_memory")

    def shared(params: Any, batch: Mapping[str, Array]) -> dict[str, Array]:
        if not config.salient_vectors:
            return {}
        return {"kept": kept_vectors(partial(module.apply, {"params": params}), config, batch)}

    through_memory = config.memory != "none" and config.memory_backprop == 0
    return SegmentedLoss(segment_loss, init_memory, _count_segments, shared, through_memory)


def _count_segments(batch: Mapping[str, Array]) -> Array:
    """Returns the number of segments of the longest document."""
    has_segment = batch["attention_mask"].any((0, 2))
    numbers = jnp.arange(1, 1 + has_segment.size)
    return jnp.max(jnp.where(has_segment, numbers, 0))


def _teacher_forced(
    module: EncoderDecoder, batch: Mapping[str, Array], memory: DocumentMemory, deterministic: bool
) -> tuple[Array, DocumentMemory]:
    """Logits of a segment's labels [B, T], and the memory after it."""
    config, labels = module.config, batch["labels"]
    inputs = {"salient": seen_vectors(batch["kept"], batch["reads"])} if "kept" in batch else {}
    mask = batch["attention_mask"]
    states, memory = module.read_segment(batch["input_ids"], mask, memory, deterministic, **inputs)
    ids = shift_right(labels, start_id=config.decoder_start_token_id, pad_id=config.pad_token_id)
    return module.write_segment(ids, labels != IGNORED_LABEL, states, mask, memory, deterministic)
