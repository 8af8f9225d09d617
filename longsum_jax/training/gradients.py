"""Gradients of a loss, summed over segments, micro-batches and devices."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.training.loss import (
    LossFn,
    LossOutput,
    SegmentedLoss,
    document_loss,
    segment_of,
)
from longsum_jax.training.mesh import BATCH_AXES
from longsum_jax.training.optimizers import global_norm
from longsum_jax.typing import AnyArray, Array, NumpyBatch

Grads = Any  # tree with the structure of the parameters
Sums = tuple[Grads, LossOutput]  # sums over rows, segments and micro-batches
GradientFn = Callable[..., Sums]


# Metric of `LossOutput`: squared norm of the mean gradient of a micro-batch.
MICRO_NORM = "micro_norm"


def gradient_fn(
    loss_fn: LossFn | SegmentedLoss,
    shardings: Any | None = None,
    *,
    measures_norm: bool = False,
) -> GradientFn:
    """Returns ``gradient(params, batch, rng, sums=None)``.

    It returns the gradient of the loss sum and the loss output, added to
    ``sums`` if given. They are added in place, so that a caller who adds many
    of them needs no additional copy.

    Args:
        loss_fn: loss function, see `LossFn` and `SegmentedLoss`.
        shardings: shardings of the parameters, on a mesh; gradients get the
            same shardings.
        measures_norm: True to add `MICRO_NORM` to the metrics; not for
            documents in segments, whose gradients are added in place.
    """
    if not isinstance(loss_fn, SegmentedLoss):
        return _gradient(loss_fn, shardings, measures_norm)
    if loss_fn.backprop_through_memory:
        return _gradient(document_loss(loss_fn), shardings)
    return _gradient_by_segments(loss_fn, shardings)


def _gradient(
    loss_fn: LossFn, shardings: Any | None, measures_norm: bool = False
) -> GradientFn:
    @jax.jit  # traced once, although the shapes of its result are needed first
    def loss_gradient(params: Any, batch: dict[str, Array], rng: Array) -> Sums:
        def loss_sum(params: Any) -> tuple[Array, LossOutput]:
            out = LossOutput(*loss_fn(params, batch, rng))
            return out.loss_sum, out

        grads, out = jax.grad(loss_sum, has_aux=True)(params)
        grads = _constrain(grads, shardings)
        if measures_norm:
            # Rows without any weight have no gradient.
            weight = jnp.where(out.weight > 0, out.weight, 1)
            squared = jnp.square(global_norm(grads) / weight)
            out = out._replace(metrics=out.metrics | {MICRO_NORM: squared})
        return grads, out

    def gradient(
        params: Any,
        batch: dict[str, Array],
        rng: Array,
        sums: Sums | None = None,
    ) -> Sums:
        sums_of_batch = loss_gradient(params, batch, rng)
        if sums is None:
            return sums_of_batch
        return jax.tree.map(jnp.add, sums, sums_of_batch)

    return gradient


def _constrain(grads: Grads, shardings: Any | None) -> Grads:
    """Shards gradients like their parameters, so that sums of micro-batches stay sharded."""
    if shardings is None:
        return grads
    return jax.lax.with_sharding_constraint(grads, shardings)


def _gradient_by_segments(
    loss: SegmentedLoss, shardings: Any | None
) -> GradientFn:
    """Returns a gradient function that adds the segments' gradients, without any through memory."""

    @jax.jit  # traced once, although the shapes of its result are needed first
    def segment_gradient(
        params: Any,
        segment: dict[str, Array],
        rng: Array,
        memory: Any,
        grads: Grads,
    ) -> tuple[Grads, LossOutput, Any]:
        def loss_sum(params: Any) -> tuple[Array, tuple[LossOutput, Any]]:
            out, new_memory = loss.loss_fn(params, segment, rng, memory)
            out = LossOutput(*out)
            return out.loss_sum, (out, new_memory)

        # Gradients with respect to the parameters only: the memory is an input
        # of this segment, so that nothing flows into earlier segments. They are
        # added in place, layer by layer: with a batch of one document, a second
        # copy of them would be a large part of all memory traffic.
        refs = jax.tree.map(jax.new_ref, grads)
        total, pull_back, (out, new_memory) = jax.vjp(
            loss_sum, params, has_aux=True
        )
        add_to_refs = pull_back.with_refs(refs)  # type: ignore[attr-defined] # JAX annotates a function
        add_to_refs(jnp.ones_like(total))
        grads = jax.tree.map(jax.freeze, refs)
        return _constrain(grads, shardings), out, new_memory

    def gradient(
        params: Any,
        batch: dict[str, Array],
        rng: Array,
        sums: Sums | None = None,
    ) -> Sums:
        # Arrays for all segments, computed once and without gradients.
        shared = jax.lax.stop_gradient(loss.shared(params, batch))

        def one(
            index: Array | int, memory: Any, grads: Grads
        ) -> tuple[Grads, LossOutput, Any]:
            segment = segment_of(batch, index) | shared
            return segment_gradient(
                params, segment, jax.random.fold_in(rng, index), memory, grads
            )

        def body(carry: tuple[Array, Any, Any]) -> tuple[Array, Any, Any]:
            index, (grads, total), memory = carry
            grads, out, memory = one(index, memory, grads)
            total = jax.tree.map(jnp.add, total, out)
            return index + 1, (grads, total), memory

        memory = loss.init_memory(params, batch)
        count = loss.count_segments(batch)
        if sums is None:
            # Shapes only; no segment is computed here.
            sums = _zeros_of(one, 0, memory, params)
        carry = (jnp.int32(0), sums, memory)
        # Segments beyond the longest document are not computed.
        _, (grads, out), _ = jax.lax.while_loop(
            lambda carry: carry[0] < count, body, carry
        )
        return grads, out

    return gradient


def _zeros_of(gradient: Callable[..., Any], *args: Any) -> Sums:
    """Returns zeros with the shapes of the gradients and the loss output of ``gradient(*args)``."""
    grads, out, *_ = jax.eval_shape(gradient, *args)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (grads, out))


def summed_gradient_fn(
    loss_fn: LossFn | SegmentedLoss, accumulation: int, shardings: Any | None
) -> GradientFn:
    """Returns ``gradient(params, batch, rng)`` over all micro-batches, for a step's arguments."""
    measures_norm = accumulation > 1
    if shardings is None:
        gradient = gradient_fn(loss_fn, measures_norm=measures_norm)
        return partial(
            _accumulate, gradient, accumulation=accumulation, rows=None
        )
    mesh = shardings.step.mesh
    if _adds_up_locally(loss_fn, mesh):
        # Inside shard_map, constraints take specs of the axes that remain
        # automatic.
        specs = jax.tree.map(lambda sharding: sharding.spec, shardings.params)
        return _gradient_by_devices(
            gradient_fn(loss_fn, specs), accumulation, mesh
        )
    # [micro-batches, rows, ...]
    rows = NamedSharding(mesh, P(None, BATCH_AXES))
    gradient = gradient_fn(
        loss_fn, shardings.params, measures_norm=measures_norm
    )
    return partial(_accumulate, gradient, accumulation=accumulation, rows=rows)


def _adds_up_locally(loss_fn: LossFn | SegmentedLoss, mesh: Mesh) -> bool:
    """Returns True if every device along "batch" adds the gradients of its own documents.

    Texts sharded over a mesh axis use ``shard_map`` themselves, which cannot be
    nested inside. If both "fsdp" and "tensor" shard parameters, XLA permutes
    arrays between their axes, in which all devices take part: one whose
    documents have ended would never join the others, and they would wait
    forever.
    """
    by_segments = (
        isinstance(loss_fn, SegmentedLoss)
        and not loss_fn.backprop_through_memory
    )
    sizes = mesh.shape
    has_one_other_axis = sizes["sequence"] == 1 and (
        sizes["fsdp"] == 1 or sizes["tensor"] == 1
    )
    return by_segments and sizes["batch"] > 1 and has_one_other_axis


def _gradient_by_devices(
    gradient: GradientFn, accumulation: int, mesh: Mesh
) -> GradientFn:
    """Returns ``gradient`` over all micro-batches with a single sum over the mesh axis "batch".

    By default the partitioner would sum the gradients of every segment over all
    devices. Here they are accumulated on the device, and a device whose
    documents have ended waits.
    """

    def of_device(params: Any, batch: dict[str, Array], rng: Array) -> Sums:
        # Devices with different rows draw different numbers.
        rng = jax.random.fold_in(rng, jax.lax.axis_index("batch"))
        rows = P(None, tuple(axis for axis in BATCH_AXES if axis != "batch"))
        sums = _accumulate(
            gradient, params, batch, rng, accumulation=accumulation, rows=rows
        )
        # The only sum over devices: gradients, losses, weights and metrics at
        # once.
        return jax.lax.psum(sums, "batch")

    return jax.shard_map(
        of_device,
        mesh=mesh,
        # parameters and key whole, rows split; other mesh axes remain automatic
        in_specs=(P(), P("batch"), P()),
        out_specs=P(),
        axis_names={"batch"},
        # the check would insert sums of the gradients of replicated parameters
        check_vma=False,
    )


def _accumulate(
    gradient: GradientFn,
    params: Any,
    batch: dict[str, Array],
    rng: Array,
    *,
    accumulation: int,
    rows: NamedSharding | P | None,
) -> Sums:
    """Returns the gradient of the summed loss, and the summed loss output, of all micro-batches.

    Args:
        gradient: gradient function, see `gradient_fn`.
        params, batch, rng: its arguments, for all micro-batches.
        accumulation: number of micro-batches.
        rows: sharding of arrays [micro-batches, rows, ...]; None on one device.
    """

    def one(
        micro_batch: dict[str, Array],
        index: Array | int,
        sums: Sums | None = None,
    ) -> Sums:
        return gradient(
            params, micro_batch, jax.random.fold_in(rng, index), sums
        )

    if accumulation == 1:
        return one(batch, 0)

    def body(sums: Sums, inputs: Any) -> tuple[Sums, None]:
        micro_batch, index = inputs
        return one(micro_batch, index, sums), None

    # The scan is over the first axis of [micro-batches, rows, ...].
    inputs = (_deal(batch, accumulation, rows), jnp.arange(accumulation))
    zeros = _zeros_of(one, *jax.tree.map(lambda x: x[0], inputs))
    (grads, out), _ = jax.lax.scan(body, zeros, inputs)
    return grads, out


def micro_batches(batch: NumpyBatch, count: int) -> Iterator[dict[str, Array]]:
    """Yields the micro-batches of a batch, see `make_train_step`."""
    dealt = _deal(batch, count, None)
    for index in range(count):
        yield {name: x[index] for name, x in dealt.items()}


def _deal(
    batch: Mapping[str, AnyArray], count: int, rows: NamedSharding | P | None
) -> dict[str, Array]:
    """Reshapes [rows, ...] to [count, rows / count, ...].

    Micro-batch i gets the rows i, i + count, i + 2 count, ... Round-robin
    splitting keeps every row on its device: each micro-batch is again sharded
    over all devices.
    """

    def deal(x: AnyArray) -> Array:
        if x.shape[0] % count:
            raise ValueError(
                f"{x.shape[0]} rows do not divide into {count} micro-batches"
            )
        # [rows / count, count, ...] -> [count, rows / count, ...]
        x = jnp.swapaxes(
            x.reshape(x.shape[0] // count, count, *x.shape[1:]), 0, 1
        )
        if rows is None:
            return x
        return jax.lax.with_sharding_constraint(x, rows)

    return jax.tree.map(deal, batch)
