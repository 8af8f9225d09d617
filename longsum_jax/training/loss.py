"""Losses that a step minimizes: of rows, or of documents that are read segment by segment."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from longsum_jax.training.optimizers import find_trained
from longsum_jax.typing import Array


class LossOutput(NamedTuple):
    """The loss of some rows of a batch.

    Attributes:
        loss_sum: sum (not mean) of the losses, () float32.
        weight: divisor of the sum, usually the number of target tokens, ()
            float32.
        metrics: sums over the rows by name, () arrays. "tokens", if present, is
            the count for tokens per second.
    """

    loss_sum: Array
    weight: Array
    metrics: dict[str, Array] = {}  # noqa: RUF012 - never mutated


class LossFn(Protocol):
    """A loss function of parameters, batch arrays [rows, ...] and a PRNG key."""

    def __call__(
        self, params: Any, batch: dict[str, Array], rng: Array
    ) -> LossOutput: ...


class SegmentLossFn(Protocol):
    """A loss function of one segment of every row, which takes and returns the rows' memory."""

    def __call__(
        self, params: Any, segment: dict[str, Array], rng: Array, memory: Any
    ) -> tuple[LossOutput, Any]: ...


def _share_nothing(params: Any, batch: dict[str, Array]) -> dict[str, Array]:
    del params, batch
    return {}


class SegmentedLoss(NamedTuple):
    """A loss of documents that a model reads segment by segment, all in one compiled step.

    Batch arrays are [rows, segments, ...]. Gradients are computed segment by
    segment and added, so that memory use does not grow with the number of
    segments; segments that no row has are not computed. The memory passed from
    one segment of a document to the next is reset in every batch.

    Attributes:
        loss_fn: loss of one segment, batch arrays [rows, ...], given the memory
            after the previous segment.
        init_memory: function (parameters, batch) -> memory before the first
            segment.
        count_segments: function batch -> number of segments of the longest
            document, () int32.
        shared: function (parameters, batch) -> additional arrays [rows, ...]
            for every segment, computed once without gradients.
        backprop_through_memory: True if gradients flow through the memory from
            the last segment to the first. All segments are then computed,
            twice, and memory use grows with their number by the size of the
            memory.
    """

    loss_fn: SegmentLossFn
    init_memory: Callable[[Any, dict[str, Array]], Any]
    count_segments: Callable[[dict[str, Array]], Array]
    shared: Callable[[Any, dict[str, Array]], dict[str, Array]] = _share_nothing
    backprop_through_memory: bool = False


def document_loss(loss: SegmentedLoss) -> LossFn:
    """Returns the loss of all segments as one differentiable function."""

    def loss_fn(params: Any, batch: dict[str, Array], rng: Array) -> LossOutput:
        shared = jax.lax.stop_gradient(loss.shared(params, batch))

        def one(memory: Any, index: Array) -> tuple[Any, LossOutput]:
            segment = segment_of(batch, index) | shared
            out, memory = loss.loss_fn(
                params, segment, jax.random.fold_in(rng, index), memory
            )
            return memory, LossOutput(*out)

        # Batch arrays are [rows, segments, ...].
        num_segments = jax.tree.leaves(batch)[0].shape[1]
        # The loop already keeps XLA from merging a segment with its
        # recomputation.
        step = jax.checkpoint(one, prevent_cse=False)
        memory = loss.init_memory(params, batch)
        _, outs = jax.lax.scan(step, memory, jnp.arange(num_segments))
        # [segments] -> one sum for the documents
        return jax.tree.map(lambda x: x.sum(0), outs)

    return loss_fn


def segment_of(batch: dict[str, Array], index: Array | int) -> dict[str, Array]:
    """Returns segment ``index`` of every row."""
    return {
        # [rows, segments, ...] -> [rows, ...]
        name: jax.lax.dynamic_index_in_dim(x, index, 1, keepdims=False)
        for name, x in batch.items()
    }


def with_frozen(
    loss_fn: LossFn | SegmentedLoss, trained: str
) -> LossFn | SegmentedLoss:
    """Returns ``loss_fn`` with gradients of only the trained parameters; other gradients are 0.

    Args:
        loss_fn: loss function, see `LossFn` and `SegmentedLoss`.
        trained: pattern of the trained parameters, see
            `optimizers.find_trained`; empty trains all.
    """
    if not trained:
        return loss_fn

    def freeze(params: Any) -> Any:
        def stop(is_trained: bool, param: Array) -> Array:
            # JAX then does not compute the gradients of frozen parameters.
            if is_trained:
                return param
            return jax.lax.stop_gradient(param)

        return jax.tree.map(stop, find_trained(params, trained), params)

    def frozen(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda params, *args: function(freeze(params), *args)

    return _map_functions(frozen, loss_fn)


def with_context(
    loss_fn: LossFn | SegmentedLoss,
    make_context: Callable[[], contextlib.AbstractContextManager[None]],
) -> LossFn | SegmentedLoss:
    """Returns ``loss_fn`` whose functions are traced inside of a context."""

    def in_context(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with make_context():
                return function(*args)

        return call

    return _map_functions(in_context, loss_fn)


def _map_functions(
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
    loss_fn: LossFn | SegmentedLoss,
) -> LossFn | SegmentedLoss:
    """Wraps all functions of a loss that compute with parameters."""
    if not isinstance(loss_fn, SegmentedLoss):
        return wrap(loss_fn)
    return loss_fn._replace(
        loss_fn=wrap(loss_fn.loss_fn),
        init_memory=wrap(loss_fn.init_memory),
        shared=wrap(loss_fn.shared),
    )
