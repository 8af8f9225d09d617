"""One training step: a sum of gradients, one division by the weight, one update.

A step whose loss or gradient is not finite changes only the counts of skipped
steps. The norm of the parameters shows whether an update was not finite.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.training.gradients import (
    MICRO_NORM,
    Grads,
    summed_gradient_fn,
)
from longsum_jax.training.loss import LossFn, LossOutput, SegmentedLoss
from longsum_jax.training.mesh import jit_for, platform_of
from longsum_jax.training.optimizers import global_norm
from longsum_jax.training.state import TrainState
from longsum_jax.typing import Array, NumpyBatch

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
    "gradient_noise",
    "gradient_signal",
    "mfu",
    "seconds_left",
    "padding",
)


class TrainStep(Protocol):
    """A step as returned by ``jax.jit``, which is compiled once for every batch shape."""

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
    """Returns the jitted ``step(state, batch) -> (state, metrics)``.

    ``state`` is a `TrainState`, and ``batch`` a dictionary of arrays [rows,
    ...], for a `SegmentedLoss` [rows, segments, ...]. The rows are split
    round-robin into ``accumulation`` micro-batches of equal size. Gradients of
    the loss sums are added and divided by the summed weight once, so that the
    update is the same as for the whole batch, for any distribution of the
    weight over micro-batches.

    Randomness is a pure function of seed, step and micro-batch; for a
    `SegmentedLoss` also of the position on the mesh axis "batch", on meshes
    where its gradients are summed over this axis once per update.

    If the loss or the gradient norm is not finite, the parameters and the
    optimizer state do not change, and the step increases ``skipped`` and
    ``bad_streak`` of the state. A step whose batch has weight 0 increases
    ``skipped`` and leaves ``bad_streak`` unchanged. Any other step sets
    ``bad_streak`` to 0.

    Args:
        loss_fn: loss function, see `LossFn` and `SegmentedLoss`.
        optimizer: optimizer, see
            `longsum_jax.training.optimizers.make_optimizer`.
        accumulation: number of micro-batches; the number of rows must be a
            multiple of it (`mesh.check_batch_size`).
        seed: random seed of dropout and other random operations.
        shardings: `TrainState` with the sharding of every array of the state,
            all on one mesh (`state.shardings_of`); None for one device.
        donate: True to donate the state, whose arrays the caller then must not
            use again; otherwise there are two states in memory while the step
            runs.

    Returns:
        The step. Its metrics are scalar arrays:

            loss             sum of the losses over the weight
            grad_norm        norm of the mean gradient, before clipping
            param_norm       norm of the parameters, after the update
            weight           summed weight, usually the number of target tokens
            skipped          as in the new state
            bad_streak       as in the new state
            learning_rate    of this update, if the optimizer state has it
            spikes           number of spikes so far, if the optimizer state
                             has it
            padding          share of source positions without a token, if the
                             batch has an "attention_mask"
            gradient_signal  estimate of the squared norm of the true gradient
            gradient_noise   estimate of the squared norm of its error in this
                             batch (McCandlish et al. 2018, appendix A.1)

        The last two are present with ``accumulation`` above 1, but not with a
        `SegmentedLoss`. The sums of the loss function's metrics are added under
        their own names.

    Raises:
        ValueError: raised by the first call of the step, if the loss function
            uses one of these names, or the rows do not divide into the
            micro-batches.
    """
    summed_gradient = summed_gradient_fn(loss_fn, accumulation, shardings)
    platform: str | None = jax.default_backend()
    if shardings is not None:
        platform = platform_of(shardings.step.mesh)

    def update(grads: Grads, params: Any, opt_state: Any) -> tuple[Any, Any]:
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    def update_if(condition: Array, grads: Grads, old: Any) -> Any:
        # In the memory of the old state: XLA for GPUs copies the results of a
        # conditional to it, and for CPUs stores all arrays between which it
        # selects.
        new = partial(update, grads, *old)
        if platform == "cpu":
            return jax.lax.cond(condition, new, lambda: old)
        return jax.tree.map(partial(jnp.where, condition), new(), old)

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
        params, opt_state = update_if(
            finite, grads, (state.params, state.opt_state)
        )
        new_state = TrainState(
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            skipped=state.skipped + ~finite,
            bad_streak=_bad_streak(state.bad_streak, finite, out.weight),
        )
        metrics = _metrics(out, loss, norm, new_state)
        if MICRO_NORM in metrics:
            mean = metrics.pop(MICRO_NORM) / accumulation
            metrics |= _noise(norm**2, mean, accumulation)
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
    step_on_mesh: TrainStep = jit_for(
        platform,
        step,
        donate_argnums=donated,
        # the state as it came in, and the metrics on every device
        out_shardings=(shardings, replicated),
    )
    return step_on_mesh


# Function of a compiled step that raises an error if the step should not run.
CheckProgram = Callable[[jax.stages.Compiled], None]
# Function of a compiled step that returns the seconds which its matrix products
# would take at the devices' peak FLOP rate; 0 if unknown.
CountSeconds = Callable[[jax.stages.Compiled], float]


class CompilationWatch:
    """Monitors the compilations of a step.

    It prints a warning if a step is compiled again for a batch shape for which
    it was compiled before.

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


def _bad_streak(streak: Array, finite: Array, weight: Array) -> Array:
    """Returns the number of consecutive bad steps; a step without weight (no loss) is not bad."""
    # A finite step ends the streak; a step without labels does not change it.
    longer = jnp.where(weight == 0, streak, streak + 1)
    return jnp.where(finite, 0, longer)


def _noise(
    squared_norm: Array, micro_norm: Array, count: int
) -> dict[str, Array]:
    """Returns unbiased estimates of the squared gradient and of the noise of one step.

    McCandlish et al. 2018 (An Empirical Model of Large-Batch Training),
    appendix A.1, with the batch as the unit: the ratio of their means over many
    steps is the noise scale, divided by the batch size.

    Args:
        squared_norm: squared norm of the gradient of the batch.
        micro_norm: mean squared norm of the gradients of its micro-batches.
        count: number of micro-batches.
    """
    noise = (micro_norm - squared_norm) / (count - 1)
    return {"gradient_signal": squared_norm - noise, "gradient_noise": noise}


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
