"""Device memory of a training step, without running it."""

from typing import Any

import jax
import optax

from longsum_jax.ops.device_memory import held_bytes
from longsum_jax.training.loss import LossFn, SegmentedLoss
from longsum_jax.training.state import init_state
from longsum_jax.training.step import make_train_step


def step_bytes(
    loss_fn: LossFn | SegmentedLoss,
    optimizer: optax.GradientTransformation,
    params: Any,
    batch: dict[str, Any],
) -> int:
    """Returns the maximum bytes in use on one device during a training step.

    This is the memory of the compiled program: parameters, optimizer state,
    batch and intermediate values. The program is not run, and no arrays are
    created.

    Args:
        loss_fn, optimizer: loss function and optimizer of the step.
        params: parameter tree; shapes suffice, as they do for ``batch``.
        batch: arrays of a batch.
    """
    state = jax.eval_shape(lambda params: init_state(params, optimizer), params)
    compiled = make_train_step(loss_fn, optimizer).lower(state, batch).compile()
    return held_bytes(compiled)
