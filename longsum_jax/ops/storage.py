"""Float32 products with arrays stored in bfloat16 or int8, for decoding steps.

A step reads every weight and key once, so it is bound by memory bandwidth. XLA
on CPUs has no product of float32 with a narrower type: it first writes a
float32 copy of the weights, outside the loop of steps or in every step. It does
vectorize a sum over eight inputs at a time, for several rows in one ``reduce``,
with the conversion fused into the loop; a small product then adds the sums of
eight. ``PaddedTable`` and ``Unmerged`` are for GPUs.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.attention.dense import (
    CappedScale,
    Scale,
    key_products,
    masked_exponentials,
    product_factor,
    scaled_scores,
    weighted_values,
)
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.typing import AnyArray

Storage = Literal["float32", "bfloat16", "int8"]
STORAGES: tuple[Storage, ...] = ("float32", "bfloat16", "int8")

# Rows of a product that are summed in one pass; with more rows, compute is the
# limit, not bandwidth.
MAX_ROWS = 8
_TABLE_ROWS = 8  # divisor of the rows of a ``PaddedTable``
_TERMS = 8  # terms of a sum that XLA unrolls; it does not always unroll 16


class Stored(NamedTuple):
    """An array in a storage type: ``values`` times ``scales``.

    Attributes:
        values: bfloat16, or int8 from -127 to 127.
        scales: scales of int8 values, one for all values along the summed axes,
            which have size 1; None for bfloat16.
    """

    values: Array
    scales: Float[Array, "..."] | None


def store(
    x: Float[AnyArray, "..."], storage: Storage, axes: tuple[int, ...]
) -> Stored:
    """Rounds an array to a storage type.

    The relative error of a value is at most 2^-8 in bfloat16; in int8 an error
    is at most a 254th of the largest absolute value along ``axes``.

    Args:
        x: finite values.
        storage: "bfloat16" or "int8".
        axes: axes that share one scale, over which products sum.
    """
    x = jnp.asarray(x, jnp.float32)
    if storage == "bfloat16":
        return Stored(x.astype(jnp.bfloat16), None)
    scales = jnp.abs(x).max(axes, keepdims=True) / 127
    scales = jnp.where(scales > 0, scales, 1.0)
    return Stored(jnp.round(x / scales).astype(jnp.int8), scales)


class PaddedTable(NamedTuple):
    """An embedding table with additional rows.

    Attributes:
        rows: rows of the table, and zeros.
        size: number of rows of the table.
    """

    rows: Float[Array, "padded d_model"]
    size: int


def padded_table(table: Float[AnyArray, "vocab d_model"]) -> PaddedTable:
    """Pads an embedding table to a multiple of eight rows, for steps of decoding on GPUs.

    XLA for GPUs would pad it in every step, because tensor cores multiply
    matrices of such sizes.
    """
    size = table.shape[0]
    return PaddedTable(jnp.pad(table, ((0, -size % _TABLE_ROWS), (0, 0))), size)


class Unmerged(NamedTuple):
    """A kernel whose product is not merged with others, for steps of decoding on GPUs.

    XLA for GPUs merges products of the same rows, for which it copies their
    kernels into one array in every step.
    """

    values: Array


StoredTable = PaddedTable | Stored  # an embedding table in decoding


def stored_product(
    x: Float[AnyArray, "rows inputs"], matrix: Stored
) -> Float[Array, "rows outputs"]:
    """Computes x W in float32.

    Args:
        x: rows; with more than MAX_ROWS, XLA multiplies converted weights.
        matrix: W [inputs, outputs], with scales [1, outputs].
    """
    y = _product(x.astype(jnp.float32), matrix.values, _by_product)
    if matrix.scales is None:
        return y
    return y * matrix.scales


def stored_attention(
    q: Float[AnyArray, "batch queries heads head_dim"],
    k: Stored,
    v: Stored,
    *,
    mask: Bool[AnyArray, "#batch #heads 1 num_keys"] | None = None,
    scale: Scale = 1.0,
    others: Sequence[KeySet] = (),
) -> Float[Array, "batch queries heads head_dim"]:
    """Computes ``ops.attention.dense.dot_product_attention`` in float32 with stored keys.

    Args:
        q: queries.
        k: keys [batch, heads, head_dim, num_keys], with scales [batch, heads,
            1, num_keys]; possibly with fewer heads than the queries.
        v: values [batch, heads, num_keys, head_dim], with scales [batch, heads,
            num_keys, 1].
        mask: True on keys to read.
        scale: factor of the query-key products, possibly with a soft cap.
        others: further keys under the same softmax, see
            ``ops.attention.key_sets.attend_jointly``; without biases.
    """
    batch, num_queries, heads, head_dim = q.shape
    q = q.astype(jnp.float32)
    rows = jnp.moveaxis(q, 1, 2) * product_factor(scale)
    # Queries of a group of heads are rows of the group's head; they share one
    # mask.
    rows = rows.reshape(batch, k.values.shape[1], -1, head_dim)
    scores = _product(rows, k.values, _at_once)
    if k.scales is not None:
        scores = scores * k.scales
    if isinstance(scale, CappedScale):
        scores = scaled_scores(scores, scale._replace(factor=1.0))

    def by_group(x: Array) -> Array:
        # [batch, heads, queries, keys] -> [batch, groups, rows, keys]
        return x.reshape(batch, k.values.shape[1], -1, x.shape[-1])

    parts = [scores]
    if others:
        masks = [_full_mask(mask, scores)]
        for keys in others:
            products = scaled_scores(key_products(q, keys.k), scale)
            parts.append(by_group(products))
            masks.append(by_group(_full_mask(keys.mask, products)))
        scores, mask = jnp.concatenate(parts, -1), jnp.concatenate(masks, -1)
    weights, total = masked_exponentials(scores, mask)
    ends = np.cumsum([x.shape[-1] for x in parts])
    weights, *other_weights = jnp.split(weights, ends[:-1], -1)
    if v.scales is not None:
        weights = weights * v.scales.swapaxes(-1, -2)
    out = _product(weights, v.values, _by_eights)
    for keys, part in zip(others, other_weights, strict=True):
        by_head = part.reshape(batch, heads, num_queries, -1)
        values = weighted_values(by_head, keys.v.astype(jnp.float32))
        out = out + jnp.moveaxis(values, 2, 1).reshape(out.shape)
    out = (out / total).reshape(batch, heads, num_queries, -1)
    return jnp.moveaxis(out, 2, 1)


def _full_mask(mask: AnyArray | None, scores: Array) -> Array:
    """Returns a mask in the shape of scores; None allows all keys."""
    return jnp.broadcast_to(True if mask is None else mask, scores.shape)


# Sums [..., eights, outputs] -> [..., outputs], of several rows in one pass.
_AddUp = Callable[[Sequence[Array]], Sequence[Array]]


def _product(x: AnyArray, values: Array, add_up: _AddUp) -> Array:
    """Returns products [..., rows, outputs] of rows [..., rows, inputs] with values
    [..., inputs, outputs].
    """
    *leading, rows, num_inputs = x.shape
    # Keeps XLA from moving only the conversion out of the loop of steps.
    factors, values = jax.lax.optimization_barrier((_computed(x), values))
    values = values.astype(jnp.float32)
    parts = _parts(rows)
    if rows > MAX_ROWS or num_inputs % (parts * _TERMS):
        return factors @ values
    # [..., rows, parts, eights, 8, 1] and [..., parts, eights, 8, outputs]
    factors = factors.reshape(*leading, rows, parts, -1, _TERMS, 1)
    values = values.reshape(*leading, parts, -1, _TERMS, values.shape[-1])
    axis = len(leading)
    pairs = [(i, j) for i in range(rows) for j in range(parts)]
    terms = [
        _at(_at(factors, i, axis), j, axis) * _at(values, j, axis)
        for i, j in pairs
    ]
    sums = add_up(_sums(terms, axis + 1))
    return _rows([jnp.expand_dims(y, axis) for y in sums], parts, axis)


def _at(x: Array, index: int, axis: int) -> Array:
    return x[(slice(None),) * axis + (index,)]


def _by_product(sums: Sequence[Array]) -> Sequence[Array]:
    ones = jnp.ones((1, len(sums[0])), jnp.float32)
    return [(ones @ y)[0] for y in sums]


def _at_once(sums: Sequence[Array]) -> Sequence[Array]:
    return _sums(sums, sums[0].ndim - 2)


def _by_eights(sums: Sequence[Array]) -> Sequence[Array]:
    """Sums eights of eights first, if their number allows it."""
    *leading, eights, outputs = sums[0].shape
    if eights % _TERMS == 0:
        sums = _sums(
            [y.reshape(*leading, -1, _TERMS, outputs) for y in sums],
            len(leading) + 1,
        )
    return _at_once(sums)


def _computed(x: AnyArray) -> Array:
    """Returns ``x`` as the result of a product, which XLA stores in memory: it would
    recompute other operations in the loop over weights, for every output.
    """
    row = x.reshape(1, -1)
    zero = jnp.zeros((), x.dtype)
    return (
        jnp.ones((1, 2), x.dtype)
        @ jax.lax.pad(row, zero, ((0, 1, 0), (0, 0, 0)))
    ).reshape(x.shape)


def _parts(rows: int) -> int:
    """Returns the number of parts of a sum: two for a single row, because XLA passes
    sums of one array to a library that is slow at them.
    """
    return 2 if rows == 1 else 1


def _sums(arrays: Sequence[Array], axis: int) -> tuple[Array, ...]:
    """Sums over one axis of several arrays in one pass."""
    zeros = (jnp.zeros((), jnp.float32),) * len(arrays)

    def add(x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(operator.add, x, y))

    return tuple(jax.lax.reduce(tuple(arrays), zeros, add, (axis,)))


def _rows(results: Sequence[Array], parts: int, axis: int) -> Array:
    """Joins the results of several rows, or adds the two partial sums of a single row."""
    if parts == 1:
        return jnp.concatenate(results, axis)
    first, second = results
    return first + second
