"""How a parameter tree and a PyTorch state dict name the same arrays: rows of data, applied both
ways.

Arrays are read, reshaped and handed over row by row, so that neither direction holds a model twice.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.models.weight_map import WeightMap, WeightRow, is_close_to_constant
from longsum_jax.typing import Params


class LazyArray:
    """An array that ``np.asarray`` reads anew each time, into memory of its own; shape and dtype
    are known before."""

    def __init__(self, shape: Sequence[int], dtype: Any, read: Callable[[], np.ndarray]) -> None:
        self.shape, self.dtype, self._read = tuple(shape), np.dtype(dtype), read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def take(self) -> np.ndarray:
        """The array for the last time: what it is read from is let go."""
        array, self._read = self._read(), None
        return array


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Like ``np.empty``, where a CPU device can take the array over without copying it."""
    dtype, alignment = np.dtype(dtype), 64
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size].view(dtype).reshape(shape)


def to_params(
    state: Mapping[str, Any],
    table: WeightMap,
    shapes: Mapping[str, tuple[int, ...]],
    where: str,
    *,
    dtype: Any = np.float32,
    place: Callable[[np.ndarray], Any] = jax.device_put,
) -> Params:
    """Parameter tree of a state dict.

    Args:
        state: key to array (numpy, ``LazyArray``, or the like); read one row at a time.
        table: the model's names.
        shapes: flat path ("a/b/kernel") to the shape the model wants.
        where: the file, for error messages.
        dtype: of the parameters, but for ``table.exact``.
        place: what becomes of each array; by default it goes to the device.

    Raises:
        InputError: lists missing, left-over and misshapen keys and those of another type than
            float, or names a copy that differs from what it copies.
    """
    rest = _known_names(state, table, shapes)
    _check(rest, table, shapes, where)
    for key in [key for key in rest if key in table.tied]:
        if not _equal(rest.pop(key), rest[table.tied[key]]):
            raise InputError(
                f'{where}: "{key}" should be a copy of "{table.tied[key]}" (tied weights) but differs'
            )
    for key in [key for key in rest if key in table.constants]:
        if not is_close_to_constant(rest.pop(key), table.constants[key]()):
            raise InputError(
                f'{where}: "{key}" differs from the table that this model computes; it cannot be used'
            )
    flat = {
        row.path: place(_read_row(row, shapes[row.path], rest, table.dtype(row.path, dtype)))
        for row in table.rows
    }
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def to_state_dict(params: Params, table: WeightMap) -> dict[str, np.ndarray]:
    """State dict (tied copies left out) of a parameter tree; the inverse of ``to_params``."""
    return {key: np.asarray(value) for key, value in to_lazy_state_dict(params, table).items()}


def to_lazy_state_dict(params: Params, table: WeightMap) -> dict[str, LazyArray]:
    """Like ``to_state_dict``, but an array is made only when ``np.asarray`` asks for it."""
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    state = {}
    for row in table.rows:
        value = flat[row.path]
        for i, key in enumerate(_keys(row, value.shape)):
            state[key] = _lazy_torch(row, value, i if _stacked(row) else None)
    for key, compute in table.constants.items():
        constant = compute()
        state[key] = LazyArray(constant.shape, constant.dtype, compute)
    return state


def some(names: Sequence[str], limit: int = 6) -> str:
    """The first of many names, for an error message."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _known_names(
    state: Mapping[str, Any], table: WeightMap, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The state dict under the names of the table: aliases, prefix and stand-ins of tied arrays
    resolved."""
    rest = {}
    for key, value in state.items():
        for pattern, replacement in table.aliases:
            key = re.sub(pattern, replacement, key)
        rest[key] = value
    if table.prefix and not any(key.startswith(table.prefix) for key in rest):
        keys = {key for row in table.rows for key in _keys(row, shapes[row.path])}
        known = keys | table.tied.keys() | table.constants.keys()
        full = {
            key: table.prefix + key
            for key in rest
            if key not in known and table.prefix + key in known
        }
        rest = {full.get(key, key): value for key, value in rest.items()}
    for copy, original in table.tied.items():
        if original not in rest and copy in rest:
            rest[original] = rest.pop(copy)
    return rest


def _check(
    rest: dict[str, Any], table: WeightMap, shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Compares names, shapes and types, reading nothing; takes out of ``rest`` what is ignored."""
    known, missing, misshapen = {*table.tied, *table.constants}, [], []
    for row in table.rows:
        keys, wanted = _keys(row, shapes[row.path]), _torch_shape(row, shapes[row.path])
        known.update(keys)
        absent = [key for key in keys if key not in rest]
        missing += [] if row.optional and len(absent) == len(keys) else absent
        found = {key: tuple(rest[key].shape) for key in keys if key in rest}
        misshapen += [
            f"{key} {shape}, not {wanted}" for key, shape in found.items() if shape != wanted
        ]
    for key in [
        key for key in rest if key not in known and any(re.search(x, key) for x in table.ignored)
    ]:
        del rest[key]
    kinds = {
        "missing": missing,
        "not known to this model": [key for key in rest if key not in known],
        "of another shape": misshapen,
        "of a type that is no float": [
            f"{key} {x.dtype}" for key, x in rest.items() if key in known and not _is_float(x)
        ],
    }
    problems = [f"{kind}: {some(keys)}" for kind, keys in kinds.items() if keys]
    if problems:
        raise InputError(
            f"{where} does not fit the model of its config.json; {'; '.join(problems)}"
        )


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _read_row(
    row: WeightRow, shape: tuple[int, ...], rest: dict[str, Any], dtype: Any
) -> np.ndarray:
    """Reads one parameter and takes it out of ``rest``."""
    keys = _keys(row, shape)
    if keys[0] not in rest:
        return np.zeros(shape, dtype)
    if not _stacked(row):
        x = _to_flax(_own(rest.pop(keys[0])), row, shape)
        return (
            x
            if x.dtype == dtype and x.flags.c_contiguous
            else _copy([x], aligned_empty((1, *shape), dtype))[0]
        )
    parts = (_to_flax(_own(rest.pop(key)), row, shape[1:]) for key in keys)
    return _copy(parts, aligned_empty(shape, dtype))


def _own(x: Any) -> np.ndarray:
    """An array that nobody else writes to: a device may take it over."""
    return x.take() if isinstance(x, LazyArray) else np.array(x)


def _copy(parts: Iterable[np.ndarray], out: np.ndarray) -> np.ndarray:
    for i, part in enumerate(parts):
        out[i] = part
    return out


def _stacked(row: WeightRow) -> bool:
    return "{i}" in row.key


def _keys(row: WeightRow, shape: tuple[int, ...]) -> list[str]:
    return (
        [row.key.format(i=row.first + i) for i in range(shape[0])] if _stacked(row) else [row.key]
    )


def _torch_shape(row: WeightRow, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in a state dict of a parameter, or of one layer of a stacked one."""
    shape = tuple(shape[1:]) if _stacked(row) else tuple(shape)
    if row.layout == "linear":
        return math.prod(shape[row.inputs :]), math.prod(shape[: row.inputs])
    return {"same": shape, "merged": (math.prod(shape),), "row": (1, *shape)}[row.layout]


def _to_flax(x: np.ndarray, row: WeightRow, shape: tuple[int, ...]) -> np.ndarray:
    """A view: transposing waits until the array is written where it belongs."""
    return (x.T if row.layout == "linear" else x).reshape(shape)


def _lazy_torch(row: WeightRow, value: Any, layer: int | None) -> LazyArray:
    shape = _torch_shape(row, value.shape)

    def read() -> np.ndarray:
        x = np.asarray(value) if layer is None else np.asarray(value)[layer]
        x = x.reshape(shape[::-1]).T if row.layout == "linear" else x.reshape(shape)
        return np.ascontiguousarray(x)

    return LazyArray(shape, value.dtype, read)


def _equal(a: Any, b: Any) -> bool:
    return a.shape == b.shape and np.array_equal(np.asarray(a), np.asarray(b))
