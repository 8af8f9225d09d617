"""Choices and limits of state-space layers, which configs also need."""

from typing import Literal

from longsum_jax.errors import InputError

Backend = Literal["fft", "matmul", "fused"]
Discretization = Literal["zoh", "none"]
StepInit = Literal["log_uniform", "uniform"]
InputInit = Literal["one", "normal"]


def check_state_size(d_state: int) -> None:
    """Raises InputError unless the state of a state-space model has an even size."""
    if d_state < 2 or d_state % 2:
        raise InputError(
            f"d_state is {d_state}; it must be even, because modes stand for conjugate pairs"
        )
