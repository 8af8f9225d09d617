"""Encoder states of important tokens, stored for the other segments of a document (AWESOME, 4.2).

A document has a table of slots [batch, slots, d_model], filled segment by
segment.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.layers.attention.global_tokens import without_globals
from longsum_jax.models.config import EncoderDecoderConfig
from longsum_jax.models.encoder_decoder import EncoderDecoder
from longsum_jax.typing import AnyArray


def store_vectors(
    module: EncoderDecoder,
    vectors: Float[Array, "batch slots d_model"],
    input_ids: Int[AnyArray, "batch length"],
    attention_mask: Shaped[AnyArray, "batch length"],
    slots: Int[AnyArray, "batch length"],
) -> Float[Array, "batch slots d_model"]:
    """Adds the states of one more segment to the stored vectors of its document.

    The encoder reads only the segment, without memory or other vectors, and
    without dropout.

    Args:
        vectors: vectors stored so far.
        slots: slot of each token's state, -1 for tokens that are not stored.
    """
    states = without_globals(
        module.encode(input_ids, attention_mask), slots.shape[1]
    )
    # Slots beyond the table are dropped by the scatter.
    rows = jnp.arange(len(slots))[:, None]
    columns = jnp.where(slots < 0, vectors.shape[1], slots)
    return vectors.at[rows, columns].set(
        states.astype(vectors.dtype), mode="drop"
    )


def empty_vectors(
    config: EncoderDecoderConfig, rows: int
) -> Float[Array, "batch slots d_model"]:
    """Returns the stored vectors of ``rows`` documents before their first segment: zeros.

    There are 2 * ``salient_vectors`` slots.
    """
    shape = (rows, 2 * config.memory.salient_vectors, config.d_model)
    return jnp.zeros(shape, config.compute_dtype)


def document_vectors(
    apply: Callable[..., Any],
    config: EncoderDecoderConfig,
    batch: Mapping[str, AnyArray],
) -> Float[Array, "batch slots d_model"]:
    """Returns the vectors of whole documents, in a first pass over their segments, one at a time.

    Args:
        apply: ``apply`` method of the module, bound to its parameters.
        batch: arrays "input_ids", "attention_mask" and "slots", each [batch,
            segments, length].
    """

    def add(
        vectors: Array, segment: tuple[AnyArray, ...]
    ) -> tuple[Array, None]:
        def add_segment(vectors: Array) -> Array:
            return apply(vectors, *segment, method=store_vectors)

        # Segments without stored tokens are not encoded.
        has_slots = (segment[2] >= 0).any()
        return jax.lax.cond(
            has_slots, add_segment, lambda vectors: vectors, vectors
        ), None

    names = ("input_ids", "attention_mask", "slots")
    segments = tuple(batch[name].swapaxes(0, 1) for name in names)
    start = empty_vectors(config, batch["slots"].shape[0])
    vectors, _ = jax.lax.scan(add, start, segments)
    return vectors


def gather_vectors(
    vectors: Float[AnyArray, "batch slots d_model"],
    reads: Int[AnyArray, "batch reads"],
) -> tuple[Float[Array, "batch reads d_model"], Bool[AnyArray, "batch reads"]]:
    """Returns the stored vectors that a segment reads, and a mask of the existing ones.

    Args:
        reads: slots to read, -1 for none.
    """
    mask = reads >= 0
    states = jnp.take_along_axis(vectors, jnp.maximum(reads, 0)[..., None], 1)
    return jnp.where(mask[..., None], states, 0), mask
