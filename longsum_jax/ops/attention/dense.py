"""Dense attention over arrays, and its masked softmax."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.sequence_sharding import Axes, sum_over
from longsum_jax.typing import AnyArray

# Scores below this belong to masked keys.
LEAST_SCORE = -1e29


class CappedScale(NamedTuple):
    """A factor of query-key products, and a soft cap of the scores (Gemma 2, section 2).

    Scores are cap tanh(factor q k / cap), before any bias or mask.

    Attributes:
        factor: factor of the products.
        cap: limit of a score's absolute value.
    """

    factor: float
    cap: float


Scale = float | CappedScale


def scaled_scores(
    products: Float[AnyArray, "*shape"], scale: Scale
) -> Float[Array, "*shape"]:
    """Returns scores: query-key products times a factor and, with a ``CappedScale``, capped."""
    if isinstance(scale, CappedScale):
        return scale.cap * jnp.tanh(products * (scale.factor / scale.cap))
    return jnp.asarray(products * scale)


def product_factor(scale: Scale) -> float:
    """Returns the factor of the query-key products without the soft cap."""
    if isinstance(scale, CappedScale):
        return scale.factor
    return scale


def score_cap(scale: Scale) -> float | None:
    """Returns the soft cap of the scores, or None if they have none."""
    if isinstance(scale, CappedScale):
        return scale.cap
    return None


class QKV(NamedTuple):
    """Queries, keys and values of one attention, for functions that take several such triples."""

    q: AnyArray
    k: AnyArray
    v: AnyArray

    def map(self, function: Callable[[AnyArray], Any]) -> "QKV":
        """Returns ``function`` applied to each of the three arrays."""
        return QKV(*map(function, self))


def dot_product_attention(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    k: Float[AnyArray, "batch key_length kv_heads head_dim"],
    v: Float[AnyArray, "batch key_length kv_heads head_dim"],
    *,
    mask: Bool[AnyArray, "#batch #heads #query_length #key_length"]
    | None = None,
    bias: Float[AnyArray, "#batch #heads #query_length #key_length"]
    | None = None,
    scale: Scale = 1.0,
    dropout: Callable[[Array], AnyArray] | None = None,
    axes: Axes = (),
) -> Float[Array, "batch query_length heads head_dim"]:
    """Computes softmax(scale q k + bias) v with float32 scores.

    Args:
        q, k, v: queries, keys and values. Keys and values may have fewer heads,
            each for a group of consecutive heads of the queries (grouped
            queries, Ainslie et al. 2023).
        mask: True where a query attends to a key; a query without a key gets
            zeros.
        bias: bias of the scores.
        scale: factor of the query-key products, possibly with a soft cap; T5
            uses 1, most others head_dim**-0.5.
        dropout: dropout of the weights.
        axes: mesh axes that shard the keys (``ops.sequence_sharding``); every
            device gets the result for all keys.

    Returns:
        The attended values in the type of ``v``.
    """
    # [batch, heads, query_length, key_length]
    scores = scaled_scores(key_products(q, k), scale)
    if bias is not None:
        scores = scores + bias.astype(jnp.float32)
    weights = masked_softmax(scores, mask, axes).astype(v.dtype)
    dropped = weights if dropout is None else dropout(weights)
    # Rematerialized layers save the output, and recompute the much larger
    # weights.
    return sum_over(save_for_backward(weighted_values(dropped, v)), axes)


def key_products(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    k: Float[AnyArray, "batch key_length kv_heads head_dim"],
) -> Float[Array, "batch heads query_length key_length"]:
    """Returns float32 products of queries and keys, which may have fewer heads."""
    batch, num_queries, heads, head_dim = q.shape
    if k.shape[2] == heads:
        return jnp.einsum(
            "bthk,blhk->bhtl", q, k, preferred_element_type=jnp.float32
        )
    # The queries of a group are rows of one product: with an axis of their own,
    # XLA on CPUs copies the keys in every step of decoding.
    q = q.reshape(batch, num_queries, k.shape[2], -1, head_dim)
    rows = jnp.moveaxis(q, 3, 1).reshape(batch, -1, *k.shape[2:])
    products = jnp.einsum(
        "bthk,blhk->bhtl", rows, k, preferred_element_type=jnp.float32
    )
    return products.reshape(batch, heads, num_queries, -1)


def weighted_values(
    weights: Float[AnyArray, "batch heads query_length key_length"],
    v: Float[AnyArray, "batch key_length kv_heads head_dim"],
) -> Float[Array, "batch query_length heads head_dim"]:
    """Returns weighted sums of values, which may have fewer heads."""
    batch, heads, num_queries, num_keys = weights.shape
    if v.shape[2] == heads:
        return jnp.einsum("bhtl,blhk->bthk", weights, v)
    # as in ``key_products``
    rows = weights.reshape(batch, v.shape[2], -1, num_keys)
    sums = jnp.einsum("bhtl,blhk->bthk", rows, v)
    sums = sums.reshape(batch, -1, num_queries, *v.shape[2:])
    return jnp.moveaxis(sums, 1, 3).reshape(batch, num_queries, heads, -1)


def repeat_heads(
    x: Float[AnyArray, "batch length kv_heads head_dim"], heads: int
) -> Float[AnyArray, "batch length heads head_dim"]:
    """Repeats the heads of keys or values for the queries of their groups."""
    if x.shape[2] == heads:
        return x
    return jnp.repeat(x, heads // x.shape[2], axis=2)


def mix_states(
    q: Float[AnyArray, "batch query_length heads d_model"],
    states: Float[AnyArray, "batch key_length d_model"],
    mask: Bool[AnyArray, "#batch #heads #query_length #key_length"]
    | None = None,
    *,
    scale: Scale = 1.0,
    axes: Axes = (),
) -> Float[Array, "batch query_length heads d_model"]:
    """Attends to ``states`` as keys and values of every head, like ``dot_product_attention``.

    The weights are divided by their sum after the product with the states.
    """
    products = jnp.einsum(
        "bthd,bld->bhtl", q, states, preferred_element_type=jnp.float32
    )
    scores = scaled_scores(products, scale)
    weights, total = masked_exponentials(scores, mask, axes)
    weights = weights.astype(states.dtype)
    # In the order of the product: XLA does not compile one of bfloat16 in
    # another order for CPUs with bfloat16 instructions.
    out = jnp.einsum(
        "bhtl,bld->bhtd", weights, states, preferred_element_type=jnp.float32
    )
    out = sum_over(out, axes) / total
    return out.swapaxes(1, 2).astype(states.dtype)


def largest_scores(
    scores: Float[AnyArray, "*rows num_keys"],
    mask: Bool[AnyArray, "..."] | None,
    count: int,
) -> Bool[AnyArray, "*rows num_keys"]:
    """Returns a mask of the ``count`` largest allowed scores of every row.

    Scores equal to the smallest of them are all included.

    Args:
        scores: scores, any number of rows.
        mask: True on allowed entries, broadcastable to ``scores``; None allows
            all.
        count: number of entries of a row to select.
    """
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    if scores.shape[-1] > count:
        # The threshold has no gradient.
        least = jax.lax.top_k(jax.lax.stop_gradient(scores), count)[0][..., -1:]
        return (scores >= least) & (scores > -jnp.inf)
    return scores > -jnp.inf


def prepend_keys(
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "#batch #heads #query_length length"],
    bias: Float[AnyArray, "1 heads query_length length"] | None,
    extra: tuple[
        Float[AnyArray, "batch num_extra heads head_dim"],
        Float[AnyArray, "batch num_extra heads head_dim"],
        Bool[AnyArray, "batch num_extra"],
    ],
) -> tuple[Array, Array, Array, Array | None]:
    """Prepends keys without a bias, which all queries attend to.

    Args:
        k, v, mask, bias: arguments of ``dot_product_attention``.
        extra: keys to prepend, their values, and their mask.

    Returns:
        k, v, mask and bias with ``num_extra + length`` keys.
    """
    extra_k, extra_v, extra_mask = extra
    extra_mask = extra_mask[:, None, None]
    shape = jnp.broadcast_shapes(mask.shape[:-1], extra_mask.shape[:-1])
    masks = [
        jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (extra_mask, mask)
    ]
    mask = jnp.concatenate(masks, -1)
    if bias is not None:
        # Prepended keys have a bias of 0.
        bias = jnp.pad(bias, ((0, 0), (0, 0), (0, 0), (extra_k.shape[1], 0)))
    return (
        jnp.concatenate([extra_k, k], 1),
        jnp.concatenate([extra_v, v], 1),
        mask,
        bias,
    )


def masked_softmax(
    scores: Float[AnyArray, "*rows num_keys"],
    mask: Bool[AnyArray, "..."] | None,
    axes: Axes = (),
) -> Float[Array, "*rows num_keys"]:
    """Computes the softmax over the last axis where ``mask`` is True.

    Rows without an allowed entry are zeros, gradients included.

    Args:
        scores: scores, any number of rows.
        mask: True on allowed entries, broadcastable to ``scores``; None allows
            all.
        axes: mesh axes that shard the last axis (``ops.sequence_sharding``).
    """
    weights, total = masked_exponentials(scores, mask, axes)
    # As an einsum: from a plain product, whose gradient is a sum of products,
    # XLA on CPUs generates code that takes 30 times as long for a batch of one.
    return jnp.einsum("...l,...->...l", weights, 1 / total[..., 0])


def masked_exponentials(
    scores: Float[AnyArray, "*rows num_keys"],
    mask: Bool[AnyArray, "..."] | None,
    axes: Axes = (),
) -> tuple[Float[Array, "*rows num_keys"], Float[Array, "*rows 1"]]:
    """Returns the numerator and denominator of ``masked_softmax``.

    Dividing after the product with the values saves one pass over the weights
    and one over their gradients.

    Args:
        scores, mask, axes: see ``masked_softmax``.

    Returns:
        weights: exponentials relative to the largest score of the row, at most
            1; 0 where masked.
        total: their sum, at least 1 (over all shards of ``axes``); 1 in a row
            without an allowed entry.
    """
    least = jnp.finfo(scores.dtype).min
    if mask is not None:
        scores = jnp.where(mask, scores, least)
    # The maximum has a lower bound above every masked score, so that the
    # exponential of a masked score is 0 even in a fully masked row.
    largest = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    largest = jnp.maximum(largest, max(LEAST_SCORE, float(least) / 2))
    weights = jnp.exp(
        scores - (jax.lax.pmax(largest, axes) if axes else largest)
    )
    total = sum_over(weights.sum(-1, keepdims=True), axes)
    return weights, jnp.where(total > 0, total, 1.0)
