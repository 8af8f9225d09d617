"""One training step: micro-batches, one division, one update, or none when something is not
finite."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.training.mesh import BATCH_AXES
from longsum_jax.training.optimizers import global_norm
from longsum_jax.training.state import TrainState
from longsum_jax.typing import Array

RESERVED_METRICS = ("loss", "grad_norm", "learning_rate", "weight", "skipped", "bad_streak")


class LossOutput(NamedTuple):
    """What a loss function returns for the rows it was given.

    Attributes:
        loss_sum: () float32, the sum (not the mean) of the losses.
        weight: () float32, what the sum is divided by in the end, usually the number of target
            tokens.
        carry: for the next batch, the tree structure and shapes of the carry it was given.
        metrics: name to () array, sums over the rows. "tokens", if given, is what tokens per second
            counts.
    """

    loss_sum: Array
    weight: Array
    carry: Any = ()
    metrics: dict[str, Array] = {}  # noqa: RUF012 - never mutated


class LossFn(Protocol):
    """Called with parameters, batch arrays [rows, ...], a PRNG key and the carry of these rows."""

    def __call__(
        self, params: Any, batch: dict[str, Array], rng: Array, carry: Any
    ) -> LossOutput: ...


class SegmentedLoss(NamedTuple):
    """A loss function for documents that go through segment by segment, in one compiled step.

    Batch arrays are [rows, S, ...] with the segments of each row's document on their second axis.
    Gradients are taken segment by segment and added up, so that memory does not depend on S;
    nothing is computed for segments that no row has. What goes from one segment of a document to
    the next begins anew with every batch.

    Attributes:
        loss_fn: of one segment of every row, arrays [rows, ...]; its carry is what the segment
            before handed on.
        start: (parameters, batch) -> the carry of the first segments.
        count: batch -> () int32, how many segments the longest document has.
        shared: (parameters, batch) -> further arrays [rows, ...] for every segment, computed once
            without gradients.
        whole: whether gradients go through the carry from the last segment to the first. All S
            segments are then computed, twice, and memory grows with S by what is carried.
    """

    loss_fn: LossFn
    start: Callable[[Any, dict[str, Array]], Any]
    count: Callable[[dict[str, Array]], Array]
    shared: Callable[[Any, dict[str, Array]], dict[str, Array]] = lambda params, batch: {}
    whole: bool = False


GradientFn = Callable[..., tuple[Any, LossOutput]]
TrainStep = Callable[[TrainState, dict[str, Array]], tuple[TrainState, dict[str, Array]]]


def make_train_step(
    loss_fn: LossFn | SegmentedLoss,
    optimizer: optax.GradientTransformation,
    *,
    accumulation: int = 1,
    seed: int = 0,
    shardings: TrainState | None = None,
) -> TrainStep:
    """Compiles ``step(state, batch) -> (state, metrics)``, which consumes (donates) the state.

    The rows of the batch, and of the carry, are dealt to ``accumulation`` micro-batches of equal
    size. Gradients of the loss sums are added and divided by the summed weight once, so the update
    is that of the whole batch however the weight falls on the micro-batches. Randomness is a pure
    function of seed, step and micro-batch. When the loss or the gradient norm is not finite (or the
    batch has no weight at all), the parameters, the optimizer state and the carry stay as they are
    and the step counts as skipped.

    Args:
        loss_fn: see `LossFn` and `SegmentedLoss`.
        optimizer: see `longsum_jax.training.optimizers.make_optimizer`.
        accumulation: number of micro-batches; divides the rows (`partition.check_batch_size`).
        seed: of dropout and the like.
        shardings: `TrainState` of shardings on one mesh, as the state has them; None for one
            device.

    Returns:
        The step. Its metrics are () arrays: loss (mean per unit of weight), grad_norm (before
        clipping), learning_rate (if the optimizer state has it), weight, skipped, bad_streak, and
        the sums of the loss function's own metrics.
    """
    mesh = None if shardings is None else shardings.step.mesh
    gradient = gradient_fn(loss_fn, None if shardings is None else shardings.params)

    def step(state: TrainState, batch: dict[str, Array]) -> tuple[TrainState, dict[str, Array]]:
        rng = jax.random.fold_in(jax.random.key(seed), state.step)
        grads, out = _accumulated(gradient, state, batch, rng, accumulation, mesh)
        loss = out.loss_sum / out.weight
        grads = jax.tree.map(lambda g: g / out.weight.astype(g.dtype), grads)
        norm = global_norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)

        def update(grads: Any, params: Any, opt_state: Any) -> tuple[Any, Any]:
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state

        # A branch writes where the old arrays were; choosing between old and new ones entry by
        # entry needs both.
        skip = lambda grads, *kept: kept  # noqa: E731
        params, opt_state = jax.lax.cond(finite, update, skip, grads, state.params, state.opt_state)
        new_state = TrainState(
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            carry=jax.tree.map(lambda a, b: jnp.where(finite, a, b), out.carry, state.carry),
            skipped=state.skipped + ~finite,
            bad_streak=jnp.where(finite, 0, state.bad_streak + 1),
        )
        return new_state, _metrics(out, loss, norm, new_state)

    if shardings is None:
        return jax.jit(step, donate_argnums=0)
    # Fixed output shardings keep the state where it was, so that the second step reuses the
    # compilation.
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, P())))


def gradient_fn(loss_fn: LossFn | SegmentedLoss, shardings: Any | None = None) -> GradientFn:
    """Returns ``gradient(params, batch, rng, carry) -> (gradient of the loss sum, loss output)``.

    ``shardings`` are those of the parameters, on a mesh.
    """
    if not isinstance(loss_fn, SegmentedLoss):
        return _gradient(loss_fn, shardings)
    if loss_fn.whole:
        return _gradient(whole_documents(loss_fn), shardings)
    return _gradient_by_segments(loss_fn, _gradient(loss_fn.loss_fn, shardings))


def _gradient(loss_fn: LossFn, shardings: Any | None) -> GradientFn:

    def gradient(params: Any, *args: Any) -> tuple[Any, LossOutput]:
        def loss_sum(params: Any) -> tuple[Array, LossOutput]:
            out = LossOutput(*loss_fn(params, *args))
            return out.loss_sum, out

        grads, out = jax.grad(loss_sum, has_aux=True)(params)
        if (
            shardings is not None
        ):  # sums of micro-batches are then kept in slices, like the parameters
            grads = jax.lax.with_sharding_constraint(grads, shardings)
        return grads, out

    return gradient


def _gradient_by_segments(loss: SegmentedLoss, gradient: GradientFn) -> GradientFn:
    """Adds up what ``gradient`` gives for each segment; the carry of the batch itself stays as it
    is."""

    def by_segments(
        params: Any, batch: dict[str, Array], rng: Array, carry: Any
    ) -> tuple[Any, LossOutput]:
        shared = jax.lax.stop_gradient(loss.shared(params, batch))

        def one(index: Array | int, memory: Any) -> tuple[Any, LossOutput]:
            return gradient(
                params, _segment(batch, index) | shared, jax.random.fold_in(rng, index), memory
            )

        def body(state: tuple[Array, Any, Any]) -> tuple[Array, Any, Any]:
            index, sums, memory = state
            grads, out = one(index, memory)
            return (
                index + 1,
                jax.tree.map(jnp.add, sums, (grads, out._replace(carry=()))),
                out.carry,
            )

        memory, count = loss.start(params, batch), loss.count(batch)
        sums = _zeros_of(one, 0, memory)
        _, (grads, out), _ = jax.lax.while_loop(
            lambda state: state[0] < count, body, (jnp.int32(0), sums, memory)
        )
        return grads, out._replace(carry=carry)

    return by_segments


def whole_documents(loss: SegmentedLoss) -> LossFn:
    """The sums over all segments, as one function to be differentiated."""

    def whole(params: Any, batch: dict[str, Array], rng: Array, carry: Any) -> LossOutput:
        shared = jax.lax.stop_gradient(loss.shared(params, batch))

        def one(memory: Any, index: Array) -> tuple[Any, LossOutput]:
            segment = _segment(batch, index) | shared
            out = LossOutput(*loss.loss_fn(params, segment, jax.random.fold_in(rng, index), memory))
            return out.carry, out._replace(carry=())

        segments = jax.tree.leaves(batch)[0].shape[1]
        step = jax.checkpoint(
            one, prevent_cse=False
        )  # the loop keeps a segment from being merged with its repetition
        _, outs = jax.lax.scan(step, loss.start(params, batch), jnp.arange(segments))
        return jax.tree.map(lambda x: x.sum(0), outs)._replace(carry=carry)

    return whole


def _segment(batch: dict[str, Array], index: Array | int) -> dict[str, Array]:
    """Segment ``index`` of every row."""
    return {
        name: jax.lax.dynamic_index_in_dim(x, index, 1, keepdims=False) for name, x in batch.items()
    }


def _zeros_of(gradient: GradientFn, *args: Any) -> tuple[Any, LossOutput]:
    """Where sums of what ``gradient`` gives begin, without a carry."""
    grads, out = jax.eval_shape(gradient, *args)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (grads, out._replace(carry=())))


def _accumulated(
    gradient: GradientFn,
    state: TrainState,
    batch: Any,
    rng: Array,
    accumulation: int,
    mesh: Mesh | None,
) -> tuple[Any, LossOutput]:
    """Returns the gradient of the summed loss, and the summed loss output with the carry of all
    rows."""

    def one(batch: Any, carry: Any, index: Array | int) -> tuple[Any, LossOutput]:
        return gradient(state.params, batch, jax.random.fold_in(rng, index), carry)

    if accumulation == 1:
        return one(batch, state.carry, 0)

    def body(sums: Any, inputs: Any) -> tuple[Any, Any]:
        grads, out = one(*inputs)
        return jax.tree.map(jnp.add, sums, (grads, out._replace(carry=()))), out.carry

    micro_batches, carries = (_dealt(tree, accumulation, mesh) for tree in (batch, state.carry))
    inputs = (micro_batches, carries, jnp.arange(accumulation))
    zeros = _zeros_of(one, *jax.tree.map(lambda x: x[0], inputs))
    (grads, out), carries = jax.lax.scan(body, zeros, inputs)
    return grads, out._replace(carry=_gathered(carries))


def _dealt(tree: Any, count: int, mesh: Mesh | None) -> Any:
    """[rows, ...] to [count, rows / count, ...]; micro-batch i gets the rows i, i + count, i + 2
    count, ...

    Dealing, not cutting, keeps every row on its device: each micro-batch is again spread over all
    devices.
    """

    def deal(x: Array) -> Array:
        if x.shape[0] % count:
            raise ValueError(f"{x.shape[0]} rows do not divide into {count} micro-batches")
        x = jnp.swapaxes(x.reshape(x.shape[0] // count, count, *x.shape[1:]), 0, 1)
        if mesh is None:
            return x
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, BATCH_AXES)))

    return jax.tree.map(deal, tree)


def _gathered(tree: Any) -> Any:
    """Undoes `_dealt`."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), tree)


def _metrics(out: LossOutput, loss: Array, norm: Array, state: TrainState) -> dict[str, Array]:
    if clash := sorted(set(out.metrics) & set(RESERVED_METRICS)):
        raise ValueError(f"the loss function may not use the metric names {clash}")
    rate = optax.tree_utils.tree_get(state.opt_state, "learning_rate")
    metrics = {"loss": loss, "grad_norm": norm, "weight": out.weight}
    metrics |= {"skipped": state.skipped, "bad_streak": state.bad_streak}
    return metrics | ({} if rate is None else {"learning_rate": rate}) | dict(out.metrics)
