"""Memories that pass from one segment of a document to the next (AWESOME, Cao and Wang 2023,
section 3.1).

The authors published no code; numbers of equations are those of the paper, and choices that it
leaves open are arguments. A memory has m slots of width D, and a mask ``valid`` of the slots that
hold a state; the others are never read.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from longsum_jax.typing import Array

Overflow = Literal["left_pad", "floor"]


def right_aligned(x: Array, valid: Array) -> tuple[Array, Array]:
    """Moves the valid entries of every row to its end, in their order, after zeros.

    Args:
        x: [B, L, D].   valid: bool [B, L].

    Returns:
        [B, L, D] and bool [B, L].
    """
    order = jnp.argsort(valid, axis=1, stable=True)  # False sorts before True
    valid = jnp.take_along_axis(valid, order, 1)
    return jnp.where(valid[..., None], jnp.take_along_axis(x, order[..., None], 1), 0), valid


def compressive_update(
    memory: Array,
    valid: Array,
    hidden: Array,
    hidden_valid: Array,
    kernel: Array,
    bias: Array,
    *,
    overflow: Overflow = "left_pad",
) -> tuple[Array, Array]:
    """Updates a memory with the states of a segment and compresses the older ones (eq. 3-6).

    Rae et al. 2020.

    The first half of the slots holds compressed states, the second half the newest states; both are
    filled from the right. States count by their true length, so padding never enters (a convolution
    over padded rows would let it).

    Args:
        memory: [B, m, D].   valid: bool [B, m].
        hidden: the segment's states [B, L, D].   hidden_valid: bool [B, L].
        kernel: [r, D, D] of a convolution with stride r.   bias: [D].
        overflow: what becomes of states that fall out when their number is no multiple of r.
            "left_pad" puts zeros before the oldest; "floor" drops the newest that fill no stride,
            as a convolution without padding does.

    Returns:
        The new memory and its validity.
    """
    half, length = memory.shape[1] // 2, hidden.shape[1]
    states, states_valid = newest_states(memory, valid, hidden, hidden_valid)
    new, new_valid = compress(
        states[:, :length], states_valid[:, :length], kernel, bias, overflow=overflow
    )
    compressed = jnp.concatenate([memory[:, :half], new.astype(memory.dtype)], 1)
    compressed, compressed_valid = right_aligned(
        compressed, jnp.concatenate([valid[:, :half], new_valid], 1)
    )
    start = compressed.shape[1] - half
    return (
        jnp.concatenate([compressed[:, start:], states[:, length:]], 1),
        jnp.concatenate([compressed_valid[:, start:], states_valid[:, length:]], 1),
    )


def newest_states(
    memory: Array, valid: Array, hidden: Array, hidden_valid: Array
) -> tuple[Array, Array]:
    """Joins the uncompressed states of a memory and those of a segment, right-aligned.

    Args:
        memory, valid, hidden, hidden_valid: see ``compressive_update``.

    Returns:
        [B, m / 2 + L, D] and their validity; the first L are those that leave the newest half.
    """
    half = memory.shape[1] // 2
    states = jnp.concatenate([memory[:, half:], hidden.astype(memory.dtype)], 1)
    return right_aligned(states, jnp.concatenate([valid[:, half:], hidden_valid], 1))


def compress(
    x: Array, valid: Array, kernel: Array, bias: Array, *, overflow: Overflow = "left_pad"
) -> tuple[Array, Array]:
    """Compresses every r right-aligned states to one.

    Args:
        x: [B, L, D].   valid: bool [B, L].
        kernel, bias, overflow: see ``compressive_update``.

    Returns:
        [B, ceil(L / r), D] and bool [B, ceil(L / r)].
    """
    stride = kernel.shape[0]
    if overflow == "floor":
        x, valid = _without_newest(x, valid, valid.sum(1) % stride)
    front = -x.shape[1] % stride
    x = jnp.pad(jnp.where(valid[..., None], x, 0), ((0, 0), (front, 0), (0, 0)))
    x = x.reshape(x.shape[0], -1, stride, x.shape[-1])
    valid = jnp.pad(valid, ((0, 0), (front, 0))).reshape(*x.shape[:3]).any(2)
    out = jnp.einsum("bnrd,rde->bne", x, kernel.astype(x.dtype)) + bias.astype(x.dtype)
    return jnp.where(valid[..., None], out, 0), valid


def reconstruction_error(seen: Array, wanted: Array, queries: Array, keys: Array) -> Array:
    """Computes the loss of attention to compressed states against attention to the states.

    Rae et al. 2020, algorithm 2, as a mean of squares over all entries of queries with a key.

    Args:
        seen: [B, L, H, K], outputs of attention to the compressed states.
        wanted: [B, L, H, K], outputs of attention to the states that they replace.
        queries, keys: bool [B, L], True on valid queries and keys.

    Returns:
        float32 scalar.
    """
    counted = (queries & keys.any(1, keepdims=True)).astype(jnp.float32)
    errors = jnp.square(seen.astype(jnp.float32) - wanted.astype(jnp.float32)).mean((2, 3))
    return (errors * counted).sum() / jnp.maximum(counted.sum(), 1.0)


def _without_newest(x: Array, valid: Array, count: Array) -> tuple[Array, Array]:
    """Shifts rows to the right by ``count`` [B], so that the newest entries drop out."""
    source = jnp.arange(x.shape[1]) - count[:, None]
    kept = jnp.maximum(source, 0)
    valid = jnp.take_along_axis(valid, kept, 1) & (source >= 0)
    return jnp.take_along_axis(x, kept[..., None], 1), valid


def gated_update(memory: Array, update: Array, gate: Array, changed: Array) -> Array:
    """Computes M = G U + (1 - G) M with U = tanh(update), G = sigmoid(gate) (eq. 10-12), in
    float32.

    Args:
        memory, update, gate: [B, m, D].
        changed: bool [B]; other rows keep their memory, because they had nothing to read.
    """
    g, u = jax.nn.sigmoid(gate.astype(jnp.float32)), jnp.tanh(update.astype(jnp.float32))
    memory = memory.astype(jnp.float32)
    return jnp.where(changed[:, None, None], g * u + (1 - g) * memory, memory)
