"""Applies maps over the length of a text piece by piece, to bound memory."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.partitioning import is_on_one_cpu, sequence_sharding
from longsum_jax.typing import Array

CPU_ROWS = 512  # rows of a dense map at a time, see ``map_over_length``


def map_over_length(
    module: nn.Module, fn: Callable[..., Array], chunk: int, *arrays: Array
) -> Array:
    """``fn(module, *arrays)`` for a ``fn`` that treats positions alike, one piece of ``chunk``
    positions at a time.

    Where a mesh cuts the positions, every device goes through its own, ``chunk`` at a time.

    Args:
        module: whose parameters ``fn`` uses.
        fn: (module, *arrays [B, C, ...]) -> [B, C, D]; it must reach parameters and dropout through
            its argument.
        chunk: most positions of a piece; 0 or at least L does all of them at once. On a CPU pieces
            have CPU_ROWS rows at most, so that what is between two maps stays in its caches.
        arrays: [B, L, ...].

    Returns:
        [B, L, D].
    """
    rows, length = arrays[0].shape[:2]
    cut = sequence_sharding(rows)
    parts = cut.parts if cut and length % cut.parts == 0 else 1
    chunk = _piece_length(chunk, rows, length // parts)
    if length <= chunk * parts or module.is_initializing():
        return fn(module, *arrays)
    pieces = [_split(x, chunk, parts) for x in arrays]
    scan = nn.scan(
        lambda module, carry, xs: (carry, fn(module, *xs)),
        variable_broadcast="params",
        split_rngs={"params": False, "dropout": True},
    )
    _, out = scan(module, (), tuple(pieces))
    out = out.reshape(*out.shape[:2], parts, chunk, *out.shape[3:])
    out = jnp.moveaxis(out, 0, 2).reshape(rows, parts, -1, *out.shape[4:])
    return out[:, :, : length // parts].reshape(rows, length, *out.shape[3:])


def _piece_length(chunk: int, rows: int, length: int) -> int:
    """Positions per piece, such that pieces are about equal."""
    if is_on_one_cpu():
        chunk = min(chunk or length, max(1, CPU_ROWS // rows))
    count = -(-length // chunk) if chunk else 1
    return -(-length // count)


def _split(x: Array, chunk: int, parts: int) -> Array:
    """[B, P L, ...] -> [N, B, P C, ...]: C of every one of P parts at a time, padded with zeros."""
    x = x.reshape(x.shape[0], parts, -1, *x.shape[2:])
    x = jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % chunk)) + ((0, 0),) * (x.ndim - 3))
    x = jnp.moveaxis(x.reshape(*x.shape[:2], -1, chunk, *x.shape[3:]), 2, 0)
    return x.reshape(*x.shape[:2], parts * chunk, *x.shape[4:])
