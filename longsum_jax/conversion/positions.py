"""Longer inputs for a trained model: position tables continued by their own rows, or by random
ones."""

from typing import Any, Literal, get_args

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.models.family import Family
from longsum_jax.typing import Array, Params

Extension = Literal["tiled", "random", "last_row"]
_RANDOM_STD = 0.02  # of BART's tables at their start
_SEED = 0


def extend_positions(
    family: Family,
    config: Any,
    params: Params,
    max_source_length: int,
    extension: Extension = "tiled",
) -> tuple[Any, Params]:
    """A config and parameters with positions for ``max_source_length`` tokens.

    The rows of a table of positions stay. What follows them is, with "tiled", the table again from
    its first real row on, as for LSG (Condevaux and Harispe 2022, section 3.4), the rows before
    (padding, in RoBERTa and BART) left out; with "random" drawn anew, always the same, as the Hepos
    paper says (Huang et al. 2021, section 5); with "last_row" copies of the last one, as its
    published code does. Computed positions need no new parameters. Where one size in config.json
    stands for encoder and decoder, both grow.

    Raises:
        InputError: the model has no such limit, or a higher one, or its blocks do not fit into the
            new one; an unknown extension.
    """
    if extension not in (known := get_args(Extension)):
        raise InputError(
            f'position_extension "{extension}" is unknown; {did_you_mean(extension, known)}'
        )
    limit = config.max_source_length
    if limit is None:
        raise InputError(
            f"max_source_length={max_source_length}: {family.name} reads any length; leave it out"
        )
    if max_source_length <= limit:
        raise InputError(
            f"max_source_length={max_source_length}: the model reads {limit} tokens already; give more"
        )
    longer = config.with_max_source_length(max_source_length)
    check_length(longer)
    shapes = family.parameter_shapes(longer)
    flat, rng = flax.traverse_util.flatten_dict(params, sep="/"), np.random.default_rng(_SEED)
    for path, table in sorted(flat.items()):
        if table.shape != shapes[path]:
            further = _further_rows(
                table, shapes[path][0] - len(table), config.position_offset, extension, rng
            )
            flat[path] = jnp.concatenate([table, further])
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


def _further_rows(
    table: Array, count: int, offset: int, extension: Extension, rng: np.random.Generator
) -> Array:
    """[count, D] rows to stand behind ``table`` [P, D], the first ``offset`` rows of which are no
    positions."""
    if extension == "random":
        return jnp.asarray(_RANDOM_STD * rng.standard_normal((count, table.shape[1])), table.dtype)
    if extension == "last_row":
        return jnp.tile(table[-1:], (count, 1))
    copies = -(-count // (len(table) - offset))
    return jnp.tile(table[offset:], (copies, 1))[:count]
