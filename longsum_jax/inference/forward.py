"""Forward passes over input ids: encoder states, logits, log-probabilities of targets."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError, check_whole
from longsum_jax.inference.padding import (
    check_ends,
    check_global_tokens,
    check_ids,
    check_inputs,
    check_target_length,
    like_ids,
    padded_length,
    rectangular,
)
from longsum_jax.inference.programs import lies_on_one_cpu
from longsum_jax.inference.runner import Runner
from longsum_jax.models.heads import TOKEN_HEADS
from longsum_jax.typing import Array


def encode(
    runner: Runner,
    input_ids: Any,
    attention_mask: Any,
    inputs: Mapping[str, Any],
    layer: int | None,
    bucket: int,
) -> Array:
    """Returns encoder states, see ``Model.encode``."""
    num_layers = runner.config.encoder_stack.num_layers
    if layer is not None:
        check_whole("layer", layer, 0)
        if layer > num_layers:
            raise InputError(
                f"layer={layer}, but this {runner.family.name} encoder has {num_layers} layers; "
                f"give 0 to {num_layers}"
            )
    ids, mask = check_inputs(input_ids, attention_mask, runner.config)
    padded = runner.padded(ids, mask, inputs, bucket)
    states = runner.programs.encode(
        runner.variables(padded), *padded, layer=layer
    )
    # Drop the padding; global tokens, if any, come before the tokens.
    padding = padded.ids.shape[1] - ids.shape[1]
    return _first_tokens(states.astype(jnp.float32), states.shape[1] - padding)


def logits(
    runner: Runner,
    input_ids: Any,
    attention_mask: Any,
    decoder_ids: Any,
    inputs: Mapping[str, Any],
    bucket: int,
) -> Array:
    """Returns the logits of the model's head, see ``Model.logits``."""
    if runner.config.head == "multiple_choice":
        return _choice_logits(
            runner, input_ids, attention_mask, decoder_ids, inputs, bucket
        )
    ids, mask = check_inputs(input_ids, attention_mask, runner.config)
    if runner.config.head != "language_model":
        return _head_logits(runner, ids, mask, decoder_ids, inputs, bucket)
    decoder_ids = _checked_targets(
        runner, decoder_ids, "decoder_input_ids", len(ids)
    )
    padded = runner.padded(ids, mask, inputs, bucket)
    targets = _padded_targets(runner, decoder_ids, bucket)
    outputs = runner.programs.logits(runner.variables(padded), *padded, targets)
    return _first_tokens(outputs, decoder_ids.shape[1])


def log_probs(
    runner: Runner,
    input_ids: Any,
    attention_mask: Any,
    target_ids: Any,
    inputs: Mapping[str, Any],
    bucket: int,
) -> Array:
    """Returns the log-probability of every target token, see ``Model.log_probs``."""
    if runner.config.head != "language_model":
        raise InputError(
            f"this model ({runner.name}) generates no text; use encode or logits"
        )
    ids, mask = check_inputs(input_ids, attention_mask, runner.config)
    targets = _checked_targets(runner, target_ids, "target_ids", len(ids))
    padded = runner.padded(ids, mask, inputs, bucket)
    padded_targets = _padded_targets(runner, targets, bucket)
    outputs = runner.programs.log_probs(
        runner.variables(padded), *padded, padded_targets
    )
    return _first_tokens(outputs, targets.shape[1])


def _checked_targets(
    runner: Runner, ids: Any, name: str, rows: int
) -> np.ndarray:
    """Returns decoder ids, int32 [rows, target_length]."""
    ids = check_ids(ids, name, runner.config.vocab_size)
    if len(ids) != rows:
        raise InputError(
            f"{name} has {len(ids)} rows, input_ids {rows}; they must agree"
        )
    check_target_length(ids.shape[1], runner.config.max_target_length, name)
    return ids


def _padded_targets(runner: Runner, ids: np.ndarray, bucket: int) -> np.ndarray:
    """Returns decoder ids padded at their end, which does not affect earlier positions."""
    config = runner.config
    length = ids.shape[1]
    padding = (
        padded_length(length, config.max_target_length, 0, bucket) - length
    )
    return np.pad(
        ids, ((0, 0), (0, padding)), constant_values=config.pad_token_id
    )


def _choice_logits(
    runner: Runner,
    input_ids: Any,
    attention_mask: Any,
    decoder_ids: Any,
    inputs: Mapping[str, Any],
    bucket: int,
) -> Array:
    """Returns one logit per choice, [batch, choices]."""
    choices = rectangular(input_ids, "input_ids")
    shape = choices.shape
    if len(shape) != 3:
        raise InputError(
            f"input_ids has shape {shape}, but this model chooses among texts; give [batch, "
            "choices, length]"
        )

    def rows(name: str, value: Any) -> np.ndarray:
        return like_ids(choices, value, name).reshape(-1, shape[-1])

    if attention_mask is None:
        mask = None
    else:
        mask = rows("attention_mask", attention_mask)
    # Every choice is a row: [batch * choices, length].
    ids, mask = check_inputs(
        choices.reshape(-1, shape[-1]), mask, runner.config
    )
    inputs = {name: rows(name, value) for name, value in inputs.items()}
    return _head_logits(runner, ids, mask, decoder_ids, inputs, bucket).reshape(
        shape[:-1]
    )


def _head_logits(
    runner: Runner,
    ids: np.ndarray,
    mask: np.ndarray,
    decoder_ids: Any,
    inputs: Mapping[str, Any],
    bucket: int,
) -> Array:
    """Returns the logits of a head other than a language model's."""
    config = runner.config
    _check_head(runner, decoder_ids)
    if runner.family.is_encoder_decoder and config.head == "classification":
        check_ends(ids, config.eos_token_id)
    # The default global tokens depend on the ids and may be too many.
    if "global_attention_mask" not in inputs:
        check_global_tokens(ids, mask, config)
    padded = runner.padded(ids, mask, inputs, bucket)
    outputs = runner.programs.logits(runner.variables(padded), *padded)
    if config.head in TOKEN_HEADS:
        return _first_tokens(outputs, ids.shape[1])
    return outputs


def _check_head(runner: Runner, decoder_ids: Any) -> None:
    """Raises InputError for a head without logits, or for decoder ids."""
    head = runner.config.head
    if decoder_ids is not None:
        raise InputError(
            f"decoder_input_ids is given, but this model ({runner.name}) computes logits "
            "from input_ids only; leave it out"
        )
    if head == "extraction":
        raise InputError(
            "this model gives a score to every sentence of a document; use extract"
        )
    if head in ("none", "pooler"):
        raise InputError(
            "this model has no head, so it gives no logits; use encode"
        )


def _first_tokens(outputs: Array, length: int) -> Array:
    """Returns the outputs at the first tokens, [batch, length, ...]."""
    if outputs.shape[1] == length or not lies_on_one_cpu(outputs):
        return outputs[:, :length]
    # A JAX slice would be compiled once for every length.
    first = np.asarray(outputs)[:, :length]
    return jax.device_put(
        first, outputs.sharding if outputs.committed else None
    )
