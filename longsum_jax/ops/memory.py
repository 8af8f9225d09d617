"""Memories that pass from one segment of a document to the next (AWESOME, Cao and Wang 2023,
section 3.1).

The authors' code was not available. Equations are numbered as in the paper;
choices that the paper leaves open are arguments. A memory is an array of slots,
[batch, slots, d_model], and a mask ``valid`` of the slots that hold a state;
the other slots are never read.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.typing import AnyArray

Overflow = Literal["left_pad", "floor"]


def right_aligned(
    x: Float[AnyArray, "batch length d_model"],
    valid: Bool[AnyArray, "batch length"],
) -> tuple[Float[Array, "batch length d_model"], Bool[Array, "batch length"]]:
    """Moves the valid entries of every row to its end, in order, preceded by zeros.

    Returns:
        The entries and their mask.
    """
    order = jnp.argsort(valid, axis=1, stable=True)  # False sorts before True
    valid = jnp.take_along_axis(valid, order, 1)
    mask = valid[..., None]
    x = jnp.take_along_axis(x, order[..., None], 1)
    return jnp.where(mask, x, 0), valid


def compressive_update(
    memory: Float[AnyArray, "batch slots d_model"],
    valid: Bool[AnyArray, "batch slots"],
    hidden: Float[AnyArray, "batch length d_model"],
    hidden_mask: Bool[AnyArray, "batch length"],
    kernel: Float[AnyArray, "stride d_model d_model"],
    bias: Float[AnyArray, " d_model"],
    *,
    overflow: Overflow = "left_pad",
) -> tuple[Float[Array, "batch slots d_model"], Bool[Array, "batch slots"]]:
    """Updates a memory with the states of a segment and compresses the older ones (eq. 1-6).

    Rae et al. 2020.

    The first half of the slots has compressed states, the second half the
    newest states; both are filled from the right. Only real states count, so
    that padding never enters the memory (a convolution over padded rows would
    include it).

    Args:
        memory: values of the slots.
        valid: True on slots that hold a state.
        hidden: states of the segment.
        hidden_mask: True on its real tokens.
        kernel, bias: parameters of a convolution whose stride equals its width.
        overflow: treatment of the states that leave the newest half if their
            number is not a multiple of the stride. "left_pad" puts zeros before
            the oldest; "floor" drops the newest states that do not fill a
            stride, as a convolution without padding does.

    Returns:
        The new memory and its mask.
    """
    half, length = memory.shape[1] // 2, hidden.shape[1]
    states, states_valid = newest_states(memory, valid, hidden, hidden_mask)
    # These states leave the newest half.
    old, old_valid = states[:, :length], states_valid[:, :length]
    new, new_valid = compress(old, old_valid, kernel, bias, overflow=overflow)
    compressed = jnp.concatenate(
        [memory[:, :half], new.astype(memory.dtype)], 1
    )
    compressed_valid = jnp.concatenate([valid[:, :half], new_valid], 1)
    # Keep the newest half of the slots in each part.
    compressed, compressed_valid = right_aligned(compressed, compressed_valid)
    start = compressed.shape[1] - half
    memory = jnp.concatenate([compressed[:, start:], states[:, length:]], 1)
    valid = jnp.concatenate(
        [compressed_valid[:, start:], states_valid[:, length:]], 1
    )
    return memory, valid


def newest_states(
    memory: Float[AnyArray, "batch slots d_model"],
    valid: Bool[AnyArray, "batch slots"],
    hidden: Float[AnyArray, "batch length d_model"],
    hidden_mask: Bool[AnyArray, "batch length"],
) -> tuple[
    Float[Array, "batch num_states d_model"], Bool[Array, "batch num_states"]
]:
    """Joins the uncompressed states of a memory and the states of a segment, right-aligned.

    Args:
        memory, valid, hidden, hidden_mask: see ``compressive_update``.

    Returns:
        slots / 2 + length states and their mask; the first ``length`` leave the
        newest half.
    """
    half = memory.shape[1] // 2
    states = jnp.concatenate([memory[:, half:], hidden.astype(memory.dtype)], 1)
    states_valid = jnp.concatenate([valid[:, half:], hidden_mask], 1)
    return right_aligned(states, states_valid)


def compress(
    x: Float[AnyArray, "batch length d_model"],
    valid: Bool[AnyArray, "batch length"],
    kernel: Float[AnyArray, "stride d_model d_model"],
    bias: Float[AnyArray, " d_model"],
    *,
    overflow: Overflow = "left_pad",
) -> tuple[
    Float[Array, "batch num_compressed d_model"],
    Bool[Array, "batch num_compressed"],
]:
    """Compresses every ``stride`` right-aligned states into one.

    Args:
        x: states.
        valid: True on states that hold a token.
        kernel, bias, overflow: see ``compressive_update``.

    Returns:
        ceil(length / stride) states and their mask.
    """
    stride = kernel.shape[0]
    if overflow == "floor":
        x, valid = _without_newest(x, valid, valid.sum(1) % stride)
    # Left padding, so that the newest states fill whole strides.
    front = -x.shape[1] % stride
    x = jnp.where(valid[..., None], x, 0)
    x = jnp.pad(x, ((0, 0), (front, 0), (0, 0)))
    # [batch, num_compressed, stride, d_model]
    x = x.reshape(x.shape[0], x.shape[1] // stride, stride, x.shape[-1])
    valid = jnp.pad(valid, ((0, 0), (front, 0))).reshape(*x.shape[:3]).any(2)
    out = jnp.einsum("bnrd,rde->bne", x, kernel.astype(x.dtype)) + bias.astype(
        x.dtype
    )
    return jnp.where(valid[..., None], out, 0), valid


def reconstruction_error(
    compressed_out: Float[AnyArray, "batch length heads head_dim"],
    exact_out: Float[AnyArray, "batch length heads head_dim"],
    query_mask: Bool[AnyArray, "batch length"],
    key_mask: Bool[AnyArray, "batch key_length"],
) -> Float[Array, " batch"]:
    """Computes the loss of attention to compressed states relative to attention to exact states.

    Rae et al. 2020, algorithm 2, as the mean of squares over all entries of a
    row's queries, if the row has a key.

    Args:
        compressed_out: outputs of attention to the compressed states.
        exact_out: outputs of attention to the states that they replace.
        query_mask, key_mask: True on valid queries and keys.

    Returns:
        float32, 0 for rows without a query or a key.
    """
    weights = (query_mask & key_mask.any(1, keepdims=True)).astype(jnp.float32)
    differences = compressed_out.astype(jnp.float32) - exact_out.astype(
        jnp.float32
    )
    errors = jnp.square(differences).mean((2, 3))
    return (errors * weights).sum(1) / jnp.maximum(weights.sum(1), 1.0)


def _without_newest(
    x: AnyArray, valid: AnyArray, count: Int[AnyArray, " batch"]
) -> tuple[Array, Array]:
    """Shifts rows to the right by ``count``, so that the newest entries are dropped."""
    source = jnp.arange(x.shape[1]) - count[:, None]
    index = jnp.maximum(source, 0)
    valid = jnp.take_along_axis(valid, index, 1) & (source >= 0)
    return jnp.take_along_axis(x, index[..., None], 1), valid


def gated_update(
    memory: Float[AnyArray, "batch slots d_model"],
    update: Float[AnyArray, "batch slots d_model"],
    gate: Float[AnyArray, "batch slots d_model"],
    changed: Bool[AnyArray, " batch"],
) -> Float[Array, "batch slots d_model"]:
    """Computes M = G U + (1 - G) M in float32, with U = tanh(update) and G = sigmoid(gate).

    Equations 9 to 11.

    Args:
        memory: M, the values of the slots.
        update, gate: U and G before their activation functions.
        changed: True on rows to update; other rows keep their memory, because
            their segment had no tokens.
    """
    g = jax.nn.sigmoid(gate.astype(jnp.float32))
    u = jnp.tanh(update.astype(jnp.float32))
    memory = memory.astype(jnp.float32)
    return jnp.where(changed[:, None, None], g * u + (1 - g) * memory, memory)
