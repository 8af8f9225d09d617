"""Dense attention over arrays, and T5's relative-position buckets."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.sequence_sharding import Axes, sum_over
from longsum_jax.typing import Array


def dot_product_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    scale: float = 1.0,
    dropout: Callable[[Array], Array] | None = None,
    axes: Axes = (),
) -> Array:
    """softmax(scale q k + bias) v with float32 scores; a query that may see nothing gets zeros.

    Args:
        q: [B, T, H, K].   k, v: [B, L, H, K].
        mask: bool, broadcastable to [B, H, T, L]; True where a query may look.
        bias: float, broadcastable to [B, H, T, L].
        scale: factor of the products; T5 uses 1, most others K**-0.5.
        dropout: applied to the weights.
        axes: of keys that are cut over devices, see ``ops.sequence_sharding``; every device gets
            the result for all keys.

    Returns:
        [B, T, H, K] in the type of ``v``.
    """
    scores = jnp.einsum("bthk,blhk->bhtl", q, k, preferred_element_type=jnp.float32) * scale
    if bias is not None:
        scores = scores + bias.astype(jnp.float32)
    weights = masked_softmax(scores, mask, axes).astype(v.dtype)
    if dropout is not None:
        weights = dropout(weights)
    return sum_over(save_for_backward(jnp.einsum("bhtl,blhk->bthk", weights, v)), axes)


def mix_states(
    q: Array, states: Array, mask: Array | None = None, *, scale: float = 1.0, axes: Axes = ()
) -> Array:
    """``dot_product_attention`` of [B, T, H, D] with ``states`` [B, L, D] as keys and values of
    every head."""
    scores = jnp.einsum("bthd,bld->bhtl", q, states, preferred_element_type=jnp.float32) * scale
    weights, total = masked_exponentials(scores, mask, axes)
    out = jnp.einsum(
        "bhtl,bld->bthd", weights.astype(states.dtype), states, preferred_element_type=jnp.float32
    )
    return (sum_over(out, axes) / total.swapaxes(1, 2)).astype(states.dtype)


def largest_scores(scores: Array, mask: Array | None, count: int) -> Array:
    """Which are the ``count`` largest of the last axis where ``mask`` allows; equals of the last
    are all taken."""
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    if scores.shape[-1] > count:
        least = jax.lax.top_k(jax.lax.stop_gradient(scores), count)[0][..., -1:]
        return (scores >= least) & (scores > -jnp.inf)
    return scores > -jnp.inf


def with_further_keys(
    k: Array, v: Array, mask: Array, bias: Array | None, further: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array, Array | None]:
    """The arguments of ``dot_product_attention`` with keys that every query sees, and no bias, in
    front.

    Args:
        k, v: [B, L, H, K].   mask: bool, broadcastable to [B, H, T, L].   bias: [1, H, T, L] or
            None.
        further: keys and values [B, m, H, K], and which of them there are, bool [B, m].
    """
    further_k, further_v, valid = further
    valid = valid[:, None, None]
    shape = jnp.broadcast_shapes(mask.shape[:-1], valid.shape[:-1])
    mask = jnp.concatenate([jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (valid, mask)], -1)
    if bias is not None:
        bias = jnp.pad(bias, ((0, 0), (0, 0), (0, 0), (further_k.shape[1], 0)))
    return jnp.concatenate([further_k, k], 1), jnp.concatenate([further_v, v], 1), mask, bias


def masked_softmax(scores: Array, mask: Array | None, axes: Axes = ()) -> Array:
    """Softmax over the last axis where ``mask``; rows without any allowed entry are zeros,
    gradients included."""
    weights, total = masked_exponentials(scores, mask, axes)
    # A product for its gradient's sake: as a sum of products, XLA on CPUs takes 30 times as long
    # for one document.
    return jnp.einsum("...l,...->...l", weights, 1 / total[..., 0])


def masked_exponentials(scores: Array, mask: Array | None, axes: Axes = ()) -> tuple[Array, Array]:
    """The two halves of ``masked_softmax``: exponentials, at most 1, and their sum [..., 1], at
    least 1.

    Dividing after the product with the values saves a pass over the weights, and one over their
    gradients. A row without any allowed entry has zeros, and 1 for their sum. Where the last axis
    is cut over ``axes`` (``ops.sequence_sharding``) the sum is that of all parts.
    """
    least = jnp.finfo(scores.dtype).min
    if mask is not None:
        scores = jnp.where(mask, scores, least)
    # At least half of the least number, so that the exponential of a masked score is 0 in a row of
    # nothing else, too.
    largest = jnp.maximum(jax.lax.stop_gradient(scores.max(-1, keepdims=True)), least / 2)
    weights = jnp.exp(scores - (jax.lax.pmax(largest, axes) if axes else largest))
    total = sum_over(weights.sum(-1, keepdims=True), axes)
    return weights, total if mask is None else jnp.where(total > 0, total, 1.0)


def relative_position_bucket(
    distance: Array | np.ndarray, *, bidirectional: bool, num_buckets: int, max_distance: int
) -> Array:
    """T5's bucket of ``distance = key position - query position`` (Raffel et al. 2020, section
    2.1).

    Half of the buckets are for exact small distances, half for logarithmic ranges up to
    ``max_distance``; without ``bidirectional`` every future key shares bucket 0.
    """
    distance = jnp.asarray(distance)
    offset = 0
    if bidirectional:
        num_buckets //= 2
        offset = jnp.where(distance > 0, num_buckets, 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(-distance, 0)
    exact = num_buckets // 2
    ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact) / math.log(
        max_distance / exact
    )
    far = exact + (ratio * (num_buckets - exact)).astype(jnp.int32)
    return offset + jnp.where(distance < exact, distance, jnp.minimum(far, num_buckets - 1))
