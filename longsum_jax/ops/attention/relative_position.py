"""Relative positions: T5's buckets, and biases by distance, as tables and as steps.

A table has an entry for every key position - query position in a text of
``length`` tokens, from 1 - length to length - 1: float [heads, 2 length - 1].
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from longsum_jax.typing import AnyArray


class DistanceSteps(NamedTuple):
    """A function of the distance that is constant between integers, as T5's buckets.

    Attributes:
        starts: first distance of every step but the first, ascending.
        buckets: bucket of every step, one more than ``starts``.
    """

    starts: tuple[int, ...]
    buckets: tuple[int, ...]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["values", "queries"],
    meta_fields=["starts", "origin", "first_key", "end_key"],
)
@dataclass(frozen=True)
class StepBias:
    """A bias of scores by key position - query position, for fused kernels.

    Attributes:
        values: bias of every head and step.
        starts: see ``DistanceSteps``.
        origin: index of the key at position 0.
        first_key: index of the first key with this bias.
        end_key: index after the last key with it; None for all keys from the
            first.
        queries: positions of the queries, None for their indices.
    """

    values: Float[AnyArray, "*layers heads steps"]
    starts: tuple[int, ...]
    origin: int = 0
    first_key: int = 0
    end_key: int | None = None
    queries: Int[AnyArray, "rows query_length"] | None = None


@functools.lru_cache(maxsize=12)
def bucket_steps(
    *, bidirectional: bool, num_buckets: int, max_distance: int
) -> DistanceSteps:
    """Returns ``relative_position_bucket`` of all distances as steps.

    Args:
        bidirectional, num_buckets, max_distance: see
            ``relative_position_bucket``.
    """
    # In NumPy, because the borders are static when a program is traced.
    half = num_buckets // 2 if bidirectional else num_buckets
    num_exact = half // 2
    # All distances beyond the last one share its bucket.
    sizes = np.arange(max(num_buckets, max_distance) + 1)
    ranges = _logarithmic_starts(num_exact, half - num_exact, max_distance)
    before = np.minimum(sizes, num_exact) + (sizes[:, None] >= ranges).sum(1)
    after = half + before if bidirectional else np.zeros_like(before)
    buckets = np.concatenate([before[::-1], after[1:]])
    changes = np.flatnonzero(np.diff(buckets)) + 1
    starts = (changes - sizes[-1]).tolist()
    return DistanceSteps(tuple(starts), tuple(buckets[[0, *changes]].tolist()))


def relative_position_bucket(
    distance: Int[AnyArray, "..."] | Int[np.ndarray, "..."],
    *,
    bidirectional: bool,
    num_buckets: int,
    max_distance: int,
) -> Int[Array, "..."]:
    """Returns T5's bucket of every distance (Raffel et al. 2020, section 2.1).

    Half of the buckets are for exact small distances, half for logarithmic
    ranges up to ``max_distance``; all greater distances share the last one.

    Args:
        distance: key position - query position.
        bidirectional: True if keys after the query have separate buckets;
            otherwise they all share bucket 0.
        num_buckets: total number of buckets, over both directions.
        max_distance: distance in tokens; all distances from there on share one
            bucket.
    """
    distance = jnp.asarray(distance)
    offset: Array | int = 0
    if bidirectional:
        num_buckets //= 2
        offset = jnp.where(distance > 0, num_buckets, 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(-distance, 0)

    num_exact = num_buckets // 2
    starts = _logarithmic_starts(
        num_exact, num_buckets - num_exact, max_distance
    )
    # Exact distances are their own bucket; beyond them, each range start passed
    # adds one.
    range_of = jnp.searchsorted(
        starts, distance, side="right", method="compare_all"
    )
    bucket = jnp.minimum(distance, num_exact) + range_of
    return offset + bucket


def _logarithmic_starts(
    num_exact: int, num_ranges: int, max_distance: int
) -> Int[np.ndarray, " ranges"]:
    """Returns the first distance of every logarithmic range except the first.

    Distances are compared with integers, which gives the same buckets on every
    device: a logarithm in float32 may fall on either side of the number at
    which a range begins.
    """
    ratio = max_distance / max(num_exact, 1)
    parts = np.arange(1, num_ranges) / num_ranges
    # Values within the rounding error of float64 above an integer count as that
    # integer.
    return np.ceil(num_exact * ratio**parts - 1e-6).astype(np.int32)


def distance_entries(
    table: Float[AnyArray, "heads distances"],
    distances: Int[AnyArray, "..."] | Int[np.ndarray, "..."],
) -> Int[Array, "..."]:
    """Returns the table indices of ``distances``; only padding is farther away, and is clipped."""
    last = table.shape[1] // 2
    return jnp.clip(distances, -last, last) + last


def first_entries(
    table: Float[AnyArray, "heads distances"], positions: Int[AnyArray, "..."]
) -> Int[Array, "..."]:
    """Returns, for queries at ``positions``, the table index of their distance from key 0.

    The indices for the keys 1, 2, ... follow. Queries in padding may get any
    index.
    """
    return jnp.maximum(table.shape[1] // 2 - positions, 0)
