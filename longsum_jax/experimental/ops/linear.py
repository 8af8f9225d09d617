"""Attention whose weights are products of features, in time and memory linear in the length.

    linear      weights f(q) f(k) over their sum, f = elu + 1    Katharopoulos et al. 2020, eq. 5, 7
    efficient   softmax(q over features) (softmax(k over positions) v)   Shen et al. 2021, section 3

The product of keys and values comes first, [features, head_dim] per head for
any length:

    (f(q) f(k)^T) v  =  f(q) (f(k)^T v)

No weight of a pair of tokens is computed, so that dropout of weights does not
apply. Products of queries and keys are not scaled, as published.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.attention.dense import masked_softmax
from longsum_jax.ops.padding import zero_padding
from longsum_jax.ops.sequence_sharding import Axes, sum_over
from longsum_jax.typing import AnyArray

# added to the sums of weights, as in the published code of linear attention
WEIGHT_FLOOR = 1e-6


def linear_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    axes: Axes = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends with the features elu(x) + 1 (Katharopoulos et al. 2020).

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens.
        axes: mesh axes that shard the length (``ops.sequence_sharding``).

    Returns:
        The attended values in the type of ``v``, zeros on padding.
    """
    return mix_by_features(
        _positive(q),
        _positive(k),
        v,
        mask,
        weight_floor=WEIGHT_FLOOR,
        axes=axes,
    )


def efficient_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    axes: Axes = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends with softmaxes of queries over features and of keys over positions (Shen et al.
    2021).

    Args:
        q, k, v, mask, axes: see ``linear_attention``.

    Returns:
        The attended values in the type of ``v``, zeros on padding.
    """
    features = jax.nn.softmax(q.astype(jnp.float32))
    keys = jnp.moveaxis(k, 1, -1).astype(jnp.float32)
    weights = masked_softmax(keys, mask[:, None, None], axes)
    # Mean of the values for each feature, [batch, heads, features, head_dim].
    means = jnp.einsum("bhfl,blhk->bhfk", weights, v.astype(jnp.float32))
    out = jnp.einsum("blhf,bhfk->blhk", features, sum_over(means, axes))
    return zero_padding(out, mask).astype(v.dtype)


def mix_by_features(
    q_features: Float[AnyArray, "batch length heads features"],
    k_features: Float[AnyArray, "batch length heads features"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    weight_floor: float = 0.0,
    axes: Axes = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Returns the mean of all values for each query, weighted by q_features . k_features.

    Args:
        q_features, k_features: non-negative float32 features.
        weight_floor: constant added to each query's sum of weights; gradients
            divide by its square.
        v, mask, axes: see ``linear_attention``.

    Returns:
        The means in the type of ``v``; zeros on padding, and for queries whose
        products are all 0.
    """
    k_features = zero_padding(k_features, mask)
    # f(k)^T v summed over the positions, [batch, heads, features, head_dim].
    values = jnp.einsum("blhf,blhk->bhfk", k_features, v.astype(jnp.float32))
    numerator = jnp.einsum(
        "blhf,bhfk->blhk", q_features, sum_over(values, axes)
    )
    # Sum of the weights of each query, [batch, length, heads, 1].
    total = sum_over(k_features.sum(1), axes)
    denominator = jnp.einsum("blhf,bhf->blh", q_features, total)[..., None]
    denominator += weight_floor
    out = numerator / jnp.where(denominator > 0, denominator, 1)
    return zero_padding(out, mask).astype(v.dtype)


def _positive(x: Float[AnyArray, "..."]) -> Float[Array, "..."]:
    """Returns elu(x) + 1 in float32, without a sum with 1 that would lose small numbers."""
    x = x.astype(jnp.float32)
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))
