"""Names, shapes and types of the arrays in a tree."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from longsum_jax.errors import InputError
from longsum_jax.schema import compare_trees, first_names

_MOST_NAMES_SHOWN = 8


def describe(tree: Any) -> dict[str, list[Any]]:
    """Returns name to [shape, dtype name] of every array; names are paths joined by "/"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        name_of(path): [list(leaf.shape), jnp.dtype(leaf.dtype).name]
        for path, leaf in leaves
    }


def name_of(path: Any) -> str:
    """Returns a tree path as "encoder/block_0/kernel"."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def empty_tree(described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dictionaries of uninitialized arrays for the result of `describe`."""
    flat = {
        name: np.empty(shape, jnp.dtype(dtype))
        for name, (shape, dtype) in described.items()
    }
    return unflatten_dict(flat, sep="/")


def check_names(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    where: str,
    what: str,
    remedy: str = "",
) -> None:
    """Compares two `describe` results by names and shapes.

    Args:
        expected, actual: `describe` results.
        where, what: path of the file and kind of arrays, for the error message.
        remedy: end of the error message.

    Raises:
        InputError: lists missing, additional and misshapen names.
    """
    expected_shapes = {
        name: tuple(shape) for name, (shape, _) in expected.items()
    }
    actual_shapes = {name: tuple(shape) for name, (shape, _) in actual.items()}
    missing, extra, misshapen = compare_trees(expected_shapes, actual_shapes)
    misshapen = [
        f"{name} (there {actual_shapes[name]}, wanted {expected_shapes[name]})"
        for name in misshapen
    ]
    lists = {"missing": missing, "extra": extra, "misshapen": misshapen}
    problems = [
        f"{problem} {first_names(names, _MOST_NAMES_SHOWN)}"
        for problem, names in lists.items()
        if names
    ]
    if problems:
        problems += [remedy] if remedy else []
        raise InputError(
            f"{where}: the {what} do not fit this model: {'; '.join(problems)}"
        )
