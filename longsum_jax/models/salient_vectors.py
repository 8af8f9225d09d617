"""Encoder states of important tokens, kept for the segments of a document that they are not part of
(AWESOME, 4.2)."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from longsum_jax.models.encoder_decoder import EncoderDecoder
from longsum_jax.typing import Array


def keep_vectors(
    module: EncoderDecoder, kept: Array, input_ids: Array, attention_mask: Array, slots: Array
) -> Array:
    """The states that are kept of a document, with those of one more segment.

    The encoder reads the segment alone, without memory or other vectors, and without dropout.

    Args:
        kept: [B, A, D].
        input_ids, attention_mask: of the segment, [B, L].
        slots: int [B, L], where in A the state of each token goes, -1 for those that are not kept.
    """
    states = module.encode(input_ids, attention_mask)
    states = states[:, states.shape[1] - slots.shape[1] :]
    rows = jnp.arange(len(slots))[:, None]
    return kept.at[rows, jnp.where(slots < 0, kept.shape[1], slots)].set(
        states.astype(kept.dtype), mode="drop"
    )


def no_vectors(config: Any, rows: int) -> Array:
    """What is kept of a document before its first segment: zeros [B, 2 P, D]."""
    return jnp.zeros((rows, 2 * config.salient_vectors, config.d_model), config.compute_dtype)


def kept_vectors(apply: Callable[..., Any], config: Any, batch: Mapping[str, Array]) -> Array:
    """The states of a document's important tokens, [B, 2 P, D]; a first pass over its S segments,
    one at a time.

    Args:
        apply: ``apply`` of the module, with its parameters.
        batch: "input_ids", "attention_mask" and "slots", [B, S, L] each.
    """

    def add(kept: Array, segment: tuple[Array, Array, Array]) -> tuple[Array, None]:
        add_some = lambda kept: apply(kept, *segment, method=keep_vectors)  # noqa: E731
        return jax.lax.cond((segment[2] >= 0).any(), add_some, lambda kept: kept, kept), None

    segments = tuple(
        batch[name].swapaxes(0, 1) for name in ("input_ids", "attention_mask", "slots")
    )
    return jax.lax.scan(add, no_vectors(config, batch["slots"].shape[0]), segments)[0]


def seen_vectors(kept: Array, reads: Array) -> tuple[Array, Array]:
    """What a segment sees of ``kept`` [B, A, D]: states [B, P, D] and which there are, bool [B, P].

    ``reads``: int [B, P], slots in A, -1 for none.
    """
    there = reads >= 0
    states = jnp.take_along_axis(kept, jnp.maximum(reads, 0)[..., None], 1)
    return jnp.where(there[..., None], states, 0), there
