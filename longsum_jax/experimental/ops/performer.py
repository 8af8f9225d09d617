"""Performer: softmax attention by positive random features (FAVOR+; Choromanski et al. 2021).

With rows w of independent normal numbers, exp(q k) is the mean of f(q) f(k)
over the rows, where

    f(x) = exp(w x - |x|^2 / 2)                                        (lemma 1)

Rows that are orthogonal in groups of ``head_dim`` vary less (section 2.4). Time
and memory are linear in the length.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from longsum_jax.experimental.ops.linear import mix_by_features
from longsum_jax.ops.attention.dense import Scale, product_factor
from longsum_jax.ops.sequence_sharding import Axes
from longsum_jax.typing import AnyArray

# added to every feature as in the published code, against sums of zero
FEATURE_FLOOR = 1e-4


def draw_projection(
    rng: PRNGKeyArray, num_features: int, head_dim: int
) -> Float[Array, "features head_dim"]:
    """Draws rows that are orthogonal in groups of ``head_dim`` and have the norms of normal
    vectors.

    The signs of the triangular factors make directions uniform (Mezzadri 2007,
    section 5).
    """
    direction_rng, length_rng = jax.random.split(rng)
    num_groups = -(-num_features // head_dim)
    normal = jax.random.normal(
        direction_rng, (num_groups, head_dim, head_dim), jnp.float32
    )
    orthogonal, triangular = jnp.linalg.qr(normal)
    # QR with signs fixed by the diagonal of R draws from the Haar measure.
    signs = jnp.sign(jnp.diagonal(triangular, axis1=1, axis2=2))
    directions = (
        (orthogonal * signs[:, None])
        .swapaxes(1, 2)
        .reshape(-1, head_dim)[:num_features]
    )
    vectors = jax.random.normal(
        length_rng, (num_features, head_dim), jnp.float32
    )
    return directions * jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def performer_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    projection: Float[AnyArray, "features head_dim"],
    *,
    scale: Scale = 1.0,
    axes: Axes = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends with weights that approximate softmax(scale q k).

    Exponents are taken relative to their maximum, so that no exponential
    overflows: for a query over its features, for keys over the features and
    real tokens of a document.

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens.
        projection: from ``draw_projection``; all heads share it.
        scale: factor of the query-key products.
        axes: mesh axes that shard the length (``ops.sequence_sharding``).

    Returns:
        The attended values in the type of ``v``, zeros on padding.
    """
    q_exponents = _exponents(q, projection, scale)
    k_exponents = _exponents(k, projection, scale)
    k_exponents = jnp.where(mask[..., None, None], k_exponents, -jnp.inf)
    q_largest = lax.stop_gradient(q_exponents.max(-1, keepdims=True))
    k_largest = lax.stop_gradient(k_exponents.max((1, 3), keepdims=True))
    if axes:
        k_largest = lax.pmax(k_largest, axes)
    # A document without tokens has a maximum of minus infinity.
    k_largest = jnp.where(jnp.isfinite(k_largest), k_largest, 0)
    q_features = jnp.exp(q_exponents - q_largest) + FEATURE_FLOOR
    k_features = jnp.exp(k_exponents - k_largest) + FEATURE_FLOOR
    return mix_by_features(q_features, k_features, v, mask, axes=axes)


def _exponents(
    x: Float[AnyArray, "batch length heads head_dim"],
    projection: Float[AnyArray, "features head_dim"],
    scale: Scale,
) -> Float[AnyArray, "batch length heads features"]:
    """Returns the logarithms of the features, in float32."""
    x = x.astype(jnp.float32) * product_factor(scale) ** 0.5
    # The second term makes the mean of f(q) f(k) over the projections equal to
    # exp(q k).
    return x @ projection.T - jnp.square(x).sum(-1, keepdims=True) / 2
