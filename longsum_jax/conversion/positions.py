"""Longer inputs for a trained model: position tables extended by copies or by random rows."""

from typing import Literal, get_args

import flax.traverse_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.options import LsgOptions
from longsum_jax.models.config import ModelConfig
from longsum_jax.models.family import Family
from longsum_jax.typing import AnyArray, Params

Extension = Literal["tiled", "random", "last_row"]
_RANDOM_STD = 0.02  # standard deviation of BART's initial tables
_SEED = 0


def extend_positions(
    family: Family,
    config: ModelConfig,
    params: Params,
    max_source_length: int,
    extension: Extension = "tiled",
) -> tuple[ModelConfig, Params]:
    """Returns a config and parameters with positions for ``max_source_length`` tokens.

    The rows of a position table are kept. Computed positions need no new
    parameters. If one size in config.json applies to both encoder and decoder,
    both tables grow.

    Args:
        max_source_length: maximum input length in tokens, more than the current
            one.
        extension: kind of the added rows. "tiled": copies of the table without
            its first ``position_offset`` rows (padding, in RoBERTa and BART),
            as for LSG (Condevaux and Harispe 2022, section 3.4). "random":
            random rows with a fixed seed, as in the Hepos paper (Huang et al.
            2021, section 6.1). "last_row": copies of the last row, as in the
            published code of Hepos.

    Raises:
        InputError: the model has no limit or a higher one, its blocks do not
            fit the new limit, or the extension is unknown.
    """
    extensions = get_args(Extension)
    if extension not in extensions:
        raise InputError(
            f'position_extension "{extension}" is unknown; {did_you_mean(extension, extensions)}'
        )
    limit = config.max_source_length
    if limit is None:
        raise InputError(
            f"max_source_length={max_source_length}: {family.name} reads any length; leave it out"
        )
    if max_source_length <= limit:
        raise InputError(
            f"max_source_length={max_source_length}: the model reads {limit} tokens already; "
            "give more"
        )
    longer = config.with_max_source_length(max_source_length)
    check_length(longer)
    shapes = family.parameter_shapes(longer)
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    rng = np.random.default_rng(_SEED)
    for path, table in sorted(flat.items()):
        if table.shape != shapes[path]:
            count = shapes[path][0] - len(table)
            rows = _new_rows(
                table, count, config.position_offset, extension, rng
            )
            flat[path] = jnp.concatenate([table, rows])
    return longer, flax.traverse_util.unflatten_dict(flat, sep="/")


def check_length(config: ModelConfig) -> None:
    """Checks that the positions of a model with LSG attention form whole blocks.

    The published BART pads ids to whole blocks before it looks up positions.

    Raises:
        InputError: the length is not a multiple of the block; suggests the
            nearest lengths.
    """
    length = config.max_source_length
    if length is None or not isinstance(config.attention, LsgOptions):
        return
    size = config.attention.block_size
    if length % size == 0:
        return
    below, above = length // size * size, -(-length // size) * size
    if below:
        nearest = f"{below} and {above}"
    else:
        nearest = f"{above}"
    raise InputError(
        f"max_source_length={length} is not a multiple of block_size {size}; the nearest that fit "
        f"are {nearest}"
    )


def _new_rows(
    table: Float[AnyArray, "rows d_model"],
    count: int,
    offset: int,
    extension: Extension,
    rng: np.random.Generator,
) -> Float[Array, "count d_model"]:
    """Returns the rows that extend a table, whose first ``offset`` rows are not positions."""
    if extension == "random":
        return jnp.asarray(
            _RANDOM_STD * rng.standard_normal((count, table.shape[1])),
            table.dtype,
        )
    if extension == "last_row":
        return jnp.tile(table[-1:], (count, 1))
    copies = -(-count // (len(table) - offset))
    return jnp.tile(table[offset:], (copies, 1))[:count]
