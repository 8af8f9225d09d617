"""Relative-position buckets of T5."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from longsum_jax.typing import AnyArray


def relative_position_bucket(
    distance: Int[AnyArray, "..."] | Int[np.ndarray, "..."],
    *,
    bidirectional: bool,
    num_buckets: int,
    max_distance: int,
) -> Int[Array, "..."]:
    """Returns T5's bucket of every distance (Raffel et al. 2020, section 2.1).

    Half of the buckets are for exact small distances, half for logarithmic ranges up to
    ``max_distance``; all greater distances share the last one.

    Args:
        distance: key position - query position.
        bidirectional: whether keys after the query have buckets of their own; otherwise they all
            share bucket 0.
        num_buckets: buckets of both directions together.
        max_distance: the distance, in tokens, from which on all are in one bucket.
    """
    distance = jnp.asarray(distance)
    offset = 0
    if bidirectional:
        num_buckets //= 2
        offset = jnp.where(distance > 0, num_buckets, 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(-distance, 0)

    num_exact = num_buckets // 2
    log_ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / num_exact)
    log_ratio = log_ratio / math.log(max_distance / num_exact)
    logarithmic = num_exact + (log_ratio * (num_buckets - num_exact)).astype(jnp.int32)
    bucket = jnp.where(distance < num_exact, distance, jnp.minimum(logarithmic, num_buckets - 1))
    return offset + bucket
