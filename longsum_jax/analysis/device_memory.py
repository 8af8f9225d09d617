"""Device memory of a training step, and the longest document that fits, by compiling alone."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from longsum_jax.errors import InputError
from longsum_jax.training.state import init_state
from longsum_jax.training.step import LossFn, SegmentedLoss, make_train_step

LONGEST = 2**20  # tokens at which the search for the longest document ends


def step_bytes(
    loss_fn: LossFn | SegmentedLoss,
    optimizer: optax.GradientTransformation,
    params: Any,
    batch: dict[str, Any],
) -> int:
    """Returns the bytes that one device holds at most during a training step.

    They are those of the compiled program: parameters, optimizer state, batch and intermediate
    values. Nothing is run and no array is made.

    Args:
        loss_fn, optimizer: of the step.
        params: parameter tree; shapes suffice, here and in ``batch``.
        batch: arrays.
    """
    state = jax.eval_shape(lambda params: init_state(params, optimizer), params)
    analysis = make_train_step(loss_fn, optimizer).lower(state, batch).compile().memory_analysis()
    # Donated arguments share their memory with outputs and are counted once.
    inputs_and_outputs = (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
    )
    return inputs_and_outputs + analysis.temp_size_in_bytes


def fit_length(
    bytes_of: Callable[[int], int], budget: int, *, multiple: int = 1024, longest: int = LONGEST
) -> int:
    """Returns the longest document that a model trains on within a device's memory.

    Source: AWESOME, table 14.

    Args:
        bytes_of: tokens of a document -> bytes of a step, which grow with them; see ``step_bytes``.
        budget: bytes of the device.
        multiple: the answer is a multiple of it.
        longest: where the search ends.

    Returns:
        Tokens; 0 where not even ``multiple`` of them fit, ``longest`` where all of them do.

    Raises:
        InputError: a budget or a multiple below 1, or ``longest`` below ``multiple``.
    """
    if budget < 1 or multiple < 1 or longest < multiple:
        raise InputError(
            f"fit_length: budget={budget}, multiple={multiple} and longest={longest} must be above "
            "0, and longest not below multiple"
        )

    def fits(count: int) -> bool:
        return bytes_of(count * multiple) <= budget

    most = longest // multiple
    fitting, candidate = 0, 1  # in multiples
    while fits(candidate):
        if candidate == most:
            return candidate * multiple
        fitting, candidate = candidate, min(2 * candidate, most)
    # Bisection: ``fitting`` fits, ``too_long`` does not.
    too_long = candidate
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        if fits(middle):
            fitting = middle
        else:
            too_long = middle
    return fitting * multiple
