"""One training step: gradients of micro-batches, one division by the weight, one update.

A step whose loss or gradient is not finite changes only the counts of skipped
steps. The norm of the parameters shows whether an update was not finite.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.training.mesh import BATCH_AXES
from longsum_jax.training.optimizers import find_trained, global_norm
from longsum_jax.training.state import TrainState
from longsum_jax.typing import AnyArray, Array, NumpyBatch

# read from the optimizer's state if present
OPTIMIZER_METRICS = ("learning_rate", "spikes")
RESERVED_METRICS = (
    *OPTIMIZER_METRICS,
    "loss",
    "grad_norm",
    "param_norm",
    "weight",
    "skipped",
    "bad_streak",
    "clipped",
    "mfu",
    "seconds_left",
    "padding",
)


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


Grads = Any  # tree with the structure of the parameters
Sums = tuple[Grads, LossOutput]  # sums over rows, segments and micro-batches
GradientFn = Callable[..., Sums]
# Each TPU of a mesh draws its own part of a random array; otherwise each draws
# the whole array.
_COMPILER_OPTIONS: dict[str, dict[str, str | bool]] = {
    "tpu": {"xla_tpu_spmd_rng_bit_generator_unsafe": True}
}


class TrainStep(Protocol):
    """A step as returned by ``jax.jit``, which is compiled on its first call."""

    def __call__(
        self, state: TrainState, batch: dict[str, Array]
    ) -> tuple[TrainState, dict[str, Array]]: ...

    def lower(
        self, state: TrainState, batch: dict[str, Array]
    ) -> jax.stages.Lowered: ...


def make_train_step(
    loss_fn: LossFn | SegmentedLoss,
    optimizer: optax.GradientTransformation,
    *,
    accumulation: int = 1,
    seed: int = 0,
    shardings: Any | None = None,
    donate: bool = True,
) -> TrainStep:
    """Compiles ``step(state, batch) -> (state, metrics)``, which consumes (donates) the state.

    The batch is split round-robin into ``accumulation`` micro-batches of equal
    size. Gradients of the loss sums are added and divided by the summed weight
    once, so that the update is the same as for the whole batch, for any
    distribution of the weight over micro-batches. Randomness is a pure function
    of seed, step and micro-batch; for a `SegmentedLoss` also of the position on
    the mesh axis "batch", over which its gradients are summed once per update.
    If the loss or the gradient norm is not finite, the parameters and the
    optimizer state do not change and the step counts as skipped, as does a step
    with a batch without any weight, which neither ends nor begins a streak of
    bad steps.

    Args:
        loss_fn: loss function, see `LossFn` and `SegmentedLoss`.
        optimizer: optimizer, see
            `longsum_jax.training.optimizers.make_optimizer`.
        accumulation: number of micro-batches; divides the rows
            (`mesh.check_batch_size`).
        seed: random seed of dropout and other random operations.
        shardings: `TrainState` of shardings on one mesh, matching the state;
            None for one device.
        donate: True if the step consumes the state; otherwise there are two
            states while it runs.

    Returns:
        The step. Its metrics are () arrays: loss (mean per unit of weight),
        grad_norm (before clipping), param_norm (after the update),
        learning_rate and spikes (if the optimizer state has them), weight,
        skipped, bad_streak, padding (share of the positions of sources without
        a token, if the batch has an "attention_mask"), and the sums of the loss
        function's metrics.
    """
    summed_gradient = _summed_gradient_fn(loss_fn, accumulation, shardings)

    def update(grads: Grads, params: Any, opt_state: Any) -> tuple[Any, Any]:
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    def skip(grads: Grads, params: Any, opt_state: Any) -> tuple[Any, Any]:
        del grads
        return params, opt_state

    def step(
        state: TrainState, batch: dict[str, Array]
    ) -> tuple[TrainState, dict[str, Array]]:
        # The key depends only on seed and step, so that a resumed run draws the
        # same numbers.
        rng = jax.random.fold_in(jax.random.key(seed), state.step)
        grads, out = summed_gradient(state.params, batch, rng)
        # Without any weight this is 0 / 0: not finite, so that the step is
        # skipped.
        loss = out.loss_sum / out.weight
        # The mean over the whole batch; means of micro-batches would weight
        # them equally.
        grads = jax.tree.map(lambda g: g / out.weight.astype(g.dtype), grads)
        norm = global_norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        # A branch can reuse the buffers of the old arrays; selecting between
        # old and new arrays elementwise would need both.
        params, opt_state = jax.lax.cond(
            finite, update, skip, grads, state.params, state.opt_state
        )
        new_state = TrainState(
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            skipped=state.skipped + ~finite,
            bad_streak=_bad_streak(state.bad_streak, finite, out.weight),
        )
        metrics = _metrics(out, loss, norm, new_state)
        if "attention_mask" in batch:
            metrics["padding"] = 1 - jnp.mean(
                batch["attention_mask"], dtype=jnp.float32
            )
        return new_state, metrics

    donated = (0,) if donate else ()
    if shardings is None:
        return jax.jit(step, donate_argnums=donated)
    # Fixed output shardings keep the sharding of the state, so that the second
    # step reuses the compiled program.
    replicated = NamedSharding(shardings.step.mesh, P())
    platform = shardings.step.mesh.devices.flat[0].platform
    return jax.jit(
        step,
        donate_argnums=donated,
        # the state as it came in, and the metrics on every device
        out_shardings=(shardings, replicated),
        compiler_options=_COMPILER_OPTIONS.get(platform),
    )


# Function of a compiled step that raises an error if the step should not run.
CheckProgram = Callable[[jax.stages.Compiled], None]
# Function of a compiled step that returns the seconds which its matrix products
# would take at the devices' peak FLOP rate; 0 if unknown.
CountSeconds = Callable[[jax.stages.Compiled], float]


class CompilationWatch:
    """Monitors the compilations of a step.

    It reports a step that was recompiled for a batch shape that had already
    been compiled.

    Args:
        train_step: result of ``make_train_step``.
        check_program: function called with the compiled step of every new batch
            shape before it runs.
        count_seconds: function called after it, see ``CountSeconds``.
    """

    def __init__(
        self,
        train_step: TrainStep,
        check_program: CheckProgram | None = None,
        count_seconds: CountSeconds | None = None,
    ) -> None:
        self._train_step = train_step
        self._check_program = check_program
        self._count_seconds = count_seconds
        # Seconds of the checked programs by the shape of their batches.
        self._seconds: dict[tuple[Any, ...], float] = {}
        self._shapes: set[tuple[Any, ...]] = set()
        self._unexpected = 0

    @property
    def compilations(self) -> int:
        """Number of compilations of the step so far."""
        return self._train_step._cache_size()  # type: ignore[attr-defined] # JAX's name

    def check_program(
        self, state: TrainState, batch: dict[str, Array]
    ) -> float:
        """Compiles the step for a new batch shape, and checks the program.

        The next step reuses the compiled program.

        Returns:
            The result of ``count_seconds``; 0 without one.
        """
        shape = _shape_of(batch)
        if shape not in self._seconds:
            self._seconds[shape] = self._check_new_program(state, batch)
        return self._seconds[shape]

    def _check_new_program(
        self, state: TrainState, batch: dict[str, Array]
    ) -> float:
        if self._check_program is None and self._count_seconds is None:
            return 0.0
        compiled = self._train_step.lower(state, batch).compile()
        if self._check_program is not None:
            self._check_program(compiled)
        if self._count_seconds is None:
            return 0.0
        return self._count_seconds(compiled)

    def check(self, step: int, batch: NumpyBatch) -> None:
        """Prints a warning if ``step``, with ``batch``, was recompiled unnecessarily."""
        self._shapes.add(_shape_of(batch))
        # One compilation per batch shape is expected.
        unexpected = self.compilations - len(self._shapes)
        if unexpected > self._unexpected and jax.process_index() == 0:
            print(
                f"step {step} was compiled again, although its batch shape was compiled before; "
                "a part of the state changed its type or sharding, please report it",
                file=sys.stderr,
            )
        self._unexpected = max(self._unexpected, unexpected)


def _shape_of(batch: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(
        (name, x.shape, str(x.dtype)) for name, x in sorted(batch.items())
    )


def gradient_fn(
    loss_fn: LossFn | SegmentedLoss, shardings: Any | None = None
) -> GradientFn:
    """Returns ``gradient(params, batch, rng, sums=None)``.

    It returns the gradient of the loss sum and the loss output, added to
    ``sums`` if given. They are added in place, so that a caller who adds many
    of them needs no additional copy.

    Args:
        loss_fn: loss function, see `LossFn` and `SegmentedLoss`.
        shardings: shardings of the parameters, on a mesh; gradients get the
            same shardings.
    """
    if not isinstance(loss_fn, SegmentedLoss):
        return _gradient(loss_fn, shardings)
    if loss_fn.backprop_through_memory:
        return _gradient(document_loss(loss_fn), shardings)
    return _gradient_by_segments(loss_fn, shardings)


def _gradient(loss_fn: LossFn, shardings: Any | None) -> GradientFn:
    @jax.jit  # traced once, although the shapes of its result are needed first
    def loss_gradient(params: Any, batch: dict[str, Array], rng: Array) -> Sums:
        def loss_sum(params: Any) -> tuple[Array, LossOutput]:
            out = LossOutput(*loss_fn(params, batch, rng))
            return out.loss_sum, out

        grads, out = jax.grad(loss_sum, has_aux=True)(params)
        return _constrain(grads, shardings), out

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
        params: Any, segment: dict[str, Array], rng: Array, memory: Any
    ) -> tuple[Grads, LossOutput, Any]:
        def loss_sum(params: Any) -> tuple[Array, tuple[LossOutput, Any]]:
            out, new_memory = loss.loss_fn(params, segment, rng, memory)
            out = LossOutput(*out)
            return out.loss_sum, (out, new_memory)

        # Gradients with respect to the parameters only: the memory is an input
        # of this segment, so that nothing flows into earlier segments.
        grads, (out, new_memory) = jax.grad(loss_sum, has_aux=True)(params)
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
            index: Array | int, memory: Any
        ) -> tuple[Grads, LossOutput, Any]:
            segment = _segment(batch, index) | shared
            return segment_gradient(
                params, segment, jax.random.fold_in(rng, index), memory
            )

        def body(carry: tuple[Array, Any, Any]) -> tuple[Array, Any, Any]:
            index, sums, memory = carry
            grads, out, memory = one(index, memory)
            # The sums are carried by the loop, which adds to them in place.
            return index + 1, jax.tree.map(jnp.add, sums, (grads, out)), memory

        memory = loss.init_memory(params, batch)
        count = loss.count_segments(batch)
        if sums is None:
            # Shapes only; no segment is computed here.
            sums = _zeros_of(one, 0, memory)
        carry = (jnp.int32(0), sums, memory)
        # Segments beyond the longest document are not computed.
        _, (grads, out), _ = jax.lax.while_loop(
            lambda carry: carry[0] < count, body, carry
        )
        return grads, out

    return gradient


def document_loss(loss: SegmentedLoss) -> LossFn:
    """Returns the loss of all segments as one differentiable function."""

    def loss_fn(params: Any, batch: dict[str, Array], rng: Array) -> LossOutput:
        shared = jax.lax.stop_gradient(loss.shared(params, batch))

        def one(memory: Any, index: Array) -> tuple[Any, LossOutput]:
            segment = _segment(batch, index) | shared
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


def _segment(batch: dict[str, Array], index: Array | int) -> dict[str, Array]:
    """Returns segment ``index`` of every row."""
    return {
        # [rows, segments, ...] -> [rows, ...]
        name: jax.lax.dynamic_index_in_dim(x, index, 1, keepdims=False)
        for name, x in batch.items()
    }


def _zeros_of(gradient: Callable[..., Any], *args: Any) -> Sums:
    """Returns zeros with the shapes of the gradients and the loss output of ``gradient(*args)``."""
    grads, out, *_ = jax.eval_shape(gradient, *args)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (grads, out))


def _summed_gradient_fn(
    loss_fn: LossFn | SegmentedLoss, accumulation: int, shardings: Any | None
) -> GradientFn:
    """Returns ``gradient(params, batch, rng)`` over all micro-batches, for a step's arguments."""
    if shardings is None:
        gradient = gradient_fn(loss_fn)
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
    gradient = gradient_fn(loss_fn, shardings.params)
    return partial(_accumulate, gradient, accumulation=accumulation, rows=rows)


def _adds_up_locally(loss_fn: LossFn | SegmentedLoss, mesh: Mesh) -> bool:
    """Returns True if every device along "batch" adds the gradients of its own documents.

    Texts sharded over a mesh axis use ``shard_map`` themselves, which cannot be
    nested inside.
    """
    by_segments = (
        isinstance(loss_fn, SegmentedLoss)
        and not loss_fn.backprop_through_memory
    )
    return (
        by_segments and mesh.shape["batch"] > 1 and mesh.shape["sequence"] == 1
    )


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


def _bad_streak(streak: Array, finite: Array, weight: Array) -> Array:
    """Returns the number of consecutive bad steps; a step without weight (no loss) is not bad."""
    # A finite step ends the streak; a step without labels does not change it.
    longer = jnp.where(weight == 0, streak, streak + 1)
    return jnp.where(finite, 0, longer)


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


def _metrics(
    out: LossOutput, loss: Array, norm: Array, state: TrainState
) -> dict[str, Array]:
    clash = sorted(set(out.metrics) & set(RESERVED_METRICS))
    if clash:
        raise ValueError(
            f"the loss function may not use the metric names {clash}"
        )
    metrics = {
        "loss": loss,
        "grad_norm": norm,
        "param_norm": global_norm(state.params),
        "weight": out.weight,
        "skipped": state.skipped,
        "bad_streak": state.bad_streak,
    }
    for name in OPTIMIZER_METRICS:
        value = optax.tree_utils.tree_get(state.opt_state, name)
        if value is not None:
            metrics[name] = value
    return metrics | dict(out.metrics)
