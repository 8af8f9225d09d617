"""Describes a loaded model in one line."""

from collections.abc import Mapping
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.inference.padding import kernel_limit
from longsum_jax.models.family import Family
from longsum_jax.models.registry import max_input_length
from longsum_jax.text.segment_inputs import segment_options


def describe(
    family: Family,
    config: Any,
    num_parameters: int,
    summarization: Mapping[str, Any],
) -> str:
    """Returns family, parameters, attention, longest input and dtype of a model."""
    about = [
        family.name,
        f"{_short_count(num_parameters)} parameters",
        f"{config.encoder_attention} encoder attention",
        _longest_input(config, summarization),
        config.dtype,
    ]
    return ", ".join(about)


def _short_count(number: int) -> str:
    """Returns "34.2M" for 34,200,000."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return str(number)


def _longest_input(config: Any, summarization: Mapping[str, Any]) -> str:
    if "segments" in summarization:
        try:
            return f"segments of {segment_options(summarization).segment_length:,} tokens"
        except InputError:  # invalid options; summarizing reports them
            return "segments"
    # The model's positions, and the length up to which kernels are exact.
    limits = (max_input_length(config), kernel_limit(config))
    finite = [limit for limit in limits if limit is not None]
    if finite:
        return f"up to {min(finite):,} tokens"
    return "inputs of any length"
