"""Loops over blockwise attention: over its blocks, its heads, or its sequences.

Five blocks, two at a time. Arrays with an entry for each block are cut into
pieces, and zeros (.) fill the last piece; arrays that all blocks share are
passed to every piece:

    queries                block 0  block 1    block 2  block 3    block 4    .
    keys of each block     keys 0   keys 1     keys 2   keys 3     keys 4     .
    keys of all blocks     shared              shared              shared
                               |                  |                   |
                            attend             attend              attend
                               |                  |                   |
    out, log_sum_exp       block 0  block 1    block 2  block 3    block 4  (cut off)
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from longsum_jax.ops.attention.block_softmax import Attend, BlockInputs
from longsum_jax.ops.attention.blocks import from_blocks, to_blocks
from longsum_jax.ops.attention.key_sets import KeySet, LazyBias, PartialSoftmax
from longsum_jax.ops.platform import target_platform
from longsum_jax.typing import AnyArray


class Axis(NamedTuple):
    """The index of an axis in each kind of array; None if an array does not have the axis."""

    queries: int  # [batch, num_blocks, block_size, heads, ...]
    own_keys: int  # [batch, num_blocks, num_keys, heads, head_dim]
    shared_keys: int | None  # [batch, heads, ...]
    # masks and biases [batch, num_blocks, heads, block_size, num_keys]
    scores: int
    bias_arrays: int | None  # arrays of a LazyBias, [heads, ...]


BATCH = Axis(queries=0, own_keys=0, shared_keys=0, scores=0, bias_arrays=None)
BLOCKS = Axis(
    queries=1, own_keys=1, shared_keys=None, scores=1, bias_arrays=None
)
HEADS = Axis(queries=3, own_keys=3, shared_keys=1, scores=2, bias_arrays=0)


def loop_over(
    axis: Axis, attend: Attend, size: int = 1, *, recompute: bool = False
) -> Attend:
    """Returns ``attend`` in a loop over ``axis``, for ``size`` entries at a time.

    With ``recompute``, the backward pass recomputes each piece, and its
    intermediates are not saved.
    """

    def attend_in_pieces(inputs: BlockInputs) -> PartialSoftmax:
        length = inputs.q.shape[axis.queries]
        if length <= size:
            return attend(inputs)

        # Moves the looped axis first and splits it: [pieces, size, ...]
        def cut(x: AnyArray, dim: int) -> Array:
            x = jnp.moveaxis(x, dim, 0)
            return to_blocks(x[None], size)[0]

        def join(x: Array) -> Array:
            return jnp.moveaxis(
                from_blocks(x[None], length)[0], 0, axis.queries
            )

        arrays = [
            cut(*looped)
            for looped in _looped_arrays(inputs.key_sets, axis, length)
        ]
        log_sums = None
        if inputs.log_sum_exp is not None:
            log_sums = cut(inputs.log_sum_exp, axis.queries)
        queries = cut(inputs.q, axis.queries)
        pieces = jnp.arange(len(queries)), queries, log_sums, arrays
        rows, unflatten = _flattened(pieces)

        def attend_piece(row: Any) -> PartialSoftmax:
            number, q, log_sum_exp, arrays = unflatten(row)
            # ``lax.map`` has the looped axis first, ``attend`` expects it at
            # ``axis.queries``.
            q = jnp.moveaxis(q, 0, axis.queries)
            if log_sum_exp is not None:
                log_sum_exp = jnp.moveaxis(log_sum_exp, 0, axis.queries)
            key_sets = _with_looped_arrays(
                inputs.key_sets, axis, length, arrays
            )
            # Every piece draws different dropout.
            dropout = inputs.dropout and inputs.dropout.fold(number)
            softmax = attend(
                BlockInputs(q, key_sets, log_sum_exp, inputs.scale, dropout)
            )
            return jax.tree.map(
                lambda x: jnp.moveaxis(x, axis.queries, 0), softmax
            )

        if recompute:
            # The loop itself keeps XLA from merging a piece with its
            # recomputation.
            attend_piece = jax.checkpoint(attend_piece, prevent_cse=False)
        return jax.tree.map(join, lax.map(attend_piece, rows))

    return attend_in_pieces


def _flattened(pieces: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Flattens every piece of the arrays [pieces, ...], and returns the inverse for one piece.

    XLA on CPUs otherwise copies an array with axes of size 1 between the
    operation that makes it and a loop, which it gives different layouts. Other
    devices, and meshes that shard an axis, would copy to flatten.
    """
    is_mesh = jax.sharding.get_abstract_mesh().size > 1
    if target_platform() != "cpu" or is_mesh:
        return pieces, lambda row: row
    shapes = jax.tree.map(lambda x: x.shape[1:], pieces)

    def unflatten(row: Any) -> Any:
        return jax.tree.map(lambda x, shape: x.reshape(shape), row, shapes)

    return jax.tree.map(lambda x: x.reshape(len(x), -1), pieces), unflatten


def _looped_arrays(
    key_sets: Sequence[KeySet], axis: Axis, length: int
) -> list[tuple[AnyArray, int]]:
    """Returns the arrays that a loop must cut, and the index of the axis in each.

    They have ``length`` entries along it; other arrays are broadcast along it,
    or do not have it.
    """
    arrays: list[tuple[AnyArray, int]] = []

    def note(x: AnyArray, dim: int) -> None:
        arrays.append((x, dim))

    for key_set in key_sets:
        _map_looped(note, key_set, axis, length)
    return arrays


def _with_looped_arrays(
    key_sets: Sequence[KeySet],
    axis: Axis,
    length: int,
    arrays: Sequence[AnyArray],
) -> list[KeySet]:
    """Returns ``key_sets`` with ``arrays`` (looped axis first) in place of ``_looped_arrays``."""
    remaining = iter(arrays)

    def replace(_: AnyArray, dim: int) -> Array:
        return jnp.moveaxis(next(remaining), 0, dim)

    return [_map_looped(replace, key_set, axis, length) for key_set in key_sets]


def _map_looped(
    function: Callable[[AnyArray, int], Any],
    key_set: KeySet,
    axis: Axis,
    length: int,
) -> KeySet:
    """Applies ``function`` to each array that the loop cuts, and to the index of its axis."""

    def visit(x: AnyArray | None, dim: int | None) -> Any:
        # Arrays of size 1 along the axis are broadcast, not cut.
        if x is None or dim is None or x.ndim <= dim or x.shape[dim] != length:
            return x
        return function(x, dim)

    k, v, mask, bias = key_set
    keys_dim = axis.own_keys if k.ndim == 5 else axis.shared_keys
    k, v, mask = (
        visit(k, keys_dim),
        visit(v, keys_dim),
        visit(mask, axis.scores),
    )
    if not isinstance(bias, LazyBias):
        return KeySet(k, v, mask, visit(bias, axis.scores))
    blocks = jax.tree.map(lambda x: visit(x, axis.scores), bias.blocks)
    arrays = tuple(visit(x, axis.bias_arrays) for x in bias.arrays)
    return KeySet(k, v, mask, LazyBias(bias.function, blocks, arrays))
