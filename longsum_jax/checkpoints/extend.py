"""Longer inputs for a trained model: position tables continued by their own rows."""

from typing import Any

import flax.traverse_util
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.registry import Family
from longsum_jax.typing import Array, Params


def extend_positions(family: Family, config: Any, params: Params, max_source_length: int) -> tuple[Any, Params]:
    """A config and parameters with positions for ``max_source_length`` tokens.

    A table of positions is repeated from its first real row on, as for LSG (Condevaux and Harispe 2022, section 3.4);
    the rows before (padding, in RoBERTa and BART) stay. Computed positions need no new parameters. Where one size in
    config.json stands for encoder and decoder, both grow.

    Raises:
        InputError: the model has no such limit, or a higher one, or its blocks do not fit into the new one.
    """
    limit = config.max_source_length
    if limit is None:
        raise InputError(f"max_source_length={max_source_length}: {family.name} reads any length; leave it out")
    if max_source_length <= limit:
        raise InputError(f"max_source_length={max_source_length}: the model reads {limit} tokens already; give more")
    longer = config.with_max_source_length(max_source_length)
    check_length(longer)
    shapes = family.parameter_shapes(longer)
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    for path, table in flat.items():
        if table.shape != shapes[path]:
            flat[path] = _tiled(table, shapes[path][0], config.position_offset)
    return longer, flax.traverse_util.unflatten_dict(flat, sep="/")


def check_length(config: Any) -> None:
    """InputError unless the positions of a model with LSG attention make whole blocks.

    The published BART pads ids to whole blocks before it looks up positions.
    """
    length = config.max_source_length
    if config.encoder_attention != "lsg" or length is None or length % config.block_size == 0:
        return
    size = config.block_size
    below, above = length // size * size, -(-length // size) * size
    nearest = f"{below} and {above}" if below else f"{above}"
    raise InputError(
        f"max_source_length={length} is no multiple of block_size {size}; the nearest that fit are {nearest}"
    )


def _tiled(table: Array, rows: int, offset: int) -> Array:
    """[P, D] -> [rows, D]: the first ``offset`` rows, then the others again and again."""
    first, rest = table[:offset], table[offset:]
    copies = -(-(rows - offset) // len(rest))
    return jnp.concatenate([first, jnp.tile(rest, (copies, 1))])[:rows]
