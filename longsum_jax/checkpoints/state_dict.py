"""Conversion between parameter trees and PyTorch state dicts, by the rows of a weight map.

Arrays are read, reshaped and passed on one row at a time, so that no model is
in memory twice.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy as shallow_copy
from functools import partial
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.models.weight_map import (
    WeightMap,
    WeightRow,
    is_close_to_constant,
    replace_all,
)
from longsum_jax.schema import compare_trees, first_names
from longsum_jax.typing import Params

# A key of one of several equal parts of an array, see
# ``weight_map.fused_linears``.
PART = re.compile(r"(.+)\[(\d+)/(\d+)\]")
# bytes; XLA's CPU client copies arrays with a different alignment
_ALIGNMENT = 64
_PIECE_BYTES = 2**20  # read and converted at a time

Shape = tuple[int, ...]


class LazyArray:
    """An array of known shape and dtype that is read on demand.

    ``np.asarray`` reads it again each time, into new memory.

    Args:
        shape: its shape.
        dtype: its dtype.
        read: function that reads it.
        read_rows: function that reads the rows from a first index to another
            one, for arrays of which a part can be read; None for others.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        read: Callable[[], np.ndarray],
        read_rows: Callable[[int, int], np.ndarray] | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._read = read
        self._read_rows = read_rows

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray:
        array = self._read()
        if dtype is None:
            return array
        return array.astype(dtype, copy=False)

    def take(self) -> np.ndarray:
        """Returns the array for the last time, and frees its source."""
        array = self._read()
        del self._read, self._read_rows
        return array

    def pieces(self) -> Iterator[np.ndarray]:
        """Yields consecutive rows, about a megabyte at a time if a part can be read."""
        if self._read_rows is None or not self.shape:
            yield self._read()
            return
        num_rows = self.shape[0]
        row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        count = max(1, _PIECE_BYTES // max(row_bytes, 1))
        for first in range(0, num_rows, count):
            yield self._read_rows(first, min(first + count, num_rows))


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Returns an uninitialized array that a CPU device can use without copying it."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def to_params(
    state: Mapping[str, Any],
    weight_map: WeightMap,
    shapes: Mapping[str, Shape],
    where: str,
    *,
    dtype: Any = np.float32,
    place: Callable[[np.ndarray], Any] = jax.device_put,
) -> Params:
    """Returns the parameter tree of a state dict.

    Args:
        state: key to array (NumPy, ``LazyArray``, or similar); read one row at
            a time.
        weight_map: names of the model's parameters.
        shapes: path ("a/b/kernel") to the shape in the model.
        where: path of the file, for error messages.
        dtype: dtype of the parameters, except for ``weight_map.exact``.
        place: function applied to each array; by default it moves the array to
            the device.

    Raises:
        InputError: lists missing, unknown and misshapen keys and keys that are
            not floats, or names a copy that differs from its original, or a key
            with NaN or infinite values.
    """
    arrays = _rename(state, weight_map, shapes)
    _drop_ignored(arrays, weight_map, shapes)
    _check(arrays, weight_map, shapes, where)
    _drop_copies(arrays, weight_map, where)
    _drop_constants(arrays, weight_map, where)
    flat = {}
    for row in weight_map.rows:
        row_dtype = weight_map.dtype(row.path, dtype)
        flat[row.path] = place(
            _read_row(row, shapes[row.path], arrays, row_dtype, where)
        )
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def to_state_dict(
    params: Params, weight_map: WeightMap
) -> dict[str, np.ndarray]:
    """Returns the state dict of a parameter tree, without tied copies.

    It is the inverse of ``to_params``.
    """
    lazy = to_lazy_state_dict(params, weight_map)
    return {key: np.asarray(value) for key, value in lazy.items()}


def to_lazy_state_dict(
    params: Params, weight_map: WeightMap, dtype: Any = None
) -> dict[str, LazyArray]:
    """Returns the state dict of a parameter tree, with arrays that are computed on demand.

    Args:
        params: parameter tree.
        weight_map: names of its parameters.
        dtype: dtype of the arrays, except for ``weight_map.exact``; None for
            the dtype of each parameter.

    Raises:
        InputError: raised on reading an array with values out of the range of
            ``dtype``.
    """
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    state = {}
    for row in weight_map.rows:
        value = flat[row.path]
        keys = _keys(row, value.shape)
        layers = range(len(keys)) if _is_stacked(row) else [None]
        for layer, key in zip(layers, keys, strict=True):
            array = _lazy_torch(row, value, layer)
            if dtype is not None:
                array = _cast(array, key, weight_map.dtype(row.path, dtype))
            state[key] = array
    state = _join_parts(state)
    for key, original in weight_map.copies.items():
        state[key] = state[original]
    for key, compute in weight_map.constants.items():
        constant = compute()
        state[key] = LazyArray(constant.shape, constant.dtype, compute)
    return state


def _join_parts(state: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
    """Returns a state dict with parts of arrays concatenated."""
    joined: dict[str, LazyArray] = {}
    for key, array in state.items():
        match = PART.fullmatch(key)
        if match is None:
            joined[key] = array
        elif match[2] == "0":
            parts = [
                state[f"{match[1]}[{i}/{match[3]}]"]
                for i in range(int(match[3]))
            ]
            shape = (sum(part.shape[0] for part in parts), *array.shape[1:])
            read = partial(_concatenate, parts)
            joined[match[1]] = LazyArray(shape, array.dtype, read)
    return joined


def _concatenate(parts: Sequence[LazyArray]) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])


def _split_parts(arrays: dict[str, Any], expected_keys: Iterable[str]) -> None:
    """Replaces arrays whose parts are expected by these parts, which are read on demand."""
    whole = dict(arrays)
    for key in expected_keys:
        match = PART.fullmatch(key)
        if match is None or match[1] not in whole:
            continue
        array, index, count = whole[match[1]], int(match[2]), int(match[3])
        if array.shape:
            size = array.shape[0] // count
        else:
            size = 0
        if size * count != (array.shape or (1,))[0]:
            continue  # reported as a missing part
        shape = (size, *array.shape[1:])
        read = partial(
            _read_part, array, slice(index * size, (index + 1) * size)
        )
        arrays[key] = LazyArray(shape, array.dtype, read)
        arrays.pop(match[1], None)


def _read_part(array: Any, rows: slice) -> np.ndarray:
    return np.array(np.asarray(array)[rows])


def _rename(
    state: Mapping[str, Any], weight_map: WeightMap, shapes: Mapping[str, Shape]
) -> dict[str, Any]:
    """Returns the arrays with the keys of the map: resolves aliases, prefix, ties and copies."""
    arrays = {}
    for key, value in state.items():
        arrays[replace_all(key, weight_map.aliases)] = value
    prefix = weight_map.prefix
    if prefix and not any(key.startswith(prefix) for key in arrays):
        expected_keys = _known_keys(weight_map, shapes)
        arrays = {
            _prefixed(key, prefix, expected_keys): value
            for key, value in arrays.items()
        }
    for copy, original in weight_map.tied.items():
        if original not in arrays and copy in arrays:
            arrays[original] = arrays.pop(copy)
    _split_parts(arrays, _known_keys(weight_map, shapes))
    _fill_absent(arrays, weight_map, shapes)
    return arrays


def _fill_absent(
    arrays: dict[str, Any], weight_map: WeightMap, shapes: Mapping[str, Shape]
) -> None:
    """Adds arrays that are stored under an alternative key, and removes copies."""
    stored = dict(arrays)
    for row in weight_map.rows:
        if not row.alternatives:
            continue
        for number, key in enumerate(_keys(row, shapes[row.path]), row.first):
            alternatives = [
                other.format(i=number) for other in row.alternatives
            ]
            present = [other for other in alternatives if other in stored]
            if key not in stored and present:
                arrays[key] = _reread(stored[present[0]])
    for key in weight_map.copies:
        arrays.pop(key, None)


def _reread(array: Any) -> LazyArray:
    """Returns an array that can be taken before or after the array of another key."""
    if isinstance(array, LazyArray):
        return shallow_copy(array)  # has references of its own to the source
    return LazyArray(array.shape, array.dtype, lambda: np.array(array))


def _prefixed(key: str, prefix: str, expected_keys: set[str]) -> str:
    """Returns the key with the prefix if only the prefixed key is known."""
    if key in expected_keys or prefix + key not in expected_keys:
        return key
    return prefix + key


def _known_keys(weight_map: WeightMap, shapes: Mapping[str, Shape]) -> set[str]:
    """Returns the keys of all parameters, copies and constants."""
    expected_keys = {
        *weight_map.tied,
        *weight_map.copies,
        *weight_map.constants,
    }
    for row in weight_map.rows:
        keys = _keys(row, shapes[row.path])
        expected_keys.update(keys)
        # The arrays that the parts belong to.
        expected_keys.update(
            match[1] for match in map(PART.fullmatch, keys) if match
        )
    return expected_keys


def _drop_ignored(
    arrays: dict[str, Any], weight_map: WeightMap, shapes: Mapping[str, Shape]
) -> None:
    """Removes the arrays that no model reads."""
    for key in arrays.keys() - _known_keys(weight_map, shapes):
        if weight_map.ignores(key):
            del arrays[key]


def _check(
    arrays: Mapping[str, Any],
    weight_map: WeightMap,
    shapes: Mapping[str, Shape],
    where: str,
) -> None:
    """Compares names, shapes and types without reading any array.

    Raises:
        InputError: lists the keys that do not match.
    """
    expected: dict[str, tuple[int, ...]] = {}
    for row in weight_map.rows:
        keys = _keys(row, shapes[row.path])
        if not row.optional or any(key in arrays for key in keys):
            expected |= dict.fromkeys(keys, _torch_shape(row, shapes[row.path]))
    copies = {*weight_map.tied, *weight_map.constants} - expected.keys()
    actual = {
        key: tuple(x.shape) for key, x in arrays.items() if key not in copies
    }
    missing, extra, misshapen = compare_trees(expected, actual)
    expected_keys = copies.union(expected)
    not_float = [
        key
        for key, x in arrays.items()
        if key in expected_keys and not _is_float(x)
    ]
    lists = {
        "missing": missing,
        "not in this model": extra,
        "of a wrong shape": [
            f"{key} {actual[key]}, not {expected[key]}" for key in misshapen
        ],
        "not of a floating-point type": [
            f"{key} {arrays[key].dtype}" for key in not_float
        ],
    }
    problems = [
        f"{problem}: {first_names(keys)}"
        for problem, keys in lists.items()
        if keys
    ]
    if problems:
        raise InputError(
            f"{where} does not fit the model of its config.json; {'; '.join(problems)}"
        )


def _drop_copies(
    arrays: dict[str, Any], weight_map: WeightMap, where: str
) -> None:
    """Removes tied copies; a copy that differs from its original is an InputError."""
    for key, original in weight_map.tied.items():
        if key in arrays and not _equal(arrays.pop(key), arrays[original]):
            check_finite(np.asarray(arrays[original]), original, where)
            raise InputError(
                f'{where}: "{key}" should be a copy of "{original}" (tied weights) but differs'
            )


def _drop_constants(
    arrays: dict[str, Any], weight_map: WeightMap, where: str
) -> None:
    """Removes arrays that the model computes; one that differs is an InputError."""
    for key, compute in weight_map.constants.items():
        if key in arrays and not is_close_to_constant(
            arrays.pop(key), compute()
        ):
            raise InputError(
                f'{where}: "{key}" differs from the table that this model computes; it cannot be '
                "used"
            )


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _read_row(
    row: WeightRow, shape: Shape, arrays: dict[str, Any], dtype: Any, where: str
) -> np.ndarray:
    """Reads one parameter and removes its arrays from ``arrays``."""
    keys = _keys(row, shape)
    # Only optional arrays can be missing here, see ``_check``.
    if keys[0] not in arrays:
        return np.zeros(shape, dtype)
    if _is_stacked(row):
        layers = (
            _to_flax(_take(arrays, key, where), row, shape[1:]) for key in keys
        )
        return _stack(layers, aligned_empty(shape, dtype))
    if arrays[keys[0]].dtype == dtype and row.layout != "linear":
        return _to_flax(_take(arrays, keys[0], where), row, shape)
    # A table in another type is never in memory as a whole.
    array, out = arrays.pop(keys[0]), aligned_empty(shape, dtype)
    rows = np.atleast_1d(_torch_view(out, row))
    first = 0
    for piece in map(np.atleast_1d, _pieces(array)):
        if not _is_finite(piece):
            check_finite(np.asarray(array), keys[0], where)
        rows[first : first + len(piece)] = piece
        first += len(piece)
    return out


def _pieces(array: Any) -> Iterator[np.ndarray]:
    """Yields consecutive rows of an array."""
    if isinstance(array, LazyArray):
        yield from array.pieces()
    else:
        yield np.asarray(array)


def _take(arrays: dict[str, Any], key: str, where: str) -> np.ndarray:
    """Removes an array, which is then never written again: a device can use its memory."""
    x = arrays.pop(key)
    if isinstance(x, LazyArray):
        x = x.take()
    else:
        x = np.array(x, order="C")
    check_finite(x, key, where)
    return x


def check_finite(x: np.ndarray, name: str, where: str) -> None:
    """Raises InputError, with the name and the file, if a float array contains NaN or infinity."""
    if not _is_finite(x):
        raise InputError(
            f'{where}: "{name}" holds {np.count_nonzero(~np.isfinite(x))} numbers that are not '
            "finite; fetch it again, or take a checkpoint from before its training diverged"
        )


def _is_finite(x: np.ndarray) -> bool:
    """Returns True for an array without NaN and infinity, with little additional memory."""
    flat = x.reshape(-1)
    return all(
        np.isfinite(flat[i : i + _PIECE_BYTES]).all()
        for i in range(0, flat.size, _PIECE_BYTES)
    )


def _stack(layers: Iterable[np.ndarray], out: np.ndarray) -> np.ndarray:
    """Copies arrays into the rows of ``out``, one at a time."""
    for i, layer in enumerate(layers):
        out[i] = layer
    return out


def _is_stacked(row: WeightRow) -> bool:
    return "{i}" in row.key


def _keys(row: WeightRow, shape: Shape) -> list[str]:
    """Returns the keys of a parameter: one, or one for each layer."""
    if not _is_stacked(row):
        return [row.key]
    return [row.key.format(i=row.first + i) for i in range(shape[0])]


def _torch_shape(row: WeightRow, shape: Shape) -> Shape:
    """Returns the state dict shape of a parameter, or of one layer of a stacked parameter."""
    if _is_stacked(row):
        shape = tuple(shape[1:])
    else:
        shape = tuple(shape)
    if row.layout == "linear":
        return math.prod(shape[row.inputs :]), math.prod(shape[: row.inputs])
    return {"same": shape, "merged": (math.prod(shape),), "row": (1, *shape)}[
        row.layout
    ]


def _to_flax(x: np.ndarray, row: WeightRow, shape: Shape) -> np.ndarray:
    """Returns a view in Flax's layout; ``_stack`` makes the transposing copy."""
    if row.layout == "linear":
        x = x.T
    return x.reshape(shape)


def _torch_view(x: np.ndarray, row: WeightRow) -> np.ndarray:
    """Returns a view of a contiguous parameter in PyTorch's layout."""
    shape = _torch_shape(row, x.shape)
    if row.layout == "linear":
        return x.reshape(shape[::-1]).T
    return x.reshape(shape)


def _lazy_torch(
    row: WeightRow, value: Any, layer: int | None = None
) -> LazyArray:
    """Returns a parameter, or one layer of a stacked parameter, in PyTorch's layout."""
    shape = _torch_shape(row, value.shape)

    def read() -> np.ndarray:
        x = np.asarray(value)
        if layer is not None:
            x = x[layer]
        if row.layout != "linear":
            return np.ascontiguousarray(x.reshape(shape))
        outputs, inputs = shape
        return np.ascontiguousarray(x.reshape(inputs, outputs).T)

    return LazyArray(shape, value.dtype, read)


def _cast(array: LazyArray, key: str, dtype: np.dtype) -> LazyArray:
    """Returns an array converted to another dtype, for a file."""

    def read() -> np.ndarray:
        x = np.asarray(array)
        with np.errstate(over="ignore"):
            rounded = x.astype(dtype)
        if np.isinf(rounded).any():
            raise InputError(
                f'"{key}" holds {np.abs(x).max():.3g}, beyond the range of {dtype}; give bfloat16'
            )
        return rounded

    return LazyArray(array.shape, dtype, read)


def _equal(a: Any, b: Any) -> bool:
    # NaN in both raises a separate error, see ``check_finite``.
    return a.shape == b.shape and np.array_equal(
        np.asarray(a), np.asarray(b), equal_nan=True
    )
